//! The lines of an export file and how a record becomes one. Put back together, a record is the same bytes as in its store.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, Epoch, Seq, SessionKey};
use crate::money::Usd;
use crate::record::{DecodeError, Frame, FrameParts};
use crate::store::RECORD_BYTES;

/// The version of the file this code writes, and the only one it reads.
pub(super) const VERSION: u64 = 1;
/// Most bytes of a line. A byte takes six at most, as an escape in a JSON text; the names around it need less than the rest.
pub(super) const LINE_BYTES: usize = RECORD_BYTES * 6 + 4096;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    /// The first.
    Export(Top),
    /// A record of the session.
    Record(Row<'a>),
    /// A record of its inbox.
    Post(Row<'a>),
    /// An earlier attempt of the same step that has records where this comes from.
    Earlier(Earlier),
    /// The last.
    End(Last),
}

/// What the file is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Top {
    pub(super) version: u64,
    /// The records' own format.
    pub(super) format: u8,
    /// The version of the program that wrote it; for eyes.
    pub(super) by: String,
    pub(super) key: SessionKey,
    pub(super) records: u64,
    pub(super) inbox: u64,
    /// The cap of its run where it came from; `None` for none.
    pub(super) cap: Option<Usd>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row<'a> {
    seq: Seq,
    epoch: Epoch,
    at: u64,
    crc: String,
    text: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Earlier {
    pub(super) key: SessionKey,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Last {
    pub(super) sha256: Digest,
}

impl<'a> Row<'a> {
    pub(super) fn of(frame: &'a Frame) -> Result<Self, DecodeError> {
        let FrameParts { crc, epoch, at, text, blob } = frame.parts()?;
        // What a harness writes and a provider answers is text nearly always: it stays readable, and takes no more room than it must.
        let (blob, hex) = match std::str::from_utf8(blob) {
            Ok("") => (None, None),
            Ok(blob) => (Some(blob.into()), None),
            Err(_) => (None, Some(blob.iter().map(|byte| format!("{byte:02x}")).collect())),
        };
        Ok(Self { seq: frame.seq, epoch, at, crc: format!("{crc:08x}"), text: text.into(), blob, hex })
    }

    /// The frame again; `None` when a field is not of its form.
    pub(super) fn frame(&self) -> Option<Result<Frame, DecodeError>> {
        let crc = u32::from_str_radix(&self.crc, 16).ok().filter(|_| self.crc.len() == 8)?;
        let bytes;
        let blob = match (&self.blob, &self.hex) {
            (None, None) => &[][..],
            (Some(blob), None) => blob.as_bytes(),
            (None, Some(hex)) => {
                bytes = unhex(hex)?;
                &bytes
            }
            (Some(_), Some(_)) => return None,
        };
        let parts = FrameParts { crc, epoch: self.epoch, at: self.at, text: &self.text, blob };
        Some(Frame::of_parts(self.seq, &parts))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
