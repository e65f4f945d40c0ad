//! Manual mode: a test stands before every append and every run of a session's task, and lets its owner die there.
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
use std::time::Duration;

use agentrun_kernel::{
    Batch, Begun, Body, Digest, Drive, DriveError, EffectKind, EffectSpec, LogKey, Manual, MemoryStore, Message,
    OnRepeat, OutcomeEnd, Owned, Record, Replay, SessionStore as _, SessionTask, Source, Step, Survey, Today,
    TurnEndHow, decide, read_all, validate,
};
use common::recovery::done;
use common::{
    Log, bound, candidate, delivered, effect, key, message, native, opened, outcome, submission, turn, turn_end,
    verdict, words,
};
use serde_json::json;

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it did not come within the bound")
}

async fn take(store: &MemoryStore) -> (SessionTask, Manual) {
    let store = store.again().unwrap();
    let state = validate(&read_all::<Body>(&store, &LogKey::from(&key())).await.unwrap()).unwrap();
    let writer = store.open(&key(), Some(state.head)).await.unwrap();
    let watch = store.watch(&LogKey::from(&key())).await.unwrap();
    SessionTask::spawn_manual(Owned { writer, state, watch, earlier: Vec::new(), events: None })
}

/// What another process reads.
async fn log(store: &MemoryStore) -> Vec<Record> {
    read_all::<Body>(&store.again().unwrap(), &LogKey::from(&key())).await.unwrap()
}

fn kinds(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(|record| record.body.kind()).collect()
}

fn spec(name: &str, kind: EffectKind, replay: Replay) -> EffectSpec {
    let arguments = json!({ "of": name });
    EffectSpec {
        key: effect(name),
        kind,
        replay,
        on_repeat: OnRepeat::Refuse,
        name: "tool".to_owned(),
        turn: Some(turn("t")),
        call: None,
        digest: Digest::of_json(&arguments),
        arguments,
        paid: None,
    }
}

/// A whole session, a never tool and a submit in it.
async fn session(drive: Drive) -> Result<(), DriveError> {
    drive.append(Batch::of([bound(), opened()]), None).await?;
    drive.append(Batch::of([submission("node", Source::Node)]), None).await?;
    let said = Message {
        id: message("m"),
        turn: turn("t"),
        carries: vec![words("node")],
        replaces: Vec::new(),
        text: Arc::from("node"),
    };
    drive.ticket(said).place().await?;
    let begun = drive.begin(spec("a", EffectKind::Tool, Replay::Never), vec![native(0, "call\n")], None).await?;
    let Begun::Open(open) = begun else { panic!("{begun:?}") };
    open.finish(outcome("a", OutcomeEnd::Ok), Vec::new(), None).await.map_err(|unfinished| unfinished.error)?;
    let begun = drive.begin(spec("s", EffectKind::Submit, Replay::Safe), Vec::new(), None).await?;
    let Begun::Open(open) = begun else { panic!("{begun:?}") };
    drive.append(Batch::of([candidate(1, "s")]), None).await?;
    open.finish_after(vec![verdict(1, true)], outcome("s", OutcomeEnd::Ok), vec![delivered()])
        .await
        .map_err(|unfinished| unfinished.error)?;
    drive.append(Batch::of([turn_end("t", TurnEndHow::Done)]), None).await?;
    Ok(())
}

#[tokio::test]
async fn b50_the_task_stands_before_an_append_with_nothing_written_and_before_a_run_with_its_intent_durable() {
    let store = MemoryStore::new().unwrap();
    let (task, mut manual) = take(&store).await;
    let drive = task.drive();
    let running = tokio::spawn(async move {
        drive.append(Batch::of([bound(), opened()]), None).await.unwrap();
        drive.begin(spec("a", EffectKind::Tool, Replay::Never), vec![native(0, "call\n")], None).await
    });
    let first = within(manual.paused()).await.unwrap();
    assert_eq!(first.step(), &Step::Append(vec!["bound", "opened"]));
    assert_eq!(kinds(&log(&store).await), [""; 0]);
    first.go();
    let second = within(manual.paused()).await.unwrap();
    assert_eq!(second.step(), &Step::Append(vec!["native", "intent"]));
    assert_eq!(kinds(&log(&store).await), ["bound", "opened"]);
    second.go();
    let third = within(manual.paused()).await.unwrap();
    assert_eq!(third.step(), &Step::Run(effect("a")));
    assert_eq!(kinds(&log(&store).await), ["bound", "opened", "native", "intent"]);
    assert!(!running.is_finished(), "nobody runs it yet");
    third.go();
    assert!(matches!(within(running).await.unwrap().unwrap(), Begun::Open(_)));
}

/// The owner dies before its nth step, for every n.
#[tokio::test]
async fn b13_f07_an_owner_that_dies_before_any_step_leaves_a_log_the_next_one_goes_on_from() {
    let mut died = 0;
    for steps in 0.. {
        let store = MemoryStore::new().unwrap();
        let (task, mut manual) = take(&store).await;
        let running = tokio::spawn(session(task.drive()));
        for _ in 0..steps {
            let Some(paused) = within(manual.paused()).await else { panic!("it had fewer steps") };
            paused.go();
            if running.is_finished() {
                break;
            }
        }
        // The last step has no pause behind it, only the session's end.
        let next = tokio::select! {
            paused = manual.paused() => paused,
            () = async { while !running.is_finished() { tokio::task::yield_now().await } } => None,
        };
        let Some(paused) = next else {
            within(running).await.unwrap().unwrap();
            break;
        };
        died += 1;
        let (step, before) = (paused.step().clone(), log(&store).await);
        drop(paused);
        let answer = within(running).await.unwrap();
        assert!(matches!(&answer, Err(DriveError::Restart(restart)) if !restart.is_fenced()), "{step:?}: {answer:?}");
        let late = task.drive().append(Batch::of([opened()]), None).await;
        assert!(matches!(late, Err(DriveError::Restart(_))), "{step:?}: a dead owner writes");
        assert_eq!(log(&store).await, before, "{step:?} was not taken");
        if let Step::Run(key) = &step {
            assert!(matches!(&before.last().unwrap().body, Body::Intent(intent) if intent.key == *key), "{step:?}");
        }
        if before.is_empty() {
            continue;
        }
        let (mut log, mut survey, mut gate_open) = (Log::of(before).reopened(), Survey::default(), false);
        let recovered = (0..50).any(|_| {
            let today = Today { own_ids: true, gate_open, rerunnable: &|_| true, ours: &|_| true };
            let decision = decide(&log.state(), &survey, today);
            match done(&log, &mut survey, &mut gate_open, decision) {
                Some(bodies) => bodies.into_iter().for_each(|body| log.push(body)),
                None => return true,
            }
            false
        });
        assert!(recovered, "cut before {step:?}, the recovery does not end");
        if let Some(cut) = log.state().effect(&effect("a")) {
            let ran = !matches!(&step, Step::Run(key) if *key == effect("a")) && step != Step::Append(vec!["outcome"]);
            assert_eq!(
                cut.interrupted(),
                !ran,
                "{step:?}: a never tool that was begun and has no outcome is interrupted"
            );
        }
    }
    assert_eq!(died, 11, "nine appends and two runs");
}

#[tokio::test]
async fn a_session_that_nobody_follows_any_more_runs_by_itself() {
    let store = MemoryStore::new().unwrap();
    let (task, manual) = take(&store).await;
    drop(manual);
    within(session(task.drive())).await.unwrap();
    assert_eq!(log(&store).await.last().unwrap().body.kind(), "turn_end");
}
