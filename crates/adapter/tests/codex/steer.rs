//! People's words while a turn runs: in that turn, once, at no request's cost but the one that shows them.

use std::time::Duration;

use agentrun_adapter::{Start, TurnEnd};
use agentrun_kernel::{Body, StopLevel, Why};
use agentrun_testing::script::Step;
use agentrun_testing::scripted::SeenRequest;
use serde_json::{Value, json};

use crate::harness::{input, result_sent, times_sent};
use crate::pausing::pausing;
use crate::rig::{Rig, Work, calls};
use crate::words::{BOUND, Gate, THIRD, WORDS, all_taken, heard, lost, placed, said_in_a_call, until};

fn shown(request: &SeenRequest) -> (usize, usize) {
    (times_sent(request, "do it"), times_sent(request, WORDS))
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_tool_runs_come_behind_its_result_in_the_same_turn() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), said_in_a_call(&host, &drive, &mouth));
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2, "they cost no request of their own");
    assert_eq!((shown(&requests[0]), shown(&requests[1])), ((1, 0), (1, 1)));
    let items = input(&requests[1]);
    assert!(result_sent(&requests[1], "call_work_0").to_string().contains("work done"));
    assert_eq!(items.last().unwrap()["content"][0]["text"], WORDS, "behind the result");
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_messages_are_steered_one_after_the_other_and_in_their_order() {
    let steps = vec![calls(&[("work", json!({}))]), Step::says("one"), Step::says("two")];
    let (gate, model) = Gate::before(steps, 2);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    gate.open(1);
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        mouth.say(THIRD);
        placed(&drive, 2).await;
        host.let_go.notify_one();
        // The first is in the history now, and its answer is waited for.
        gate.passed(2).await;
        placed(&drive, 3).await;
        gate.open(9);
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    let requests = model.requests();
    let thirds: Vec<_> = requests.iter().map(|request| times_sent(request, THIRD)).collect();
    assert_eq!((requests.iter().map(shown).collect::<Vec<_>>(), thirds), (vec![(1, 0), (1, 1), (1, 1)], vec![0, 0, 1]));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_the_model_is_waited_for_come_behind_its_answer() {
    let (gate, model) = Gate::before(vec![Step::says("one"), Step::says("two")], 0);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Answers, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let drive = owner.drive.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        gate.passed(1).await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        gate.open(9);
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop(drive);
    owner.end_turn().await;
    owner.close().await;
    let requests = model.requests();
    assert_eq!(requests.iter().map(shown).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    assert!(input(&requests[1]).iter().any(|item| item["role"] == "assistant"), "the answer that was paid for stands");
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_the_records_hold_that_one_message_was_taken_before_the_next_is_placed() {
    let cut = Step { stall_after_events: Some(1), ..Step::says("this is cut") };
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), cut]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive, stop) = (owner.host.clone(), owner.drive.clone(), owner.stop.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        said_in_a_call(&host, &drive, &mouth).await;
        // It is in the history now, and no gate has mirrored that.
        rig.model.wait_for_requests(2).await.unwrap();
        mouth.say(THIRD);
        placed(&drive, 3).await;
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    let (mut native, mut before) = (String::new(), None);
    for record in rig.records().await {
        match record.body {
            Body::Native(write) => native += &String::from_utf8_lossy(&write.bytes),
            Body::Placed(message) => {
                if let Some(before) = before.replace(message.message) {
                    assert!(native.contains(&format!("\"client_id\":\"{before}\"")), "{before} may be on its way too");
                }
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_the_model_answers_cut_nothing_of_the_answer_that_is_paid_for() {
    let (url, seen, go_on) = pausing();
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(url);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let drive = owner.drive.clone();
    let (end, requests) = tokio::join!(owner.session.run_turn(turn), async {
        let (seen, first) = tokio::task::spawn_blocking(move || {
            let first = seen.recv_timeout(BOUND).unwrap();
            (seen, first)
        })
        .await
        .unwrap();
        mouth.say(WORDS);
        placed(&drive, 2).await;
        // Time for a program that would cut it. One that needs longer only lets this test pass.
        let second = tokio::task::spawn_blocking(move || {
            let early = seen.recv_timeout(Duration::from_millis(1500)).ok();
            go_on.send(()).unwrap();
            early.unwrap_or_else(|| seen.recv_timeout(BOUND).unwrap())
        })
        .await
        .unwrap();
        [first, second]
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop(drive);
    owner.end_turn().await;
    owner.close().await;
    let text = requests[1]["input"].to_string();
    assert_eq!((text.matches("I look.").count(), text.matches(WORDS).count()), (1, 1), "{text}");
    assert!(text.find("I look.") < text.find(WORDS), "{text}");
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_built_in_runs_come_behind_its_output() {
    let command =
        json!({"cmd": "touch began; while [ ! -e go ]; do sleep 0.05; done; echo seen", "yield_time_ms": 60_000});
    let rig = Rig::new(vec![calls(&[("exec_command", command)]), Step::says("done")]).with_builtins(&["exec_command"]);
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
    let requests = rig.model.requests();
    assert_eq!(requests.iter().map(shown).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    assert!(result_sent(&requests[1], "call_exec_command_0").to_string().contains("seen"));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn f09_a_request_that_shows_the_words_waits_until_the_rollout_holds_them_and_one_from_before_does_not() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    // The same words as the prompt's: how often they are shown is what tells.
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let barrier = owner.session.request_barrier().unwrap();
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say("do it");
        placed(&drive, 2).await;
        let before = rig.model.requests().remove(0).body;
        let body = before.to_string();
        let passes = tokio::time::timeout(BOUND, barrier.before_request(body.as_bytes()));
        drop(passes.await.expect("it was on its way before the words").unwrap());
        let mut behind = before;
        let words = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]});
        behind["input"].as_array_mut().unwrap().push(words);
        let body = behind.to_string();
        let waits = tokio::time::timeout(Duration::from_millis(500), barrier.before_request(body.as_bytes()));
        assert!(waits.await.is_err(), "words the rollout lacks must hold the request");
        host.let_go.notify_one();
        let passes = tokio::time::timeout(BOUND, barrier.before_request(body.as_bytes()));
        drop(passes.await.unwrap().unwrap());
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((barrier, host, drive));
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_words_on_their_way_when_the_answer_is_submitted_are_not_in_the_history_and_the_next_message_follows_a_clean_end()
 {
    let (gate, model) = Gate::before(vec![calls(&[("submit", json!({"value": 1}))]), Step::says("two")], 0);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Answers, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let drive = owner.drive.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        gate.passed(1).await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        gate.open(9);
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop(drive);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(model.requests().len(), 1);
    let mut owner = rig.own(Work::Answers, &[]).await;
    gate.own(&owner);
    assert!(owner.survey.ended && owner.survey.taken.len() == 1, "{:?}", owner.survey);
    let turn = owner.place("and now?").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    gate.disown();
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(shown(&model.requests()[1]), (1, 0));
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_a_session_that_is_told_to_stop_takes_no_words() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
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
    end.unwrap();
    assert_eq!(owner.drive.with_state(|state| state.messages().count()), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_a_turn_whose_answer_is_submitted_takes_no_words() {
    let rig = Rig::new(vec![calls(&[("work", json!({})), ("submit", json!({"value": 1}))]), Step::says("never asked")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let host = owner.host.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        let submitted = tokio::time::timeout(BOUND, async {
            while !rig.outcomes().await.iter().any(|(tool, ..)| tool == "submit") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        submitted.await.expect("nothing was submitted");
        // Time for the turn to hear of it, and then to take words.
        tokio::time::sleep(Duration::from_millis(300)).await;
        mouth.say(WORDS);
        tokio::time::sleep(Duration::from_millis(300)).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop(host);
    assert_eq!(owner.drive.with_state(|state| state.messages().count()), 1);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(rig.model.requests().len(), 1);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_words_in_a_turn_that_the_provider_fails_are_shown_by_the_request_after_it() {
    let (gate, model) = Gate::before(vec![Step::fails(429), Step::says("done")], 0);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Answers, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let drive = owner.drive.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        gate.passed(1).await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        gate.open(9);
    });
    assert!(matches!(end.unwrap(), TurnEnd::Failed { .. }));
    gate.disown();
    drop(drive);
    owner.close().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    gate.own(&owner);
    assert!(!owner.survey.ended, "{:?}", owner.survey);
    // The program takes them as it fails, unless the failure was there before them.
    let start = match lost(&owner).pop() {
        Some(lost) => Start::Again(lost),
        None => Start::Continue(owner.placed()),
    };
    let turn = owner.turn(start);
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    gate.disown();
    owner.end_turn().await;
    owner.close().await;
    let requests = model.requests();
    assert_eq!(requests.iter().map(shown).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

/// A program that is given words in its last moment, in the real one's lines. `$1` of its parts is what it does with them.
fn at_its_last_moment(what: &str) -> String {
    let program = r#"
        id_of() { echo "$1" | sed 's/.*"clientUserMessageId":"\([^"]*\)".*/\1/'; }
        took() {
            echo '{"type":"response_item","payload":{"type":"message","role":"user","content":[]}}' >> "$file"
            echo "{\"type\":\"event_msg\",\"payload\":{\"type\":\"user_message\",\"client_id\":\"$1\",\"message\":\"w\"}}" >> "$file"
            echo "{\"method\":\"item/completed\",\"params\":{\"item\":{\"type\":\"userMessage\",\"clientId\":\"$1\"}}}"
        }
        began() { echo "{\"id\":$1,\"result\":{\"turn\":{\"id\":\"$2\"}}}"; echo "{\"method\":\"turn/started\",\"params\":{\"turn\":{\"id\":\"$2\"}}}"
            echo "{\"type\":\"event_msg\",\"payload\":{\"type\":\"task_started\",\"turn_id\":\"$2\"}}" >> "$file"; }
        said() {
            echo '{"type":"response_item","payload":{"type":"message","role":"assistant","content":[]}}' >> "$file"
            echo "{\"type\":\"token_usage_record\",\"payload\":{\"response_id\":\"$1\"}}" >> "$file"
        }
        over() { echo "{\"type\":\"event_msg\",\"payload\":{\"type\":\"task_complete\",\"turn_id\":\"$1\"}}" >> "$file"
            echo "{\"method\":\"turn/completed\",\"params\":{\"turn\":{\"id\":\"$1\",\"status\":\"completed\"}}}"; }
        read line; echo '{"id":1,"result":{}}'; read line; read line
        folder="$HOME/codex/sessions/2026/11/30"; file="$folder/rollout-2026-11-30T09-00-00-thread.jsonl"; mkdir -p "$folder"
        echo '{"type":"session_meta","payload":{"id":"thread"}}' > "$file"
        echo "{\"id\":2,\"result\":{\"thread\":{\"id\":\"thread\",\"path\":\"$file\"}}}"
        read line; began 3 one; took "$(id_of "$line")"; said r1
        read words; echo "$words" >> "$PWD/asked"
        WHAT
        read line; echo "$line" >> "$PWD/asked"; began 5 two
        case "$line" in *clientUserMessageId*) took "$(id_of "$line")";; esac
        said r2; over two
        read line"#;
    program.replace("WHAT", what)
}

/// What the program was asked behind its first turn's message.
async fn asked_at_its_last_moment(what: &str) -> (Rig, Vec<Value>) {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&at_its_last_moment(what));
    let mut owner = rig.own(Work::Answers, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    mouth.say(WORDS);
    let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("a hang");
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let asked = std::fs::read_to_string(rig.workspace.path().join("asked")).unwrap();
    let asked = asked.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all_taken(&rig).await, 2, "once each");
    rig.assert_valid().await;
    (rig, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_words_that_come_as_the_turn_ends_begin_another_one_of_the_program_under_their_id() {
    for what in [
        // Refused, before and behind the word of the end.
        "echo '{\"id\":4,\"error\":{\"code\":-32600,\"message\":\"no active turn to steer\"}}'; over one",
        "over one; echo '{\"id\":4,\"error\":{\"code\":-32600,\"message\":\"no active turn to steer\"}}'",
        // Accepted, and not taken.
        "echo '{\"id\":4,\"result\":{\"turnId\":\"one\"}}'; over one",
    ] {
        let (_rig, asked) = asked_at_its_last_moment(what).await;
        let [steer, start] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((&steer["method"], &start["method"]), (&json!("turn/steer"), &json!("turn/start")));
        assert_eq!(steer["params"]["expectedTurnId"], "one");
        for member in ["clientUserMessageId", "input"] {
            assert_eq!(steer["params"][member], start["params"][member], "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_words_that_the_program_took_at_its_end_and_did_not_ask_the_model_on_are_not_placed_again() {
    let what = "echo '{\"id\":4,\"result\":{\"turnId\":\"one\"}}'; took \"$(id_of \"$words\")\"; over one";
    let (_rig, asked) = asked_at_its_last_moment(what).await;
    assert_eq!((&asked[1]["method"], &asked[1]["params"]["input"]), (&json!("turn/start"), &json!([])));
}
