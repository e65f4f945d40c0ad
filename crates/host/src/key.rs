//! Session keys: what a harness shows to the proxy. Thirty-two random bytes, of which the proxy keeps only the SHA-256. A key lives as
//! long as its [`KeyGuard`], and opens the routes of one provider for one gate.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::gate::RequestGate;
use crate::provider::Provider;

/// A session's key, for the harness. Redacted in `Debug`; the proxy cannot say it again.
pub struct SessionSecret(Zeroizing<String>);

impl SessionSecret {
    /// The text that the harness sends as its API key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(redacted)")
    }
}

/// The live keys.
#[derive(Default)]
pub(crate) struct KeyTable(Mutex<Vec<Entry>>);

struct Entry {
    hash: [u8; 32],
    provider: Provider,
    gate: Arc<dyn RequestGate>,
}

/// Keeps a key alive; dropped, the key opens nothing any more. Requests that were admitted under it run to their end.
#[must_use = "the key dies when its guard is dropped"]
pub struct KeyGuard {
    table: Weak<KeyTable>,
    hash: [u8; 32],
}

impl fmt::Debug for KeyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyGuard")
    }
}

impl KeyTable {
    /// A fresh key for `gate`.
    pub(crate) fn admit(
        self: &Arc<Self>,
        provider: Provider,
        gate: Arc<dyn RequestGate>,
    ) -> Result<(SessionSecret, KeyGuard), getrandom::Error> {
        let mut random = Zeroizing::new([0_u8; 32]);
        getrandom::fill(random.as_mut_slice())?;
        let mut text = Zeroizing::new(String::with_capacity(SECRET_PREFIX.len() + 64));
        text.push_str(SECRET_PREFIX);
        for byte in random.iter() {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
            }
        }
        let hash = hash(text.as_bytes());
        self.entries().push(Entry { hash, provider, gate });
        Ok((SessionSecret(text), KeyGuard { table: Arc::downgrade(self), hash }))
    }

    /// The gate behind a key, if one lives. `None` takes the way a wrong key takes, in the same time.
    pub(crate) fn find(&self, shown: Option<&[u8]>) -> Option<(Provider, Arc<dyn RequestGate>)> {
        let shown = hash(shown.unwrap_or_default());
        let mut found = None;
        // All of them, also after a match: where a key stands in the table does not show in the time.
        for entry in self.entries().iter() {
            if bool::from(entry.hash.ct_eq(&shown)) {
                found = Some((entry.provider, entry.gate.clone()));
            }
        }
        found
    }

    /// A panic elsewhere leaves the table whole: nothing in it is half done between two calls.
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.entries().retain(|entry| entry.hash != self.hash);
        }
    }
}

/// Tells people, and programs that look for leaked secrets, what such a text is.
const SECRET_PREFIX: &str = "agentrun-";

fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Lease, PaidRequest, Refusal};

    struct Shut;

    #[async_trait::async_trait]
    impl RequestGate for Shut {
        async fn before(self: Arc<Self>, _: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
            Err(Refusal { word: agentrun_cap::Word::Stopped, message: "shut".to_owned() })
        }
    }

    #[test]
    fn b82_a_key_opens_its_own_gate_and_dies_with_its_guard() {
        let table = Arc::new(KeyTable::default());
        let gates: [Arc<dyn RequestGate>; 2] = [Arc::new(Shut), Arc::new(Shut)];
        let (first, guard) = table.admit(Provider::Anthropic, gates[0].clone()).unwrap();
        let (second, _guard) = table.admit(Provider::Anthropic, gates[1].clone()).unwrap();
        for (key, gate) in [&first, &second].into_iter().zip(&gates) {
            assert!(Arc::ptr_eq(&table.find(Some(key.as_str().as_bytes())).unwrap().1, gate));
        }
        assert!(table.find(None).is_none() && table.find(Some(b"")).is_none());
        assert!(table.find(Some(&first.as_str().as_bytes()[1..])).is_none());
        drop(guard);
        assert!(table.find(Some(first.as_str().as_bytes())).is_none());
        assert!(table.find(Some(second.as_str().as_bytes())).is_some());
    }

    #[test]
    fn b82_keys_are_256_random_bits_and_never_shown() {
        let table = Arc::new(KeyTable::default());
        let made: std::collections::BTreeSet<_> =
            (0..100).map(|_| table.admit(Provider::Anthropic, Arc::new(Shut)).unwrap().0.as_str().to_owned()).collect();
        assert_eq!(made.len(), 100);
        assert!(made.iter().all(|key| key.len() == SECRET_PREFIX.len() + 64));
        let (key, _guard) = table.admit(Provider::Anthropic, Arc::new(Shut)).unwrap();
        assert_eq!(format!("{key:?}"), "SessionSecret(redacted)");
    }
}
