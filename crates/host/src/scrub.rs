//! Takes the credential out of what a provider sends back: one that echoes a header must not hand the credential to the harness. Looked for
//! are all its forms ([`Credential::forms`]). Works over chunks: only a chunk's end that could begin a form is held until the next one
//! decides.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr_iter;

use crate::credential::{Credential, Form};

/// Scrubs one stream.
pub(crate) struct Scrub {
    secret: Arc<Credential>,
    held: Vec<u8>,
}

impl Scrub {
    pub(crate) const fn new(secret: Arc<Credential>) -> Self {
        Self { secret, held: Vec::new() }
    }

    /// What can be passed on of `chunk`. The chunk itself when nothing in it is suspect: no copy then.
    pub(crate) fn pass(&mut self, chunk: Bytes) -> Bytes {
        if self.held.is_empty() && !holds(&chunk, &self.secret) && overhang(&chunk, &self.secret) == 0 {
            return chunk;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(&chunk);
        mask(&mut bytes, &self.secret);
        let keep = overhang(&bytes, &self.secret);
        self.held = bytes.split_off(bytes.len().saturating_sub(keep));
        Bytes::from(bytes)
    }

    /// What was held at the stream's end.
    pub(crate) fn finish(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.held))
    }
}

/// Whether the credential stands in `bytes`, in any form.
pub(crate) fn holds(bytes: &[u8], secret: &Credential) -> bool {
    secret.forms().any(|form| find(bytes, form).is_some())
}

/// Where a form stands first. Every chunk is searched for every form, and chunks are small: what a general searcher prepares for each search
/// would cost more than the search.
fn find(bytes: &[u8], form: &Form) -> Option<usize> {
    let (text, (rare, byte)) = (form.bytes(), form.rare());
    let last = bytes.len().checked_sub(text.len())?;
    // The rare byte of a form that begins at `at` stands at `at + rare`.
    let searched = bytes.get(rare..=last.saturating_add(rare))?;
    memchr_iter(byte, searched).find(|at| bytes.get(*at..).is_some_and(|here| here.starts_with(text)))
}

fn mask(bytes: &mut [u8], secret: &Credential) {
    // All places first: a form may begin within another one.
    let mut places = Vec::new();
    for form in secret.forms() {
        let mut from = 0_usize;
        while let Some(place) = bytes.get(from..).and_then(|rest| find(rest, form)) {
            let start = from.saturating_add(place);
            from = start.saturating_add(form.bytes().len());
            places.push(start..from);
        }
    }
    for place in places {
        if let Some(found) = bytes.get_mut(place) {
            found.fill(b'*');
        }
    }
}

/// How many of the last bytes could begin a form.
fn overhang(bytes: &[u8], secret: &Credential) -> usize {
    let of = |form: &Form| {
        let form = form.bytes();
        let (first, most) = (*form.first()?, form.len().saturating_sub(1));
        let tail = bytes.get(bytes.len().saturating_sub(most)..)?;
        memchr_iter(first, tail).filter_map(|at| tail.get(at..)).find(|end| form.starts_with(end)).map(<[u8]>::len)
    };
    secret.forms().filter_map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-canary/0123456789+abcdefghijklmnopqr";

    fn scrubbed(secret: &str, parts: &[&[u8]]) -> String {
        let mut scrub = Scrub::new(Arc::new(Credential::from_text(secret.to_owned()).unwrap()));
        let mut out: Vec<u8> = parts.iter().flat_map(|part| scrub.pass(Bytes::copy_from_slice(part))).collect();
        out.extend_from_slice(&scrub.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_credential_of_stars_is_no_endless_loop() {
        assert_eq!(scrubbed(&"*".repeat(8), &["*".repeat(20).as_bytes()]), "*".repeat(20));
    }

    #[test]
    fn b89_an_echoed_credential_is_masked_wherever_the_stream_is_split() {
        let text = b"data: {\"echo\":\"sk-canary-123\"} sk-canary-12 sk-canary-123";
        for split in 0..=text.len() {
            for second in split..=text.len() {
                let out = scrubbed("sk-canary-123", &[&text[..split], &text[split..second], &text[second..]]);
                assert_eq!(out, "data: {\"echo\":\"*************\"} sk-canary-12 *************", "{split} {second}");
            }
        }
    }

    #[test]
    fn b89_every_form_is_masked_wherever_the_stream_is_split_and_one_that_is_cut_short_passes() {
        let secret = Credential::from_text(SECRET.to_owned()).unwrap();
        for form in secret.forms().map(Form::bytes) {
            let text = [b"a: ", form, b" ", &form[..form.len() - 1], b"."].concat();
            let made = [b"a: ", "*".repeat(form.len()).as_bytes(), b" ", &form[..form.len() - 1], b"."].concat();
            let made = scrubbed(SECRET, &[&made]);
            for split in 0..=text.len() {
                let (head, tail) = text.split_at(split);
                assert_eq!(scrubbed(SECRET, &[head, tail]), made, "split at {split}");
            }
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(scrubbed(SECRET, &bytes), made);
        }
    }

    #[test]
    fn forms_that_overlap_are_masked_whole() {
        // The second half ends where the first begins anew.
        let secret = "abcabcabcabcabcaabcabcabcabcabca";
        let out = scrubbed(secret, &[b"abcabcabcabcabcabcabcabcabcabca"]);
        assert!(!out.contains("abcabcabcabcabca"), "{out}");
    }
}
