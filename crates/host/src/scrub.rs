//! Takes the credential's bytes out of what a provider sends back: one that echoes a header must not hand the credential to the harness.
//! Works over chunks: only a chunk's end that could begin the credential is held until the next one decides.

use std::sync::Arc;

use bytes::Bytes;

use crate::credential::Credential;

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
        let secret = self.secret.expose();
        if self.held.is_empty() && find(&chunk, secret).is_none() && overhang(&chunk, secret) == 0 {
            return chunk;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(&chunk);
        mask(&mut bytes, secret);
        let keep = overhang(&bytes, secret);
        self.held = bytes.split_off(bytes.len().saturating_sub(keep));
        Bytes::from(bytes)
    }

    /// What was held at the stream's end.
    pub(crate) fn finish(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.held))
    }
}

/// Whether the credential stands in `bytes`.
pub(crate) fn holds(bytes: &[u8], secret: &Credential) -> bool {
    find(bytes, secret.expose()).is_some()
}

fn find(bytes: &[u8], secret: &[u8]) -> Option<usize> {
    bytes.windows(secret.len()).position(|window| window == secret)
}

fn mask(bytes: &mut [u8], secret: &[u8]) {
    let mut from = 0;
    while let Some(place) = bytes.get(from..).and_then(|rest| find(rest, secret)) {
        let start = from.saturating_add(place);
        // Not again over what was masked: a secret of stars would be found there for ever.
        from = start.saturating_add(secret.len());
        if let Some(found) = bytes.get_mut(start..from) {
            found.fill(b'*');
        }
    }
}

/// How many of the last bytes could begin the credential.
fn overhang(bytes: &[u8], secret: &[u8]) -> usize {
    (1..secret.len())
        .rev()
        .find(|length| bytes.len() >= *length && secret.get(..*length).is_some_and(|start| bytes.ends_with(start)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_of_stars_is_no_endless_loop() {
        let mut scrub = Scrub::new(Arc::new(Credential::from_text("*".repeat(8)).unwrap()));
        let out = [scrub.pass(Bytes::from("*".repeat(20))), scrub.finish()].concat();
        assert_eq!(out, "*".repeat(20).into_bytes());
    }

    #[test]
    fn b89_an_echoed_credential_is_masked_wherever_the_stream_is_split() {
        let text = b"data: {\"echo\":\"sk-canary-123\"} sk-canary-12 sk-canary-123";
        for split in 0..=text.len() {
            for second in split..=text.len() {
                let mut scrub = Scrub::new(Arc::new(Credential::from_text("sk-canary-123".to_owned()).unwrap()));
                let mut out = Vec::new();
                for part in [&text[..split], &text[split..second], &text[second..]] {
                    out.extend_from_slice(&scrub.pass(Bytes::copy_from_slice(part)));
                }
                out.extend_from_slice(&scrub.finish());
                let out = String::from_utf8(out).unwrap();
                assert_eq!(out, "data: {\"echo\":\"*************\"} sk-canary-12 *************", "{split} {second}");
            }
        }
    }
}
