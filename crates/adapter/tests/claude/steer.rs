//! People's words while a turn runs: in that turn, once, at no request's cost but the one that shows the results of its calls.

use std::time::Duration;

use agentrun_adapter::{Start, TurnEnd};
use agentrun_kernel::{Body, Message, StopLevel, StopRaiser, Why};
use agentrun_testing::script::Step;
use agentrun_testing::scripted::{ScriptedModel, SeenRequest};
use serde_json::json;

use crate::harness::result_sent;
use crate::rig::{Rig, Work, calls};
use crate::words::{Gate, THIRD, WORDS, all_taken, heard, placed, said_in_a_call, until};

/// How often the model is told `text` in the requests, one after the other.
pub(crate) fn shows(model: &ScriptedModel, text: &str) -> Vec<usize> {
    model.requests().iter().map(|request| times_said(request, text)).collect()
}

fn times_said(request: &SeenRequest, text: &str) -> usize {
    request.body["messages"].to_string().matches(text).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_tool_runs_are_in_the_request_that_shows_its_result_and_cost_none() {
    let (gate, model) = Gate::before(vec![calls(&[("work", json!({}))]), Step::says("done")], 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), said_in_a_call(&host, &drive, &mouth));
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, "do it"), shows(&model, WORDS)), (vec![1, 1], vec![0, 1]));
    assert!(result_sent(&model.requests()[1], "toolu_work_0").to_string().contains("work done"));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_messages_are_steered_a_call_each_and_each_behind_the_one_before_in_the_records() {
    let work = || calls(&[("work", json!({}))]);
    let mut again = work();
    again.tools[0].id = Some("toolu_work_1".to_owned());
    let (gate, model) = Gate::before(vec![work(), again, Step::says("done")], 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        mouth.say(THIRD);
        placed(&drive, 2).await;
        host.let_go.notify_one();
        host.begun.notified().await;
        placed(&drive, 3).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, WORDS), shows(&model, THIRD)), (vec![0, 1, 1], vec![0, 0, 1]));
    // A crash finds one message on its way: each was placed behind the line of the one before.
    let (mut native, mut before) = (String::new(), Vec::new());
    for record in rig.records().await {
        match record.body {
            Body::Native(write) => native += &String::from_utf8_lossy(&write.bytes),
            Body::Placed(message) => {
                for id in &before {
                    let shown =
                        ["source_uuid", "uuid"].iter().any(|name| native.contains(&format!("\"{name}\":\"{id}\"")));
                    assert!(shown, "{id} is not in the history");
                }
                before.push(message.message.to_string());
            }
            _ => {}
        }
    }
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 3);
}

/// No gate stands before this model: what records the history is the call alone.
#[tokio::test(flavor = "multi_thread")]
async fn b38_words_wait_until_the_records_show_the_message_that_opened_the_turn() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    mouth.say(WORDS);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((host, drive));
    owner.close().await;
    let records = rig.records().await;
    let words = records.iter().rposition(|record| matches!(record.body, Body::Placed(_))).unwrap();
    let shown = records[..words].iter().any(|record| match &record.body {
        Body::Native(write) => String::from_utf8_lossy(&write.bytes).contains("do it"),
        _ => false,
    });
    assert!(shown, "a crash now would find two messages on their way");
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_the_model_answers_wait_for_a_call() {
    let (gate, model) = Gate::before(vec![calls(&[("work", json!({}))]), Step::says("done")], 0);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        gate.passed(1).await;
        mouth.say(WORDS);
        // Time to take them. What comes now might begin a turn of its own.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(drive.with_state(|state| state.messages().count()), 1, "no call runs");
        gate.open(9);
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(shows(&model, WORDS), [0, 1]);
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_built_in_runs_come_behind_its_output() {
    let command = json!({"command": "touch began; while [ ! -e go ]; do sleep 0.05; done; echo seen"});
    let rig = Rig::new(vec![calls(&[("Bash", command)]), Step::says("done")]).with_builtins(&["Bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (drive, workspace) = (owner.drive.clone(), rig.workspace.path().to_owned());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        until("the command did not run", || workspace.join("began").exists()).await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        std::fs::write(workspace.join("go"), "").unwrap();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop(drive);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(shows(&rig.model, WORDS), [0, 1]);
    assert!(result_sent(&rig.model.requests()[1], "toolu_Bash_0").to_string().contains("seen"));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn f09_a_request_waits_until_the_transcript_holds_the_words_it_shows() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let barrier = owner.session.request_barrier().unwrap();
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), said_in_a_call(&host, &drive, &mouth));
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    let body = rig.model.requests().remove(1).body.to_string();
    drop(barrier.before_request(body.as_bytes()).await.unwrap());
    // Where the line with the words is not there yet, nobody is asked.
    let home = owner.home().join("claude/projects");
    let folder = std::fs::read_dir(home).unwrap().next().unwrap().unwrap().path();
    let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read_to_string(&path).unwrap();
    let line = whole.lines().find(|line| line.contains("\"source_uuid\"")).unwrap();
    let held_back = whole.split_once(line).unwrap().0.to_owned();
    for lacks in [held_back.clone(), format!("{held_back}{line}")] {
        std::fs::write(&path, lacks).unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(300), barrier.before_request(body.as_bytes()));
        assert!(waits.await.is_err(), "words the transcript lacks must hold the request");
    }
    std::fs::write(&path, whole).unwrap();
    drop(barrier.before_request(body.as_bytes()).await.unwrap());
    drop((barrier, host, drive));
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_words_held_when_the_answer_is_submitted_are_never_given_and_the_next_message_follows_a_clean_end() {
    let steps = vec![calls(&[("work", json!({})), ("submit", json!({"value": 1}))]), Step::says("two")];
    let (gate, model) = Gate::before(steps, 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), said_in_a_call(&host, &drive, &mouth));
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((host, drive));
    owner.end_turn().await;
    // The same program: what it had kept would come now.
    let turn = owner.place("and now?").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    gate.disown();
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, WORDS), shows(&model, "and now?")), (vec![0, 0], vec![0, 1]));
    assert!(!rig.native().await.contains(WORDS), "it was told of them");
    let owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.ended && owner.survey.taken.len() == 2, "{:?}", owner.survey);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_a_session_that_is_told_to_stop_takes_no_words() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("never asked")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, stop) = (owner.host.clone(), owner.stop.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        stop.raise(StopLevel::Drain, Why::Host);
        mouth.say(WORDS);
        // Time to take them.
        tokio::time::sleep(Duration::from_millis(300)).await;
        host.let_go.notify_one();
    });
    assert!(matches!(end.unwrap(), TurnEnd::Stopped(_)));
    assert_eq!(owner.drive.with_state(|state| state.messages().count()), 1);
}

/// Its answer that it has the words is kept from us, so that it is found with them at hand.
pub(crate) const KEEPS_QUIET: &str = r#"tee "$HOME/told" | HARNESS "$@" | grep --line-buffered -v '"state":"queued"'"#;

#[tokio::test(flavor = "multi_thread")]
async fn b21_an_interrupt_takes_the_words_back_that_the_program_would_begin_a_turn_with() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]).with_program(KEEPS_QUIET);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive, stop, told) =
        (owner.host.clone(), owner.drive.clone(), owner.stop.clone(), owner.home().join("told"));
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        said_in_a_call(&host, &drive, &mouth).await;
        until("the words were not given", || std::fs::read_to_string(&told).is_ok_and(|told| told.contains(WORDS)))
            .await;
        stop.raise(StopLevel::Interrupt, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Interrupt));
    assert_eq!(rig.model.requests().len(), 1, "a turn it began by itself is paid for");
    drop((host, drive));
    // Gone on with in the same home, where what the program wrote of the interrupt stands.
    owner.stop = StopRaiser::new();
    let words = owner.drive.with_state(|state| Message::from(&*state.messages().nth(1).unwrap().placed));
    let turn = owner.turn(Start::Again(words));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.close().await;
    assert_eq!((shows(&rig.model, "do it"), shows(&rig.model, WORDS)), (vec![1, 1], vec![0, 1]));
    assert_eq!(shows(&rig.model, "interrupted by"), [0, 0], "nobody but us interrupted");
    assert_eq!(all_taken(&rig).await, 2);
}
