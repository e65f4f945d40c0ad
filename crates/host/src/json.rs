//! Strict JSON without a tree: one UTF-8 document, an object at the top, nothing after it, no member twice at any level (after
//! unescaping, since one reader takes the first and another the last), bounded depth. The bytes themselves are forwarded, so what was
//! checked is what is sent.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Deepest nesting.
pub const DEPTH: usize = 64;
/// Largest body.
pub const BODY_BYTES: usize = 32 << 20;

/// Why a body is refused. Says the place, never the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not strict JSON: {0}")]
pub struct NotStrict(String);

/// Checks a body.
///
/// # Errors
/// [`NotStrict`] with what and where.
pub fn strict(body: &[u8]) -> Result<(), NotStrict> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(NotStrict("it must be one object".to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let done = Value { depth: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    done.map_err(|error| NotStrict(error.to_string()))
}

struct Value {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        while items.next_element_seed(Self { depth })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        let mut names = Names::default();
        while let Some(Name(name)) = members.next_key::<Name<'de>>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("a member stands twice in one object"));
            }
            members.next_value_seed(Self { depth })?;
        }
        Ok(())
    }
}

struct Name<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member's name")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The names of one object: most objects have a handful, for which a walk beats a hash.
#[derive(Default)]
struct Names<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

/// Names that are compared one by one.
const FEW: usize = 16;

impl<'de> Names<'de> {
    fn insert(&mut self, name: Cow<'de, str>) -> bool {
        if self.many.is_empty() && self.few.len() < FEW {
            let fresh = !self.few.contains(&name);
            self.few.push(name);
            return fresh;
        }
        if self.many.is_empty() {
            self.many.extend(self.few.drain(..));
        }
        self.many.insert(name)
    }
}

fn deeper<E: serde::de::Error>(depth: usize) -> Result<usize, E> {
    if depth >= DEPTH { Err(E::custom(format!("nested deeper than {DEPTH}"))) } else { Ok(depth.saturating_add(1)) }
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
    fn plain_json_passes() {
        let deep = format!("{}1{}", "{\"a\":".repeat(DEPTH), "}".repeat(DEPTH));
        let many = format!("{{{}}}", (0..40).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(","));
        for body in [" {} ", r#"{"a":{"b":1},"c":{"b":[true,null,-1.5e3,"\ud83d\ude00 \" \\"]}}"#, &deep, &many] {
            assert_eq!(strict(body.as_bytes()), Ok(()), "{body}");
        }
    }
}
