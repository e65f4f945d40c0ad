//! One value of a body, before it is read. Whoever has it reads it in one way, or leaves it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::Unfit;
use super::scan::Scan;

/// A value that is still to be read, once; each way takes it. One that is not read is checked all the same.
pub struct Value<'s, 'b> {
    scan: &'s mut Scan<'b>,
    depth: usize,
}

impl fmt::Debug for Value<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").field("at", &self.scan.at()).finish_non_exhaustive()
    }
}

/// What a value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Flag,
    Number,
    Text,
    List,
    Object,
}

/// A value as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw<'b> {
    /// Its bytes, without blanks around it.
    pub text: &'b str,
    /// Where they stand in the body.
    pub place: Range<usize>,
}

impl<'s, 'b> Value<'s, 'b> {
    /// Gives a value to `by`, and goes behind it.
    #[inline]
    pub(super) fn read(
        scan: &'s mut Scan<'b>,
        depth: usize,
        by: impl FnOnce(Value<'_, 'b>) -> Result<(), Unfit>,
    ) -> Result<(), Unfit> {
        let start = scan.at();
        by(Value { scan: &mut *scan, depth })?;
        if scan.at() == start { scan.value(depth) } else { Ok(()) }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.scan.next() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Flag,
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::List,
            Some(b'{') => Kind::Object,
            // And what is no value at all: that shows when it is read.
            _ => Kind::Number,
        }
    }

    /// The error that something else must stand here.
    #[cold]
    pub(crate) fn must_be(&self, what: impl fmt::Display) -> Unfit {
        Unfit::unpriced(format!("at byte {} there must be {what}", self.scan.at()))
    }

    fn skip<T>(self, is: T) -> Result<T, Unfit> {
        self.scan.value(self.depth)?;
        Ok(is)
    }

    /// Whether it is anything but `null`.
    ///
    /// # Errors
    /// [`Unfit`]: it is not strict.
    pub fn is_given(self) -> Result<bool, Unfit> {
        let is_given = self.kind() != Kind::Null;
        self.skip(is_given)
    }

    /// A text, borrowed where it has no escapes; `null` is none.
    ///
    /// # Errors
    /// [`Unfit`]: it is something else, or not strict.
    pub fn text(self) -> Result<Option<Cow<'b, str>>, Unfit> {
        match self.kind() {
            Kind::Null => self.skip(None),
            Kind::Text => self.scan.text().map(Some),
            _ => Err(self.must_be("a text")),
        }
    }

    /// A count: digits and nothing else; `null` is none.
    ///
    /// # Errors
    /// [`Unfit`]: it is something else, too large, or not strict.
    pub fn count(self) -> Result<Option<u64>, Unfit> {
        match self.kind() {
            Kind::Null => self.skip(None),
            Kind::Number => {
                let wrong = self.must_be("a whole number");
                let count = self.raw()?.text.parse();
                count.map(Some).map_err(|_| wrong)
            }
            _ => Err(self.must_be("a whole number")),
        }
    }

    /// `true` or `false`; `null` is none.
    ///
    /// # Errors
    /// [`Unfit`]: it is something else, or not strict.
    pub fn flag(self) -> Result<Option<bool>, Unfit> {
        match self.kind() {
            Kind::Null => self.skip(None),
            Kind::Flag => Ok(Some(self.raw()?.text == "true")),
            _ => Err(self.must_be("true or false")),
        }
    }

    /// Anything, as it is written.
    ///
    /// # Errors
    /// [`Unfit`]: it is not strict.
    pub fn raw(self) -> Result<Raw<'b>, Unfit> {
        let start = self.scan.at();
        self.scan.value(self.depth)?;
        Ok(Raw { text: self.scan.since(start), place: start..self.scan.at() })
    }

    /// An object: each of its members, in their order, as [`Document::members`](super::Document::members) hands them.
    ///
    /// # Errors
    /// [`Unfit`]: it is something else, `each` gave it, or it is not strict.
    pub fn members(self, mut each: impl FnMut(&str, Value<'_, 'b>) -> Result<(), Unfit>) -> Result<(), Unfit> {
        if self.kind() != Kind::Object {
            return Err(self.must_be("an object"));
        }
        self.scan.object(self.depth, |scan, name, depth| Value::read(scan, depth, |value| each(&name, value)))
    }

    /// A list: each of its items, in their order.
    ///
    /// # Errors
    /// [`Unfit`]: it is something else, `each` gave it, or it is not strict.
    pub fn items(self, mut each: impl FnMut(Value<'_, 'b>) -> Result<(), Unfit>) -> Result<(), Unfit> {
        if self.kind() != Kind::List {
            return Err(self.must_be("a list"));
        }
        self.scan.array(self.depth, |scan, depth| Value::read(scan, depth, &mut each))
    }
}
