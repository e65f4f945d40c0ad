//! Reads a request part by part into what a quote looks at: borrowed, without a tree, in one pass behind the strict one. A policy says of
//! each kind of object which members it looks at ([`Part`]); the walk is the same for all.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use agentrun_cap::RequestFacts;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub(super) type Text<'de> = Cow<'de, str>;

/// A borrowed text where there is one; `Cow`'s own `Deserialize` always copies.
#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Text<'a>);

/// One kind of object inside a request, while it is read.
pub(super) trait Part<'de>: Default {
    /// What it is called where something else stands in its place.
    const WHAT: &'static str;
    /// Whether a list of them may also be a plain text, or one of them alone.
    const OR_TEXT: bool = false;

    /// Reads the value of one member off `members`, whether it matters or not.
    fn member<A: MapAccess<'de>>(
        &mut self,
        facts: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error>;

    /// It was read whole.
    fn end(self, _: &mut RequestFacts) {}
}

/// Reads the object at the top of a body that passed the strict check.
///
/// # Errors
/// One sentence on the member that cannot be read.
pub(super) fn read<'de, T: Part<'de>>(body: &'de [u8], facts: &mut RequestFacts) -> Result<T, String> {
    One(facts, PhantomData)
        .deserialize(&mut serde_json::Deserializer::from_slice(body))
        .map_err(|error| unreadable(&error))
}

pub(super) fn unreadable(why: &impl fmt::Display) -> String {
    format!("the request cannot be priced: {why}")
}

/// Reads a list of parts; `null` is none.
pub(super) fn many<'de, T: Part<'de>, A: MapAccess<'de>>(
    facts: &mut RequestFacts,
    members: &mut A,
) -> Result<(), A::Error> {
    members.next_value_seed(Many::<T>(facts, PhantomData))
}

/// Reads a text or `null`.
pub(super) fn text<'de, A: MapAccess<'de>>(members: &mut A) -> Result<Option<Text<'de>>, A::Error> {
    Ok(members.next_value::<Option<Borrowed<'de>>>()?.map(|text| text.0))
}

/// Reads anything, and whether it was something: an absent member and `null` mean the same to providers.
pub(super) fn is_given<'de, A: MapAccess<'de>>(members: &mut A) -> Result<bool, A::Error> {
    Ok(members.next_value::<Option<IgnoredAny>>()?.is_some())
}

/// Reads a member that no policy knows: what it may spend is not known either.
pub(super) fn unknown<'de, A: MapAccess<'de>>(
    facts: &mut RequestFacts,
    name: Text<'de>,
    members: &mut A,
) -> Result<(), A::Error> {
    if is_given(members)? {
        facts.escapes.push(name.into_owned());
    }
    Ok(())
}

struct One<'f, T>(&'f mut RequestFacts, PhantomData<T>);

impl<'de, T: Part<'de>> DeserializeSeed<'de> for One<'_, T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Part<'de>> Visitor<'de> for One<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<T, A::Error> {
        let mut part = T::default();
        while let Some(Borrowed(name)) = members.next_key()? {
            part.member(self.0, name, &mut members)?;
        }
        Ok(part)
    }
}

struct Many<'f, T>(&'f mut RequestFacts, PhantomData<T>);

impl<'de, T: Part<'de>> DeserializeSeed<'de> for Many<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Part<'de>> Visitor<'de> for Many<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if T::OR_TEXT { write!(f, "a text or a list, each {}", T::WHAT) } else { write!(f, "a list, each {}", T::WHAT) }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if T::OR_TEXT { Ok(()) } else { Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(part) = items.next_element_seed(One::<T>(&mut *self.0, PhantomData))? {
            part.end(self.0);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        if !T::OR_TEXT {
            return Err(serde::de::Error::invalid_type(serde::de::Unexpected::Map, &self));
        }
        One::<T>(&mut *self.0, PhantomData).visit_map(members)?.end(self.0);
        Ok(())
    }
}
