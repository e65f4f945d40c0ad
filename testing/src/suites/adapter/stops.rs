//! Turns that end because somebody says so, and what the next owner makes of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentrun_adapter::TurnEnd;
use agentrun_kernel::{StopLevel, Why};

use super::host::{Work, answer_of};
use super::rig::{Bench, ENDS, Owner, Rig, times_shown};
use crate::script::Step;
use crate::suites::failure::{Answer, Failure, ensure, same};

/// Between two looks at what a program left on disk or in the process list.
const LOOK: Duration = Duration::from_millis(10);

/// A step whose answer never comes.
fn stalls() -> Step {
    Step { stall_after_events: Some(1), ..Step::says("a long answer") }
}

/// Runs a turn and raises the stop once a call of `work` runs.
async fn stopped_in_work(owner: &mut Owner<'_>, level: StopLevel, then_let_go: bool) -> Result<TurnEnd, Failure> {
    let turn = owner.place("do it").await?;
    let (host, stop) = (owner.host.clone(), owner.stop.clone());
    let raise = async {
        host.begun().await?;
        stop.raise(level, Why::Host);
        if then_let_go {
            host.let_go();
        }
        Ok::<_, Failure>(())
    };
    let (end, raised) = tokio::join!(owner.session.run_turn(turn), raise);
    raised?;
    Ok(end?)
}

/// Runs a turn and raises the stop once the model was asked.
async fn stopped_at_the_model(rig: &Rig, owner: &mut Owner<'_>, level: StopLevel) -> Result<TurnEnd, Failure> {
    let turn = owner.place("do it").await?;
    let stop = owner.stop.clone();
    let raise = async {
        let seen = rig.model.wait_for_requests(1).await;
        stop.raise(level, Why::Host);
        seen
    };
    let (end, seen) = tokio::join!(owner.session.run_turn(turn), raise);
    seen?;
    Ok(end?)
}

pub(super) async fn b21_a_kill_ends_it_with_all_it_started(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("never asked")])?;
    let mut owner = rig.own(Work::Waits).await?;
    let end = stopped_in_work(&mut owner, StopLevel::Kill, false).await?;
    same(end, TurnEnd::Stopped(StopLevel::Kill), "the end")?;
    rig.assert_gone(&owner.marker).await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    owner.crash().await?;
    Ok(String::new())
}

pub(super) async fn b21_an_interrupt_ends_a_turn_that_waits_for_its_model(bench: Bench) -> Answer {
    let rig = bench.rig(vec![stalls(), Step::says("never asked")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let end = stopped_at_the_model(&rig, &mut owner, StopLevel::Interrupt).await?;
    same(end, TurnEnd::Stopped(StopLevel::Interrupt), "the end")?;
    rig.assert_gone(&owner.marker).await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    owner.crash().await?;
    Ok(String::new())
}

pub(super) async fn b22_a_turn_interrupted_before_any_answer_is_taken_up_by_the_next_owner(bench: Bench) -> Answer {
    let rig = bench.rig(vec![stalls(), Step::says("done")])?;
    let mut owner = rig.own(Work::Answers).await?;
    let end = stopped_at_the_model(&rig, &mut owner, StopLevel::Interrupt).await?;
    same(end, TurnEnd::Stopped(StopLevel::Interrupt), "the end")?;
    owner.crash().await?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.goes_on().await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b22_a_turn_interrupted_in_a_call_is_taken_up_by_the_next_owner(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?;
    let mut owner = rig.own(Work::Waits).await?;
    let end = stopped_in_work(&mut owner, StopLevel::Interrupt, false).await?;
    ensure!(matches!(end, TurnEnd::Stopped(_)), "the end is {end:?}");
    owner.crash().await?;
    let mut owner = rig.own_with(Work::Answers, &rig.answers().await?).await?;
    owner.goes_on().await?;
    same(owner.asked().len(), 0, "calls that were made a second time")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b19_a_withheld_call_is_not_answered_and_no_request_follows(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("never asked")])?;
    let mut owner = rig.own(Work::Withheld).await?;
    let turn = owner.place("do it").await?;
    let end = owner.session.run_turn(turn).await?;
    ensure!(matches!(end, TurnEnd::Stopped(_)), "the end is {end:?}");
    rig.assert_gone(&owner.marker).await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    owner.crash().await?;
    Ok(String::new())
}

pub(super) async fn b19_a_drain_lets_a_running_call_record_its_outcome_and_begins_nothing(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?;
    let mut owner = rig.own(Work::Waits).await?;
    let end = stopped_in_work(&mut owner, StopLevel::Drain, true).await?;
    same(end, TurnEnd::Stopped(StopLevel::Drain), "the end")?;
    let answer = answer_of("work", &bench.call_id("work", 0));
    let recorded = rig.outcomes().await?.into_iter().any(|(_, _, text)| text == answer);
    ensure!(recorded, "the running call's outcome is not in the records");
    same(rig.model.requests().len(), 1, "model requests")?;
    owner.crash().await?;
    let mut owner = rig.own_with(Work::Answers, &rig.answers().await?).await?;
    owner.goes_on().await?;
    same(owner.asked().len(), 0, "calls that were made a second time")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let shown = requests.last().map(|it| (times_shown(it, "do it"), times_shown(it, &answer)));
    same(shown, Some((1, 1)), "times the prompt and the call's text were shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b30_a_stop_that_stands_before_the_turn_pays_nothing(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("never asked")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.stop.raise(StopLevel::Drain, Why::Host);
    let turn = owner.place("do it").await?;
    let end = owner.session.run_turn(turn).await?;
    ensure!(matches!(end, TurnEnd::Stopped(_)), "the end is {end:?}");
    same(rig.model.requests().len(), 0, "model requests")?;
    owner.crash().await?;
    Ok(String::new())
}

pub(super) async fn b19_a_stop_while_the_program_starts_is_not_kept_waiting(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("never asked")])?.with_program("echo $PPID > SCRATCH/begun; sleep 600").await?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    let (stop, begun) = (owner.stop.clone(), rig.scratch("begun"));
    let raise = async {
        while started(&begun).is_none() {
            tokio::time::sleep(LOOK).await;
        }
        stop.raise(StopLevel::Kill, Why::Host);
        // Far below what a start may take.
        tokio::time::sleep(ENDS / 2).await;
        Failure("the stop was kept waiting".to_owned())
    };
    tokio::select! {
        end = owner.session.run_turn(turn) => {
            let end = end?;
            ensure!(matches!(end, TurnEnd::Stopped(_)), "the end is {end:?}");
        }
        late = raise => return Err(late),
    }
    ensure!(owner.drive.with_state(|state| state.open_turn.is_none()), "a message was placed");
    // By itself: its guard, which goes last, may take a moment, and a sweep would end it all for it.
    let guard = started(&begun).ok_or_else(|| Failure("it was never started".to_owned()))?;
    let gone = async {
        while guard.exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    ensure!(tokio::time::timeout(ENDS, gone).await.is_ok(), "the program's guard is left running");
    rig.assert_gone(&owner.marker).await?;
    owner.crash().await?;
    Ok(String::new())
}

/// Where the system shows the process whose id this file holds, once it is written.
fn started(file: &Path) -> Option<PathBuf> {
    let pid = std::fs::read_to_string(file).ok()?;
    pid.ends_with('\n').then(|| Path::new("/proc").join(pid.trim()))
}
