//! Whether a follow-up may begin, is known or was cut, and what is its own: by the fold alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use agentrun_kernel::{
    Body, Carry, Decision, EffectKey, EffectKind, FollowUpName, FollowUpNext, FollowUpState, Intent, NotAnswered,
    OutcomeEnd, Replay, Source, SubmissionId, Survey, Today, TurnEndHow, decide, follow_up_next, follow_up_state,
    settle,
};
use common::{
    Log, delivered, failed, intent, message, outcome, paid, placed, settled, submission, turn, turn_end, usd,
    withdrawn, words,
};

const TODAY: Today<'static> = Today { own_ids: true, gate_open: false, rerunnable: &|_| true, ours: &|_| true };

fn name() -> FollowUpName {
    FollowUpName::new("why").unwrap()
}

fn key() -> EffectKey {
    EffectKey::of_follow_up(&name())
}

fn own() -> SubmissionId {
    SubmissionId::of_follow_up(&key())
}

fn begun() -> Body {
    Body::Intent(Intent { turn: None, call: None, ..intent(key().as_str(), EffectKind::FollowUp, Replay::Never, None) })
}

fn asked() -> Body {
    submission(own().as_str(), Source::FollowUp(key()))
}

/// Delivered, and its turn is over.
fn answered() -> Log {
    Log::in_turn().and(delivered()).and(turn_end("t", TurnEndHow::Done))
}

/// Its message is placed, a person's words before its own.
fn in_its_turn() -> Log {
    answered().and(begun()).and(asked()).and(submission("said", Source::Person)).and(placed(
        "m2",
        "t2",
        &["said", own().as_str()],
        &[],
    ))
}

fn next(log: &Log) -> FollowUpNext {
    follow_up_next(&log.state(), &name())
}

#[test]
fn b56_a_session_has_answered_when_it_delivered_or_its_last_own_turn_ended_by_itself() {
    let refused = FollowUpNext::NotAnswered;
    let ended = |how| Log::in_turn().and(turn_end("t", how));
    assert_eq!(next(&Log::new()), refused(NotAnswered::Fresh));
    assert_eq!(next(&Log::in_turn()), refused(NotAnswered::TurnOpen));
    assert_eq!(next(&Log::in_turn().and(delivered())), FollowUpNext::Begin);
    assert_eq!(next(&ended(TurnEndHow::Done)), FollowUpNext::Begin);
    for how in [TurnEndHow::Interrupted, TurnEndHow::Failed] {
        assert_eq!(next(&ended(how)), refused(NotAnswered::TurnCut), "{how:?}");
    }
    assert_eq!(next(&Log::in_turn().and(settled("t", &[]))), refused(NotAnswered::TurnCut));
    assert_eq!(next(&ended(TurnEndHow::Done).and(failed())), refused(NotAnswered::Failed));
    let other = ended(TurnEndHow::Done)
        .and(submission("other", Source::FollowUp(EffectKey("name:other".to_owned()))))
        .and(placed("m2", "t2", &["other"], &[]));
    assert_eq!(next(&other), FollowUpNext::Begin, "another follow-up's turn takes no answer back");
    assert_eq!(next(&other.and(settled("t2", &[]))), FollowUpNext::Begin, "nor does its cut");
}

#[test]
fn b57_by_its_name_it_is_known_or_begun_or_may_begin() {
    assert_eq!(next(&answered()), FollowUpNext::Begin);
    assert_eq!(next(&answered().and(begun())), FollowUpNext::Begun);
    let outcome = outcome(key().as_str(), OutcomeEnd::Ok);
    let FollowUpNext::Known(known) = next(&answered().and(begun()).and(Body::Outcome(outcome))) else {
        panic!("known")
    };
    assert_eq!(known.end, OutcomeEnd::Ok);
    let other = FollowUpName::new("else").unwrap();
    assert_eq!(follow_up_next(&answered().and(begun()).state(), &other), FollowUpNext::Begin);
}

#[test]
fn b58_cut_before_its_prompt_was_placed_it_is_settled_all_the_same() {
    let log = answered().and(begun()).and(asked());
    assert_eq!(settle(&log.state(), &Survey::default()), Decision::Idle, "its owner runs it");
    let cut = Decision::SettleFollowUp { key: key(), turn: None, submissions: vec![own()], unsent: vec![] };
    assert_eq!(settle(&log.reopened().state(), &Survey::default()), cut);
    // Also where the node is what goes on.
    let undelivered = Log::in_turn().and(turn_end("t", TurnEndHow::Done)).and(begun()).and(asked()).reopened();
    assert_eq!(decide(&undelivered.state(), &Survey::default(), TODAY), cut);
}

#[test]
fn b61_b36_a_persons_words_beside_its_prompt_stay_unsent_unless_the_history_holds_the_message() {
    let unsent = |survey: &Survey| match settle(&in_its_turn().reopened().state(), survey) {
        Decision::SettleFollowUp { submissions, unsent, .. } => {
            assert_eq!(submissions, [own()]);
            unsent
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(unsent(&Survey::default()), [words("said")]);
    assert_eq!(unsent(&Survey { taken: vec![message("m2")], ..Survey::default() }), []);
}

#[test]
fn b63_what_it_spends_is_what_was_begun_in_it() {
    let request =
        |id: &str, quote: &str| Body::Intent(paid(intent(id, EffectKind::Request, Replay::Never, None), quote));
    let ended = |id: &str, cost: Option<&str>| {
        let mut outcome = outcome(id, OutcomeEnd::Ok);
        outcome.cost = cost.map(usd);
        Body::Outcome(outcome)
    };
    let log = Log::in_turn()
        .and(request("early", "8"))
        .and(request("late", "4"))
        .and(ended("early", Some("7")))
        .and(delivered())
        .and(turn_end("t", TurnEndHow::Done))
        .and(begun())
        .and(asked())
        .and(placed("m2", "t2", &[own().as_str()], &[]))
        // Booked in its time, begun before it.
        .and(ended("late", Some("3")))
        .and(request("a", "2"))
        .and(ended("a", Some("1")))
        .and(request("b", "0.5"))
        .and(request("c", "0.25"))
        .and(ended("c", None));
    let spent = |log: &Log| {
        let state = log.state();
        state.spent_in(state.effect(&key()).unwrap())
    };
    let its = spent(&log);
    assert_eq!((its.booked, its.held, its.unknown, its.unknown_count), (usd("1"), usd("0.5"), usd("0.25"), 1));
    let over = log.and(ended("b", Some("0.5"))).and(turn_end("t2", TurnEndHow::Done));
    let over = over.and(Body::Outcome(outcome(key().as_str(), OutcomeEnd::Ok)));
    let later = over.and(submission("p", Source::Person)).and(placed("m3", "t3", &["p"], &[])).and(request("d", "9"));
    assert_eq!(
        (spent(&later).booked, spent(&later).held),
        (usd("1.5"), usd("0")),
        "what comes after it is not its own"
    );
}

#[test]
fn b65_the_fold_says_whose_the_open_turn_is() {
    let said = |log: &Log| follow_up_state(&log.records);
    assert_eq!(said(&Log::in_turn()), FollowUpState::None);
    assert_eq!(said(&answered().and(begun())), FollowUpState::Begun { key: key() });
    let open = FollowUpState::Open { key: key(), turn: turn("t2") };
    assert_eq!(said(&in_its_turn()), open);
    assert_eq!(said(&in_its_turn().reopened()), open, "also when its owner is gone");
    let over = in_its_turn().and(turn_end("t2", TurnEndHow::Done)).ended(key().as_str(), OutcomeEnd::Ok);
    assert_eq!(said(&over), FollowUpState::None);
}

#[test]
fn b30_its_message_carries_prompts_that_wait_and_no_reminder() {
    let carry = |log: &Log| log.state().follow_up_carry(&own());
    let log = Log::in_turn()
        .and(settled("t", &["node"]))
        .and(submission("said", Source::Person))
        .and(submission("gone", Source::Person))
        .and(withdrawn(&["gone"]))
        .and(submission("nudge", Source::Nudge))
        .and(asked());
    let waiting =
        Carry { unsent: vec![words("node")], fresh: vec![words("said"), own()], replaces: vec![message("m")] };
    assert_eq!(carry(&log), waiting);
    // Behind a delivery the node's own words have nothing left to ask for, and none of them may open a turn.
    let waiting = Carry { unsent: vec![], fresh: vec![words("said"), own()], replaces: vec![] };
    assert_eq!(carry(&log.and(delivered())), waiting);
}

#[test]
fn inv3_a_settle_that_names_withdrawn_words_as_unsent_is_refused() {
    let state = in_its_turn().reopened().and(withdrawn(&["said"])).state();
    let body = settled("t2", &["said"]);
    let record = agentrun_kernel::Record { seq: state.head.next(), epoch: state.epoch, at: 0, body };
    assert_eq!(state.check(&record).unwrap_err().invariant, agentrun_kernel::Invariant::OneMessage);
}
