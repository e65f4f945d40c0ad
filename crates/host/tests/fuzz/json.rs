//! Strict JSON against serde_json: what the one takes the other takes too, but for a member that stands twice, nesting beyond the bound, and
//! anything but an object at the top.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use agentrun_host::{DEPTH, strict};
use proptest::prelude::*;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::changed::{changed, changes, corpus, fuzz};

const WORDS: &[&[u8]] = &[
    b"{\"a\":1}",
    b"[1,2]",
    b",\"a\":2",
    b"\"\\u0061\":0",
    b"\\ud83d\\ude00",
    b"\\ud800",
    b"\\udc00",
    b"\\\\",
    b"\\\"",
    b"\\x",
    b"1e999",
    b"-0",
    b"01",
    b"1.",
    b"1e5",
    b"-",
    b"123456789012345678901234567890",
    b"null",
    b"NaN",
    b"tru",
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\x7f",
    b"\n",
    b"\x0c",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    b"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    b"}}}}}}}}",
];

/// The same rules over serde_json's own reader.
pub(crate) fn reference(body: &[u8]) -> bool {
    let Some(b'{') = body.iter().find(|byte| !b" \n\t\r".contains(byte)) else { return false };
    let mut reader = serde_json::Deserializer::from_slice(body);
    Checked { depth: 0 }.deserialize(&mut reader).and_then(|()| reader.end()).is_ok()
}

struct Checked {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Checked {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Any name, unescaped.
#[derive(PartialEq, Eq, Hash)]
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self(Cow::Owned(name)))
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
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
        if self.depth >= DEPTH {
            return Err(A::Error::custom("deep"));
        }
        while items.next_element_seed(Self { depth: self.depth + 1 })?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        if self.depth >= DEPTH {
            return Err(A::Error::custom("deep"));
        }
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<Name<'de>>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("twice"));
            }
            members.next_value_seed(Self { depth: self.depth + 1 })?;
        }
        Ok(())
    }
}

fn agrees(body: &[u8]) -> Result<bool, TestCaseError> {
    let taken = strict(body).is_ok();
    prop_assert_eq!(taken, reference(body), "{}", String::from_utf8_lossy(body));
    if taken {
        prop_assert!(serde_json::from_slice::<Value>(body).is_ok_and(|value| value.is_object()));
    }
    Ok(taken)
}

#[test]
fn b86_fuzz_strict_json_takes_what_serde_json_takes_less_what_two_readers_could_read_differently() {
    let all = corpus("json");
    for (name, body) in &all {
        let taken = agrees(body).unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert_eq!(taken, !name.starts_with("no-"), "{name}");
    }
    fuzz("strict JSON", &changes(), |(which, changes)| agrees(&changed(&all, WORDS, &which, &changes)));
}

/// Any value, with names from a few letters so that some stand twice, written with blanks and escapes.
fn written() -> impl Strategy<Value = String> {
    let text = prop_oneof!["[ab]{0,2}", "\\\\u006[12]", any::<String>().prop_map(|text| inner(&text))];
    let number = prop_oneof![
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,9})?([eE][-+]?[0-9]{1,4})?"
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        number,
        text.clone().prop_map(|text| format!("\"{text}\"")),
    ];
    let value = leaf.prop_recursive(80, 200, 4, move |inner| {
        let members = prop::collection::vec((text.clone(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            members.prop_map(|members| {
                let members: Vec<_> = members.into_iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
                format!("{{{}}}", members.join(",\n"))
            }),
        ]
    });
    value.prop_map(|value| format!("{{\"top\":{value}}}"))
}

fn inner(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn b86_values_of_any_shape_are_read_as_serde_json_reads_them(body in written()) {
        agrees(body.as_bytes())?;
    }

    /// Around the sixteenth name the walk becomes a hash.
    #[test]
    fn b86_a_name_that_stands_twice_is_found_among_any_number(count in 1_usize..60, first: prop::sample::Index, escaped: bool) {
        let name = |n: usize| format!("\"k{n}\":{{\"k1\":0,\"k2\":0}}");
        let names: Vec<_> = (0..count).map(name).collect();
        let body = format!("{{{}}}", names.join(","));
        prop_assert!(strict(body.as_bytes()).is_ok());
        let again = first.index(count);
        let again = if escaped { format!("\"\\u006b{again}\":1") } else { name(again) };
        let body = format!("{{{},{again}}}", names.join(","));
        prop_assert!(strict(body.as_bytes()).is_err());
    }
}
