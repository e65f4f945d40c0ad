//! Records as bytes. A frame is
//!
//! ```text
//! format u8 | crc32c u32 | epoch u64 | at u64 | text length u32 | text (JSON) | blob      integers little-endian
//! ```
//!
//! The checksum covers the log's name, the seq and all that follows it, on every backend: no store we build on checks whole rows
//! (flipped bytes came back as data from one of them), and a row that lands at another place must not pass as that place's record.
//! The text is JSON so that a person can read a store with its own tools; native bytes and model responses ride behind it as they are.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

use super::{Body, InboxBody, LedgerBody, Record};
use crate::ids::{Epoch, LogKey, Seq};

/// The record format this version writes, and the only one it reads.
pub const FORMAT: u8 = 1;

/// Bytes before the text.
const HEAD: usize = 1 + 4 + 8 + 8 + 4;

/// Most levels of arrays and objects in a record's text: what the JSON parser reads back. Arguments come from a model, as deep as it
/// likes, and a record that cannot be read would end its log.
const LEVELS: usize = 127;

/// One record as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its place.
    pub seq: Seq,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The checksum does not fit, or the frame is cut short.
    #[error("the record is damaged (checksum or length does not fit)")]
    Damaged,
    /// Written by a newer version.
    #[error(
        "the record has format {found}, this version reads {FORMAT}; use the version of agentrun that wrote it, or a newer one"
    )]
    Format {
        /// What it says.
        found: u8,
    },
    /// A kind this version does not know.
    #[error("the record has the unknown kind `{kind}`; use the version of agentrun that wrote it, or a newer one")]
    Kind {
        /// What it says.
        kind: String,
    },
    /// Of this format and a known kind, yet not of its shape.
    #[error("the record is not of its kind's shape: {0}")]
    Shape(String),
}

/// What a log may hold: implemented by the three record enums.
pub trait LogBody: Serialize + DeserializeOwned {
    /// Every kind of this log.
    const KINDS: &'static [&'static str];
    /// Bytes that ride behind the text.
    fn blob(&self) -> &[u8] {
        &[]
    }
    /// Puts them back.
    fn set_blob(&mut self, _blob: &[u8]) {}
}

impl LogBody for Body {
    const KINDS: &'static [&'static str] = Self::KINDS;

    fn blob(&self) -> &[u8] {
        match self {
            Self::Native(write) => &write.bytes,
            Self::Outcome(outcome) => &outcome.response,
            _ => &[],
        }
    }

    fn set_blob(&mut self, blob: &[u8]) {
        match self {
            Self::Native(write) => write.bytes = Arc::from(blob),
            Self::Outcome(outcome) => outcome.response = Arc::from(blob),
            _ => {}
        }
    }
}

impl LogBody for LedgerBody {
    const KINDS: &'static [&'static str] = Self::KINDS;
}

impl LogBody for InboxBody {
    const KINDS: &'static [&'static str] = Self::KINDS;
}

fn checksum(log: &LogKey, seq: Seq, rest: &[u8]) -> u32 {
    let name = crc32c::crc32c(log.to_string().as_bytes());
    let place = crc32c::crc32c_append(name, &seq.0.to_le_bytes());
    crc32c::crc32c_append(place, rest)
}

impl Frame {
    /// A body as the bytes of `log`'s record `seq`.
    ///
    /// # Errors
    /// [`DecodeError::Shape`] when the body cannot be written as JSON that is read back: a value in it is nested too deep.
    pub fn encode<B: LogBody>(log: &LogKey, seq: Seq, epoch: Epoch, at: u64, body: &B) -> Result<Self, DecodeError> {
        let text = serde_json::to_vec(body).map_err(|error| DecodeError::Shape(error.to_string()))?;
        if levels(&text) > LEVELS {
            return Err(DecodeError::Shape(format!("it is nested deeper than {LEVELS} levels")));
        }
        let length = u32::try_from(text.len()).map_err(|_| DecodeError::Shape("text over 4 GiB".to_owned()))?;
        let mut rest = Vec::with_capacity(HEAD + text.len() + body.blob().len());
        rest.extend_from_slice(&epoch.0.to_le_bytes());
        rest.extend_from_slice(&at.to_le_bytes());
        rest.extend_from_slice(&length.to_le_bytes());
        rest.extend_from_slice(&text);
        rest.extend_from_slice(body.blob());
        let mut bytes = Vec::with_capacity(5 + rest.len());
        bytes.push(FORMAT);
        bytes.extend_from_slice(&checksum(log, seq, &rest).to_le_bytes());
        bytes.extend_from_slice(&rest);
        Ok(Self { seq, bytes: Arc::from(bytes) })
    }

    /// The record these bytes are, as `log`'s record at this frame's place.
    ///
    /// # Errors
    /// [`DecodeError`] says whether the bytes are damaged or of a version or kind not known here.
    pub fn decode<B: LogBody>(&self, log: &LogKey) -> Result<Record<B>, DecodeError> {
        let (&format, after) = self.bytes.split_first().ok_or(DecodeError::Damaged)?;
        let (crc, rest) = take::<4>(after)?;
        if checksum(log, self.seq, rest) != u32::from_le_bytes(crc) {
            return Err(if format == FORMAT { DecodeError::Damaged } else { DecodeError::Format { found: format } });
        }
        if format != FORMAT {
            return Err(DecodeError::Format { found: format });
        }
        let (epoch, rest) = take::<8>(rest)?;
        let (at, rest) = take::<8>(rest)?;
        let (length, rest) = take::<4>(rest)?;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| DecodeError::Damaged)?;
        let (text, blob) = rest.split_at_checked(length).ok_or(DecodeError::Damaged)?;
        let mut body: B = serde_json::from_slice(text).map_err(|error| unread::<B>(text, &error))?;
        if !blob.is_empty() {
            body.set_blob(blob);
        }
        Ok(Record { seq: self.seq, epoch: Epoch(u64::from_le_bytes(epoch)), at: u64::from_le_bytes(at), body })
    }
}

/// A frame taken apart, so that it can travel as text. Put together again it is the same bytes, checksum included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameParts<'a> {
    /// The checksum as stored: over the log's name, the place and all that follows.
    pub crc: u32,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// Milliseconds since 1970 by the writer's clock.
    pub at: u64,
    /// The body as JSON.
    pub text: &'a str,
    /// What rides behind it.
    pub blob: &'a [u8],
}

impl Frame {
    /// The frame's parts. Looks at the layout only; whether the checksum fits is [`Frame::decode`]'s to say.
    ///
    /// # Errors
    /// [`DecodeError::Format`] and [`DecodeError::Damaged`].
    pub fn parts(&self) -> Result<FrameParts<'_>, DecodeError> {
        let (&format, rest) = self.bytes.split_first().ok_or(DecodeError::Damaged)?;
        if format != FORMAT {
            return Err(DecodeError::Format { found: format });
        }
        let (crc, rest) = take::<4>(rest)?;
        let (epoch, rest) = take::<8>(rest)?;
        let (at, rest) = take::<8>(rest)?;
        let (length, rest) = take::<4>(rest)?;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| DecodeError::Damaged)?;
        let (text, blob) = rest.split_at_checked(length).ok_or(DecodeError::Damaged)?;
        let text = std::str::from_utf8(text).map_err(|_| DecodeError::Damaged)?;
        let (crc, epoch, at) = (u32::from_le_bytes(crc), Epoch(u64::from_le_bytes(epoch)), u64::from_le_bytes(at));
        Ok(FrameParts { crc, epoch, at, text, blob })
    }

    /// The frame of these parts at `seq`. Nothing is checked but that the text has a length a frame can hold.
    ///
    /// # Errors
    /// [`DecodeError::Shape`] for a text over 4 GiB.
    pub fn of_parts(seq: Seq, parts: &FrameParts<'_>) -> Result<Self, DecodeError> {
        let length = u32::try_from(parts.text.len()).map_err(|_| DecodeError::Shape("text over 4 GiB".to_owned()))?;
        let mut bytes = Vec::with_capacity(HEAD + parts.text.len() + parts.blob.len());
        bytes.push(FORMAT);
        bytes.extend_from_slice(&parts.crc.to_le_bytes());
        bytes.extend_from_slice(&parts.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&parts.at.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(parts.text.as_bytes());
        bytes.extend_from_slice(parts.blob);
        Ok(Self { seq, bytes: Arc::from(bytes) })
    }
}

/// How deep well-formed JSON goes.
fn levels(text: &[u8]) -> usize {
    let (mut level, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), DecodeError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(DecodeError::Damaged)?;
    Ok((*head, rest))
}

fn unread<B: LogBody>(text: &[u8], error: &serde_json::Error) -> DecodeError {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    match serde_json::from_slice::<Kind>(text) {
        Ok(Kind { kind }) if !B::KINDS.contains(&kind.as_str()) => DecodeError::Kind { kind },
        _ => DecodeError::Shape(error.to_string()),
    }
}
