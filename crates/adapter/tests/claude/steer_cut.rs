//! A turn that words were said into, cut at each of its moments: the next owner places them again only if the history lacks them, and the
//! model sees them once.

use std::time::Duration;

use agentrun_adapter::{Start, TurnEnd};
use agentrun_testing::script::Step;
use serde_json::json;

use crate::rig::{Rig, Work, calls};
use crate::steer::{KEEPS_QUIET, shows};
use crate::words::{Gate, THIRD, WORDS, heard, lost, moments, placed, repaired, steers, took_what_was_placed, until};

/// Where the turn is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Recorded as placed, and not in the adapter's hands yet.
    Placed,
    /// Held while a tool runs.
    Held,
    /// The program has them, and has not folded them in.
    Given,
    /// It folded them in and asks its model, and no record shows them yet.
    Folded,
    /// The history holds them, and the request that shows them has not left.
    InTheHistory,
    /// The answer to it comes.
    InTheAnswer,
    /// The history holds them, and a second message is held.
    TheSecond,
    /// The program is idle, which no record says yet.
    Idle,
    /// They were held, and are placed again: the answer to that comes.
    Again,
}

impl Moment {
    /// What the model says, and how many requests of the whole session it is asked: one more than an uncut one, where one was cut. A request
    /// that waits at the gate is none yet.
    fn steps(self) -> (Vec<Step>, usize) {
        let cut = || Step { stall_after_events: Some(2), ..Step::says("this is cut") };
        let work = |n: usize| {
            let mut step = calls(&[("work", json!({ "n": n }))]);
            step.tools[0].id = Some(format!("toolu_work_{n}"));
            step
        };
        let (first, requests) = match self {
            Self::InTheAnswer | Self::Again => (vec![work(0), cut()], 3),
            Self::TheSecond => (vec![work(0), work(1)], 3),
            _ => (vec![work(0)], 2),
        };
        (first.into_iter().chain((0..3).map(|_| Step::says("done"))).collect(), requests)
    }
}

/// Runs the turn up to the moment and drops everything. Answers how often `work` was asked for.
async fn cut(rig: &Rig, gate: &Gate, moment: Moment) -> usize {
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive, told) = (owner.host.clone(), owner.drive.clone(), owner.home().join("told"));
    let run = owner.session.run_turn(turn);
    let there = async {
        host.begun.notified().await;
        if moment == Moment::Placed {
            steers(&drive, WORDS).await.place().await.unwrap();
            return;
        }
        mouth.say(WORDS);
        placed(&drive, 2).await;
        if matches!(moment, Moment::Held | Moment::Again) {
            return;
        }
        host.let_go.notify_one();
        match moment {
            Moment::Given => {
                let given = || std::fs::read_to_string(&told).is_ok_and(|told| told.contains(WORDS));
                until("the words were not given", given).await;
                // Time for the program to write down what it makes of them.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Moment::Folded => gate.came(2).await,
            Moment::TheSecond => {
                host.begun.notified().await;
                mouth.say(THIRD);
                placed(&drive, 3).await;
            }
            Moment::Idle => std::future::pending().await,
            _ => gate.passed(2).await,
        }
        if moment == Moment::InTheAnswer {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        end = run => {
            assert_eq!(moment, Moment::Idle, "the turn ended: {end:?}");
            assert_eq!(end.unwrap(), TurnEnd::Idle);
        }
        () = there => {}
    }
    let asked = owner.calls().len();
    gate.disown();
    drop((host, drive));
    owner.crash().await;
    asked
}

/// Goes on as the records say, until nothing is open or until the model has begun to answer. Answers how often `work` was asked for.
async fn go_on(rig: &Rig, gate: &Gate, moment: Moment, again: bool, until_the_answer: Option<usize>) -> usize {
    let mut owner = repaired(rig).await;
    gate.own(&owner);
    let lost = lost(&owner);
    assert!(lost.len() <= 1, "{moment:?}: a crash finds at most one message on its way, not {lost:?}");
    assert_eq!(!lost.is_empty(), again, "{moment:?}: what the history holds of the words");
    let start = match lost.into_iter().next() {
        Some(lost) => Some(Start::Again(lost)),
        None => (!owner.survey.ended).then(|| Start::Continue(owner.placed())),
    };
    if let Some(start) = start {
        let turn = owner.turn(start);
        tokio::select! {
            end = owner.session.run_turn(turn) => {
                assert_eq!((end.unwrap(), until_the_answer), (TurnEnd::Idle, None), "{moment:?}");
            }
            () = async {
                let Some(requests) = until_the_answer else { return std::future::pending().await };
                gate.passed(requests).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            } => {}
        }
    }
    let asked = owner.calls().len();
    gate.disown();
    match until_the_answer {
        Some(_) => owner.crash().await,
        None => owner.close().await,
    }
    asked
}

async fn words_are_shown_once(moment: Moment) {
    let (steps, requests) = moment.steps();
    let (gate, model) = Gate::before(steps, if moment == Moment::InTheHistory { 1 } else { 99 });
    if moment == Moment::Folded {
        gate.record(1);
    }
    let mut rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    if moment == Moment::Given {
        rig = rig.with_program(KEEPS_QUIET);
    }
    let mut called = cut(&rig, &gate, moment).await;
    rig = rig.with_the_real_program();
    gate.open(99);
    gate.record(usize::MAX);
    let again = !matches!(moment, Moment::InTheHistory | Moment::InTheAnswer | Moment::Idle);
    if moment == Moment::Again {
        called += go_on(&rig, &gate, moment, true, Some(2)).await;
    }
    called += go_on(&rig, &gate, moment, again && moment != Moment::Again, None).await;
    let tools = if moment == Moment::TheSecond { 2 } else { 1 };
    assert_eq!(called, tools, "{moment:?}: calls of the tools");
    for text in ["do it", WORDS] {
        let shown = shows(&model, text);
        assert!(shown.iter().all(|times| *times <= 1) && shown.last() == Some(&1), "{moment:?}: `{text}` {shown:?}");
    }
    let third = usize::from(moment == Moment::TheSecond);
    assert_eq!(shows(&model, THIRD).last(), Some(&third), "{moment:?}");
    assert_eq!(model.requests().len(), requests, "{moment:?}");
    let owner = rig.own(Work::Answers, &[]).await;
    took_what_was_placed(&owner);
    assert!(owner.survey.ended && owner.survey.open_calls.is_empty(), "{moment:?}");
}

moments! {
    b38_words_cut_when_they_are_recorded_as_placed: Placed;
    b38_words_cut_when_they_are_held_while_a_tool_runs: Held;
    b38_words_cut_when_the_program_has_them_at_hand: Given;
    b38_words_cut_when_they_are_folded_in_and_no_record_shows_it: Folded;
    b36_words_cut_when_the_history_holds_them: InTheHistory;
    b36_words_cut_while_the_model_answers_them: InTheAnswer;
    b38_words_cut_behind_words_that_the_history_holds: TheSecond;
    b36_words_cut_when_the_program_is_idle: Idle;
    b36_words_cut_while_the_model_answers_them_placed_again: Again;
}
