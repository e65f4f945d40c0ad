//! The record decoder under bytes of every kind: it never panics, never takes damage for data, and what it reads it would write again.
//!
//! `corpus` holds one record of each kind as the first format wrote it, and `harness` is what a fuzzer would call.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod bodies;
mod corpus;
mod harness;

use std::sync::Arc;

use agentrun_kernel::{Body, DecodeError, Epoch, FORMAT, Frame, InboxBody, LedgerBody, LogBody, Seq};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use serde_json::Value;

use self::harness::{frame, inbox_log, ledger_log, seal, session_log};

/// Cases of a property. `AGENTRUN_FULL=1` runs twenty times as many.
fn cases(few: u32) -> ProptestConfig {
    let full = std::env::var_os("AGENTRUN_FULL").is_some_and(|value| value == "1");
    // Failures are minimised in the report; none is kept in a file of its own.
    ProptestConfig { cases: if full { few * 20 } else { few }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn every_session_record_comes_back_as_it_went(body in bodies::session(), seq in 1_u64.., epoch: u64, at: u64) {
        let record = Frame::encode(&session_log(), Seq(seq), Epoch(epoch), at, &body).unwrap();
        let back = record.decode::<Body>(&session_log()).unwrap();
        prop_assert_eq!((back.seq, back.epoch, back.at), (Seq(seq), Epoch(epoch), at));
        prop_assert_eq!(back.body, body);
    }

    #[test]
    fn every_ledger_record_comes_back_as_it_went(body in bodies::ledger()) {
        let record = Frame::encode(&ledger_log(), Seq(1), Epoch(0), 0, &body).unwrap();
        prop_assert_eq!(record.decode::<LedgerBody>(&ledger_log()).unwrap().body, body);
    }

    #[test]
    fn every_inbox_record_comes_back_as_it_went(body in bodies::inbox()) {
        let record = Frame::encode(&inbox_log(), Seq(1), Epoch(0), 0, &body).unwrap();
        prop_assert_eq!(record.decode::<InboxBody>(&inbox_log()).unwrap().body, body);
    }

    /// A checksum of 32 bits finds each of these for sure, whatever the record.
    #[test]
    fn up_to_three_flipped_bits_are_damage(body in bodies::session(), flips in prop::collection::vec(any::<Index>(), 1..=3)) {
        let record = frame(&body);
        let mut bytes = record.bytes.to_vec();
        // The first byte is the format; it is told apart by name.
        let bits = (bytes.len() - 1) * 8;
        let places: std::collections::BTreeSet<_> = flips.iter().map(|flip| flip.index(bits)).collect();
        for bit in places {
            bytes[1 + bit / 8] ^= 1 << (bit % 8);
        }
        let read = Frame { seq: record.seq, bytes: Arc::from(bytes) }.decode::<Body>(&session_log());
        prop_assert_eq!(read, Err(DecodeError::Damaged));
    }

    #[test]
    fn a_run_of_damaged_bytes_is_damage(body in bodies::session(), at: Index, mask in 1_u32..) {
        let record = frame(&body);
        let mut bytes = record.bytes.to_vec();
        let at = 1 + at.index(bytes.len() - 5);
        for (byte, mask) in bytes[at..at + 4].iter_mut().zip(mask.to_le_bytes()) {
            *byte ^= mask;
        }
        let read = Frame { seq: record.seq, bytes: Arc::from(bytes) }.decode::<Body>(&session_log());
        prop_assert_eq!(read, Err(DecodeError::Damaged));
    }

    #[test]
    fn a_record_is_damage_at_any_other_place(body in bodies::session(), seq in 1_u64..) {
        let record = frame(&body);
        prop_assume!(Seq(seq) != record.seq);
        let moved = Frame { seq: Seq(seq), bytes: record.bytes };
        prop_assert_eq!(moved.decode::<Body>(&session_log()), Err(DecodeError::Damaged));
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        harness::decoder_is_right(&bytes);
    }

    /// Bytes whose checksum fits reach the parts behind it.
    #[test]
    fn sealed_bytes_are_decoded_without_a_panic(format in prop_oneof![4 => Just(FORMAT), 1 => any::<u8>()], rest in prop::collection::vec(any::<u8>(), 0..200)) {
        harness::decoder_is_right(&seal(format, &rest));
    }

    /// Records of the corpus with their text changed, under a checksum that fits.
    #[test]
    fn changed_records_are_decoded_without_a_panic(
        which: Index,
        changes in prop::collection::vec((any::<Index>(), any::<u8>(), 0_u8..4), 1..6),
    ) {
        let all = corpus::session();
        prop_assume!(!all.is_empty());
        let (_, bytes) = &all[which.index(all.len())];
        harness::decoder_is_right(&seal(FORMAT, &changed(&bytes[5..], &changes)));
    }
}

fn changed(bytes: &[u8], changes: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, byte, how) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = place.index(bytes.len());
        match how {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// What was written once is read for ever, and written again to the same bytes.
#[test]
fn every_kind_of_the_first_format_is_read_and_written_again_to_the_byte() {
    let all = corpus::session();
    let kinds: Vec<_> = all.iter().map(|(kind, _)| kind.as_str()).collect();
    for kind in Body::KINDS {
        assert!(kinds.contains(kind), "no `{kind}` in the corpus");
    }
    for (kind, bytes) in &all {
        harness::decoder_is_right(bytes);
        let record = Frame { seq: harness::SEQ, bytes: Arc::from(bytes.as_slice()) };
        let read = record.decode::<Body>(&session_log()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(read.body.kind(), kind);
        let again = Frame::encode(&session_log(), read.seq, read.epoch, read.at, &read.body).unwrap();
        assert_eq!(&*again.bytes, bytes, "{kind} is written otherwise today");
    }
}

/// A model can send arguments as deep as it likes. What could not be read back is not written, or the log would end there.
#[test]
fn a_value_nested_too_deep_to_be_read_is_not_written() {
    let mut deepest = 0;
    for depth in 1..200 {
        let value = (0..depth).fold(Value::Null, |value, level| match level % 2 {
            0 => Value::Array(vec![value]),
            _ => Value::Object([("a".to_owned(), value)].into_iter().collect()),
        });
        let body = Body::Data { name: "[{\"[".to_owned(), value };
        match Frame::encode(&session_log(), Seq(1), Epoch(1), 0, &body) {
            Ok(record) => {
                assert_eq!(record.decode::<Body>(&session_log()).unwrap().body, body, "depth {depth}");
                deepest = depth;
            }
            Err(refused) => assert!(matches!(refused, DecodeError::Shape(_)), "depth {depth}: {refused}"),
        }
    }
    assert!((100..200).contains(&deepest), "the deepest value that was written has {deepest} levels");
}

#[test]
fn every_kind_is_drawn() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = std::collections::BTreeSet::new();
    let session = bodies::session();
    for _ in 0..500 {
        let body = session.new_tree(&mut runner).unwrap().current();
        kinds.insert(body.kind());
    }
    assert_eq!(kinds, Body::KINDS.iter().copied().collect());
    assert_eq!(LedgerBody::KINDS, <LedgerBody as LogBody>::KINDS);
}
