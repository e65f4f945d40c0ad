//! What a policy puts into a body: members at the top, each in the place of one that says nothing or in front of the first. All other
//! bytes stay as they came, so that what the provider caches by its beginning still has it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::json::Raw;

/// The changes to one body.
pub(super) struct Additions<'b> {
    body: &'b Bytes,
    first: String,
    replaced: Vec<(Range<usize>, String)>,
}

impl<'b> Additions<'b> {
    pub(super) const fn to(body: &'b Bytes) -> Self {
        Self { body, first: String::new(), replaced: Vec::new() }
    }

    /// Sets a member: over the value it has, if it is there.
    pub(super) fn set(&mut self, name: &str, given: Option<&Raw<'_>>, value: &str) {
        match given {
            Some(given) => self.replaced.push((given.place.clone(), value.to_owned())),
            None => self.first.push_str(&format!("\"{name}\":{value},")),
        }
    }

    /// The body with the changes; the one that came when there are none.
    pub(super) fn made(mut self) -> Bytes {
        if self.first.is_empty() && self.replaced.is_empty() {
            return self.body.clone();
        }
        // In front of the first member there are only blanks and the brace.
        let opening = self.body.iter().position(|byte| *byte == b'{').map_or(0, |brace| brace.saturating_add(1));
        self.replaced.push((opening..opening, self.first));
        self.replaced.sort_by_key(|(place, _)| place.start);
        let mut made = BytesMut::with_capacity(self.body.len().saturating_add(128));
        let mut from = 0;
        for (place, text) in self.replaced {
            made.extend_from_slice(self.body.get(from..place.start).unwrap_or_default());
            made.extend_from_slice(text.as_bytes());
            from = place.end;
        }
        made.extend_from_slice(self.body.get(from..).unwrap_or_default());
        made.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;

    #[test]
    fn b87_only_what_is_added_differs_from_what_came() {
        for (body, made) in [
            (r#" {"x":[1],"y":{"a":1}} "#, r#" {"a":7,"b":8,"x":[1],"y":{"a":1}} "#),
            (r#"{"b": null ,"x":[1.0,"\u00e9"]}"#, r#"{"a":7,"b": 8 ,"x":[1.0,"\u00e9"]}"#),
            (r#"{"b":{"c":[1]},"x":1,"a":"null"}"#, r#"{"b":8,"x":1,"a":7}"#),
        ] {
            let body = Bytes::from(body);
            let (mut a, mut b) = (None, None);
            let read = Document::new(&body).members(|name, value| {
                match name {
                    "a" => a = Some(value.raw()?),
                    "b" => b = Some(value.raw()?),
                    _ => {}
                }
                Ok(())
            });
            read.unwrap();
            let mut additions = Additions::to(&body);
            additions.set("a", a.as_ref(), "7");
            additions.set("b", b.as_ref(), "8");
            assert_eq!(additions.made(), made.as_bytes());
        }
        assert_eq!(Additions::to(&Bytes::from("{}")).made(), "{}".as_bytes());
    }
}
