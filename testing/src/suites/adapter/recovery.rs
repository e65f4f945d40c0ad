//! A next owner goes on from the records alone, in a fresh home.

use agentrun_adapter::{AdapterErrorKind, NativeFiles as _};
use agentrun_kernel::{Body, Repair, Step as Pause};
use serde_json::json;

use super::host::Work;
use super::rig::{Bench, NOTE, Rig, times_shown};
use crate::script::{Step, Times, When};
use crate::suites::failure::{Answer, Failure, ensure, same};

/// Runs a turn until `work` has its intent, then drops everything.
async fn crash_in_work(rig: &Rig) -> Result<(), Failure> {
    let mut owner = rig.own(Work::Waits).await?;
    let turn = owner.place("do it").await?;
    let host = owner.host.clone();
    tokio::select! {
        end = owner.session.run_turn(turn) => return Err(Failure(format!("the turn ended: {end:?}"))),
        begun = host.begun() => begun?,
    }
    drop(host);
    owner.crash().await
}

pub(super) async fn b24_a_recorded_outcome_is_answered_from_the_record_and_the_call_is_not_made_again(
    bench: Bench,
) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?;
    crash_in_work(&rig).await?;
    let call = rig.own(Work::Answers).await?.survey.open_calls.first().map(|open| open.call.clone());
    let call = call.ok_or_else(|| Failure("the history shows no open call".to_owned()))?;
    let answer = Repair::Answer { call, text: "the recorded text".into(), is_error: false };
    let mut owner = rig.own_with(Work::Answers, &[answer]).await?;
    ensure!(owner.survey.open_calls.is_empty() && !owner.survey.ended, "the history says {:?}", owner.survey);
    owner.goes_on().await?;
    same(owner.asked().len(), 0, "calls that were made a second time")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let shown =
        requests.last().map(|it| (times_shown(it, "do it"), times_shown(it, NOTE), it.mentions("the recorded text")));
    same(shown, Some((1, 1, true)), "times the prompt and the note were shown, and whether the text was")?;
    Ok(String::new())
}

pub(super) async fn f10_a_call_is_in_the_records_before_it_runs(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works()])?;
    crash_in_work(&rig).await?;
    let survey = rig.adapter.history().survey(&rig.files().await?)?;
    let open: Vec<_> = survey.open_calls.into_iter().map(|open| (open.call.to_string(), open.tool)).collect();
    same(open, vec![(bench.call_id("work", 0), "work".to_owned())], "open calls after a crash in one")?;
    Ok(String::new())
}

pub(super) async fn b36_a_message_that_was_taken_reaches_the_model_once(bench: Bench) -> Answer {
    let stalls = Step { stall_after_events: Some(1), ..Step::says("cut") };
    let rig = bench.rig(vec![stalls, Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    tokio::select! {
        end = owner.session.run_turn(turn) => return Err(Failure(format!("the turn ended: {end:?}"))),
        seen = rig.model.wait_for_requests(1) => drop(seen?),
    }
    owner.crash().await?;
    let mut owner = rig.own(Work::Answers).await?;
    let message = owner.placed()?;
    ensure!(owner.survey.taken.contains(&message.id), "a request was paid for a message the history does not hold");
    owner.goes_on().await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b38_a_message_that_was_placed_and_not_taken_is_placed_again_under_its_own_id(
    bench: Bench,
) -> Answer {
    let rig = bench.rig(vec![Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let message = owner.ticket("do it").await?.place().await?;
    owner.crash().await?;
    let mut owner = rig.own(Work::Answers).await?;
    same(owner.survey.taken.len(), 0, "messages the history says were taken")?;
    owner.goes_on().await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 1, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    let survey = rig.adapter.history().survey(&rig.files().await?)?;
    same(survey.taken, vec![message.id], "messages taken")?;
    Ok(String::new())
}

pub(super) async fn b28_a_settle_is_pure_says_the_turn_is_over_and_writes_nothing_twice(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works()])?;
    crash_in_work(&rig).await?;
    let mut files = rig.files().await?;
    let before = rig.records().await?.len();
    let writes = rig.adapter.history().repair(&files, &[Repair::EndTurn], &|_| None)?;
    ensure!(!writes.is_empty(), "an open turn was ended by no write");
    for write in &writes {
        files.apply(write);
    }
    let survey = rig.adapter.history().survey(&files)?;
    ensure!(survey.ended && survey.open_calls.is_empty(), "the settled history says {survey:?}");
    let again = rig.adapter.history().repair(&files, &[Repair::EndTurn], &|_| None)?;
    same(again.len(), 0, "writes of a second settle")?;
    same((rig.records().await?.len(), rig.model.requests().len()), (before, 1), "records and requests")?;
    Ok(String::new())
}

pub(super) async fn b29_a_settled_turn_is_not_taken_up_and_the_next_message_follows_its_end(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?;
    crash_in_work(&rig).await?;
    let mut owner = rig.own_with(Work::Answers, &[Repair::EndTurn]).await?;
    ensure!(owner.survey.ended, "the settled history says {:?}", owner.survey);
    owner.end_turn().await?;
    owner.runs("something else").await?;
    same(owner.asked().len(), 0, "calls of the settled turn that were made")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let shown = requests.last().map(|it| (times_shown(it, "do it"), times_shown(it, "something else")));
    same(shown, Some((1, 1)), "times both messages were shown")?;
    Ok(String::new())
}

pub(super) async fn b27_a_restored_history_is_not_mirrored_a_second_time(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.calls(&[("work", json!({}))]), Step::says("one"), Step::says("two")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("first").await?;
    owner.close().await?;
    let before = rig.records().await?.len();
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("second").await?;
    owner.close().await?;
    let files = rig.files().await?;
    let held: usize = files.streams().iter().filter_map(|stream| files.bytes(stream)).map(|bytes| bytes.len()).sum();
    let later: usize = rig
        .records()
        .await?
        .iter()
        .skip(before)
        .filter_map(|record| match &record.body {
            Body::Native(write) => Some(write.bytes.len()),
            _ => None,
        })
        .sum();
    ensure!(later < held, "the second owner mirrored {later} bytes of a history of {held}");
    rig.assert_valid().await?;
    Ok(format!("{later} of {held} bytes"))
}

pub(super) async fn b43_a_fenced_session_unwinds_and_runs_nothing_more(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("never asked")])?;
    let mut old = rig.own(Work::Waits).await?;
    let turn = old.place("do it").await?;
    let host = old.host.clone();
    let fence = async {
        host.begun().await?;
        // The new owner's open is the fence; it starts nothing.
        let new = rig.own(Work::Answers).await?;
        host.let_go();
        Ok::<_, Failure>(new)
    };
    let (end, new) = tokio::join!(old.session.run_turn(turn), fence);
    let new = new?;
    match end {
        Err(error) if matches!(error.kind, AdapterErrorKind::Restart(_)) => {}
        other => return Err(Failure(format!("the fenced turn ended {other:?}"))),
    }
    same(rig.model.requests().len(), 1, "model requests")?;
    drop(host);
    old.crash().await?;
    new.crash().await?;
    rig.assert_valid().await?;
    Ok(String::new())
}

/// Its owner dies just before this record would be written; a next one goes on to the turn's end.
async fn dies_before(bench: Bench, kind: &'static str) -> Answer {
    // A response that no record holds is asked for again: what the model says follows from what it is shown.
    let works = Step { times: Times::Always, when: When { results: Some(0), ..When::default() }, ..bench.works() };
    let rig = bench.rig(vec![works, Step { times: Times::Always, ..Step::says("done") }])?;
    let (mut owner, mut manual) = rig.own_step_by_step(Work::Answers).await?;
    let died = async {
        while let Some(paused) = manual.paused().await {
            if matches!(paused.step(), Pause::Append(kinds) if kinds.contains(&kind)) {
                // Dropped, the owner's records end here.
                drop(paused);
                return;
            }
            paused.go();
        }
    };
    tokio::select! {
        // Where its records ended, it unwinds: that is the death too.
        ran = owner.runs("do it") => ensure!(ran.is_err(), "the turn came to its end without a `{kind}`"),
        () = died => {}
    }
    drop(manual);
    owner.crash().await?;

    let open = rig.state().await?.open_turn.is_some();
    let mut owner = rig.own_with(Work::Answers, &rig.answers().await?).await?;
    if !open {
        owner.runs("do it").await?;
    } else if owner.survey.ended {
        owner.end_turn().await?;
    } else {
        owner.goes_on().await?;
    }
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    // Two for the turn, and the one that the death cut.
    ensure!(requests.len() <= 3, "{} model requests", requests.len());
    let begun = rig.records().await?.iter().filter(|it| matches!(it.body, Body::Intent(_))).count();
    ensure!(begun <= 1, "the call was begun {begun} times");
    rig.assert_valid().await?;
    Ok(format!("{} model requests", requests.len()))
}

pub(super) async fn f32_an_owner_that_dies_before_it_placed_repeats_nothing(bench: Bench) -> Answer {
    dies_before(bench, "placed").await
}

pub(super) async fn f32_an_owner_that_dies_before_a_calls_intent_repeats_nothing(bench: Bench) -> Answer {
    dies_before(bench, "intent").await
}

pub(super) async fn f32_an_owner_that_dies_before_a_calls_outcome_repeats_nothing(bench: Bench) -> Answer {
    dies_before(bench, "outcome").await
}

pub(super) async fn f32_an_owner_that_dies_before_the_turns_end_repeats_nothing(bench: Bench) -> Answer {
    dies_before(bench, "turn_end").await
}
