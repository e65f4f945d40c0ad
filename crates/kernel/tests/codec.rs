//! Records as bytes: every kind comes back as it went, and damage or a later version is never read as data.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use agentrun_kernel::{
    Ask, AskAnswer, Body, Checkpoint, DecodeError, Digest, EffectKind, Epoch, FORMAT, Frame, HarnessVersion, HoldId,
    InboxBody, LedgerBody, LogKey, Opened, OutcomeEnd, Replay, Seq, SharedLog, Source, Submission, TotalsDecision,
    TotalsKnown, TotalsPayer, TurnEndHow, Usage,
};
use common::{
    bound, candidate, delivered, failed, intent, key, native, outcome, paid, parked, placed, settled, submission,
    turn_end, usd, verdict, withdrawn, words,
};
use serde_json::json;

fn log() -> LogKey {
    LogKey::Session(key())
}

/// One body of every kind, those with blobs among them.
fn bodies() -> Vec<Body> {
    let mut answered = outcome("a", OutcomeEnd::Ok);
    answered.usage = Some(Usage { input: 3, output: 4, tier: Some("priority".to_owned()), ..Usage::default() });
    (answered.cost, answered.response_id) = (Some(usd("0.000000000001")), Some("id".to_owned()));
    answered.response = Arc::from(&b"\x00\xff bytes that are no text"[..]);
    vec![
        bound(),
        Body::Opened(Opened {
            earlier: vec![key()],
            version: "1".to_owned(),
            harness: Some(HarnessVersion { name: "h".to_owned(), version: "2".to_owned() }),
            native_session: Some("n".to_owned()),
        }),
        submission("node", Source::Node),
        submission("follow", Source::FollowUp(common::effect("k"))),
        withdrawn(&["w"]),
        placed("m", "t", &["a", "b"], &["older"]),
        turn_end("t", TurnEndHow::Failed),
        Body::Intent(paid(intent("a", EffectKind::Request, Replay::Never, Some("t")), "1.5")),
        Body::Intent(intent("b", EffectKind::Tool, Replay::Safe, None)),
        Body::Outcome(answered),
        Body::Outcome(outcome("b", OutcomeEnd::Interrupted)),
        native(7, "{\"line\":1}\n"),
        native(7, ""),
        candidate(1, "a"),
        verdict(1, true),
        delivered(),
        parked(),
        failed(),
        settled("t", &["w"]),
        Body::Ask(Ask { id: "q".to_owned(), what: "may I".to_owned(), choices: vec!["yes".to_owned()] }),
        Body::Answer(AskAnswer { id: "q".to_owned(), answer: "yes".to_owned(), by: "me".to_owned() }),
        Body::Checkpoint(Checkpoint {
            of: Seq(3),
            image: "git".to_owned(),
            reference: "r".to_owned(),
            digest: Digest::of(b"i"),
        }),
        Body::Data { name: "n".to_owned(), value: json!({"a": [1, null, "é"]}) },
        Body::Moved { to: "elsewhere".to_owned() },
    ]
}

fn encode(body: &Body) -> Frame {
    Frame::encode(&log(), Seq(5), Epoch(3), 1_700_000_000_000, body).unwrap()
}

/// A frame of this text under a checksum that fits, as another version could have written it.
fn written_elsewhere(log: &LogKey, format: u8, text: &str) -> Frame {
    let mut rest = Vec::new();
    rest.extend_from_slice(&1_u64.to_le_bytes());
    rest.extend_from_slice(&0_u64.to_le_bytes());
    rest.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
    rest.extend_from_slice(text.as_bytes());
    let place = crc32c::crc32c_append(crc32c::crc32c(log.to_string().as_bytes()), &5_u64.to_le_bytes());
    let sum = crc32c::crc32c_append(place, &rest);
    let bytes = [&[format][..], &sum.to_le_bytes(), &rest].concat();
    Frame { seq: Seq(5), bytes: Arc::from(bytes) }
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let mut kinds = BTreeSet::new();
    for body in bodies() {
        let record = encode(&body).decode::<Body>(&log()).unwrap();
        assert_eq!((record.seq, record.epoch, record.at), (Seq(5), Epoch(3), 1_700_000_000_000));
        kinds.insert(body.kind());
        assert_eq!(record.body, body);
    }
    assert_eq!(kinds, Body::KINDS.iter().copied().collect(), "a kind without its round trip");
}

#[test]
fn the_kinds_of_the_shared_logs_come_back_as_they_went() {
    let hold = || HoldId("h".to_owned());
    let ledger = [
        LedgerBody::Cap { cap: None },
        LedgerBody::Hold {
            id: hold(),
            session: key(),
            epoch: Epoch(2),
            what: "m".to_owned(),
            quote: usd("1"),
            catalog: "c".to_owned(),
        },
        LedgerBody::Booking {
            hold: hold(),
            usage: Some(Usage::default()),
            model: Some("m".to_owned()),
            catalog: "c".to_owned(),
            amount: usd("0.1"),
        },
        LedgerBody::Release { hold: hold(), proof: "p".to_owned() },
        LedgerBody::Unknown { hold: hold(), why: "w".to_owned() },
        LedgerBody::Decision { id: "d".to_owned(), session: key(), amount: usd("2") },
        LedgerBody::Raise { id: "r".to_owned(), cap: usd("3") },
        LedgerBody::Totals {
            cap: Some(usd("1")),
            booked: usd("1"),
            unknown: usd("1"),
            unknown_count: 1,
            open: vec![(hold(), usd("1"))],
            known: TotalsKnown {
                above_quote: usd("0.5"),
                payers: vec![TotalsPayer { session: key(), epoch: Epoch(2), what: "m".to_owned() }],
                raises: vec![("r".to_owned(), usd("3"))],
                decisions: vec![TotalsDecision { id: "d".to_owned(), session: key(), amount: usd("2"), unknown: true }],
            },
        },
    ];
    let log = LogKey::Shared(SharedLog::Ledger((&key()).into()));
    for body in &ledger {
        let frame = Frame::encode(&log, Seq(1), Epoch(0), 0, body).unwrap();
        assert_eq!(frame.decode::<LedgerBody>(&log).unwrap().body, *body);
    }
    assert_eq!(ledger.len(), LedgerBody::KINDS.len());
    let inbox = [
        InboxBody::Post { submission: Submission::new(words("w"), Source::Person, "hello") },
        InboxBody::Retract { id: words("w") },
        InboxBody::Taken { ids: vec![words("w")] },
    ];
    let log = LogKey::Shared(SharedLog::Inbox(key()));
    for body in &inbox {
        let frame = Frame::encode(&log, Seq(1), Epoch(0), 0, body).unwrap();
        assert_eq!(frame.decode::<InboxBody>(&log).unwrap().body, *body);
    }
    assert_eq!(inbox.len(), InboxBody::KINDS.len());
}

#[test]
fn no_flipped_bit_of_a_frame_is_read_as_data() {
    for body in bodies() {
        let frame = encode(&body);
        for at in 0..frame.bytes.len() {
            for bit in 0..8 {
                let mut bytes = frame.bytes.to_vec();
                bytes[at] ^= 1 << bit;
                let read = Frame { seq: frame.seq, bytes: Arc::from(bytes) }.decode::<Body>(&log());
                // The first byte is the format: flipped, it reads as another version's.
                let named = match at {
                    0 => matches!(read, Err(DecodeError::Format { found }) if found == FORMAT ^ (1 << bit)),
                    _ => read == Err(DecodeError::Damaged),
                };
                assert!(named, "{}: byte {at}, bit {bit}: {read:?}", body.kind());
            }
        }
    }
}

#[test]
fn a_frame_cut_short_or_grown_is_damaged() {
    let frame = encode(&native(0, "line\n"));
    for length in 0..frame.bytes.len() {
        let cut = Frame { seq: frame.seq, bytes: Arc::from(&frame.bytes[..length]) };
        assert_eq!(cut.decode::<Body>(&log()), Err(DecodeError::Damaged), "{length} bytes");
    }
    let grown = Frame { seq: frame.seq, bytes: Arc::from([&frame.bytes[..], b"x"].concat()) };
    assert_eq!(grown.decode::<Body>(&log()), Err(DecodeError::Damaged));
}

#[test]
fn a_record_is_not_read_at_another_place_or_in_another_log() {
    let frame = encode(&delivered());
    let moved = Frame { seq: Seq(6), ..frame.clone() };
    assert_eq!(moved.decode::<Body>(&log()), Err(DecodeError::Damaged));
    let other = LogKey::Session("other".parse().unwrap());
    assert_eq!(frame.decode::<Body>(&other), Err(DecodeError::Damaged));
}

#[test]
fn what_a_newer_version_wrote_is_refused_by_name() {
    let read = |format, text: &str| written_elsewhere(&log(), format, text).decode::<Body>(&log());
    assert_eq!(
        read(FORMAT, r#"{"kind":"moved","to":"x"}"#).unwrap().body,
        Body::Moved { to: "x".to_owned() },
        "the frame is well made"
    );
    assert_eq!(read(FORMAT + 1, r#"{"kind":"moved","to":"x"}"#), Err(DecodeError::Format { found: FORMAT + 1 }));
    assert_eq!(read(FORMAT, r#"{"kind":"dreamt","of":1}"#), Err(DecodeError::Kind { kind: "dreamt".to_owned() }));
    for misshapen in
        [r#"{"kind":"moved"}"#, r#"{"kind":"verdict","number":1,"accepted":true,"more":1}"#, "{}", "[]", "x"]
    {
        assert!(matches!(read(FORMAT, misshapen), Err(DecodeError::Shape(_))), "{misshapen}");
    }
}
