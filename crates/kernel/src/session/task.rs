//! The one task that owns a session: its writer, its fold and its publisher. Commands are served one at a time, so a batch is checked
//! against exactly the state it will follow, and events leave in the order of their records, at the durable mark.
//!
//! ```text
//!  Drive ──command──► check on the fold ──► writer.append ──► fold ──► publish ──► answer
//!                        │ Illegal                │ Fenced / Unknown
//!                        ▼ nothing written        ▼ Restart for everybody, from now on
//! ```

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::check::Illegal;
use super::drive::{Begun, Command, Drive, DriveError, EffectSpec, OnRepeat, OpenEffect, Outcomes, Restart, Shown};
use super::manual::{Manual, Pauses, Step};
use super::state::{Effect, SessionState};
use crate::ids::{Digest, EffectKey, Epoch, Seq};
use crate::record::{Body, EffectKind, Outcome, OutcomeEnd, Record, Replay};
use crate::store::{AppendError, Batch, Durability, Refused, SessionWriter, SharedAppend, Watch, now_ms};

/// Commands that may wait; more callers wait to send.
const WAITING: usize = 64;

/// Everything a session task is made from.
#[derive(Debug)]
pub struct Owned {
    /// The session's writer.
    pub writer: SessionWriter,
    /// The fold of all the log holds.
    pub state: SessionState,
    /// Follows the session's log, so that an idle owner learns of a newer one.
    pub watch: Watch,
    /// Earlier attempts of the same step: their completed never calls are answered from there.
    pub earlier: Vec<SessionState>,
    /// Where durable records are published, in order.
    pub events: Option<mpsc::UnboundedSender<Arc<Record>>>,
}

/// A running session task.
#[derive(Debug)]
pub struct SessionTask {
    drive: Drive,
    task: JoinHandle<SessionWriter>,
}

impl SessionTask {
    /// Starts the task.
    #[must_use]
    pub fn spawn(owned: Owned) -> Self {
        Self::start(owned, None)
    }

    /// Starts it in manual mode, for tests: it pauses before every append and before every run of an effect.
    #[must_use]
    pub fn spawn_manual(owned: Owned) -> (Self, Manual) {
        let (pauses, manual) = Pauses::new();
        (Self::start(owned, Some(pauses)), manual)
    }

    fn start(owned: Owned, pauses: Option<Pauses>) -> Self {
        let Owned { writer, state, watch, earlier, events } = owned;
        let (to, commands) = mpsc::channel(WAITING);
        let shown = Arc::new(Shown { state: RwLock::new(state), ended: watch::Sender::new(None) });
        let drive = Drive { key: writer.key().clone(), epoch: writer.epoch(), to, shown: shown.clone() };
        let handle =
            WeakDrive { key: drive.key.clone(), epoch: drive.epoch, to: drive.to.downgrade(), shown: shown.clone() };
        let task =
            Task { writer, shown, handle, earlier, events, unpublished: Vec::new(), running: HashMap::new(), pauses };
        Self { drive, task: tokio::spawn(task.run(commands, watch)) }
    }

    /// A handle to it.
    #[must_use]
    pub fn drive(&self) -> Drive {
        self.drive.clone()
    }

    /// Waits until every other handle is gone and all they asked is written; gives the writer back. `None` if the task panicked.
    pub async fn join(self) -> Option<SessionWriter> {
        drop(self.drive);
        self.task.await.ok()
    }
}

/// The task's own way to make handles, without keeping itself alive.
struct WeakDrive {
    key: crate::ids::SessionKey,
    epoch: Epoch,
    to: mpsc::WeakSender<Box<Command>>,
    shown: Arc<Shown>,
}

struct Task {
    writer: SessionWriter,
    shown: Arc<Shown>,
    handle: WeakDrive,
    earlier: Vec<SessionState>,
    events: Option<mpsc::UnboundedSender<Arc<Record>>>,
    /// Buffered records wait here for the synced batch that makes them durable.
    unpublished: Vec<Record>,
    running: HashMap<EffectKey, watch::Receiver<Option<Arc<Outcome>>>>,
    /// Manual mode.
    pauses: Option<Pauses>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Box<Command>>, mut watch: Watch) -> SessionWriter {
        let mut watching = true;
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    // Boxed: a session that is only held keeps no room for the steps of an append.
                    Some(command) => Box::pin(self.serve(*command)).await,
                    None => return self.writer,
                },
                head = watch.changed(), if watching => match head {
                    Some(head) if head.epoch > self.writer.epoch() => {
                        self.end(AppendError::Fenced { newer: head.epoch });
                        watching = false;
                    }
                    Some(_) => {}
                    None => watching = false,
                },
            }
        }
    }

    async fn serve(&mut self, command: Command) {
        // A caller that went away cancels nothing: what it asked is done, and nobody reads the answer.
        match command {
            Command::Append(batch, also, answer) => {
                let done = self.append(batch, also).await;
                let _ = answer.send(done);
            }
            Command::Begin(spec, before, also, answer) => {
                let begun = self.begin(*spec, before, also).await;
                let _ = answer.send(begun);
            }
            Command::Reopen(key, answer) => {
                let begun = self.reopen(&key).await;
                let _ = answer.send(begun);
            }
        }
    }

    fn state(&self) -> SessionState {
        self.shown.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn alive(&self) -> Result<(), DriveError> {
        match &*self.shown.ended.borrow() {
            Some(restart) => Err(DriveError::Restart(restart.clone())),
            None => Ok(()),
        }
    }

    fn end(&mut self, cause: AppendError) -> DriveError {
        let restart = Restart { cause };
        self.shown.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(restart.clone());
            }
            first
        });
        DriveError::Restart(restart)
    }

    async fn append(&mut self, batch: Batch, also: Option<SharedAppend>) -> Result<Seq, DriveError> {
        self.alive()?;
        let Batch { bodies, durability } = batch;
        let records = self.checked(bodies)?;
        self.pause(|| Step::Append(records.iter().map(|record| record.body.kind()).collect())).await?;
        #[cfg(feature = "crossings")]
        let crossing = crate::crossings::OfBatch::before(&records, &after(self.state(), &records));
        match self.writer.append_records(&records, durability, also).await {
            Ok(seq) => {
                #[cfg(feature = "crossings")]
                crossing.after();
                {
                    let mut state = self.shown.state.write().unwrap_or_else(PoisonError::into_inner);
                    records.iter().for_each(|record| state.apply(record));
                }
                self.publish(records, durability);
                Ok(seq)
            }
            Err(AppendError::Conflict { expected, found, .. }) => Err(DriveError::Conflict { expected, found }),
            Err(AppendError::Refused(refused)) => Err(DriveError::Refused(refused)),
            Err(cause @ (AppendError::Fenced { .. } | AppendError::Unknown(_))) => Err(self.end(cause)),
        }
    }

    /// The batch as records, each of which may follow what it will follow, or what it would break. Nothing is folded yet: nobody may see
    /// what is not durable.
    fn checked(&self, bodies: Vec<Body>) -> Result<Vec<Record>, Illegal> {
        let state = self.shown.state.read().unwrap_or_else(PoisonError::into_inner);
        let (epoch, at) = (self.writer.epoch(), now_ms());
        let mut seq = state.head;
        let mut records = Vec::with_capacity(bodies.len());
        for body in bodies {
            seq = seq.next();
            records.push(Record { seq, epoch, at, body });
        }
        // One record, as most batches are, needs no snapshot to be tried on; of more, the last is only looked at.
        if let Some((last, before)) = records.split_last() {
            match before {
                [] => state.check(last)?,
                _ => {
                    let mut trial = state.clone();
                    for record in before {
                        trial.check(record)?;
                        trial.apply(record);
                    }
                    trial.check(last)?;
                }
            }
        }
        Ok(records)
    }

    fn publish(&mut self, records: Vec<Record>, durability: Durability) {
        let Some(events) = &self.events else { return };
        self.unpublished.extend(records);
        if durability == Durability::Synced {
            for record in self.unpublished.drain(..) {
                // A host that stopped listening loses nothing: the records are in the log.
                let _ = events.send(Arc::new(record));
            }
        }
    }

    async fn begin(
        &mut self,
        spec: EffectSpec,
        before: Vec<Body>,
        also: Option<SharedAppend>,
    ) -> Result<Begun, DriveError> {
        self.alive()?;
        if let Some(begun) = self.join_running(&spec.key) {
            return Ok(begun);
        }
        let repeated = {
            let state = self.shown.state.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(outcome) = state.effect(&spec.key).and_then(|effect| effect.outcome.clone()) {
                return Ok(Begun::Known(outcome));
            }
            repeated(&spec, &state, &self.earlier)
        };
        let key = spec.key.clone();
        let mut bodies = before;
        if let Some((end, text)) = repeated {
            // Answered or refused here, so nothing is paid: the intent names no hold.
            bodies.push(Body::Intent(EffectSpec { paid: None, ..spec }.into_intent()));
            let outcome = Outcome::new(key, end, text);
            bodies.push(Body::Outcome(outcome.clone()));
            self.append(Batch::of(bodies), None).await?;
            return Ok(Begun::Known(Arc::new(outcome)));
        }
        bodies.push(Body::Intent(spec.into_intent()));
        self.append(Batch::of(bodies), also).await?;
        self.pause(|| Step::Run(key.clone())).await?;
        Ok(self.open(key))
    }

    async fn pause(&mut self, step: impl FnOnce() -> Step + Send) -> Result<(), DriveError> {
        if let Some(pauses) = &self.pauses
            && !pauses.before(step()).await
        {
            let died = Refused::Busy("its owner was let die here, in manual mode".to_owned());
            return Err(self.end(AppendError::Refused(died)));
        }
        Ok(())
    }

    async fn reopen(&mut self, key: &EffectKey) -> Result<Begun, DriveError> {
        self.alive()?;
        if let Some(begun) = self.join_running(key) {
            return Ok(begun);
        }
        let state = self.state();
        match state.effect(key) {
            Some(Effect { outcome: Some(outcome), .. }) => Ok(Begun::Known(outcome.clone())),
            Some(_) => {
                self.pause(|| Step::Run(key.clone())).await?;
                Ok(self.open(key.clone()))
            }
            None => Err(DriveError::Illegal(Illegal {
                seq: state.head.next(),
                kind: "outcome",
                invariant: super::check::Invariant::OneOutcome,
            })),
        }
    }

    fn join_running(&mut self, key: &EffectKey) -> Option<Begun> {
        let running = self.running.get(key)?;
        // It ended, so the records tell how; or its runner let go without an outcome, and this epoch may end it.
        if running.borrow().is_some() || running.has_changed().is_err() {
            self.running.remove(key);
            return None;
        }
        Some(Begun::Running(Outcomes(running.clone())))
    }

    fn open(&mut self, key: EffectKey) -> Begun {
        let (done, outcome) = watch::channel(None);
        self.running.retain(|_, running| running.has_changed().is_ok());
        self.running.insert(key.clone(), outcome);
        match self.handle.to.upgrade() {
            Some(to) => {
                let drive = Drive {
                    key: self.handle.key.clone(),
                    epoch: self.handle.epoch,
                    to,
                    shown: self.handle.shown.clone(),
                };
                Begun::Open(OpenEffect { key, drive, done })
            }
            // Every handle is gone, so nobody is there to run it.
            None => Begun::Running(Outcomes(self.running.get(&key).cloned().unwrap_or_else(|| watch::channel(None).1))),
        }
    }
}

/// The state that `records` leave.
#[cfg(feature = "crossings")]
fn after(mut state: SessionState, records: &[Record]) -> SessionState {
    records.iter().for_each(|record| state.apply(record));
    state
}

/// The repeat rule, over this session and its earlier attempts, on (tool, digest of the arguments). `None`: it may run.
fn repeated(spec: &EffectSpec, state: &SessionState, earlier: &[SessionState]) -> Option<(OutcomeEnd, Arc<str>)> {
    if spec.kind != EffectKind::Tool || spec.replay != Replay::Never {
        return None;
    }
    let interrupted =
        |effect: &&Effect| effect.interrupted() || (effect.outcome.is_none() && effect.epoch < state.epoch);
    let here = state.receipt(&spec.name, &spec.digest);
    let before = earlier.iter().rev().find_map(|state| state.receipt(&spec.name, &spec.digest));
    if let Some(done) =
        before.and_then(|effect| effect.outcome.as_ref()).filter(|outcome| outcome.end == OutcomeEnd::Ok)
    {
        return Some((OutcomeEnd::Ok, done.text.clone()));
    }
    let in_doubt = here
        .filter(interrupted)
        .or_else(|| before.filter(|effect| effect.outcome.is_none() || effect.interrupted()))?;
    (spec.on_repeat == OnRepeat::Refuse)
        .then(|| (OutcomeEnd::Refused, repeat_refusal(&spec.name, &in_doubt.intent.digest)))
}

fn repeat_refusal(tool: &str, digest: &Digest) -> Arc<str> {
    Arc::from(format!(
        "Not run again: an earlier call of `{tool}` with these same arguments (digest {digest:.8}) was interrupted and may have partly run, and \
         this tool must not run twice. Find out by other means what happened, or go on without it."
    ))
}
