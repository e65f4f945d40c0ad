//! The fold: what a session's records say, in any cut, and its figures against a second reckoning.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use agentrun_kernel::{
    Body, EffectKind, Epoch, OutcomeEnd, Record, Replay, Seq, SessionState, Source, TurnEndHow, Usd, validate,
};
use common::{
    Dice, Log, any_body, any_legal, delivered, effect, intent, native, outcome, paid, parked, placed, settled,
    submission, turn_end, usd, words,
};

const SEEDS: u64 = 150;
const DRAWS: usize = 160;

#[test]
fn folding_the_rest_onto_a_fold_is_folding_the_whole() {
    for seed in 0..SEEDS {
        let records = any_legal(seed, DRAWS).records;
        let whole = SessionState::fold(&records);
        for cut in 0..=records.len() {
            let mut state = SessionState::fold(&records[..cut]);
            records[cut..].iter().for_each(|record| state.apply(record));
            assert_eq!(state, whole, "seed {seed}, cut {cut}");
        }
    }
}

#[test]
fn inv8_any_prefix_of_a_legal_log_is_legal() {
    let mut kinds = BTreeSet::new();
    for seed in 0..SEEDS {
        let records = any_legal(seed, DRAWS).records;
        kinds.extend(records.iter().map(|record| record.body.kind()));
        for cut in 0..=records.len() {
            assert_eq!(
                validate(&records[..cut]).unwrap(),
                SessionState::fold(&records[..cut]),
                "seed {seed}, cut {cut}"
            );
        }
    }
    // The draw is worth its name only if the legal logs hold what matters.
    for kind in [
        "placed",
        "turn_end",
        "intent",
        "outcome",
        "candidate",
        "verdict",
        "delivered",
        "failed",
        "parked",
        "settled",
        "withdrawn",
    ] {
        assert!(kinds.contains(kind), "no log drawn holds `{kind}`");
    }
}

#[test]
fn the_fold_is_total_over_logs_that_no_writer_would_write() {
    for seed in 0..SEEDS {
        let mut dice = Dice::new(seed);
        let mut state = SessionState::default();
        for _ in 0..DRAWS {
            let (seq, epoch) = (Seq(dice.below(50) as u64), Epoch(dice.below(5) as u64));
            let record = Record { seq, epoch, at: 0, body: any_body(&mut dice) };
            state.apply(&record);
            assert_eq!((state.head, state.epoch), (seq, epoch));
        }
    }
}

/// Reckons the figures of a legal log from its records alone, in the plainest way.
#[test]
fn the_figures_agree_with_a_second_reckoning() {
    for seed in 0..SEEDS {
        let records = any_legal(seed, DRAWS).records;
        let state = SessionState::fold(&records);
        let mut open = BTreeMap::new();
        let (mut booked, mut held, mut unknown, mut opens) = (Usd::ZERO, Usd::ZERO, Usd::ZERO, 0);
        // What is steered into a turn opens none.
        let mut turns = BTreeSet::new();
        let mut stream = Vec::new();
        for record in &records {
            match &record.body {
                Body::Intent(intent) => {
                    open.insert(intent.key.clone(), intent);
                    held = held.saturating_add(intent.quote.unwrap_or_default());
                }
                Body::Outcome(outcome) => {
                    let quote = open.remove(&outcome.key).unwrap().quote;
                    held = held.checked_sub(quote.unwrap_or_default()).unwrap();
                    match (quote, outcome.cost) {
                        (Some(_), Some(cost)) => booked = booked.saturating_add(cost),
                        (Some(quote), None) => unknown = unknown.saturating_add(quote),
                        (None, _) => {}
                    }
                }
                Body::Native(write) => {
                    stream.truncate(usize::try_from(write.offset).unwrap());
                    stream.extend_from_slice(&write.bytes);
                }
                Body::Placed(placed) => drop(turns.insert(placed.turn.clone())),
                Body::Opened(_) => opens += 1,
                _ => {}
            }
        }
        let open_now: BTreeSet<_> = state.open_effects().map(|effect| effect.intent.key.clone()).collect();
        assert_eq!(open_now, open.into_keys().collect(), "seed {seed}");
        assert_eq!((state.spent.booked, state.spent.held, state.spent.unknown), (booked, held, unknown), "seed {seed}");
        assert_eq!(state.spent.counted(), booked.saturating_add(held).saturating_add(unknown));
        assert_eq!(
            (state.turns, state.opens, state.native_length("h")),
            (turns.len() as u32, opens, stream.len() as u64),
            "seed {seed}"
        );
    }
}

#[test]
fn b14_a_paid_effect_counts_as_held_then_as_booked_or_in_full_as_unknown() {
    let begun = |name| Body::Intent(paid(intent(name, EffectKind::Request, Replay::Never, Some("t")), "0.5"));
    let mut booked = outcome("a", OutcomeEnd::Ok);
    booked.cost = Some(usd("0.2"));
    let log = Log::in_turn().and(begun("a")).and(begun("b"));
    assert_eq!((log.state().spent.held, log.state().spent.counted()), (usd("1"), usd("1")));
    let log = log.and(Body::Outcome(booked)).ended("b", OutcomeEnd::Interrupted);
    let spent = log.state().spent;
    assert_eq!((spent.booked, spent.held, spent.unknown, spent.unknown_count), (usd("0.2"), Usd::ZERO, usd("0.5"), 1));
}

#[test]
fn f29_an_open_effect_counts_the_opens_it_lived_through() {
    let log = Log::in_turn().begun("a", EffectKind::Tool, Replay::Safe).reopened().reopened();
    assert_eq!(log.state().effect(&effect("a")).unwrap().opens, 2);
    let ended = log.ended("a", OutcomeEnd::Ok).reopened();
    assert_eq!(ended.state().effect(&effect("a")).unwrap().opens, 2, "an ended one is not open");
}

#[test]
fn b95_turns_with_neither_request_nor_delivery_are_counted_in_a_row() {
    let turn = |log: Log, n: u32, inside: Vec<Body>| {
        let (id, message, turn) = (format!("w{n}"), format!("m{n}"), format!("t{n}"));
        log.and(submission(&id, Source::Nudge))
            .and(placed(&message, &turn, &[&id], &[]))
            .all(inside)
            .and(turn_end(&turn, TurnEndHow::Done))
    };
    let log = turn(turn(Log::new(), 1, Vec::new()), 2, Vec::new());
    assert_eq!(log.state().empty_turns, 2);
    let tool = Body::Intent(intent("a", EffectKind::Tool, Replay::Safe, Some("t3")));
    assert_eq!(turn(log.clone(), 3, vec![tool]).state().empty_turns, 3, "a tool call is no progress");
    let request = Body::Intent(intent("a", EffectKind::Request, Replay::Never, Some("t3")));
    assert_eq!(turn(log.clone(), 3, vec![request]).state().empty_turns, 0);
    assert_eq!(turn(log, 3, vec![delivered()]).state().empty_turns, 0);
}

#[test]
fn f11_a_park_is_taken_back_by_the_next_paid_intent_only() {
    let log = Log::in_turn().and(parked());
    assert!(log.state().parked.is_some());
    let log = log.begun("a", EffectKind::Tool, Replay::Safe);
    assert!(log.state().parked.is_some());
    let log = log.and(Body::Intent(paid(intent("b", EffectKind::Request, Replay::Never, Some("t")), "1")));
    assert!(log.state().parked.is_none());
}

#[test]
fn b30_words_a_settle_left_unsent_wait_until_a_message_carries_them() {
    let log = Log::in_turn().and(settled("t", &["node"]));
    let unsent = |log: &Log| log.state().submission(&words("node")).unwrap().unsent;
    assert!(unsent(&log));
    assert_eq!(log.state().last_turn.unwrap().how, TurnEndHow::Interrupted);
    let log = log.and(placed("m2", "t2", &["node"], &["m"]));
    assert!(!unsent(&log));
    assert_eq!(log.state().messages().map(|message| message.replaced).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn b66_a_native_write_cuts_its_stream_where_it_begins() {
    let log = Log::new().and(native(0, "one\ntwo\n")).and(native(4, "x"));
    assert_eq!(log.state().native_length("h"), 5);
    assert_eq!(log.state().native().collect::<Vec<_>>(), [("h", 5)]);
    assert_eq!(log.state().native_length("other"), 0);
}

#[test]
fn a_response_is_kept_in_its_record_and_not_in_memory() {
    let mut answered = outcome("a", OutcomeEnd::Ok);
    answered.response = std::sync::Arc::from(&b"whole response"[..]);
    let state = Log::in_turn().begun("a", EffectKind::Request, Replay::Never).and(Body::Outcome(answered)).state();
    let effect = state.effect(&effect("a")).unwrap();
    assert_eq!((effect.response_bytes, effect.outcome.as_ref().unwrap().response.len()), (14, 0));
    assert_eq!(effect.outcome_seq, Some(state.head));
}
