//! Ids in OpenCode's own form (`msg_`, 12 digits of time, 14 of chance), where the chance is a digest: the same message of ours has the
//! same id there on every machine, so it can be read back and placed again.

use agentrun_kernel::{Digest, MessageId};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Digits of chance.
const CHANCE: usize = 14;
/// The field of time has 48 bits: milliseconds times 4096, and a counter. Real ids wrap in it too.
const TIME_BITS: u64 = (1 << 48) - 1;

/// The id of a message of ours.
pub(super) fn message(id: &MessageId) -> String {
    made("msg", id.as_str(), born(id), 1)
}

/// The id of the part with its words.
pub(super) fn words(id: &MessageId) -> String {
    made("prt", &format!("{id} words"), born(id), 1)
}

/// The id of the part that tells a resumed session of its interruption: behind the words, which are sorted by id.
pub(super) fn note(id: &MessageId) -> String {
    made("prt", &format!("{id} note"), born(id), 2)
}

/// An id of `kind` made of `seed` and a moment; ids of one moment are ordered by `counter`.
pub(super) fn made(kind: &str, seed: &str, milliseconds: u64, counter: u64) -> String {
    let time = milliseconds.wrapping_mul(4096).wrapping_add(counter) & TIME_BITS;
    let digest = Digest::of(format!("{kind}\n{seed}").as_bytes());
    let mut left = u128::from_str_radix(digest.as_str().get(..32).unwrap_or("0"), 16).unwrap_or(0);
    let mut chance = String::with_capacity(CHANCE);
    for _ in 0..CHANCE {
        let digit = usize::try_from(left % 62).unwrap_or(0);
        chance.push(BASE62.get(digit).map_or('0', |byte| char::from(*byte)));
        left /= 62;
    }
    format!("{kind}_{time:012x}{chance}")
}

/// When our id was made: it says so itself. Any other text counts as the beginning of time, which orders nothing wrong here.
fn born(id: &MessageId) -> u64 {
    let stamp = uuid::Uuid::parse_str(id.as_str()).ok().and_then(|id| id.get_timestamp());
    stamp.map_or(0, |stamp| {
        let (seconds, nanos) = stamp.to_unix();
        seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b38_an_id_is_the_same_each_time_and_has_the_programs_own_form() {
        let ours = MessageId::fresh();
        assert_eq!(message(&ours), message(&ours));
        assert_ne!(message(&ours), message(&MessageId::fresh()));
        for (id, kind) in [(message(&ours), "msg_"), (words(&ours), "prt_"), (note(&ours), "prt_")] {
            let rest = id.strip_prefix(kind).unwrap();
            assert_eq!(rest.len(), 26);
            assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
        assert!(words(&ours) < note(&ours), "parts are shown in the order of their ids");
    }
}
