//! The decision table: each row, the order of the rows, and that asking it again and again comes to an end from any legal log.
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
    Body, CallId, Carry, Decision, EffectKey, EffectKind, NOT_RUN, OutcomeEnd, Repair, Replay, SAFE_OPENS, Seq, Source,
    Survey, Today, TurnEndHow, decide, steered_in_vain, turn_end as end_of_turn,
};
use common::recovery::{done, native_call};
use common::{
    Dice, Log, any_legal, candidate, delivered, effect, failed, intent, message, outcome, paid, parked, placed,
    settled, submission, turn, turn_end, verdict, withdrawn, words,
};
use serde_json::json;

/// Today as most tests have it: our ids are taken, every safe effect may run again, every tool is ours.
const TODAY: Today<'static> = Today { own_ids: true, gate_open: false, rerunnable: &|_| true, ours: &|_| true };

fn decision(log: &Log, survey: &Survey) -> Decision {
    decide(&log.state(), survey, TODAY)
}

/// A history that took the message `m` and nothing more.
fn taken() -> Survey {
    Survey { resumable: true, taken: vec![message("m")], ..Survey::default() }
}

fn response(name: &str, id: &str) -> Body {
    let mut outcome = outcome(name, OutcomeEnd::Ok);
    (outcome.response_id, outcome.response) = (Some(id.to_owned()), Arc::from(&b"response"[..]));
    Body::Outcome(outcome)
}

fn keys(names: &[&str]) -> Vec<EffectKey> {
    names.iter().map(|name| effect(name)).collect()
}

/// A follow-up's own turn, with a person's words in the same message.
fn follow_up() -> Log {
    Log::in_turn()
        .and(turn_end("t", TurnEndHow::Done))
        .and(Body::Intent(intent("f", EffectKind::FollowUp, Replay::Never, None)))
        .and(submission("asked", Source::FollowUp(effect("f"))))
        .and(submission("said", Source::Person))
        .and(placed("m2", "t2", &["said", "asked"], &[]))
}

/// A session cut where every row below the answered ones holds at once; each row's records uncover the next. This is the table's order.
#[test]
fn f33_the_rows_are_taken_in_their_order() {
    let never = |name| Body::Intent(intent(name, EffectKind::Tool, Replay::Never, Some("t")));
    let request = |name| Body::Intent(paid(intent(name, EffectKind::Request, Replay::Never, Some("t")), "1"));
    let log = Log::in_turn()
        .and(request("r1"))
        .and(response("r1", "resp1"))
        .begun("safe", EffectKind::Tool, Replay::Safe)
        .and(never("never"))
        .begun("submit", EffectKind::Submit, Replay::Safe)
        .and(candidate(1, "submit"))
        .and(request("lost"))
        .and(parked())
        .and(submission("said", Source::Person))
        .reopened();
    let mut survey = taken();
    survey.responses = Vec::new();
    survey.open_calls = vec![native_call("safe"), native_call("fresh")];

    assert!(matches!(decision(&log, &survey), Decision::AskGate(_)));
    let open = Today { gate_open: true, ..TODAY };
    let asked = |log: &Log, survey: &Survey| decide(&log.state(), survey, open);

    assert_eq!(asked(&log, &survey), Decision::LoseRequests(keys(&["lost"])));
    let log = log.ended("lost", OutcomeEnd::Interrupted);
    assert_eq!(asked(&log, &survey), Decision::RunAgain(effect("safe")));
    let log = log.ended("safe", OutcomeEnd::Ok);
    assert_eq!(asked(&log, &survey), Decision::Interrupt(keys(&["never"])));
    let log = log.ended("never", OutcomeEnd::Interrupted);
    assert!(matches!(asked(&log, &survey), Decision::Review(candidate) if candidate.number == 1));
    let log = log.and(verdict(1, false)).ended("submit", OutcomeEnd::Error);
    let lacking = Repair::Response { key: effect("r1"), id: "resp1".to_owned() };
    assert_eq!(asked(&log, &survey), Decision::Repair(vec![lacking]));
    survey.responses = vec!["resp1".to_owned()];
    assert_eq!(asked(&log, &survey), Decision::RunNew { call: native_call("fresh"), ordinal: 0 });
    let log = log
        .and(Body::Intent(intent("fresh", EffectKind::Tool, Replay::Never, Some("t"))))
        .ended("fresh", OutcomeEnd::Error);
    let answer = |name: &str, is_error| Repair::Answer {
        call: CallId(name.to_owned()),
        text: Arc::from(format!("{name} ended")),
        is_error,
    };
    assert_eq!(asked(&log, &survey), Decision::Repair(vec![answer("safe", false), answer("fresh", true)]));
    survey.open_calls.clear();
    assert!(matches!(asked(&log, &survey), Decision::Continue(placed) if placed.message == message("m")));
    survey.ended = true;
    assert_eq!(asked(&log, &survey), Decision::EndTurn { turn: turn("t"), how: TurnEndHow::Done, unsent: vec![] });
    let log = log.and(turn_end("t", TurnEndHow::Done));
    assert_eq!(
        asked(&log, &survey),
        Decision::Place(Carry { unsent: vec![], fresh: vec![words("said")], replaces: vec![] })
    );
    let log = log.and(placed("m2", "t2", &["said"], &[])).and(turn_end("t2", TurnEndHow::Done));
    assert_eq!(asked(&log, &survey), Decision::Idle);
}

/// A turn with a person's words steered into it.
fn steered() -> Log {
    Log::in_turn().and(submission("said", Source::Person)).and(placed("m2", "t", &["said"], &[]))
}

#[test]
fn m33_words_steered_into_a_turn_are_placed_again_behind_what_it_did_and_open_no_turn() {
    let log = steered().begun("a", EffectKind::Tool, Replay::Safe).ended("a", OutcomeEnd::Ok).reopened();
    let state = log.state();
    assert_eq!((state.turns, state.open_turn.as_ref().map(|turn| &turn.message)), (1, Some(&message("m"))));
    let mut survey = Survey { open_calls: vec![native_call("a")], ..taken() };
    assert!(matches!(decision(&log, &survey), Decision::Repair(_)), "the words come behind the result");
    survey.open_calls.clear();
    assert!(matches!(decision(&log, &survey), Decision::PlaceAgain(placed) if placed.message == message("m2")));
    // Also where the harness came to its end without them.
    survey.ended = true;
    assert!(matches!(decision(&log, &survey), Decision::PlaceAgain(placed) if placed.message == message("m2")));
    let no_ids = Today { own_ids: false, ..TODAY };
    let carried = Decision::CarryOn { turn: turn("t"), unsent: vec![words("said")] };
    assert_eq!(decide(&state, &survey, no_ids), carried);
    survey.taken.push(message("m2"));
    let done = Decision::EndTurn { turn: turn("t"), how: TurnEndHow::Done, unsent: vec![] };
    assert_eq!(decision(&log, &survey), done);
    survey.ended = false;
    assert!(matches!(decision(&log, &survey), Decision::Continue(placed) if placed.message == message("m")));
}

#[test]
fn m33_what_a_turn_ends_without_begins_the_next_message_and_stands_for_the_one_it_was_in() {
    let log = steered();
    let in_vain = steered_in_vain(&log.state(), &taken());
    assert_eq!(in_vain, [words("said")]);
    let log = end_of_turn(turn("t"), TurnEndHow::Done, in_vain).bodies.into_iter().fold(log, Log::and);
    let carry = Carry { unsent: vec![words("said")], fresh: vec![], replaces: vec![message("m2")] };
    assert_eq!(decision(&log, &Survey { ended: true, ..taken() }), Decision::Place(carry));
    let both = Survey { taken: vec![message("m"), message("m2")], ..taken() };
    assert_eq!(steered_in_vain(&steered().state(), &both), []);
}

#[test]
fn b12_an_answered_session_is_answered_whatever_else_is_open_in_it() {
    let messy = Log::in_turn()
        .and(Body::Intent(paid(intent("r", EffectKind::Request, Replay::Never, Some("t")), "1")))
        .and(parked())
        .and(submission("said", Source::Person));
    let done = messy.clone().and(delivered()).reopened();
    assert!(matches!(decision(&done, &taken()), Decision::Delivered(value) if *value == json!(7)));
    let failed = messy.begun("a", EffectKind::Tool, Replay::Never).and(failed()).reopened();
    assert!(matches!(decision(&failed, &taken()), Decision::Failed(failed) if failed.word == "turn_limit"));
}

#[test]
fn b59_f13_a_turn_that_a_cut_follow_up_opened_is_settled_and_a_persons_words_stay() {
    let settle = |log: &Log| {
        let Decision::SettleFollowUp { key, turn: ended, submissions, unsent } = decision(log, &Survey::default())
        else {
            panic!("not settled")
        };
        assert_eq!((key, ended, submissions), (effect("f"), Some(turn("t2")), vec![words("asked")]), "B61");
        assert_eq!(unsent, [words("said")], "B30: the message did not reach the model, so they are not lost");
    };
    settle(&follow_up().reopened());
    // Its outcome alone does not make the turn one to go on with.
    settle(&follow_up().reopened().ended("f", OutcomeEnd::Interrupted));
    let settled = follow_up()
        .reopened()
        .ended("f", OutcomeEnd::Interrupted)
        .and(withdrawn(&["asked"]))
        .and(settled("t2", &["said"]));
    let carry = Carry { unsent: vec![words("said")], fresh: vec![], replaces: vec![message("m2")] };
    assert_eq!(decision(&settled, &Survey::default()), Decision::Place(carry));
}

#[test]
fn b59_a_follow_up_of_this_epoch_runs_on() {
    assert!(
        matches!(decision(&follow_up(), &Survey::default()), Decision::PlaceAgain(placed) if placed.message == message("m2"))
    );
}

#[test]
fn b78_f11_a_parked_session_asks_the_gate_before_anything_else() {
    let log = Log::in_turn().begun("a", EffectKind::Tool, Replay::Safe).and(parked()).reopened();
    let Decision::AskGate(asked) = decision(&log, &taken()) else { panic!("the gate is not asked") };
    assert_eq!((asked.needed, asked.ledger), (common::usd("2"), Seq(3)));
}

#[test]
fn b14_requests_and_decisions_that_were_in_flight_are_lost_together() {
    let log = Log::in_turn()
        .begun("a", EffectKind::Request, Replay::Never)
        .begun("b", EffectKind::Decision, Replay::Never)
        .begun("c", EffectKind::Tool, Replay::Safe)
        .reopened();
    assert_eq!(decision(&log, &taken()), Decision::LoseRequests(keys(&["a", "b"])));
}

#[test]
fn b52_b53_what_was_cut_runs_again_only_if_it_is_safe_then_and_today() {
    let cut = |kind, replay| Log::in_turn().begun("a", kind, replay).reopened();
    let interrupted = Decision::Interrupt(keys(&["a"]));
    assert_eq!(decision(&cut(EffectKind::Tool, Replay::Safe), &taken()), Decision::RunAgain(effect("a")));
    assert_eq!(decision(&cut(EffectKind::Tool, Replay::Never), &taken()), interrupted);
    let changed = Today { rerunnable: &|_| false, ..TODAY };
    let log = cut(EffectKind::Tool, Replay::Safe);
    assert_eq!(decide(&log.state(), &taken(), changed), interrupted, "its class or its schema is another today");
    for replay in [Replay::Safe, Replay::Never] {
        assert_eq!(
            decision(&cut(EffectKind::Builtin, replay), &taken()),
            interrupted,
            "f23: only the harness can run its own tools"
        );
    }
}

#[test]
fn b53_all_that_is_not_run_again_is_interrupted_in_the_order_it_began() {
    let log = Log::in_turn()
        .begun("b", EffectKind::Tool, Replay::Never)
        .begun("a", EffectKind::Builtin, Replay::Never)
        .begun("c", EffectKind::Submit, Replay::Safe)
        .begun("d", EffectKind::Tool, Replay::Never)
        .ended("d", OutcomeEnd::Ok)
        .reopened();
    assert_eq!(decision(&log, &taken()), Decision::Interrupt(keys(&["b", "a", "c"])));
}

#[test]
fn f29_a_safe_effect_that_was_open_at_three_opens_is_interrupted() {
    let mut log = Log::in_turn().begun("a", EffectKind::Tool, Replay::Safe);
    for opens in 1..SAFE_OPENS {
        log = log.reopened();
        assert_eq!(decision(&log, &taken()), Decision::RunAgain(effect("a")), "open at {opens} opens");
    }
    assert_eq!(decision(&log.reopened(), &taken()), Decision::Interrupt(keys(&["a"])));
}

#[test]
fn f20_a_candidate_is_reviewed_again_and_a_submit_without_one_is_interrupted() {
    let submit = Log::in_turn().begun("a", EffectKind::Submit, Replay::Safe);
    assert_eq!(decision(&submit.clone().reopened(), &taken()), Decision::Interrupt(keys(&["a"])));
    let asked = submit.and(candidate(1, "a")).begun("b", EffectKind::Submit, Replay::Safe).reopened();
    assert_eq!(decision(&asked, &taken()), Decision::Interrupt(keys(&["b"])), "the other one never reached the review");
    let asked = asked.ended("b", OutcomeEnd::Interrupted);
    assert!(matches!(decision(&asked, &taken()), Decision::Review(candidate) if candidate.key == effect("a")));
}

#[test]
fn f08_paid_responses_that_the_history_lacks_are_written_back_in_their_order() {
    let request = |log: Log, name: &str| log.begun(name, EffectKind::Request, Replay::Never);
    let log = request(request(request(Log::in_turn(), "r1"), "r2"), "r3");
    let log = log.and(response("r2", "two")).and(response("r1", "one")).and(response("r3", "three")).reopened();
    let held = Survey { responses: vec!["two".to_owned()], ..taken() };
    let lacks = |name, id: &str| Repair::Response { key: effect(name), id: id.to_owned() };
    assert_eq!(decision(&log, &held), Decision::Repair(vec![lacks("r1", "one"), lacks("r3", "three")]));
    let not_ours =
        Log::in_turn().begun("r", EffectKind::Request, Replay::Never).ended("r", OutcomeEnd::Error).reopened();
    assert!(matches!(decision(&not_ours, &taken()), Decision::Continue(_)), "a failed one has nothing to write back");
}

#[test]
fn f10_a_call_of_the_history_that_never_began_is_run_as_new_or_said_not_to_have_run() {
    let log = Log::in_turn().reopened();
    let survey = Survey { open_calls: vec![native_call("a")], ..taken() };
    assert_eq!(decision(&log, &survey), Decision::RunNew { call: native_call("a"), ordinal: 0 });
    let theirs = Today { ours: &|_| false, ..TODAY };
    let said = Repair::Answer { call: CallId("a".to_owned()), text: Arc::from(NOT_RUN), is_error: true };
    assert_eq!(decide(&log.state(), &survey, theirs), Decision::Repair(vec![said]));
}

#[test]
fn f10_an_open_call_with_an_outcome_is_answered_from_it() {
    for (end, is_error) in [
        (OutcomeEnd::Ok, false),
        (OutcomeEnd::Error, true),
        (OutcomeEnd::Interrupted, true),
        (OutcomeEnd::Refused, true),
    ] {
        let log = Log::in_turn().begun("a", EffectKind::Tool, Replay::Never).ended("a", end).reopened();
        let survey = Survey { open_calls: vec![native_call("a")], ..taken() };
        let answer = Repair::Answer { call: CallId("a".to_owned()), text: Arc::from("a ended"), is_error };
        assert_eq!(decision(&log, &survey), Decision::Repair(vec![answer]), "{end:?}");
    }
}

#[test]
fn f06_a_new_call_under_an_old_id_is_not_answered_with_the_old_result() {
    let call = |name| {
        let mut intent = intent(name, EffectKind::Tool, Replay::Never, Some("t"));
        intent.call = Some(CallId("call_0".to_owned()));
        Body::Intent(intent)
    };
    let first = Log::in_turn().and(call("first")).ended("first", OutcomeEnd::Ok);
    let open = native_call("call_0");
    let survey = Survey { open_calls: vec![open.clone()], answered: vec![open.call.clone()], ..taken() };
    assert_eq!(decision(&first.clone().reopened(), &survey), Decision::RunNew { call: open.clone(), ordinal: 1 });
    let second = first.and(call("second")).ended("second", OutcomeEnd::Interrupted).reopened();
    let answer = Repair::Answer { call: open.call, text: Arc::from("second ended"), is_error: true };
    assert_eq!(decision(&second, &survey), Decision::Repair(vec![answer]));
}

#[test]
fn b36_f09_a_message_the_history_took_is_gone_on_with_and_never_placed_again() {
    let log = Log::in_turn().reopened();
    for own_ids in [true, false] {
        let today = Today { own_ids, ..TODAY };
        assert!(
            matches!(decide(&log.state(), &taken(), today), Decision::Continue(placed) if placed.text.as_ref() == "node")
        );
    }
}

#[test]
fn b38_f12_a_message_that_was_not_taken_goes_again_under_its_own_id_or_is_carried() {
    let log = Log::in_turn().reopened();
    let nothing = Survey::default();
    assert!(matches!(decision(&log, &nothing), Decision::PlaceAgain(placed) if placed.message == message("m")));
    let blind = Today { own_ids: false, ..TODAY };
    let carried = Decision::CarryOn { turn: turn("t"), unsent: vec![words("node")] };
    assert_eq!(decide(&log.state(), &nothing, blind), carried);
    let log = log.and(settled("t", &["node"])).and(submission("said", Source::Person));
    let carry = Carry { unsent: vec![words("node")], fresh: vec![words("said")], replaces: vec![message("m")] };
    assert_eq!(decide(&log.state(), &nothing, blind), Decision::Place(carry), "B30: its words come first");
}

#[test]
fn inv3_withdrawn_words_are_never_placed() {
    let log =
        Log::new().and(submission("a", Source::Person)).and(submission("b", Source::Person)).and(withdrawn(&["a"]));
    assert_eq!(
        decision(&log, &Survey::default()),
        Decision::Place(Carry { unsent: vec![], fresh: vec![words("b")], replaces: vec![] })
    );
    assert_eq!(decision(&log.and(withdrawn(&["b"])), &Survey::default()), Decision::Idle);
    let unsent = Log::in_turn().and(settled("t", &["node"])).and(withdrawn(&["node"]));
    assert_eq!(decision(&unsent, &Survey::default()), Decision::Idle);
}

#[test]
fn f33_from_any_legal_log_the_table_comes_to_an_end_and_every_record_it_asks_for_is_legal() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..600 {
        let mut dice = Dice::new(seed);
        let mut log = any_legal(seed, 20 + dice.below(120)).reopened();
        let open_turn = log.state().open_turn;
        let mut survey = Survey {
            taken: open_turn.filter(|_| dice.yes()).map(|turn| turn.message).into_iter().collect(),
            open_calls: ["a", "b", "zz"].iter().filter(|_| dice.below(3) == 0).map(|id| native_call(id)).collect(),
            answered: ["a", "c"].iter().filter(|_| dice.yes()).map(|id| CallId((*id).to_owned())).collect(),
            ended: dice.yes(),
            ..Survey::default()
        };
        let (own_ids, rerun, ours) = (dice.yes(), dice.yes(), dice.yes());
        let mut gate_open = false;
        // Each step closes one open end, and a log of this length has fewer than this.
        let last = (0..200).find_map(|_| {
            let today = Today { own_ids, gate_open, rerunnable: &|_| rerun, ours: &|_| ours };
            let decision = decide(&log.state(), &survey, today);
            let name = format!("{decision:?}").split(['(', ' ']).next().unwrap().to_owned();
            match done(&log, &mut survey, &mut gate_open, decision) {
                Some(bodies) => {
                    bodies.into_iter().for_each(|body| log.push(body));
                    // `state` refuses an illegal log.
                    log.state();
                    None
                }
                None => Some(name),
            }
        });
        ends.insert(last.unwrap_or_else(|| panic!("seed {seed}: no end")));
    }
    assert_eq!(
        ends.iter().map(String::as_str).collect::<Vec<_>>(),
        ["Continue", "Delivered", "Failed", "Idle", "Place", "PlaceAgain"]
    );
}
