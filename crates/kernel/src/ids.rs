//! The names of things. A sequence number, an epoch or a key is never a naked integer or string, so that one cannot stand where
//! another belongs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

/// Most bytes a session key, run id or follow-up's name may have: it stands in file rows, environment markers and messages.
pub const KEY_BYTES: usize = 200;

/// Why a text cannot name a session, a run or a follow-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name must not be empty")]
    Empty,
    /// Longer than [`KEY_BYTES`].
    #[error("`{0}…` is longer than {KEY_BYTES} bytes; choose a shorter key")]
    TooLong(String),
    /// A character that does not print, or a blank: such keys get lost in logs and shells.
    #[error("`{name}` holds {character:?}; use printable characters without blanks")]
    BadCharacter {
        /// The text as given.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
}

fn check_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > KEY_BYTES {
        return Err(NameError::TooLong(text.chars().take(32).collect()));
    }
    match text.chars().find(|c| c.is_control() || c.is_whitespace()) {
        Some(character) => Err(NameError::BadCharacter { name: text.to_owned(), character }),
        None => Ok(()),
    }
}

macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as a name, or says why it cannot be one.
            ///
            /// # Errors
            /// [`NameError`] names what is wrong with the text.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check_name(&text)?;
                Ok(Self(text))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

checked_name! {
    /// Names one session: one append-only log, owned by one writer at a time.
    SessionKey
}
checked_name! {
    /// Names a run: what shares one cap and one ledger.
    RunId
}
checked_name! {
    /// Names a follow-up within its session: the same name again is the same follow-up.
    FollowUpName
}

impl From<&SessionKey> for RunId {
    /// A node without a run is its own run.
    fn from(key: &SessionKey) -> Self {
        Self(key.0.clone())
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// A new id, ordered by time (UUIDv7).
            #[must_use]
            pub fn fresh() -> Self {
                Self(uuid::Uuid::now_v7().to_string())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// One placed message and all the harness does until it is idle again.
    TurnId
}
text_id! {
    /// The harness's own id of a tool call.
    CallId
}
text_id! {
    /// A message as placed with the harness; used as the harness's own id where it takes one.
    MessageId
}
text_id! {
    /// A prompt accepted into the session.
    SubmissionId
}
text_id! {
    /// Money set aside in a run's ledger before a paid step.
    HoldId
}
text_id! {
    /// One effect of one session. See [`EffectKey::of_call`] for tool calls.
    EffectKey
}

impl EffectKey {
    /// The key of a tool call: the same call read back from the harness after a restart has the same key; the same id with other
    /// arguments has another. `ordinal` counts the results the native history already holds for that id (OpenAI-compatible servers
    /// repeat `call_0` in every response).
    #[must_use]
    pub fn of_call(turn: &TurnId, call: &CallId, tool: &str, arguments: &Digest, ordinal: u32) -> Self {
        let mut hash = Sha256::new();
        for part in [turn.as_str(), call.as_str(), tool, arguments.as_str()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(ordinal.to_le_bytes());
        Self(hex(&hash.finalize()).chars().take(32).collect())
    }

    /// The key of a follow-up. Never that of a call or a request: those are hexadecimal.
    #[must_use]
    pub fn of_follow_up(name: &FollowUpName) -> Self {
        Self(format!("name:{name}"))
    }
}

impl SubmissionId {
    /// The id of a follow-up's own prompt, by its effect key: what a settle of it names.
    #[must_use]
    pub fn of_follow_up(key: &EffectKey) -> Self {
        Self(format!("follow-up:{key}"))
    }
}

/// SHA-256 of some bytes, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)))
    }

    /// The digest of a JSON value in canonical form: object members sorted by name, no blanks. Two values that differ only in the
    /// order of members have one digest.
    #[must_use]
    pub fn of_json(value: &serde_json::Value) -> Self {
        let mut text = String::new();
        canonical(value, &mut text);
        Self::of(text.as_bytes())
    }

    /// The digest of what was hashed.
    pub(crate) fn of_hash(hash: Sha256) -> Self {
        Self(hex(&hash.finalize()))
    }

    /// Reads [`Digest::as_str`] back; `None` for a text that is no digest.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(hexadecimal)).then(|| Self(text.to_owned()))
    }

    /// The digest in hexadecimal.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Sorted here and not by serde_json's map: any crate of a build may turn on its `preserve_order`, and a digest must not depend on that.
fn canonical(value: &serde_json::Value, text: &mut String) {
    use serde_json::Value;
    match value {
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let sorted: std::collections::BTreeMap<_, _> = members.iter().collect();
            text.push('{');
            for (place, (name, member)) in sorted.into_iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                canonical(member, text);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Place of a record in its log: dense, the first is 1. `Seq(0)` is the place before the first record, so an empty log's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first record.
    pub const START: Self = Self(0);

    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// `count` places on.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Raised by each `open` of a session; with the nonce of that open it is the fence. 0 is a session never opened, and every shared log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Drawn at each `open`: a restored backup or a second file rewinds epochs, and only the nonce tells two equal ones apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// A new one.
    #[must_use]
    pub fn draw() -> Self {
        Self(*uuid::Uuid::new_v4().as_bytes())
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({:.8})", hex(&self.0))
    }
}

/// A log with many writers: an append names the seq it expects, and is refused when another came first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedLog {
    /// A run's holds and bookings.
    Ledger(RunId),
    /// Messages people sent to a session that another process may own.
    Inbox(SessionKey),
}

/// Any log of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogKey {
    /// A session's records.
    Session(SessionKey),
    /// A shared log.
    Shared(SharedLog),
}

impl fmt::Display for SharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(run) => write!(f, "ledger:{run}"),
            Self::Inbox(key) => write!(f, "inbox:{key}"),
        }
    }
}

impl fmt::Display for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(key) => write!(f, "session:{key}"),
            Self::Shared(log) => log.fmt(f),
        }
    }
}

impl From<&SessionKey> for LogKey {
    fn from(key: &SessionKey) -> Self {
        Self::Session(key.clone())
    }
}

impl From<SharedLog> for LogKey {
    fn from(log: SharedLog) -> Self {
        Self::Shared(log)
    }
}
