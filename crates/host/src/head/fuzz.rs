//! The watch under bytes of every kind: the pieces in which they come never matter, and of each head that it lets pass the parser behind
//! hyper reads the same: where it ends, one length at most, no other framing.

#[path = "../../tests/fuzz/changed.rs"]
mod changed;

use proptest::prelude::*;
use proptest::sample::Index;

use self::changed::{changed, changes, corpus, fuzz, split};
use super::Watch;

const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\x7f",
    b"\xc3\xa9",
    b"\xff",
    b"Content-Length: 1\r\n",
    b"content-length:0\r\n",
    b"Content-Length: 1, 1\r\n",
    b"Content-Length: +1\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding:\tchunked\r\n",
    b"Transfer-Encoding\r\n",
    b"Host: a\r\n",
    b" folded\r\n",
    b"x: y\r\n",
    b"GET / HTTP/1.1\r\n",
    b"HTTP/1.0",
    b"http://h/",
    b"#f",
    b"0\r\n\r\n",
];

/// What the watch made of bytes: how many heads it let pass, the body it is in, and whether it trusts nothing more.
fn watched<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> (usize, u64, Option<u16>) {
    let mut watch = Watch::default();
    for part in parts {
        watch.see(part);
    }
    (watch.verdicts.len(), watch.body, watch.broken.map(|bad| bad.status.as_u16()))
}

fn holds(bytes: &[u8], cuts: &[Index]) -> Result<bool, TestCaseError> {
    let seen = watched([bytes]);
    prop_assert_eq!(watched(split(bytes, cuts)), seen, "in pieces");
    prop_assert_eq!(watched(bytes.chunks(1)), seen, "byte by byte");
    let (passed, body, broken) = seen;
    let (mut rest, mut missing) = (bytes, 0);
    for head in 0..passed {
        let mut headers = [httparse::EMPTY_HEADER; 256];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(end)) = request.parse(rest) else {
            return Err(TestCaseError::fail(format!("head {head} passed, and its parser does not take it")));
        };
        prop_assert_eq!(request.version, Some(1));
        prop_assert!(request.path.is_some_and(|path| path.starts_with('/') && !path.contains('#')));
        let named = |name: &str| -> Vec<&[u8]> {
            let all = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            all.map(|header| header.value).collect()
        };
        prop_assert!(named("transfer-encoding").is_empty() && named("host").len() <= 1);
        let lengths = named("content-length");
        prop_assert!(lengths.len() <= 1);
        let length = lengths.first().map_or(0, |length| std::str::from_utf8(length).unwrap().parse::<u64>().unwrap());
        prop_assert!(missing == 0, "a head was found within a body");
        rest = &rest[end..];
        let here = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
        rest = &rest[here..];
        missing = length - here as u64;
    }
    prop_assert!(broken.is_some() || body == missing, "{} bytes to come, not {}", missing, body);
    Ok(passed > 0)
}

#[test]
fn b82_fuzz_heads_that_pass_are_read_alike_by_the_watch_and_by_the_parser_behind_it() {
    let all = corpus("head");
    for (name, bytes) in &all {
        let passed = holds(bytes, &[]).unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert_eq!(passed, !name.starts_with("no-"), "{name}");
    }
    let inputs = (changes(), prop::collection::vec(any::<Index>(), 0..4));
    fuzz("heads", &inputs, |((which, changes), cuts)| holds(&changed(&all, WORDS, &which, &changes), &cuts));
}
