//! What a fuzzer calls: any bytes, as a record of each kind of log. It holds what must hold of the answer.

use std::sync::Arc;

use agentrun_kernel::{
    Body, DecodeError, Epoch, FORMAT, Frame, InboxBody, LedgerBody, LogBody, LogKey, RunId, Seq, SessionKey, SharedLog,
};

/// The place every frame here has.
pub(crate) const SEQ: Seq = Seq(7);

pub(crate) fn session_log() -> LogKey {
    LogKey::Session(SessionKey::new("s").unwrap())
}

pub(crate) fn ledger_log() -> LogKey {
    LogKey::Shared(SharedLog::Ledger(RunId::new("s").unwrap()))
}

pub(crate) fn inbox_log() -> LogKey {
    LogKey::Shared(SharedLog::Inbox(SessionKey::new("s").unwrap()))
}

pub(crate) fn frame(body: &Body) -> Frame {
    Frame::encode(&session_log(), SEQ, Epoch(3), 1_700_000_000_000, body).unwrap()
}

/// `rest` (all that follows the checksum) as a frame of the session log whose checksum fits.
pub(crate) fn seal(format: u8, rest: &[u8]) -> Vec<u8> {
    let place = crc32c::crc32c_append(crc32c::crc32c(session_log().to_string().as_bytes()), &SEQ.0.to_le_bytes());
    let sum = crc32c::crc32c_append(place, rest);
    [&[format][..], &sum.to_le_bytes(), rest].concat()
}

pub(crate) fn decoder_is_right(bytes: &[u8]) {
    let frame = Frame { seq: SEQ, bytes: Arc::from(bytes) };
    holds::<Body>(&frame, &session_log());
    holds::<LedgerBody>(&frame, &ledger_log());
    holds::<InboxBody>(&frame, &inbox_log());
}

fn holds<B: LogBody + std::fmt::Debug + PartialEq>(frame: &Frame, log: &LogKey) {
    match frame.decode::<B>(log) {
        Ok(record) => {
            assert_eq!(frame.bytes.first(), Some(&FORMAT));
            // What is read is a record: written again it is read as the same.
            let again = Frame::encode(log, record.seq, record.epoch, record.at, &record.body).unwrap();
            assert_eq!(again.decode::<B>(log), Ok(record));
        }
        Err(DecodeError::Format { found }) => {
            assert_eq!(frame.bytes.first(), Some(&found));
            assert_ne!(found, FORMAT);
        }
        Err(DecodeError::Kind { kind }) => assert!(!B::KINDS.contains(&kind.as_str())),
        Err(DecodeError::Damaged | DecodeError::Shape(_)) => {}
    }
}
