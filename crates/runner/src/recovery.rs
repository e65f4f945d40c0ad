//! The recovery driver, for hosts that have none: brings one step of a run to its value over at most two attempts, each a session of its own.
//! It keeps nothing but the records, so any process can call it again for the same step at any time.
//!
//! ```text
//!  records ─► the first attempt that was not given up ─► run_node ─► how it ended (the table of `after`)
//!                 ▲                                       ▲   ├─ delivered, final, parked, stopped, fenced, the store's fault ──► answer
//!                 │                                       │   ├─ any other fault, the first in this call ──► resume the session
//!                 │                                       └───┘
//!                 └── settle, record `failed` in the session ◄┴─ the harness's fault again, while attempts are left
//! ```
//!
//! An attempt is spent by its `failed` record and by nothing else. A process that dies has written none, so its death spends nothing, and
//! two drivers of one step cannot deliver in two attempts: after that record no owner of the older session can write anything. What the
//! older attempt completed is answered from its receipts in the newer one, and what it may have half done is refused there (the repeat
//! rule). A provider that is down, a store that fails and a host's own fault spend no attempt either: a fresh session would meet the same,
//! and pay again for all that this one has paid.

use agentrun_adapter::RecordedFiles;
use agentrun_kernel::{Body, Epoch, Failed, LogKey, NameError, RunId, SessionKey, SessionState, Survey, read_all};

use crate::attempt;
use crate::error::{NodeError, NodeWord};
use crate::faults::storage;
use crate::node::{Node, Step};
use crate::runner::{Delivered, HarnessRunner};
use crate::settle::{Here, SettleIn, settle_read};

/// Attempts a step has.
pub const ATTEMPTS: u32 = 2;

/// The session of a step's nth attempt. The first is the step's own; so that the count can be read from the records, the others follow
/// from it.
///
/// # Errors
/// [`NameError`]: the step's key is too long to name another attempt after it.
pub fn attempt_key(step: &SessionKey, attempt: u32) -> Result<SessionKey, NameError> {
    if attempt <= 1 { Ok(step.clone()) } else { SessionKey::new(format!("{step}.attempt-{attempt}")) }
}

/// Runs a step of `run` to its value, or to an end that the driver must not go beyond: `step` is the session of its first attempt.
///
/// Answered steps are answered from the records. Returns as [`HarnessRunner::run_node`] does; dropped, or ended with its process, it has
/// spent nothing, and the same call goes on.
///
/// # Errors
/// [`NodeError`] of the attempt it is in. One that is not final lets the same call go on later, in the same session: also behind the last
/// attempt nothing is given up for good.
pub async fn run(runner: &HarnessRunner, node: &Node, step: &SessionKey, run: &RunId) -> Result<Delivered, NodeError> {
    let mut place = standing(runner, step, run).await?;
    let mut resumed = false;
    let mut held = None;
    loop {
        let error = match attempt::run(runner, node.clone(), place.clone(), &mut held).await {
            Ok(delivered) => return Ok(delivered),
            Err(error) => error,
        };
        match after(error.word, place.attempt, resumed) {
            After::Answer => return Err(error),
            After::Resume => resumed = true,
            After::GiveUp => {
                if !give_up(runner, &place, held, &error).await? {
                    return Err(error);
                }
                place = standing(runner, step, run).await?;
                (resumed, held) = (false, None);
            }
        }
    }
}

/// What follows an attempt's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Tell the host.
    Answer,
    /// The same session again: what was paid is not paid again.
    Resume,
    /// The session's own fault stays: the next attempt begins in a fresh one.
    GiveUp,
}

fn after(word: NodeWord, attempt: u32, resumed: bool) -> After {
    match word {
        word if word.is_final() => After::Answer,
        // The host stopped it; a newer owner goes on with it; a store that failed says the same until it is opened again.
        NodeWord::Aborted | NodeWord::Fenced | NodeWord::Storage => After::Answer,
        _ if !resumed => After::Resume,
        NodeWord::Harness if attempt < ATTEMPTS => After::GiveUp,
        _ => After::Answer,
    }
}

/// Whether an attempt was given up for the next.
fn given_up(state: &SessionState) -> bool {
    state.failed.as_ref().and_then(|failed| NodeWord::from_recorded(&failed.word)).is_some_and(|word| !word.is_final())
}

/// The attempt that the records say the step is in.
async fn standing(runner: &HarnessRunner, step: &SessionKey, run: &RunId) -> Result<Step, NodeError> {
    let mut earlier = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let session = attempt_key(step, attempt).map_err(|error| {
            NodeError::new(step, NodeWord::Refused, format!("a second attempt has no key: {error}"))
        })?;
        let place = Step { session, run: run.clone(), attempt, earlier: earlier.clone() };
        if attempt == ATTEMPTS || !given_up(&read(runner, &place).await?.0) {
            return Ok(place);
        }
        earlier.push(place.session);
    }
    Ok(Step { run: run.clone(), ..Step::first(step.clone()) })
}

async fn read(runner: &HarnessRunner, place: &Step) -> Result<(SessionState, RecordedFiles), NodeError> {
    let records = read_all::<Body>(&*runner.options.store, &LogKey::from(&place.session)).await;
    let records = records.map_err(|error| storage(place, &error))?;
    Ok((SessionState::fold(&records), RecordedFiles::fold(&records)))
}

/// Ends the attempt for good: what it left open is settled, then its `failed` closes the log. `false`: somebody else has the session, or
/// nothing of it was ever written, and it was left as it is.
async fn give_up(
    runner: &HarnessRunner,
    place: &Step,
    held: Option<Epoch>,
    error: &NodeError,
) -> Result<bool, NodeError> {
    let (state, files) = read(runner, place).await?;
    if given_up(&state) {
        return Ok(true);
    }
    let newer = match held {
        Some(mine) => attempt::owner(&runner.options.store, place, &state).await? > mine,
        None => false,
    };
    if newer || state.bound.is_none() || state.answered() {
        return Ok(false);
    }
    let options = &runner.options;
    let at = SettleIn { store: options.store.clone(), adapter: runner.adapter.clone(), homes: options.homes.clone() };
    let failed = Failed {
        word: error.word.as_str().to_owned(),
        message: format!("{}; given up for another attempt", error.message),
    };
    let here = Here { state, files, survey: Survey::default() };
    Ok(settle_read(&at, place, here, Some(failed)).await?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word, at the first and the last attempt, before and behind a resume.
    #[test]
    fn b93_what_the_driver_does_with_each_end() {
        use After::{Answer, GiveUp, Resume};
        use NodeWord as W;
        let table: &[(&[W], [After; 4])] = &[
            (W::RECORDED, [Answer; 4]),
            (&[W::OverCap, W::Refused, W::Binding, W::Mistyped], [Answer; 4]),
            (&[W::Aborted, W::Fenced, W::Storage], [Answer; 4]),
            (&[W::Upstream, W::HostFault], [Resume, Answer, Resume, Answer]),
            (&[W::Harness], [Resume, GiveUp, Resume, Answer]),
        ];
        for (words, does) in table {
            for word in *words {
                let ends = [(1, false), (1, true), (ATTEMPTS, false), (ATTEMPTS, true)];
                assert_eq!(ends.map(|(attempt, resumed)| after(*word, attempt, resumed)), *does, "{word:?}");
            }
        }
    }

    #[test]
    fn attempts_are_named_after_their_step() {
        let step = SessionKey::new("run-7/triage").unwrap();
        assert_eq!(attempt_key(&step, 1).unwrap(), step);
        assert_eq!(attempt_key(&step, 2).unwrap().as_str(), "run-7/triage.attempt-2");
        assert!(attempt_key(&SessionKey::new("k".repeat(195)).unwrap(), 2).is_err());
    }
}
