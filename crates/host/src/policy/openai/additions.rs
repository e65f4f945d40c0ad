//! What a policy puts into a body: members at the top, each in the place of one that says nothing or in front of the first. All other
//! bytes stay as they came, so that what the provider caches by its beginning still has it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::de::MapAccess;
use serde_json::value::RawValue;

/// A member of a request, as far as a policy may change it.
pub(super) type Given<'b> = Option<&'b RawValue>;

/// Reads a member where it stands. Not as an `Option`: a `null` would be taken for an absent one, and set a second time.
pub(super) fn given<'b, A: MapAccess<'b>>(members: &mut A) -> Result<Given<'b>, A::Error> {
    members.next_value::<&'b RawValue>().map(Some)
}

/// The changes to one body.
pub(super) struct Additions<'b> {
    body: &'b [u8],
    first: String,
    replaced: Vec<(Range<usize>, String)>,
}

impl<'b> Additions<'b> {
    pub(super) const fn to(body: &'b [u8]) -> Self {
        Self { body, first: String::new(), replaced: Vec::new() }
    }

    /// Sets a member: over the value it has, if it is there.
    pub(super) fn set(&mut self, name: &str, given: Given<'b>, value: &str) {
        match given.and_then(|given| self.place(given)) {
            Some(place) => self.replaced.push((place, value.to_owned())),
            None => {
                self.first.push_str(&format!("\"{name}\":{value},"));
            }
        }
    }

    /// Where a value stands: it was borrowed from this very body.
    fn place(&self, given: &RawValue) -> Option<Range<usize>> {
        let text = given.get().as_bytes();
        let start = text.as_ptr().addr().checked_sub(self.body.as_ptr().addr())?;
        let place = start..start.checked_add(text.len())?;
        (self.body.get(place.clone()) == Some(text)).then_some(place)
    }

    /// The body with the changes; `None` when there are none.
    pub(super) fn made(mut self) -> Option<Bytes> {
        if self.first.is_empty() && self.replaced.is_empty() {
            return None;
        }
        let opening = self.body.iter().position(|byte| *byte == b'{')?.checked_add(1)?;
        self.replaced.push((opening..opening, self.first));
        self.replaced.sort_by_key(|(place, _)| place.start);
        let mut made = BytesMut::with_capacity(self.body.len().saturating_add(128));
        let mut from = 0;
        for (place, text) in self.replaced {
            made.extend_from_slice(self.body.get(from..place.start)?);
            made.extend_from_slice(text.as_bytes());
            from = place.end;
        }
        made.extend_from_slice(self.body.get(from..)?);
        Some(made.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn b87_only_what_is_added_differs_from_what_came() {
        for (body, made) in [
            (r#" {"x":[1],"y":{"a":1}} "#, r#" {"a":7,"b":8,"x":[1],"y":{"a":1}} "#),
            (r#"{"b": null ,"x":[1.0,"\u00e9"]}"#, r#"{"a":7,"b": 8 ,"x":[1.0,"\u00e9"]}"#),
            (r#"{"b":{"c":[1]},"x":1,"a":"null"}"#, r#"{"b":8,"x":1,"a":7}"#),
        ] {
            let top: HashMap<&str, &RawValue> = serde_json::from_str(body).unwrap();
            let mut additions = Additions::to(body.as_bytes());
            additions.set("a", top.get("a").copied(), "7");
            additions.set("b", top.get("b").copied(), "8");
            assert_eq!(additions.made().unwrap(), made.as_bytes());
        }
        assert!(Additions::to(b"{}").made().is_none());
    }
}
