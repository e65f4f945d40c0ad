//! Strict JSON without a tree: one UTF-8 document, an object at the top, nothing after it, no member twice at any level (after
//! unescaping, since one reader takes the first and another the last), bounded depth. The bytes themselves are forwarded, so what was
//! checked is what is sent.
//!
//! Every body passes here once. A policy reads what it needs on that one way ([`Document`]): what it asks for is handed to it as it passes, and
//! what it leaves is checked all the same. So the reader that checks a body is the one that reads it, and no two can differ over it.

mod scan;
mod value;

pub(crate) use value::Kind;
pub use value::{Raw, Value};

use bytes::Bytes;
use serde::Deserialize;

use scan::Scan;

/// Deepest nesting.
pub const DEPTH: usize = 64;
/// Largest body.
pub const BODY_BYTES: usize = 32 << 20;

/// Why a body goes no further: one sentence for the harness. Says the place, never the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Unfit(Box<Why>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("the body is not strict JSON: {what}, at byte {at}")]
    NotStrict { what: &'static str, at: usize },
    #[error("the request cannot be priced: {0}")]
    Unpriced(String),
}

impl Unfit {
    /// It is strict JSON, and not a request that can be priced.
    pub fn unpriced(why: impl Into<String>) -> Self {
        Self(Box::new(Why::Unpriced(why.into())))
    }

    #[cold]
    fn not_strict(what: &'static str, at: usize) -> Self {
        Self(Box::new(Why::NotStrict { what, at }))
    }
}

/// Checks a body.
///
/// # Errors
/// [`Unfit`] with what and where.
pub fn strict(body: &[u8]) -> Result<(), Unfit> {
    Scan::new(body)?.document(|scan, _, depth| scan.value(depth))
}

/// A body on its way through the strict check.
#[derive(Debug)]
pub struct Document<'b> {
    body: &'b Bytes,
    is_checked: bool,
}

impl<'b> Document<'b> {
    pub(crate) const fn new(body: &'b Bytes) -> Self {
        Self { body, is_checked: false }
    }

    /// The bytes, which need not have passed the check yet.
    #[must_use]
    pub const fn body(&self) -> &'b Bytes {
        self.body
    }

    /// Hands each member of the object at the top to `each`, in their order, as it passes the check. A value that `each` does not read is
    /// checked and passed over; an error of `each` ends it.
    ///
    /// # Errors
    /// [`Unfit`]: `each` gave it, or the body is not strict.
    pub fn members(&mut self, mut each: impl FnMut(&str, Value<'_, 'b>) -> Result<(), Unfit>) -> Result<(), Unfit> {
        Scan::new(self.body)?.document(|scan, name, depth| Value::read(scan, depth, |value| each(&name, value)))?;
        self.is_checked = true;
        Ok(())
    }

    /// Checks the whole body, then reads it as `T`: for a policy whose requests are small enough to be read twice.
    ///
    /// # Errors
    /// [`Unfit`]: the body is not strict, or no `T`.
    pub fn whole<T: Deserialize<'b>>(&mut self) -> Result<T, Unfit> {
        self.end()?;
        serde_json::from_slice(self.body).map_err(|error| Unfit::unpriced(error.to_string()))
    }

    /// Checks what has not been checked.
    pub(crate) fn end(&mut self) -> Result<(), Unfit> {
        if !self.is_checked {
            strict(self.body)?;
            self.is_checked = true;
        }
        Ok(())
    }
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

    /// What a policy may make of an error that it was given: nothing. It forgets it and goes on.
    #[test]
    fn b86_a_body_that_is_not_strict_is_refused_whatever_became_of_the_error() {
        for body in [
            r#"{"a":{"x":1,"y":2}"#,
            r#"{"a":{"x":1.,"y":2}}"#,
            r#"{"a":1.,"b":2}"#,
            r#"{"a":"\x","b":2}"#,
            r#"{"a":[{"x":1,"x":2}],"b":2}"#,
            r#"{"a":{"x":1,"y":2},"b":"\ud800"}"#,
        ] {
            let body = Bytes::from(body);
            assert!(strict(&body).is_err());
            let mut document = Document::new(&body);
            let read = document.members(|_, value| {
                let _ = match value.kind() {
                    Kind::Object => value.members(|_, _| Err(Unfit::unpriced("no"))),
                    Kind::List => value.items(|item| item.is_given().map(drop)),
                    Kind::Text => value.text().map(drop),
                    _ => value.count().map(drop),
                };
                Ok(())
            });
            assert!(read.and_then(|()| document.end()).is_err(), "{body:?}");
        }
        // What it asked for in vain is still there to be passed over.
        let body = Bytes::from(r#"{"a":{"x":1},"b":"t","c":[2,"3"],"d":1.5,"e":7}"#);
        let mut counted = Vec::new();
        let mut document = Document::new(&body);
        document
            .members(|_, value| {
                value.count().map_or(Ok(()), |count| {
                    counted.push(count);
                    Ok(())
                })
            })
            .unwrap();
        assert_eq!((counted, document.end()), (vec![Some(7)], Ok(())));
    }

    #[test]
    fn a_value_is_read_as_what_it_is_or_not_at_all() {
        let body = Bytes::from(
            r#" {"t":"a","\u0065":"\n\ud83d\ude00","n":18446744073709551615,"l":[ 1 , null],"o":{"p":{"q":true}},"z":null } "#,
        );
        let mut seen = Vec::new();
        Document::new(&body)
            .members(|name, value| {
                seen.push(match name {
                    "t" | "e" => format!("{name} {:?}", value.text()?),
                    "n" => format!("{:?}", value.count()?),
                    "l" => {
                        let mut items = Vec::new();
                        value.items(|item| {
                            items.push(item.count()?);
                            Ok(())
                        })?;
                        format!("{items:?}")
                    }
                    "o" => {
                        let raw = value.raw()?;
                        assert_eq!(body.get(raw.place), Some(raw.text.as_bytes()));
                        raw.text.to_owned()
                    }
                    _ => format!("{name} {}", value.is_given()?),
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(
            seen,
            [
                "t Some(\"a\")",
                "e Some(\"\\n😀\")",
                "Some(18446744073709551615)",
                "[Some(1), None]",
                r#"{"p":{"q":true}}"#,
                "z false",
            ]
        );
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
