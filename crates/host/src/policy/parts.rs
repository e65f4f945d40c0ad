//! Reads a request part by part into what a quote looks at, on the way through the strict check. A policy says of each kind of object which
//! members it looks at ([`Part`]); the walk is the same for all.

use std::borrow::Cow;

use agentrun_cap::RequestFacts;

use crate::json::{Document, Kind, Unfit, Value};

pub(super) type Text<'b> = Cow<'b, str>;

/// One kind of object inside a request, while it is read.
pub(super) trait Part<'b>: Default {
    /// What it is called where something else stands in its place.
    const WHAT: &'static str;
    /// Whether a list of them may also be a plain text, or one of them alone.
    const OR_TEXT: bool = false;

    /// Looks at one member. What it does not read is passed over.
    ///
    /// # Errors
    /// It is not what it must be.
    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit>;

    /// It was read whole.
    fn end(self, _: &mut RequestFacts) {}
}

/// Reads the object at the top.
///
/// # Errors
/// [`Unfit`].
pub(super) fn read<'b, T: Part<'b>>(request: &mut Document<'b>, facts: &mut RequestFacts) -> Result<T, Unfit> {
    let mut top = T::default();
    request.members(|name, value| top.member(facts, name, value))?;
    Ok(top)
}

/// A member that has to be there.
///
/// # Errors
/// It is not.
pub(super) fn needed<T>(given: Option<T>, name: &str) -> Result<T, Unfit> {
    given.ok_or_else(|| Unfit::unpriced(format!("`{name}` is missing")))
}

/// Reads a list of parts; `null` is none.
///
/// # Errors
/// It is something else.
pub(super) fn many<'b, T: Part<'b>>(facts: &mut RequestFacts, value: Value<'_, 'b>) -> Result<(), Unfit> {
    match value.kind() {
        Kind::Null => Ok(()),
        Kind::Text if T::OR_TEXT => Ok(()),
        Kind::Object if T::OR_TEXT => one::<T>(facts, value),
        Kind::List => value.items(|item| one::<T>(facts, item)),
        _ if T::OR_TEXT => Err(value.must_be(format_args!("a text or a list, each {}", T::WHAT))),
        _ => Err(value.must_be(format_args!("a list, each {}", T::WHAT))),
    }
}

fn one<'b, T: Part<'b>>(facts: &mut RequestFacts, value: Value<'_, 'b>) -> Result<(), Unfit> {
    if value.kind() != Kind::Object {
        return Err(value.must_be(T::WHAT));
    }
    let mut part = T::default();
    value.members(|name, value| part.member(facts, name, value))?;
    part.end(facts);
    Ok(())
}

/// Reads the `type` of an object that has to have one.
///
/// # Errors
/// It is no such object.
pub(super) fn kind<'b>(value: Value<'_, 'b>, what: &str) -> Result<Text<'b>, Unfit> {
    if value.kind() != Kind::Object {
        return Err(value.must_be(what));
    }
    let mut kind = None;
    value.members(|name, value| {
        if name == "type" {
            kind = value.text()?;
        }
        Ok(())
    })?;
    needed(kind, "type")
}

/// A member that no policy knows: what it may spend is not known either.
///
/// # Errors
/// It is not strict.
pub(super) fn unknown(facts: &mut RequestFacts, name: &str, value: Value<'_, '_>) -> Result<(), Unfit> {
    if value.is_given()? {
        facts.escapes.push(name.to_owned());
    }
    Ok(())
}
