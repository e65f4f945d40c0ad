//! The loop guard: what it calls a circle, what breaks one, and that a resumed session knows what the cut one knew.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use agentrun_kernel::{Body, Circle, Digest, EffectKind, LoopGuard, LoopVerdict, Outcome, OutcomeEnd, Record, Replay};
use common::{Dice, Log, effect, intent};
use serde_json::json;

use OutcomeEnd::{Error, Interrupted, Ok as Good, Refused};

fn arguments(of: &str) -> Digest {
    Digest::of_json(&json!({ "of": of }))
}

/// A log of calls: tool, arguments, how it ended, its text.
fn called(calls: &[(&str, &str, OutcomeEnd, &str)]) -> Vec<Record> {
    let mut log = Log::in_turn();
    for (at, (tool, of, end, text)) in calls.iter().enumerate() {
        let name = format!("e{at}");
        let mut begun = intent(&name, EffectKind::Tool, Replay::Never, Some("t1"));
        begun.name = (*tool).to_owned();
        begun.digest = arguments(of);
        log.push(Body::Intent(begun));
        log.push(Body::Outcome(Outcome::new(effect(&name), *end, *text)));
    }
    log.records
}

fn asks(calls: &[(&str, &str, OutcomeEnd, &str)], tool: &str, of: &str) -> LoopVerdict {
    LoopGuard::fold(&called(calls)).verdict(tool, &arguments(of))
}

#[test]
fn r18_the_third_identical_call_with_identical_results_is_refused_with_a_note_and_the_fourth_ends() {
    let same = ("read", "a", Good, "17");
    assert_eq!(asks(&[same], "read", "a"), LoopVerdict::Go);
    assert_eq!(asks(&[same, same], "read", "a"), LoopVerdict::Note(Circle::Round(1)));
    let told = ("read", "a", Refused, "you go round in circles");
    assert_eq!(asks(&[same, same, told], "read", "a"), LoopVerdict::End(Circle::Round(1)));
}

#[test]
fn r18_another_result_other_arguments_or_another_tool_is_progress() {
    let (same, other) = (("read", "a", Good, "17"), ("read", "a", Good, "18"));
    assert_eq!(asks(&[same, other], "read", "a"), LoopVerdict::Go);
    assert_eq!(asks(&[same, same, other], "read", "a"), LoopVerdict::Go);
    assert_eq!(asks(&[same, same], "read", "b"), LoopVerdict::Go);
    assert_eq!(asks(&[same, same], "list", "a"), LoopVerdict::Go);
    // What was told and then did something else may ask again.
    let told = ("read", "a", Refused, "told");
    assert_eq!(asks(&[same, same, told, ("list", "a", Good, "x")], "read", "a"), LoopVerdict::Go);
}

#[test]
fn r19_a_round_of_two_to_four_calls_is_noted_where_its_third_occurrence_begins() {
    let names = ["a", "b", "c", "d"];
    for length in 2..=4 {
        let round: Vec<_> = names[..length].iter().map(|of| ("read", *of, Good, "same")).collect();
        let twice: Vec<_> = round.iter().chain(&round).copied().collect();
        assert_eq!(asks(&round, "read", "a"), LoopVerdict::Go, "{length}");
        assert_eq!(asks(&twice, "read", "a"), LoopVerdict::Note(Circle::Round(length)), "{length}");
        assert_eq!(asks(&twice, "read", "b"), LoopVerdict::Go, "it leaves the circle");
        assert_eq!(asks(&twice[1..], "read", "a"), LoopVerdict::Go, "one short of two rounds");
        let mut progress = twice.clone();
        progress[length - 1].3 = "another";
        assert_eq!(asks(&progress, "read", "a"), LoopVerdict::Go, "{length}: one result was another");
        let told: Vec<_> = twice.iter().copied().chain([("read", "a", Refused, "told")]).collect();
        assert_eq!(asks(&told, "read", "a"), LoopVerdict::End(Circle::Round(length)));
    }
}

#[test]
fn r19_five_calls_in_a_round_are_not_looked_for() {
    let round: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|of| ("read", *of, Good, "same")).collect();
    let thrice: Vec<_> = round.iter().chain(&round).chain(&round).copied().collect();
    assert_eq!(asks(&thrice, "read", "a"), LoopVerdict::Go);
}

#[test]
fn m31_a_call_that_failed_twice_is_refused_the_third_time_whatever_ran_between_and_a_success_resets() {
    let (bad, worse) = (("send", "a", Error, "no route"), ("send", "a", Interrupted, "cut"));
    let between = ("read", "x", Good, "y");
    assert_eq!(asks(&[bad, between], "send", "a"), LoopVerdict::Go);
    assert_eq!(asks(&[bad, between, worse], "send", "a"), LoopVerdict::Note(Circle::Failing(2)));
    let told = ("send", "a", Refused, "told");
    assert_eq!(asks(&[bad, worse, told, between], "send", "a"), LoopVerdict::End(Circle::Failing(3)));
    assert_eq!(asks(&[bad, worse, ("send", "a", Good, "sent")], "send", "a"), LoopVerdict::Go);
    assert_eq!(asks(&[bad, worse], "send", "b"), LoopVerdict::Go);
}

#[test]
fn model_requests_and_calls_still_open_count_for_nothing() {
    let mut log = Log::in_turn();
    for at in 0..4 {
        let name = format!("e{at}");
        let kind = if at < 3 { EffectKind::Request } else { EffectKind::Tool };
        let mut begun = intent(&name, kind, Replay::Never, Some("t1"));
        begun.name = "read".to_owned();
        begun.digest = arguments("a");
        log.push(Body::Intent(begun));
        if at < 3 {
            log.push(Body::Outcome(Outcome::new(effect(&name), Error, "503")));
        }
    }
    assert_eq!(LoopGuard::fold(&log.records).verdict("read", &arguments("a")), LoopVerdict::Go);
}

#[test]
fn folding_the_rest_onto_a_fold_is_folding_the_whole_so_a_resume_knows_the_circle() {
    let ends = [Good, Error, Interrupted, Refused];
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let calls: Vec<_> = (0..dice.below(30))
            .map(|_| {
                (*dice.pick(&["read", "send"]), *dice.pick(&["a", "b"]), *dice.pick(&ends), *dice.pick(&["1", "2"]))
            })
            .collect();
        let records = called(&calls);
        let whole = LoopGuard::fold(&records);
        for cut in 0..=records.len() {
            let mut guard = LoopGuard::fold(&records[..cut]);
            records[cut..].iter().for_each(|record| guard.apply(record));
            assert_eq!(guard, whole, "seed {seed}, cut {cut}");
        }
    }
}
