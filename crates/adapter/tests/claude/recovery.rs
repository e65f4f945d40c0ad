//! A next owner goes on from the records, in a fresh home.

use agentrun_adapter::{Start, TurnEnd};
use agentrun_kernel::{Repair, StopLevel, Why};
use agentrun_testing::script::Step;
use serde_json::json;

use crate::harness::{result_sent, times_sent};
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
    let mut owner = rig.own(Work::Answers, &[answer("toolu_work_0", "the recorded text")]).await;
    assert!(owner.survey.open_calls.is_empty() && !owner.survey.ended);
    go_on(&mut owner).await;
    assert_eq!(owner.calls(), [], "it is not run again");
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    let last = &requests[1];
    assert_eq!((times_sent(last, "do it"), times_sent(last, NOTE)), (1, 1), "the prompt stands once, the note once");
    assert!(result_sent(last, "toolu_work_0").to_string().contains("the recorded text"));
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
    assert!(result_sent(&requests[1], "toolu_work_0").to_string().contains("not run"));
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
        assert!(result_sent(&last, call.call.as_str())["content"].to_string().contains(call.call.as_str()));
    }
}

/// Interrupts a turn that waits for its model, or for a call of `work`.
async fn interrupted(rig: &Rig, in_a_call: bool) {
    let mut owner = rig.own(if in_a_call { Work::Hangs } else { Work::Answers }, &[]).await;
    let turn = owner.place("do it").await;
    let (stop, host) = (owner.stop.clone(), owner.host.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        if in_a_call {
            host.begun.notified().await;
        } else {
            rig.model.wait_for_requests(1).await.unwrap();
        }
        stop.raise(StopLevel::Interrupt, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Interrupt));
    drop(host);
    owner.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b22_a_turn_the_program_wrote_down_as_interrupted_is_taken_up_all_the_same() {
    for in_a_call in [false, true] {
        let stalls = Step { stall_after_events: Some(1), ..Step::says("cut") };
        let first = if in_a_call { calls(&[("work", json!({}))]) } else { stalls };
        let rig = Rig::new(vec![first, Step::says("done")]);
        interrupted(&rig, in_a_call).await;
        let mut owner = rig.own(Work::Answers, &[answer("toolu_work_0", "the recorded text")]).await;
        go_on(&mut owner).await;
        assert_eq!(owner.calls(), []);
        owner.close().await;
        let requests = rig.model.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], NOTE)), (1, 1));
        if in_a_call {
            assert!(result_sent(&requests[1], "toolu_work_0").to_string().contains("the recorded text"));
        }
    }
}
