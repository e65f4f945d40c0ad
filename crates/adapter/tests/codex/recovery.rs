//! A next owner goes on from the records, in a fresh home.

use std::sync::Arc;

use agentrun_adapter::{AdapterErrorKind, Start, TurnEnd};
use agentrun_kernel::{EffectKey, Repair, StopLevel, Why};
use agentrun_testing::script::{Step, Tokens};
use serde_json::json;

use crate::harness::{input, result_sent, times_sent};
use crate::rig::{NOTE, Owner, Rig, Work, answer, calls};

/// Runs a turn until `work` has its intent, then drops everything.
async fn crash_in_work(rig: &Rig) {
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    {
        let host = owner.host.clone();
        let run = owner.session.run_turn(turn);
        tokio::select! {
            end = run => panic!("the turn ended: {end:?}"),
            () = host.begun.notified() => {}
        }
    }
    owner.crash().await;
}

/// Goes on with the open turn until the program is idle.
async fn go_on(owner: &mut Owner) {
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_a_call_whose_outcome_was_recorded_is_answered_from_the_record_after_a_crash() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    let mut owner = rig.own(Work::Answers, &[answer("call_work_0", "the recorded text")]).await;
    assert!(owner.survey.open_calls.is_empty() && !owner.survey.ended);
    go_on(&mut owner).await;
    assert_eq!(owner.calls(), [], "it is not run again");
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    let last = &requests[1];
    assert_eq!((times_sent(last, "do it"), times_sent(last, NOTE)), (1, 1), "the prompt stands once, the note once");
    assert!(result_sent(last, "call_work_0").to_string().contains("the recorded text"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f10_the_call_is_in_the_records_before_it_runs_so_a_crash_in_it_never_forgets_it() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))])]);
    crash_in_work(&rig).await;
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.open_calls.len(), 1);
    assert_eq!(owner.survey.open_calls[0].tool, "work");
}

#[tokio::test(flavor = "multi_thread")]
async fn b36_a_prompt_that_was_taken_reaches_the_model_once_though_its_answer_was_cut() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(2), ..Step::says("cut") }, Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let barrier = owner.session.request_barrier().unwrap();
    let stop = owner.stop.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        let request = rig.model.wait_for_requests(1).await.unwrap().remove(0);
        // What the gate does before it admits a request.
        drop(barrier.before_request(request.body.to_string().as_bytes()).await.unwrap());
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    owner.crash().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    let message = owner.placed();
    assert!(owner.survey.taken.contains(&message.id));
    go_on(&mut owner).await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], NOTE)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_a_prompt_that_was_placed_and_not_taken_is_placed_again_under_its_own_id() {
    let rig = Rig::new(vec![Step::says("done")]);
    let owner = rig.own(Work::Answers, &[]).await;
    // Placed in the records; the process died before the program had it.
    let message = owner.ticket("do it").await.place().await.unwrap();
    owner.crash().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.taken.is_empty());
    let turn = owner.turn(Start::Again(message.clone()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!((requests.len(), times_sent(&requests[0], "do it")), (1, 1));
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.taken, [message.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b29_a_settled_turn_is_not_taken_up_and_the_next_message_follows_its_end() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    let mut owner = rig.own(Work::Answers, &[Repair::EndTurn]).await;
    assert!(owner.survey.ended);
    owner.end_turn().await;
    let turn = owner.place("something else").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    assert_eq!(owner.calls(), []);
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2, "the settled turn asks nothing more");
    assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], "something else")), (1, 1));
    assert!(result_sent(&requests[1], "call_work_0").to_string().contains("not run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_are_both_answered_from_the_records() {
    let rig = Rig::new(vec![calls(&[("work", json!({"a": 1})), ("work", json!({"a": 2}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    let open = rig.own(Work::Answers, &[]).await.survey.open_calls.clone();
    let want: Vec<_> = open.iter().map(|call| answer(call.call.as_str(), call.call.as_str())).collect();
    let mut owner = rig.own(Work::Answers, &want).await;
    go_on(&mut owner).await;
    owner.close().await;
    let last = rig.model.requests().remove(1);
    for call in open {
        assert!(result_sent(&last, call.call.as_str()).to_string().contains(call.call.as_str()));
    }
}

/// The program itself, by its session's mark.
pub(crate) fn program_of(session: &str) -> rustix::process::Pid {
    let marked = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "codex" && environ.windows(session.len()).any(|it| it == session.as_bytes())
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    rustix::process::Pid::from_raw(pids.into_iter().find(marked).expect("the program runs")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_writes_when_somebody_ends_it_in_a_call_never_reaches_the_model() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let (host, session) = (owner.host.clone(), owner.marker.session.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        rustix::process::kill_process(program_of(&session), rustix::process::Signal::TERM).unwrap();
    });
    assert!(matches!(end.unwrap_err().kind, AdapterErrorKind::Exited { code: Some(_) }));
    owner.crash().await;
    let native = rig.native().await;
    assert!(native.contains("turn_aborted"), "it wrote its own account, and that was mirrored");
    let mut owner = rig.own(Work::Answers, &[answer("call_work_0", "the recorded text")]).await;
    assert!(owner.survey.open_calls.is_empty() && !owner.survey.ended);
    go_on(&mut owner).await;
    owner.close().await;
    let last = rig.model.requests().remove(1);
    assert!(!last.body.to_string().contains("turn_aborted"), "{}", last.body["input"]);
    assert_eq!((times_sent(&last, "do it"), result_sent(&last, "call_work_0")), (1, json!("the recorded text")));
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_when_it_was_asking_the_model_and_the_cut_is_in_the_records() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(1), ..Step::says("cut") }, Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let session = owner.marker.session.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        rig.model.wait_for_requests(1).await.unwrap();
        rustix::process::kill_process(program_of(&session), rustix::process::Signal::TERM).unwrap();
    });
    assert!(matches!(end.unwrap_err().kind, AdapterErrorKind::Exited { .. }));
    owner.crash().await;
    assert!(rig.native().await.contains("turn_aborted"));
    let mut owner = rig.own(Work::Answers, &[]).await;
    go_on(&mut owner).await;
    owner.close().await;
    assert!(!rig.native().await.contains("turn_aborted"), "a next owner starts from what counts");
    let last = rig.model.requests().remove(1);
    assert!(!last.body.to_string().contains("turn_aborted"), "{}", last.body["input"]);
    assert_eq!(times_sent(&last, "do it"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_the_program_made_up_for_a_call_that_nobody_answered_does_not_count() {
    // As the real one does when it is ended in a call, cut before it wrote the rest of its account.
    let script = r#"
        read line; echo '{"id":1,"result":{}}'; read line; read line
        folder="$HOME/codex/sessions/2026/11/30"; file="$folder/rollout-2026-11-30T09-00-00-thread.jsonl"; mkdir -p "$folder"
        echo "{\"id\":2,\"result\":{\"thread\":{\"id\":\"thread\",\"path\":\"$file\"}}}"
        read placed; echo '{"id":3,"result":{"turn":{"id":"t"}}}'
        id=$(echo "$placed" | sed 's/.*"clientUserMessageId":"\([^"]*\)".*/\1/')
        {
            echo '{"type":"session_meta","payload":{"id":"thread"}}'
            echo "{\"type\":\"event_msg\",\"payload\":{\"type\":\"user_message\",\"client_id\":\"$id\"}}"
            echo '{"type":"response_item","payload":{"type":"function_call","id":"f","call_id":"c","name":"work","arguments":"{}"}}'
        } > "$file"
        echo '{"id":0,"method":"item/tool/call","params":{"callId":"c","tool":"work","arguments":{}}}'
        while [ ! -e "$HOME/../begun" ]; do sleep 0.02; done
        echo '{"type":"response_item","payload":{"type":"function_call_output","call_id":"c","output":"was cancelled"}}' >> "$file"
        exit 0"#;
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&script.replace("$HOME/../begun", "$PWD/begun"));
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let host = owner.host.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        std::fs::write(rig.workspace.path().join("begun"), "").unwrap();
    });
    assert!(matches!(end.unwrap_err().kind, AdapterErrorKind::Exited { code: Some(0) }));
    owner.crash().await;
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.taken.len(), 1);
    assert_eq!(owner.survey.open_calls.len(), 1, "the call may have run: only its own outcome answers it");
}

#[tokio::test(flavor = "multi_thread")]
async fn f08_a_paid_response_that_never_reached_the_rollout_is_not_asked_for_again() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(0), ..Step::says("lost") }, Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let barrier = owner.session.request_barrier().unwrap();
    let stop = owner.stop.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        let request = rig.model.wait_for_requests(1).await.unwrap().remove(0);
        drop(barrier.before_request(request.body.to_string().as_bytes()).await.unwrap());
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    drop(barrier);
    owner.crash().await;
    // What the gate recorded of it: the client was gone, and the answer was read to its end.
    let items = [
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Paid."}]}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_paid", "name": "work", "arguments": "{}"}),
    ];
    let done = items.map(|item| format!("data: {}\n\n", json!({"type": "response.output_item.done", "item": item})));
    let bytes: Arc<[u8]> = Arc::from((done.concat() + "data: {\"type\":\"response.completed\"}\n\n").into_bytes());
    let want = [
        Repair::Response { key: EffectKey("k".to_owned()), id: "resp_paid".to_owned() },
        answer("call_paid", "the recorded text"),
    ];
    let mut owner = rig.own_with(Work::Answers, &want, &|id| (id == "resp_paid").then(|| bytes.clone())).await;
    assert_eq!(owner.survey.responses, ["resp_paid"]);
    go_on(&mut owner).await;
    owner.close().await;
    let last = rig.model.requests().remove(1);
    assert_eq!((times_sent(&last, "do it"), times_sent(&last, "Paid.")), (1, 1));
    assert_eq!(result_sent(&last, "call_paid"), json!("the recorded text"));
    let kinds: Vec<_> = input(&last).into_iter().map(|item| item["type"].clone()).collect();
    assert!(kinds.contains(&json!("reasoning")), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_a_message_that_was_acknowledged_and_never_written_is_placed_again_and_stands_once() {
    let mut rig = Rig::new(vec![Step::says("done")]);
    // Acknowledges the thread and the turn as the real one does, writes the thread's first lines, and is gone before the message.
    let script = r#"
        read line; echo '{"id":1,"result":{}}'; read line; read line
        folder="$HOME/codex/sessions/2026/11/30"; file="$folder/rollout-2026-11-30T09-00-00-thread.jsonl"; mkdir -p "$folder"
        echo "{\"id\":2,\"result\":{\"thread\":{\"id\":\"thread\",\"path\":\"$file\"}}}"
        read line; echo '{"id":3,"result":{"turn":{"id":"t"}}}'
        echo '{"type":"session_meta","payload":{"id":"thread"}}' > "$file"
        echo '{"type":"event_msg","payload":{"type":"task_started","turn_id":"t"}}' >> "$file"
        kill -9 $$"#;
    rig = rig.with_program(script);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(137) }), "{error:?}");
    let message = owner.placed();
    owner.crash().await;
    assert!(rig.native().await.contains("task_started"), "what was written is in the records");
    let rig = rig.with_the_real_program();
    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.taken.is_empty() && !owner.survey.resumable);
    let turn = owner.turn(Start::Again(message.clone()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!((requests.len(), times_sent(&requests[0], "do it")), (1, 1));
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.taken, [message.id]);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_never_summed_up_by_a_request_of_the_programs_own_however_long_it_grows() {
    // Each result is as much as a window holds, and the provider says so.
    let long = || {
        let mut step = calls(&[("work", json!({"characters": 1 << 20}))]);
        step.usage = Some(Tokens { input: 400_000, output: 20, ..Tokens::default() });
        step
    };
    let rig = Rig::new(vec![long(), long(), Step::says("done"), Step::says("again")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.crash().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.ended && owner.survey.taken.len() == 1 && owner.survey.open_calls.is_empty());
    let turn = owner.place("and now?").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 4, "two for the calls, one for each end");
    let last = &requests[3];
    assert_eq!((times_sent(last, "do it"), times_sent(last, "and now?")), (1, 1));
    assert_eq!(result_sent(last, "call_work_0").as_str().map(str::len), Some(1 << 20), "what was said stands whole");
    rig.assert_valid().await;
}
