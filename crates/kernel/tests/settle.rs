//! The table of a settle: its rows in their order, that it runs nothing, and that it comes to rest from any legal log.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::sync::Arc;

use agentrun_kernel::{
    Body, CallId, Decision, EffectKind, NOT_RUN, OutcomeEnd, Repair, Replay, Source, Survey, Today, TurnEndHow, decide,
    is_quiet, settle,
};
use common::recovery::{done, native_call};
use common::{
    Dice, Log, any_legal, candidate, delivered, effect, failed, intent, message, outcome, paid, parked, placed,
    settled, submission, turn, turn_end, verdict, words,
};

fn taken() -> Survey {
    Survey { resumable: true, taken: vec![message("m")], ..Survey::default() }
}

fn answer(id: &str, text: &str) -> Repair {
    Repair::Answer { call: CallId(id.to_owned()), text: Arc::from(text), is_error: true }
}

fn response(id: &str) -> Body {
    let mut outcome = outcome("r1", OutcomeEnd::Ok);
    (outcome.response_id, outcome.response) = (Some(id.to_owned()), Arc::from(&b"response"[..]));
    Body::Outcome(outcome)
}

/// Each row uncovers the next: what was in flight is lost, the submission left undecided, calls interrupted, the history mended, the turn
/// settled, and last the history shows its end.
#[test]
fn b28_the_rows_are_taken_in_their_order_and_none_of_them_runs_anything() {
    let log = Log::in_turn()
        .and(Body::Intent(paid(intent("r1", EffectKind::Request, Replay::Never, Some("t")), "1")))
        .and(response("resp1"))
        .begun("safe", EffectKind::Tool, Replay::Safe)
        .begun("never", EffectKind::Tool, Replay::Never)
        .begun("submit", EffectKind::Submit, Replay::Safe)
        .and(candidate(1, "submit"))
        .begun("lost", EffectKind::Request, Replay::Never)
        .and(parked())
        .reopened();
    let mut survey = taken();
    survey.open_calls = vec![native_call("safe"), native_call("fresh")];
    let asked = |log: &Log, survey: &Survey| settle(&log.state(), survey);

    assert_eq!(asked(&log, &survey), Decision::LoseRequests(vec![effect("lost")]));
    let log = log.ended("lost", OutcomeEnd::Interrupted);
    assert!(matches!(asked(&log, &survey), Decision::Undecided(candidate) if candidate.number == 1));
    let log = log.and(verdict(1, false)).ended("submit", OutcomeEnd::Interrupted);
    assert_eq!(asked(&log, &survey), Decision::Interrupt(vec![effect("safe"), effect("never")]));
    let log = log.ended("safe", OutcomeEnd::Interrupted).ended("never", OutcomeEnd::Interrupted);
    let lacking = Repair::Response { key: effect("r1"), id: "resp1".to_owned() };
    assert_eq!(asked(&log, &survey), Decision::Repair(vec![lacking]));
    survey.responses = vec!["resp1".to_owned()];
    let answers = vec![answer("safe", "safe ended"), answer("fresh", NOT_RUN)];
    assert_eq!(asked(&log, &survey), Decision::Repair(answers), "a call that never began is not begun now");
    survey.open_calls = Vec::new();
    assert_eq!(asked(&log, &survey), Decision::CarryOn { turn: turn("t"), unsent: vec![] });
    let log = log.and(settled("t", &[]));
    assert_eq!(asked(&log, &survey), Decision::Repair(vec![Repair::EndTurn]));
    survey.ended = true;
    assert_eq!(asked(&log, &survey), Decision::Idle);
    assert!(is_quiet(&log.state(), &survey));
}

#[test]
fn b34_b35_b36_unsent_is_what_the_history_lacks_and_what_was_never_placed() {
    let log = Log::in_turn().and(submission("said", Source::Person)).and(submission("nudge", Source::Nudge)).reopened();
    let unsent = |survey: &Survey| match settle(&log.state(), survey) {
        Decision::CarryOn { unsent, .. } => unsent,
        other => panic!("{other:?}"),
    };
    assert_eq!(unsent(&Survey::default()), [words("node"), words("said")]);
    assert_eq!(unsent(&taken()), [words("said")]);
}

#[test]
fn b28_a_turn_that_is_over_by_its_history_or_its_delivery_ends_as_done() {
    let done = Decision::EndTurn { turn: turn("t"), how: TurnEndHow::Done, unsent: vec![] };
    let ended = Survey { ended: true, ..taken() };
    assert_eq!(settle(&Log::in_turn().reopened().state(), &ended), done);
    let log = Log::in_turn().and(delivered()).reopened();
    assert_eq!(settle(&log.state(), &taken()), Decision::Repair(vec![Repair::EndTurn]));
    assert_eq!(settle(&log.state(), &ended), done);
}

#[test]
fn m33_b34_words_steered_into_a_settled_turn_and_not_taken_stay_unsent() {
    let steered = Log::in_turn().and(submission("said", Source::Person)).and(placed("m2", "t", &["said"], &[]));
    let log = steered.clone().reopened();
    let both = Survey { taken: vec![message("m"), message("m2")], ..taken() };
    assert_eq!(settle(&log.state(), &taken()), Decision::CarryOn { turn: turn("t"), unsent: vec![words("said")] });
    assert_eq!(settle(&log.state(), &both), Decision::CarryOn { turn: turn("t"), unsent: vec![] });
    let ends = |unsent| Decision::EndTurn { turn: turn("t"), how: TurnEndHow::Done, unsent };
    let ended = Survey { ended: true, ..taken() };
    assert_eq!(settle(&log.state(), &ended), ends(vec![words("said")]));
    assert_eq!(settle(&steered.and(delivered()).reopened().state(), &ended), ends(vec![words("said")]));
    assert_eq!(settle(&log.state(), &Survey { ended: true, ..both }), ends(vec![]));
}

#[test]
fn b28_a_session_that_failed_in_a_turn_is_settled_too() {
    let log = Log::in_turn().and(failed()).reopened();
    assert_eq!(settle(&log.state(), &taken()), Decision::CarryOn { turn: turn("t"), unsent: vec![] });
    let log = log.and(settled("t", &[]));
    assert_eq!(settle(&log.state(), &Survey { ended: true, ..taken() }), Decision::Idle);
}

/// What a later run does with a settled turn.
#[test]
fn b29_a_settled_turn_is_not_gone_on_with_and_its_safe_effects_do_not_run_again() {
    let today = Today { own_ids: true, gate_open: false, rerunnable: &|_| true, ours: &|_| true };
    let settled = Log::in_turn().begun("a", EffectKind::Tool, Replay::Safe).and(settled("t", &[])).reopened();
    assert_eq!(decide(&settled.state(), &taken(), today), Decision::Interrupt(vec![effect("a")]));
    let settled = settled.ended("a", OutcomeEnd::Interrupted);
    let survey = Survey { open_calls: vec![native_call("a"), native_call("b")], ..taken() };
    let answers = vec![answer("a", "a ended"), answer("b", NOT_RUN)];
    assert_eq!(decide(&settled.state(), &survey, today), Decision::Repair(answers), "a new call is not begun for it");
    let end = Decision::Repair(vec![Repair::EndTurn]);
    assert_eq!(decide(&settled.state(), &taken(), today), end, "before anything is placed behind it");
    assert_eq!(decide(&settled.state(), &Survey { ended: true, ..taken() }, today), Decision::Idle);
}

#[test]
fn a_turn_that_ended_by_itself_is_left_as_its_harness_left_it_until_its_delivery_needs_an_end() {
    let log = Log::in_turn().and(turn_end("t", TurnEndHow::Done));
    assert_eq!(settle(&log.clone().reopened().state(), &taken()), Decision::Idle);
    let log = Log::in_turn().and(delivered()).and(turn_end("t", TurnEndHow::Done)).reopened();
    assert_eq!(settle(&log.state(), &taken()), Decision::Repair(vec![Repair::EndTurn]));
}

#[test]
fn b59_a_follow_up_of_this_owner_is_not_settled_by_its_own_table() {
    let log = Log::in_turn()
        .and(turn_end("t", TurnEndHow::Done))
        .and(Body::Intent(intent("f", EffectKind::FollowUp, Replay::Never, None)))
        .and(submission("asked", Source::FollowUp(effect("f"))))
        .and(placed("m2", "t2", &["asked"], &[]));
    assert!(!matches!(settle(&log.state(), &Survey::default()), Decision::SettleFollowUp { .. }));
    assert!(matches!(settle(&log.reopened().state(), &Survey::default()), Decision::SettleFollowUp { .. }));
}

#[test]
fn b28_f33_from_any_legal_log_it_comes_to_rest_by_legal_records_and_opens_nothing() {
    for seed in 0..600 {
        let mut dice = Dice::new(seed);
        let mut log = any_legal(seed, 20 + dice.below(120)).reopened();
        let open_turn = log.state().open_turn;
        let mut survey = Survey {
            resumable: dice.yes(),
            taken: open_turn.filter(|_| dice.yes()).map(|turn| turn.message).into_iter().collect(),
            open_calls: ["a", "b", "zz"].iter().filter(|_| dice.below(3) == 0).map(|id| native_call(id)).collect(),
            ended: dice.yes(),
            ..Survey::default()
        };
        let rested = (0..200).any(|_| {
            // `state` refuses an illegal log.
            let decision = settle(&log.state(), &survey);
            assert!(
                !matches!(
                    decision,
                    Decision::RunAgain(_) | Decision::RunNew { .. } | Decision::Review(_) | Decision::AskGate(_)
                ),
                "a settle runs nothing: {decision:?}"
            );
            match done(&log, &mut survey, &mut false, decision) {
                Some(bodies) => bodies.into_iter().for_each(|body| log.push(body)),
                None => return true,
            }
            false
        });
        let state = log.state();
        assert!(rested && is_quiet(&state, &survey), "seed {seed}");
        assert!(state.open_turn.is_none() && state.open_effects().next().is_none(), "seed {seed}");
    }
}
