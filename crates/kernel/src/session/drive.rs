//! What everybody but the session task holds: a clone handle through which effects begin and end, messages are placed and records are
//! appended. It writes nothing itself; the task does, one command at a time, fence and invariants checked in the same step.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::check::Illegal;
use super::state::SessionState;
use crate::ids::{CallId, Digest, EffectKey, Epoch, HoldId, MessageId, Seq, SessionKey, SubmissionId, TurnId};
use crate::money::Usd;
use crate::record::{Body, EffectKind, Intent, Outcome, Placed, Replay};
use crate::store::{AppendError, Batch, Refused, SharedAppend};

/// The session is no longer this process's: a newer owner took it, or a write failed in a way only the log can tell. It is consumed only
/// by unwinding: no further effect, no further append.
#[derive(Clone, Debug, thiserror::Error)]
#[must_use]
#[error("the session must be read again before anything goes on: {cause}")]
pub struct Restart {
    /// The append's answer that ended the drive.
    pub cause: AppendError,
}

impl Restart {
    /// Whether a newer owner took the session.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self.cause, AppendError::Fenced { .. })
    }
}

/// Why the drive did not do what it was asked. But for [`DriveError::Restart`], nothing was written and the drive goes on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriveError {
    /// Unwind.
    #[error(transparent)]
    Restart(#[from] Restart),
    /// The shared log moved on: fold its tail and try again.
    #[error("the shared log moved on: expected seq {expected}, found {found}")]
    Conflict {
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// The batch breaks an invariant of the log.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// The store refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// How a session is told to stop. Rises only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopLevel {
    /// Go on.
    #[default]
    Run,
    /// Begin nothing new; what runs may end and be recorded.
    Drain,
    /// End the turn in the harness's own way.
    Interrupt,
    /// End the program now.
    Kill,
}

/// Why it is told to; outranks what the harness says of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The host stopped the runner.
    Host,
    /// A newer owner took the session.
    Fenced,
    /// A write failed in a way only the log can tell.
    Storage,
    /// The gate refused a paid request.
    Refused,
    /// The value was delivered.
    Delivered,
    /// One of the runner's bounds.
    Limit,
}

/// Follows the stop of one session.
#[derive(Clone, Debug)]
pub struct StopSignal {
    at: watch::Receiver<(StopLevel, Option<Why>)>,
}

/// Raises it.
#[derive(Clone, Debug)]
pub struct StopRaiser {
    at: Arc<watch::Sender<(StopLevel, Option<Why>)>>,
}

impl StopRaiser {
    /// A signal at [`StopLevel::Run`].
    #[must_use]
    pub fn new() -> Self {
        Self { at: Arc::new(watch::Sender::new((StopLevel::Run, None))) }
    }

    /// Raises to at least `level`. The reason of the first raise to a level stays.
    pub fn raise(&self, level: StopLevel, why: Why) {
        self.at.send_if_modified(|at| {
            let rises = level > at.0;
            if rises {
                *at = (level, Some(why));
            }
            rises
        });
    }

    /// A follower.
    #[must_use]
    pub fn signal(&self) -> StopSignal {
        StopSignal { at: self.at.subscribe() }
    }
}

impl Default for StopRaiser {
    fn default() -> Self {
        Self::new()
    }
}

impl StopSignal {
    /// The level now.
    #[must_use]
    pub fn level(&self) -> StopLevel {
        self.at.borrow().0
    }

    /// Why it is not [`StopLevel::Run`].
    #[must_use]
    pub fn why(&self) -> Option<Why> {
        self.at.borrow().1
    }

    /// Waits until the level is at least `level`. Cancel safe; never ends when the raiser is gone below it.
    pub async fn reached(&mut self, level: StopLevel) -> StopLevel {
        // The borrow of the channel must not live over an await, or no task that follows a stop could be spawned.
        let reached = self.at.wait_for(|at| at.0 >= level).await.map(|at| at.0);
        match reached {
            Ok(level) => level,
            Err(_raiser_gone) => std::future::pending().await,
        }
    }
}

/// What the model repeats of a never call that was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRepeat {
    /// Refuse it with the reason.
    #[default]
    Refuse,
    /// Run it.
    Allow,
}

/// An effect about to begin.
#[derive(Clone, Debug)]
pub struct EffectSpec {
    /// Its key.
    pub key: EffectKey,
    /// Its kind.
    pub kind: EffectKind,
    /// Whether it may run twice.
    pub replay: Replay,
    /// What becomes of the same call again after an interruption.
    pub on_repeat: OnRepeat,
    /// The tool's name, the request's model, the follow-up's name.
    pub name: String,
    /// Its turn.
    pub turn: Option<TurnId>,
    /// The harness's id of the call.
    pub call: Option<CallId>,
    /// Its arguments.
    pub arguments: Value,
    /// Digest of the canonical arguments, or of a request's body.
    pub digest: Digest,
    /// Hold and quote of a paid one.
    pub paid: Option<(HoldId, Usd)>,
}

impl EffectSpec {
    pub(crate) fn into_intent(self) -> Intent {
        let Self { key, kind, replay, on_repeat: _, name, turn, call, arguments, digest, paid } = self;
        let (hold, quote) = paid.unzip();
        Intent { key, effect: kind, replay, name, turn, call, arguments, digest, hold, quote }
    }
}

/// What `begin` found.
#[derive(Debug)]
pub enum Begun {
    /// It has ended before, or must not run: this is its outcome.
    Known(Arc<Outcome>),
    /// It runs right now: join it.
    Running(Outcomes),
    /// Its intent is durable: run it, then finish it.
    Open(OpenEffect),
}

/// Waits for the outcome of an effect that somebody else runs.
#[derive(Clone, Debug)]
pub struct Outcomes(pub(crate) watch::Receiver<Option<Arc<Outcome>>>);

impl Outcomes {
    /// The outcome, or `None` when its runner let go of it: then it is decided at the next open. Cancel safe.
    pub async fn outcome(mut self) -> Option<Arc<Outcome>> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}

/// An effect whose intent is durable and that this process runs. Dropped without [`OpenEffect::finish`], it is decided at the next open.
#[derive(Debug)]
#[must_use]
pub struct OpenEffect {
    pub(crate) key: EffectKey,
    pub(crate) drive: Drive,
    pub(crate) done: watch::Sender<Option<Arc<Outcome>>>,
}

impl OpenEffect {
    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &EffectKey {
        &self.key
    }

    /// Records how it ended, with what belongs in the same batch: records of this session that follow the outcome, and one shared log's
    /// part (its booking). Returns once it is durable.
    ///
    /// Dropping the future cancels nothing: the session task owns the append. On [`DriveError::Conflict`] the effect comes back for another
    /// try.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub async fn finish(
        self,
        outcome: Outcome,
        with: Vec<Body>,
        also: Option<SharedAppend>,
    ) -> Result<Arc<Outcome>, Unfinished> {
        self.end(Vec::new(), outcome, with, also).await
    }

    /// The same with records that come first in the batch (a verdict before the submit's outcome).
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub async fn finish_after(
        self,
        before: Vec<Body>,
        outcome: Outcome,
        with: Vec<Body>,
    ) -> Result<Arc<Outcome>, Unfinished> {
        self.end(before, outcome, with, None).await
    }

    async fn end(
        self,
        before: Vec<Body>,
        outcome: Outcome,
        with: Vec<Body>,
        also: Option<SharedAppend>,
    ) -> Result<Arc<Outcome>, Unfinished> {
        let outcome = Outcome { key: self.key.clone(), ..outcome };
        let shown = Arc::new(Outcome { response: Arc::from([]), ..outcome.clone() });
        let bodies = before.into_iter().chain(std::iter::once(Body::Outcome(outcome))).chain(with);
        match self.drive.append(Batch::of(bodies), also).await {
            Ok(_) => {
                self.done.send_replace(Some(shown.clone()));
                Ok(shown)
            }
            Err(error) => Err(Unfinished { effect: self, error }),
        }
    }
}

/// An outcome that was not written.
#[derive(Debug, thiserror::Error)]
#[error("the outcome of effect {} was not written: {error}", effect.key)]
pub struct Unfinished {
    /// The effect, still open: finish it again, or let it go.
    pub effect: OpenEffect,
    /// Why.
    #[source]
    pub error: DriveError,
}

/// A message to place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// The turn it opens.
    pub turn: TurnId,
    /// What it carries.
    pub carries: Vec<SubmissionId>,
    /// Messages it stands for.
    pub replaces: Vec<MessageId>,
    /// Its text, exactly as it will be sent.
    pub text: Arc<str>,
}

impl From<&Placed> for Message {
    fn from(placed: &Placed) -> Self {
        Self {
            id: placed.message.clone(),
            turn: placed.turn.clone(),
            carries: placed.carries.clone(),
            replaces: placed.replaces.clone(),
            text: placed.text.clone(),
        }
    }
}

/// A message nobody has sent: only [`PlaceTicket::place`] yields its text, and it records the placement first. So it cannot be sent
/// unrecorded, nor twice.
#[derive(Debug)]
#[must_use]
pub struct PlaceTicket {
    message: Message,
    drive: Drive,
}

impl PlaceTicket {
    /// The id it will be placed under.
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        &self.message.id
    }

    /// Records `placed` and with it the open turn; then the text may be sent.
    ///
    /// # Errors
    /// [`DriveError`]; nothing was placed.
    pub async fn place(self) -> Result<Message, DriveError> {
        let Message { id, turn, carries, replaces, text } = self.message.clone();
        let placed = Placed { message: id, turn, carries, replaces, text };
        self.drive.append(Batch::of([Body::Placed(placed)]), None).await?;
        Ok(self.message)
    }
}

pub(crate) enum Command {
    Append(Batch, Option<SharedAppend>, oneshot::Sender<Result<Seq, DriveError>>),
    Begin(Box<EffectSpec>, Vec<Body>, Option<SharedAppend>, oneshot::Sender<Result<Begun, DriveError>>),
    Reopen(EffectKey, oneshot::Sender<Result<Begun, DriveError>>),
}

/// What the task shows of itself.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) state: RwLock<SessionState>,
    pub(crate) ended: watch::Sender<Option<Restart>>,
}

/// The clone handle to a session's task.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(crate) key: SessionKey,
    pub(crate) epoch: Epoch,
    // Boxed: a channel makes room for 32 at once, 4 KB for each session that is only held.
    pub(crate) to: mpsc::Sender<Box<Command>>,
    pub(crate) shown: Arc<Shown>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl Drive {
    /// The session.
    #[must_use]
    pub const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// The epoch its writer holds.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The state as of the last append, a snapshot that shares its structure.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.shown.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads one thing from the state without taking a snapshot. `read` must be short: appends wait for it.
    pub fn with_state<T>(&self, read: impl FnOnce(&SessionState) -> T) -> T {
        read(&self.shown.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends records that are part of no effect. Returns once they are as durable as the batch asks. A dropped future cancels nothing.
    ///
    /// # Errors
    /// [`DriveError`]; but for `Restart`, nothing was written.
    pub async fn append(&self, batch: Batch, also: Option<SharedAppend>) -> Result<Seq, DriveError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Append(batch, also, answer), answered).await
    }

    /// Begins an effect: its intent, behind `before` (the native bytes that explain it) and together with `also` (its hold), in one synced
    /// batch. A key that ended or runs is joined; a repeated never call is answered or refused by the repeat rule.
    ///
    /// # Errors
    /// [`DriveError`]; on `Conflict` fold the shared log and ask again.
    pub async fn begin(
        &self,
        spec: EffectSpec,
        before: Vec<Body>,
        also: Option<SharedAppend>,
    ) -> Result<Begun, DriveError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Begin(Box::new(spec), before, also, answer), answered).await
    }

    /// Opens an effect of an earlier epoch again, under its first intent: for safe effects, and to end the ones that are not run again.
    ///
    /// # Errors
    /// [`DriveError`].
    pub async fn reopen(&self, key: &EffectKey) -> Result<Begun, DriveError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Reopen(key.clone(), answer), answered).await
    }

    /// A ticket for `message`.
    pub fn ticket(&self, message: Message) -> PlaceTicket {
        PlaceTicket { message, drive: self.clone() }
    }

    /// Waits until the session is no longer this process's, also while nothing is appended (a hint within 250 ms). Cancel safe.
    pub async fn lost(&self) -> Restart {
        let mut ended = self.shown.ended.subscribe();
        let restart = ended.wait_for(Option::is_some).await.ok().and_then(|restart| restart.clone());
        match restart {
            Some(restart) => restart,
            None => std::future::pending().await,
        }
    }

    async fn ask<T>(
        &self,
        command: Command,
        answered: oneshot::Receiver<Result<T, DriveError>>,
    ) -> Result<T, DriveError> {
        let gone = || DriveError::Restart(self.restart());
        self.to.send(Box::new(command)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    fn restart(&self) -> Restart {
        let closed = || Restart { cause: AppendError::Refused(Refused::Busy("the session was closed".to_owned())) };
        self.shown.ended.borrow().clone().unwrap_or_else(closed)
    }
}
