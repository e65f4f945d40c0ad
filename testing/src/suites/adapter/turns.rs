//! A turn from its message to the idle harness.

use std::time::Duration;

use agentrun_adapter::{Start, TurnEnd};
use agentrun_kernel::{Body, Step as Pause};
use serde_json::{Value, json};

use super::host::{Work, answer_of};
use super::rig::{Bench, times_shown};
use crate::script::Step;
use crate::suites::failure::{Answer, Failure, ensure, same};

/// How long is looked for what must not come. A sound adapter waits it out; only an unsound one is quicker.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn a_prompt_runs_to_idle_and_is_asked_about_once(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    let identity = owner.session.native().ok_or_else(|| Failure("it does not say who it is".to_owned()))?;
    ensure!(!identity.resumed, "a new session says that it was resumed");
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 1, "model requests")?;
    same(requests.first().map_or(0, |it| times_shown(it, "do it")), 1, "times the model was shown the prompt")?;
    rig.assert_valid().await?;
    Ok(identity.version)
}

pub(super) async fn b38_a_message_is_in_the_records_before_anything_is_sent(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("done")])?;
    let (mut owner, mut manual) = rig.own_step_by_step(Work::Answers).await?;
    let follow = async {
        while let Some(paused) = manual.paused().await {
            if matches!(paused.step(), Pause::Append(kinds) if kinds.contains(&"placed")) {
                tokio::time::sleep(LOOK).await;
                let asked = rig.model.requests().len().saturating_add(rig.model.refused().len());
                same(asked, 0, "model requests while the message waits for its record")?;
            }
            paused.go();
        }
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ran = owner.runs("do it") => ran?,
        early = follow => early?,
    }
    drop(manual);
    owner.close().await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    Ok(String::new())
}

pub(super) async fn b69_a_call_is_in_the_native_history_no_later_than_its_intent_and_the_model_gets_its_text(
    bench: Bench,
) -> Answer {
    let rig = bench.rig(vec![bench.calls(&[("work", json!({"a": 1}))]), Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    let call = bench.call_id("work", 0);
    let asked: Vec<_> = owner.asked().into_iter().map(|it| (it.call, it.tool, it.ordinal)).collect();
    same(asked, vec![(call.clone(), "work".to_owned(), 0)], "calls the host was asked for")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let shown = requests.last().map_or(0, |it| times_shown(it, &answer_of("work", &call)));
    same(shown, 1, "times the model was shown the result")?;
    let mut native = Vec::new();
    for record in rig.records().await? {
        match record.body {
            Body::Native(write) => native.extend_from_slice(&write.bytes),
            Body::Intent(_) => break,
            _ => {}
        }
    }
    let explained = String::from_utf8_lossy(&native).contains(&call);
    ensure!(explained, "the call's intent stands in the records before the history that explains it");
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn calls_of_one_answer_are_each_run_once_and_all_seen(bench: Bench) -> Answer {
    let rig = bench.rig(vec![
        bench.calls(&[("work", json!({"a": 1})), ("work", json!({"a": 2})), ("work", json!({"a": 3}))]),
        Step::says("done"),
    ])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    let mut asked: Vec<_> = owner.asked().into_iter().map(|it| it.call).collect();
    asked.sort();
    let due: Vec<_> = (0..3).map(|at| bench.call_id("work", at)).collect();
    same(asked, due.clone(), "calls the host was asked for")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    for call in due {
        let shown = requests.last().map_or(0, |it| times_shown(it, &answer_of("work", &call)));
        same(shown, 1, &format!("times the model was shown the result of {call}"))?;
    }
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b72_a_nested_schema_reaches_the_model_as_it_is(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    owner.close().await?;
    let body = rig.model.bodies().into_iter().next().unwrap_or_default();
    ensure!(
        holds_the_nesting(&body),
        "no tool of the request has the nested schema: {}",
        body.get("tools").unwrap_or_default()
    );
    Ok(String::new())
}

/// `outer.list[].innermost` stands somewhere below.
fn holds_the_nesting(value: &Value) -> bool {
    let here = value
        .pointer("/properties/outer/properties/list/items/properties/innermost/type")
        .is_some_and(|it| *it == "string");
    here || match value {
        Value::Array(items) => items.iter().any(holds_the_nesting),
        Value::Object(members) => members.values().any(holds_the_nesting),
        _ => false,
    }
}

pub(super) async fn an_accepted_submit_ends_the_turn_with_no_further_call_or_request(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.calls(&[("submit", json!({"value": 1}))]), bench.works(), Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    let asked: Vec<_> = owner.asked().into_iter().map(|it| it.tool).collect();
    same(asked, vec!["submit".to_owned()], "tools called")?;
    owner.close().await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    same(rig.model.refused(), Vec::new(), "requests that were refused")?;
    Ok(String::new())
}

pub(super) async fn a_next_message_follows_an_accepted_submit(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.calls(&[("submit", json!({"value": 1}))]), Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    owner.close().await?;
    let mut owner = rig.own(Work::Answers).await?;
    ensure!(owner.survey.ended && owner.survey.resumable, "the history says {:?}", owner.survey);
    owner.runs("and now?").await?;
    ensure!(owner.session.native().is_some_and(|it| it.resumed), "it does not say that it was resumed");
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let Some(last) = requests.last() else { return Ok(String::new()) };
    same((times_shown(last, "do it"), times_shown(last, "and now?")), (1, 1), "times both messages were shown")?;
    let answer = answer_of("submit", &bench.call_id("submit", 0));
    same(times_shown(last, &answer), 1, "times the submit's answer was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn two_messages_are_two_turns(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("one"), Step::says("two")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("first").await?;
    owner.runs("second").await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let shown = requests.last().map(|it| (times_shown(it, "first"), times_shown(it, "second")));
    same(shown, Some((1, 1)), "times both messages were shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b92_a_tool_nobody_offered_is_told_to_the_host_and_nothing_more_is_paid(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.calls(&[("nosuch", json!({}))]), Step::says("never asked")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    // How it ends is the harness's: stopped, or failed by the refusal of its next request.
    let end = owner.session.run_turn(turn).await?;
    let asked: Vec<_> = owner.asked().into_iter().map(|it| it.tool).collect();
    same(asked, vec!["nosuch".to_owned()], "tools the host was told of")?;
    same(rig.model.requests().len(), 1, "model requests")?;
    owner.crash().await?;
    Ok(format!("{end:?}"))
}

pub(super) async fn a_refused_request_fails_the_turn_and_the_same_turn_can_go_on(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::fails(403), Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    let end = owner.session.run_turn(turn).await?;
    ensure!(matches!(end, TurnEnd::Failed { status: Some(403), .. }), "the turn ended {end:?}");
    same(rig.model.requests().len(), 2, "model requests: none is tried again by the harness")?;
    let message = owner.placed()?;
    let turn = owner.turn(Start::Continue(message));
    let end = owner.session.run_turn(turn).await?;
    same(end, TurnEnd::Idle, "the end of the turn that went on")?;
    owner.end_turn().await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 3, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn a_response_that_is_cut_fails_the_turn_and_is_not_asked_for_again(bench: Bench) -> Answer {
    let cut = Step { cut_after_events: Some(0), ..Step::says("cut") };
    let rig = bench.rig(vec![cut, Step::says("never asked")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    let end = owner.session.run_turn(turn).await?;
    ensure!(matches!(end, TurnEnd::Failed { .. }), "the turn ended {end:?}");
    same(rig.model.requests().len(), 1, "model requests: a second one is another paid one")?;
    owner.close().await?;
    Ok(String::new())
}
