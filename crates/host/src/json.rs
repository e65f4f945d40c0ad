//! Strict JSON without a tree: one UTF-8 document, an object at the top, nothing after it, no member twice at any level (after
//! unescaping, since one reader takes the first and another the last), bounded depth. The bytes themselves are forwarded, so what was
//! checked is what is sent.
//!
//! Every body passes here, and an agent's is a few hundred KiB of mostly text: eight bytes are looked at at once, and nothing is copied but
//! a member's name that has escapes. What it takes is what serde_json takes, less the above; `tests/fuzz` holds the two against each other.

use std::borrow::Cow;
use std::collections::HashSet;

/// Deepest nesting.
pub const DEPTH: usize = 64;
/// Largest body.
pub const BODY_BYTES: usize = 32 << 20;

/// Why a body is refused. Says the place, never the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not strict JSON: {what}, at byte {at}")]
pub struct NotStrict {
    what: &'static str,
    at: usize,
}

/// Checks a body.
///
/// # Errors
/// [`NotStrict`] with what and where.
pub fn strict(body: &[u8]) -> Result<(), NotStrict> {
    read(body, None).map(drop)
}

/// Checks a body, and makes its outline: the same document with every text that is longer than [`LONG`] empty where it stands for a value.
///
/// # Errors
/// As [`strict`].
pub fn outline(body: &[u8]) -> Result<Vec<u8>, NotStrict> {
    // Most of an agent's body is such text.
    let mut reader = read(body, Some(Vec::with_capacity(body.len() / 4)))?;
    let mut outline = reader.outline.take().unwrap_or_default();
    outline.extend_from_slice(body.get(reader.outlined..).unwrap_or_default());
    Ok(outline)
}

/// The longest text, in bytes as it is written, that an outline has.
pub const LONG: usize = 256;

fn read(body: &[u8], outline: Option<Vec<u8>>) -> Result<Reader<'_>, NotStrict> {
    let refused = |what, at| NotStrict { what, at };
    std::str::from_utf8(body).map_err(|error| refused("it must be UTF-8", error.valid_up_to()))?;
    let mut reader = Reader { body, rest: body, names: Vec::new(), outline, outlined: 0 };
    match reader.document() {
        Ok(()) => Ok(reader),
        Err(what) => Err(refused(what, reader.at())),
    }
}

type Read = Result<(), &'static str>;

/// The bytes that are still to be read, which are UTF-8, and the names of every object that is open.
struct Reader<'a> {
    body: &'a [u8],
    rest: &'a [u8],
    names: Vec<Cow<'a, [u8]>>,
    /// What has gone into the outline, if one is made, and up to which byte of the body it goes.
    outline: Option<Vec<u8>>,
    outlined: usize,
}

/// Names that are compared one by one: most objects have a handful, for which a walk beats a hash.
const FEW: usize = 16;

impl<'a> Reader<'a> {
    const fn at(&self) -> usize {
        self.body.len().saturating_sub(self.rest.len())
    }

    /// Leaves the text out of the outline that began at `start` and whose closing quote was just read, if it is long.
    fn leave_out(&mut self, start: usize) {
        let end = self.at().saturating_sub(1);
        if let Some(outline) = &mut self.outline
            && end.saturating_sub(start) > LONG
        {
            outline.extend_from_slice(self.body.get(self.outlined..start).unwrap_or_default());
            self.outlined = end;
        }
    }

    fn document(&mut self) -> Read {
        self.space();
        if !self.rest.starts_with(b"{") {
            return Err("it must be one object");
        }
        self.value(0)?;
        self.space();
        if self.rest.is_empty() { Ok(()) } else { Err("something follows the object") }
    }

    fn space(&mut self) {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// A value at its first byte; `depth` containers are open around it.
    fn value(&mut self, depth: usize) -> Read {
        match self.rest {
            [b'"', rest @ ..] => {
                self.rest = rest;
                let start = self.at();
                self.string()?;
                self.leave_out(start);
                Ok(())
            }
            [b'{', rest @ ..] => {
                let inner = deeper(depth)?;
                self.rest = rest;
                self.object(inner)
            }
            [b'[', rest @ ..] => {
                let inner = deeper(depth)?;
                self.rest = rest;
                self.array(inner)
            }
            [b't', b'r', b'u', b'e', rest @ ..]
            | [b'f', b'a', b'l', b's', b'e', rest @ ..]
            | [b'n', b'u', b'l', b'l', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Read {
        let (start, mut many) = (self.names.len(), None);
        self.space();
        if let [b'}', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        loop {
            let [b'"', name @ ..] = self.rest else { return Err("a member's name is missing") };
            self.rest = name;
            let escaped = self.string()?;
            let name = name.get(..name.len().saturating_sub(self.rest.len()).saturating_sub(1)).unwrap_or_default();
            if !self.insert(start, &mut many, if escaped { unescaped(name)? } else { Cow::Borrowed(name) }) {
                return Err("a member stands twice in one object");
            }
            self.space();
            let [b':', value @ ..] = self.rest else { return Err("a colon is missing") };
            self.rest = value;
            self.space();
            self.value(depth)?;
            self.space();
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b'}', rest @ ..] => {
                    self.rest = rest;
                    self.names.truncate(start);
                    return Ok(());
                }
                _ => return Err("an object goes on with a comma or ends"),
            }
            self.space();
        }
    }

    /// Whether the name is new in the object whose names begin at `start`.
    fn insert(&mut self, start: usize, many: &mut Option<HashSet<Cow<'a, [u8]>>>, name: Cow<'a, [u8]>) -> bool {
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

    fn array(&mut self, depth: usize) -> Read {
        self.space();
        if let [b']', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.space();
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b']', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                _ => return Err("a list goes on with a comma or ends"),
            }
            self.space();
        }
    }

    /// A text behind its opening quote; whether it has escapes.
    fn string(&mut self) -> Result<bool, &'static str> {
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
                    self.rest = surrogates(digits)?;
                    escaped = true;
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => {
                    self.rest = rest;
                    escaped = true;
                }
                [b'\\', ..] => return Err("no such escape"),
                [0..0x20, ..] => return Err("a control character in a text"),
                [_, rest @ ..] => self.rest = rest,
                [] => return Err("a text has no end"),
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
            _ => return Err("a value is missing"),
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
        if number.is_some_and(f64::is_finite) { Ok(()) } else { Err("a number out of range") }
    }

    fn digits(&mut self) -> Read {
        let before = self.rest.len();
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.len() < before { Ok(()) } else { Err("a digit is missing") }
    }
}

/// A number of at most so many characters and without an exponent is in the range of a double.
const PLAIN_DIGITS: usize = 300;

fn deeper(depth: usize) -> Result<usize, &'static str> {
    if depth >= DEPTH { Err("nested deeper than 64") } else { Ok(depth.saturating_add(1)) }
}

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

/// A name whose escapes were checked.
fn unescaped(name: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    let quoted = [b"\"", name, b"\""].concat();
    let text = serde_json::from_slice::<String>(&quoted).map_err(|_| "a name that cannot be read")?;
    Ok(Cow::Owned(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b86_what_two_readers_could_read_differently_is_refused() {
        let deep = format!("{}1{}", "{\"a\":".repeat(DEPTH + 1), "}".repeat(DEPTH + 1));
        let many = format!("{{{},\"k3\":1}}", (0..40).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(","));
        let cases: &[&[u8]] = &[
            br#"{"a":1,"a":2}"#,
            br#"{"x":{"max\u005ftokens":1,"max_tokens":2}}"#,
            br#"[{"a":1}]"#,
            br#""text""#,
            br"",
            br#"{"a":1} {"b":2}"#,
            br#"{"a":1}x"#,
            b"\xef\xbb\xbf{\"a\":1}",
            b"{\"a\":\"\xff\"}",
            br#"{"a":NaN}"#,
            br#"{"a":1e999}"#,
            br#"{"a":"\ud800"}"#,
            b"{\"a\":\"\x01\"}",
            br#"{"a":1,}"#,
            br#"{"a":01}"#,
            deep.as_bytes(),
            many.as_bytes(),
        ];
        for case in cases {
            assert!(strict(case).is_err(), "{}", String::from_utf8_lossy(case));
        }
    }

    #[test]
    fn an_outline_is_the_same_document_without_its_long_texts() {
        let (long, short) = ("\\n\\\"é".repeat(60), "s".repeat(LONG));
        let made = |text: &str| {
            format!(
                r#" {{"a":"{text}","{long}":[{{"b":"{short}"}},"{text}",-1.5e3,""],"c":{{"d":"{text}"}},"e":null}} "#
            )
        };
        assert_eq!(outline(made(&long).as_bytes()).unwrap(), made("").into_bytes());
        assert_eq!(outline(b"{}").unwrap(), b"{}");
        assert!(outline(br#"{"a":1,"a":2}"#).is_err());
    }

    #[test]
    fn plain_json_passes() {
        let deep = format!("{}1{}", "{\"a\":".repeat(DEPTH), "}".repeat(DEPTH));
        let many = format!("{{{}}}", (0..40).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(","));
        for body in [" {} ", r#"{"a":{"b":1},"c":{"b":[true,null,-1.5e3,"\ud83d\ude00 \" \\"]}}"#, &deep, &many] {
            assert_eq!(strict(body.as_bytes()), Ok(()), "{body}");
        }
    }
}
