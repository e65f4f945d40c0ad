//! The mark every process of a session carries in its environment, and its text form. It is how a later owner knows a stray from a
//! stranger, so reading it back is exact: a value that is not ours to the last byte is nobody's.

use std::fmt::Write as _;

/// The environment variable that carries the mark. Some harnesses drop variables named like credentials (`*KEY*`, `*SECRET*`,
/// `*TOKEN*`) before they run a command, so the name has none of these words.
pub const MARK_VARIABLE: &str = "AGENTRUN_MARK";

/// What a session's processes carry in their environment, so that strays can be found before a resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The store's id.
    pub store: String,
    /// The session's key.
    pub session: String,
    /// The epoch of the owner that started the process.
    pub epoch: u64,
}

/// A marker as one process carries it: with the name of its own spawn, so that the loss of one guard need not end its siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) marker: Marker,
    pub(super) spawn: String,
}

impl Mark {
    pub(super) fn new(marker: Marker) -> Self {
        Self { marker, spawn: uuid::Uuid::new_v4().simple().to_string() }
    }

    /// `store:session:epoch:spawn`. Names are percent-encoded: a key may hold a colon, and no two sessions may share a value.
    pub(super) fn value(&self) -> String {
        let Self { marker, spawn } = self;
        format!("{}:{}:{}:{}", encode(&marker.store), encode(&marker.session), marker.epoch, encode(spawn))
    }

    /// The mark in a block of NUL-separated `name=value` entries, as the kernel shows it. The first one counts.
    pub(super) fn in_environ(environ: &[u8]) -> Option<Self> {
        let name = MARK_VARIABLE.as_bytes();
        let value = environ
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"=".as_slice()))?;
        let mut parts = std::str::from_utf8(value).ok()?.split(':');
        let mark = Self {
            marker: Marker {
                store: decode(parts.next()?)?,
                session: decode(parts.next()?)?,
                epoch: parts.next()?.parse().ok()?,
            },
            spawn: decode(parts.next()?)?,
        };
        // Only what we would have written ourselves: `+7` or `%41` parse, but no process of ours carries them.
        (parts.next().is_none() && mark.value().as_bytes() == value).then_some(mark)
    }
}

/// What the guards of a session are called in process lists. A guard never execs, so it has its owner's environment and carries no
/// mark; the 15 bytes of its name are what tells whose it is. A collision only makes a sweep wait for a stranger's guard.
pub(super) fn guard_name(marker: &Marker) -> String {
    // FNV-1a: small, and the same in every build, since owners of different versions meet here.
    let hash = format!("{}:{}", encode(&marker.store), encode(&marker.session))
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("agrun-{:09x}", hash >> 28)
}

fn encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(store: &str, session: &str, epoch: u64) -> Mark {
        Mark::new(Marker { store: store.into(), session: session.into(), epoch })
    }

    #[test]
    fn any_name_comes_back_from_an_environment() {
        for session in ["plain", "run/a:b=c", "a%3Ab", "", "Straße \u{1F980}", "new\nline", "nul\0byte"] {
            let mark = mark("store:1", session, 7);
            let environ = format!("PATH=/bin\0{MARK_VARIABLE}={}\0HOME=/\0", mark.value());
            assert_eq!(Mark::in_environ(environ.as_bytes()), Some(mark));
        }
    }

    #[test]
    fn names_that_look_alike_have_different_values() {
        let (one, other) = (mark("a:b", "c", 1), mark("a", "b:c", 1));
        assert_ne!(one.value().rsplit_once(':').unwrap().0, other.value().rsplit_once(':').unwrap().0);
    }

    #[test]
    fn what_we_did_not_write_is_nobodys() {
        let ours = mark("s", "k", 1).value();
        for value in [
            "",
            "s",
            "s:k:1",
            "s:k:+1:x",
            "s:k:01:x",
            "s:k:1:x:y",
            "%73:k:1:x",
            "s:k:1:%",
            &format!("{ours}x:"),
            "s:k:-1:x",
        ] {
            assert_eq!(Mark::in_environ(format!("{MARK_VARIABLE}={value}\0").as_bytes()), None, "{value}");
        }
        assert_eq!(Mark::in_environ(format!("X{MARK_VARIABLE}={ours}\0").as_bytes()), None);
        assert_eq!(Mark::in_environ(b""), None);
    }

    #[test]
    fn a_guards_name_fits_and_is_the_sessions() {
        let name = |store: &str, session: &str, epoch| guard_name(&mark(store, session, epoch).marker);
        assert_eq!(name("s", "a session with a long name", 1).len(), 15);
        assert_eq!(name("s", "k", 1), name("s", "k", 2));
        assert_ne!(name("s", "k", 1), name("s", "l", 1));
        assert_ne!(name("s", "k", 1), name("t", "k", 1));
    }

    #[test]
    fn the_variable_is_not_named_like_a_credential() {
        for word in ["KEY", "SECRET", "TOKEN"] {
            assert!(!MARK_VARIABLE.contains(word));
        }
    }
}
