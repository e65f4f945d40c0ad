//! The scanner. Every body passes here, and an agent's is a few hundred KiB of mostly text: eight bytes are looked at at once, and nothing is
//! copied but a member's name that has escapes. What it takes is what serde_json takes, less what the module says; `tests/fuzz` holds the two
//! against each other.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{DEPTH, Unfit};

type Read<T = ()> = Result<T, Unfit>;

/// The bytes that are still to be read, which are UTF-8, and the names of every object that is open.
pub(super) struct Scan<'b> {
    body: &'b str,
    rest: &'b [u8],
    names: Vec<Cow<'b, str>>,
    /// Something was wrong. Whoever goes on regardless is somewhere in the middle, where nothing is what it seems to be.
    failed: bool,
}

/// Names that are compared one by one: most objects have a handful, for which a walk beats a hash.
const FEW: usize = 16;

impl<'b> Scan<'b> {
    pub(super) fn new(body: &'b [u8]) -> Read<Self> {
        let body =
            std::str::from_utf8(body).map_err(|error| Unfit::not_strict("it must be UTF-8", error.valid_up_to()))?;
        Ok(Self { body, rest: body.as_bytes(), names: Vec::new(), failed: false })
    }

    /// The whole body; each member of the object at the top is given to `each` as [`object`](Self::object) does.
    pub(super) fn document(mut self, each: impl FnMut(&mut Self, Cow<'b, str>, usize) -> Read) -> Read {
        self.space();
        if self.next() != Some(b'{') {
            return Err(self.wrong("it must be one object"));
        }
        self.object(0, each)?;
        self.space();
        if self.failed {
            return Err(self.wrong("it was not read to its end"));
        }
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("something follows the object")) }
    }

    /// How far it is read.
    pub(super) const fn at(&self) -> usize {
        self.body.len().saturating_sub(self.rest.len())
    }

    /// The next byte. A value begins with it once the blanks are read.
    pub(super) fn next(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// What was read since `start`.
    pub(super) fn since(&self, start: usize) -> &'b str {
        self.body.get(start..self.at()).unwrap_or_default()
    }

    #[cold]
    fn wrong(&mut self, what: &'static str) -> Unfit {
        self.failed = true;
        Unfit::not_strict(what, self.at())
    }

    fn space(&mut self) {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// A value at its first byte; `depth` containers are open around it.
    pub(super) fn value(&mut self, depth: usize) -> Read {
        match self.rest {
            [b'"', rest @ ..] => {
                self.rest = rest;
                self.string().map(drop)
            }
            [b'{', ..] => self.object(depth, |scan, _, depth| scan.value(depth)),
            [b'[', ..] => self.array(depth, Self::value),
            [b't', b'r', b'u', b'e', rest @ ..]
            | [b'f', b'a', b'l', b's', b'e', rest @ ..]
            | [b'n', b'u', b'l', b'l', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            _ => self.number(),
        }
    }

    /// An object at its first byte. `each` gets the name of each member and the depth of its value, which it reads.
    #[inline]
    pub(super) fn object(
        &mut self,
        depth: usize,
        mut each: impl FnMut(&mut Self, Cow<'b, str>, usize) -> Read,
    ) -> Read {
        let depth = self.open(depth)?;
        let (start, mut many) = (self.names.len(), None);
        self.space();
        if let [b'}', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(self.wrong("a member's name is missing"));
            }
            let name = self.text()?;
            if !self.insert(start, &mut many, name.clone()) {
                return Err(self.wrong("a member stands twice in one object"));
            }
            self.space();
            let [b':', value @ ..] = self.rest else { return Err(self.wrong("a colon is missing")) };
            self.rest = value;
            self.space();
            each(self, name, depth).inspect_err(|_| self.failed = true)?;
            self.space();
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b'}', rest @ ..] => {
                    self.rest = rest;
                    self.names.truncate(start);
                    return Ok(());
                }
                _ => return Err(self.wrong("an object goes on with a comma or ends")),
            }
            self.space();
        }
    }

    /// A list at its first byte. `each` gets the depth of each item, which it reads.
    #[inline]
    pub(super) fn array(&mut self, depth: usize, mut each: impl FnMut(&mut Self, usize) -> Read) -> Read {
        let depth = self.open(depth)?;
        self.space();
        if let [b']', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        loop {
            each(self, depth).inspect_err(|_| self.failed = true)?;
            self.space();
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b']', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                _ => return Err(self.wrong("a list goes on with a comma or ends")),
            }
            self.space();
        }
    }

    /// Goes into a container.
    fn open(&mut self, depth: usize) -> Read<usize> {
        if depth >= DEPTH {
            return Err(self.wrong("nested deeper than 64"));
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        Ok(depth.saturating_add(1))
    }

    /// A text at its opening quote.
    pub(super) fn text(&mut self) -> Read<Cow<'b, str>> {
        let start = self.at();
        self.rest = self.rest.get(1..).unwrap_or_default();
        let escaped = self.string()?;
        let quoted = self.since(start);
        if escaped {
            // Its escapes were checked.
            return serde_json::from_str(quoted).map(Cow::Owned).map_err(|_| self.wrong("a text that cannot be read"));
        }
        Ok(Cow::Borrowed(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()))
    }

    /// Whether the name is new in the object whose names begin at `start`.
    fn insert(&mut self, start: usize, many: &mut Option<HashSet<Cow<'b, str>>>, name: Cow<'b, str>) -> bool {
        if let Some(many) = many {
            return many.insert(name);
        }
        let few = self.names.get(start..).unwrap_or_default();
        if few.len() < FEW {
            let fresh = !few.contains(&name);
            self.names.push(name);
            return fresh;
        }
        many.insert(self.names.drain(start..).collect()).insert(name)
    }

    /// A text behind its opening quote; whether it has escapes.
    fn string(&mut self) -> Read<bool> {
        let mut escaped = false;
        loop {
            while let Some((eight, rest)) = self.rest.split_first_chunk::<8>() {
                let special = specials(u64::from_le_bytes(*eight));
                if special != 0 {
                    let plain = usize::try_from(special.trailing_zeros() / 8).unwrap_or_default();
                    self.rest = self.rest.get(plain..).unwrap_or_default();
                    break;
                }
                self.rest = rest;
            }
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(escaped);
                }
                [b'\\', b'u', digits @ ..] => {
                    self.rest = surrogates(digits).map_err(|what| self.wrong(what))?;
                    escaped = true;
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => {
                    self.rest = rest;
                    escaped = true;
                }
                [b'\\', ..] => return Err(self.wrong("no such escape")),
                [0..0x20, ..] => return Err(self.wrong("a control character in a text")),
                [_, rest @ ..] => self.rest = rest,
                [] => return Err(self.wrong("a text has no end")),
            }
        }
    }

    fn number(&mut self) -> Read {
        let text = self.rest;
        if let [b'-', rest @ ..] = self.rest {
            self.rest = rest;
        }
        match self.rest {
            [b'0', rest @ ..] => self.rest = rest,
            [b'1'..=b'9', ..] => self.digits()?,
            _ => return Err(self.wrong("a value is missing")),
        }
        if let [b'.', rest @ ..] = self.rest {
            self.rest = rest;
            self.digits()?;
        }
        let mut is_plain = true;
        if let [b'e' | b'E', rest @ ..] = self.rest {
            is_plain = false;
            self.rest = if let [b'+' | b'-', rest @ ..] = rest { rest } else { rest };
            self.digits()?;
        }
        let text = text.get(..text.len().saturating_sub(self.rest.len())).unwrap_or_default();
        if is_plain && text.len() <= PLAIN_DIGITS {
            return Ok(());
        }
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        if number.is_some_and(f64::is_finite) { Ok(()) } else { Err(self.wrong("a number out of range")) }
    }

    fn digits(&mut self) -> Read {
        let before = self.rest.len();
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.len() < before { Ok(()) } else { Err(self.wrong("a digit is missing")) }
    }
}

/// A number of at most so many characters and without an exponent is in the range of a double.
const PLAIN_DIGITS: usize = 300;

/// The highest bit of each byte that a text cannot hold as it is: a quote, a backslash, a control character. Above the lowest of them bits may
/// be set by its borrow, so only the lowest is to be believed.
const fn specials(eight: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let quotes = eight ^ (EACH * 0x22);
    let slashes = eight ^ (EACH * 0x5c);
    (eight.wrapping_sub(EACH * 0x20) & !eight
        | quotes.wrapping_sub(EACH) & !quotes
        | slashes.wrapping_sub(EACH) & !slashes)
        & HIGH
}

/// Behind `\u`: four digits, or two halves of a surrogate pair with their four each. What follows them.
fn surrogates(digits: &[u8]) -> Result<&[u8], &'static str> {
    let (first, rest) = unit(digits)?;
    match first {
        0xd800..0xdc00 => match rest {
            [b'\\', b'u', digits @ ..] => match unit(digits)? {
                (0xdc00..0xe000, rest) => Ok(rest),
                _ => Err("half a surrogate pair"),
            },
            _ => Err("half a surrogate pair"),
        },
        0xdc00..0xe000 => Err("half a surrogate pair"),
        _ => Ok(rest),
    }
}

fn unit(digits: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    let (four, rest) = digits.split_first_chunk::<4>().ok_or("an escape has no end")?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let unit = four.iter().try_fold(0, |unit, byte| Some(unit << 4 | digit(byte)?));
    Ok((unit.ok_or("an escape without its digits")?, rest))
}
