//! A turn that words were said into, cut at each of its moments: the next owner places them again only if the history lacks them, and the
//! model sees them once.

use std::time::Duration;

use agentrun_adapter::{AdapterErrorKind, Start, TurnEnd};
use agentrun_testing::script::Step;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::json;

use crate::harness::times_sent;
use crate::recovery::program_of;
use crate::rig::{NOTE, Rig, Work, calls};
use crate::words::{Gate, THIRD, WORDS, heard, lost, moments, placed, repaired, steers, took_what_was_placed};

/// Where the turn is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Recorded as placed, and not given to the program.
    Placed,
    /// Given while a tool runs.
    Given,
    /// The same, and the program had time to accept them.
    Accepted,
    /// The same, and somebody ends the program, which writes its own account of it.
    Ended,
    /// Given while the head of an answer is waited for.
    BeforeTheAnswer,
    /// Given while the answer comes.
    InTheAnswer,
    /// The history holds them and the request that shows them is not answered yet.
    InTheHistory,
    /// The answer to it comes.
    InTheNextAnswer,
    /// The history holds them, and a second message is on its way.
    TheSecond,
    /// The program is idle, which no record says yet.
    Idle,
}

impl Moment {
    /// What the model says, and how many requests of the whole session it is asked: one more than an uncut one, where one was cut. A request
    /// that waits at the gate is none yet.
    fn steps(self) -> (Vec<Step>, usize) {
        let cut = || Step { stall_after_events: Some(2), ..Step::says("this is cut") };
        let work = || calls(&[("work", json!({}))]);
        let (first, requests) = match self {
            Self::BeforeTheAnswer => (vec![], 1),
            Self::InTheAnswer => (vec![cut()], 2),
            Self::InTheNextAnswer => (vec![work(), cut()], 3),
            _ => (vec![work()], 2),
        };
        (first.into_iter().chain((0..3).map(|_| Step::says("done"))).collect(), requests)
    }
}

/// Runs the turn up to the moment and drops everything. Answers how often `work` was asked for.
async fn cut(rig: &Rig, gate: &Gate, moment: Moment) -> usize {
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive, session) = (owner.host.clone(), owner.drive.clone(), owner.marker.session.clone());
    let run = owner.session.run_turn(turn);
    let there = async {
        if matches!(moment, Moment::BeforeTheAnswer | Moment::InTheAnswer) {
            gate.passed(1).await;
        } else {
            host.begun.notified().await;
        }
        if moment == Moment::Placed {
            steers(&drive, WORDS).await.place().await.unwrap();
            return;
        }
        mouth.say(WORDS);
        placed(&drive, 2).await;
        match moment {
            Moment::Accepted | Moment::InTheAnswer => tokio::time::sleep(Duration::from_millis(300)).await,
            Moment::Ended => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                rustix::process::kill_process(program_of(&session), rustix::process::Signal::TERM).unwrap();
                std::future::pending::<()>().await;
            }
            Moment::InTheHistory | Moment::InTheNextAnswer | Moment::TheSecond | Moment::Idle => {
                host.let_go.notify_one();
                gate.passed(2).await;
            }
            _ => {}
        }
        match moment {
            Moment::TheSecond => {
                mouth.say(THIRD);
                placed(&drive, 3).await;
            }
            Moment::InTheNextAnswer => tokio::time::sleep(Duration::from_millis(300)).await,
            Moment::Idle => std::future::pending().await,
            _ => {}
        }
    };
    tokio::select! {
        end = run => match moment {
            Moment::Idle => assert_eq!(end.unwrap(), TurnEnd::Idle),
            Moment::Ended => assert!(matches!(end.unwrap_err().kind, AdapterErrorKind::Exited { .. })),
            _ => panic!("{moment:?}: the turn ended: {end:?}"),
        },
        () = there => {}
    }
    let asked = owner.calls().len();
    gate.disown();
    drop((host, drive));
    owner.crash().await;
    asked
}

/// Goes on as the records say, until nothing is open. Answers how often `work` was asked for.
async fn go_on(rig: &Rig, gate: &Gate, moment: Moment) -> usize {
    let mut owner = repaired(rig).await;
    gate.own(&owner);
    gate.open(99);
    let lost = lost(&owner);
    assert!(lost.len() <= 1, "{moment:?}: a crash finds at most one message on its way, not {lost:?}");
    let again = !matches!(moment, Moment::InTheHistory | Moment::InTheNextAnswer | Moment::Idle);
    assert_eq!(!lost.is_empty(), again, "{moment:?}: what the history holds of the words");
    let start = match lost.into_iter().next() {
        Some(lost) => Some(Start::Again(lost)),
        None => (!owner.survey.ended).then(|| Start::Continue(owner.placed())),
    };
    if let Some(start) = start {
        let turn = owner.turn(start);
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle, "{moment:?}");
    }
    let asked = owner.calls().len();
    gate.disown();
    owner.close().await;
    asked
}

fn shows(model: &ScriptedModel, text: &str) -> Vec<usize> {
    model.requests().iter().map(|request| times_sent(request, text)).collect()
}

async fn words_are_shown_once(moment: Moment) {
    let (steps, requests) = moment.steps();
    let open = match moment {
        Moment::BeforeTheAnswer => 0,
        Moment::InTheHistory | Moment::TheSecond => 1,
        _ => 99,
    };
    let (gate, model) = Gate::before(steps, open);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let called = cut(&rig, &gate, moment).await + go_on(&rig, &gate, moment).await;
    assert!(called <= 1, "{moment:?}: a tool was asked for {called} times");
    for text in ["do it", WORDS] {
        let shown = shows(&model, text);
        assert!(shown.iter().all(|times| *times <= 1) && shown.last() == Some(&1), "{moment:?}: `{text}` {shown:?}");
    }
    let third = usize::from(moment == Moment::TheSecond);
    assert_eq!(shows(&model, THIRD).last(), Some(&third), "{moment:?}");
    let told = usize::from(moment != Moment::Idle);
    assert_eq!(shows(&model, NOTE).last(), Some(&told), "{moment:?}: the note");
    assert_eq!(model.requests().len(), requests, "{moment:?}");
    assert!(!model.requests().last().unwrap().body.to_string().contains("turn_aborted"), "{moment:?}");
    let owner = rig.own(Work::Answers, &[]).await;
    took_what_was_placed(&owner);
    assert!(owner.survey.ended && owner.survey.open_calls.is_empty(), "{moment:?}");
}

moments! {
    b38_words_cut_when_they_are_recorded_as_placed: Placed;
    b38_words_cut_when_they_are_given_while_a_tool_runs: Given;
    b38_words_cut_when_they_are_accepted_while_a_tool_runs: Accepted;
    b38_words_cut_by_a_program_that_is_told_to_end: Ended;
    b38_words_cut_while_the_model_is_waited_for: BeforeTheAnswer;
    b38_words_cut_while_the_model_answers: InTheAnswer;
    b36_words_cut_when_the_history_holds_them: InTheHistory;
    b36_words_cut_while_the_model_answers_them: InTheNextAnswer;
    b38_words_cut_behind_words_that_the_history_holds: TheSecond;
    b36_words_cut_when_the_program_is_idle: Idle;
}
