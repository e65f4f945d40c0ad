//! One attempt at a node, start to end.
//!
//! ```text
//!  read (no fence) ─► fold ─► answered? return, nothing opened ─► survey ─► admit ─► open(expected head) ─► sweep older epochs
//!      ─► recover: effects, review, repair ─► adapter ─► turn … turn ─► quiet books ─► close ─► join the session's task
//! ```
//! A command decides on what it reads before it takes anything: a second terminal that asks for an answered session fences nobody.

mod ending;

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Marker, sweep};
use agentrun_adapter::{
    AdapterSession, Admission, Journal, ModelEndpoint, RecordedFiles, Seat, Start, Turn, TurnEnd, Words, admit,
};
use agentrun_cap::park_of;
use agentrun_host::KeyGuard;
use agentrun_kernel::{
    Body, Drive, Epoch, LogKey, OpenError, Owned, Parked, PlanDigests, Record, SessionState, SessionTask,
    SessionWriter, Source, StopLevel, StopRaiser, Store, TurnEndHow, Why, crossing, read_all, turn_end, validate,
};

use crate::binding::{check_binding, plan, plan_digests, record_opening};
use crate::books::{LedgerError, RunLedger};
use crate::bridge::{Bridge, BridgeParts};
use crate::carry::{NUDGE, NUDGE_SETTLED, RECOVERY_NOTE};
use crate::error::{NodeError, NodeWord, word_of};
use crate::events::Publisher;
use crate::faults::{of_drive, of_ledger, of_recovery, parked_error, refused, storage};
use crate::gate::{AttemptGate, GatePort, Limits, Trouble};
use crate::homes::Home;
use crate::node::{EMPTY_TURNS, MAX_SENDS, Node, Step};
use crate::presence::Presence;
use crate::recover::{Next, Recovery, RecoveryError, submit_once};
use crate::runner::{Delivered, HarnessRunner, ModelProvider, provider_api};
use crate::steer::{Steering, in_vain};

/// How long a harness may take to end by itself after its last turn.
const CLOSE: Duration = Duration::from_secs(5);
/// How long open requests are waited for after a turn before the attempt ends without them.
const QUIET: Duration = Duration::from_secs(30);
/// The same once everything was told to end.
const QUIET_KILLED: Duration = Duration::from_secs(2);
/// How long processes of older epochs may take to be gone; they are killed, so only the kernel's own work is waited for.
pub(crate) const SWEEP: Duration = Duration::from_secs(10);
/// The epoch of a session's first owner.
const FIRST: Epoch = Epoch(1);
/// Times the head may move between read and open before the attempt gives up: each time somebody else wrote.
pub(crate) const RACES: u32 = 16;

/// Everything an attempt holds while it runs. Fields go in the order they must end.
struct Running {
    drive: Drive,
    task: SessionTask,
    events: Option<tokio::task::JoinHandle<()>>,
}

/// `held` is the epoch under which the caller had the session last, if it had it: what a newer owner took since is not taken back. It is
/// set to the one under which the session is taken here.
pub(crate) async fn run(
    runner: &HarnessRunner,
    node: Node,
    step: Step,
    held: &mut Option<Epoch>,
) -> Result<Delivered, NodeError> {
    let fail = |word, message: String| NodeError::new(&step.session, word, message);
    let digests = plan_digests(&node, &step);
    let plan = plan(&node, &step, runner.options.provider.api()).map_err(|message| fail(NodeWord::Refused, message))?;
    if let Some(cap) = runner.options.cap.filter(|cap| cap.is_negative()) {
        return Err(of_ledger(&step, &LedgerError::NegativeCap(cap)));
    }
    let earlier = earlier(&runner.options.store, &step).await?;
    let mut taken = None;
    for _ in 0..RACES {
        let records = read_session(&runner.options.store, &step).await?;
        let state = validate(&records).map_err(|illegal| {
            fail(
                NodeWord::Storage,
                format!("{illegal}; `agentrun show {} --check` names it, nothing was opened", step.session),
            )
        })?;
        check_binding(&state, runner, &digests, &step)?;
        if let Some(answer) = answered(&state, &step, true) {
            return answer;
        }
        if let Some(mine) = *held
            && owner(&runner.options.store, &step, &state).await? > mine
        {
            return Err(fail(
                NodeWord::Fenced,
                "a newer owner has taken the session meanwhile; it is left to it".to_owned(),
            ));
        }
        if let Some(parked) = still_parked(runner, &state, &step).await? {
            return Err(parked_error(&step, &parked, "the cap still has no room; raise it and resume".to_owned()));
        }
        let files = RecordedFiles::fold(&records);
        let survey = runner
            .adapter
            .history()
            .survey(&files)
            .map_err(|error| fail(NodeWord::Harness, format!("{error}; nothing was opened")))?;
        let prior = (!records.is_empty()).then_some(&survey);
        let admission = admit(&*runner.adapter, &plan, prior).await.map_err(|refusal| refused(&step, &refusal))?;
        if runner.stop.signal().level() >= StopLevel::Drain {
            return Err(fail(NodeWord::Aborted, "stopped before it began; run the same command to begin".to_owned()));
        }
        // A hint for commands beside us: one that cannot be left keeps nobody from the session.
        let presence = Presence::join(&runner.options.homes, runner.options.store.id(), &step.session).await.ok();
        match runner.options.store.open(&step.session, Some(state.head)).await {
            Ok(writer) => {
                crossing!(Take);
                *held = Some(writer.epoch());
                taken = Some((Taken { writer, state, files, admission, digests: digests.clone() }, presence));
                break;
            }
            Err(OpenError::HeadChanged { .. }) => {}
            Err(error @ (OpenError::Moved { .. } | OpenError::Removed { .. })) => {
                return Err(fail(NodeWord::Binding, error.to_string()));
            }
            Err(OpenError::Store(error)) => return Err(storage(&step, &error)),
        }
    }
    let Some((taken, _presence)) = taken else {
        return Err(fail(
            NodeWord::Fenced,
            "another owner keeps writing to the session; this one took nothing".to_owned(),
        ));
    };
    Attempt::start(runner, node, step, taken, earlier, ToItsValue).await
}

/// A session as it was read, and taken there.
pub(crate) struct Taken {
    pub(crate) writer: SessionWriter,
    pub(crate) state: SessionState,
    pub(crate) files: RecordedFiles,
    pub(crate) admission: Admission,
    pub(crate) digests: PlanDigests,
}

/// What a session was taken for.
pub(crate) trait Job: Send {
    /// What comes of it.
    type End: Send;

    /// Most turns the session may have when it is done.
    fn turn_limit(&self, node: &Node) -> Option<u32>;

    /// Does it, in a session that is ours and whose opening is recorded.
    fn work(
        self,
        attempt: &Attempt<'_>,
        files: &mut RecordedFiles,
        admission: Admission,
        marker: Marker,
    ) -> impl Future<Output = Result<Self::End, NodeError>> + Send;
}

/// Turns until the node has its value.
struct ToItsValue;

impl Job for ToItsValue {
    type End = Delivered;

    fn turn_limit(&self, node: &Node) -> Option<u32> {
        node.turn_limit
    }

    async fn work(
        self,
        attempt: &Attempt<'_>,
        files: &mut RecordedFiles,
        admission: Admission,
        marker: Marker,
    ) -> Result<Delivered, NodeError> {
        attempt.turns(files, admission, marker).await
    }
}

pub(crate) struct Attempt<'a> {
    pub(crate) runner: &'a HarnessRunner,
    node: Node,
    pub(crate) step: Step,
    pub(crate) drive: Drive,
    pub(crate) stop: StopRaiser,
    ledger: Arc<RunLedger>,
    pub(crate) gate: Arc<AttemptGate>,
    pub(crate) bridge: Arc<Bridge>,
    own_ids: bool,
    drains: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) async fn start<J: Job>(
        runner: &'a HarnessRunner,
        node: Node,
        step: Step,
        taken: Taken,
        earlier: Vec<SessionState>,
        job: J,
    ) -> Result<J::End, NodeError> {
        let Taken { writer, state, files, admission, digests } = taken;
        let store = &runner.options.store;
        let watch = store.watch(&LogKey::from(&step.session)).await.map_err(|error| storage(&step, &error))?;
        let (events, publishing) = publish(runner, &step, &state);
        let fresh = state.bound.is_none();
        let task = SessionTask::spawn(Owned { writer, state, watch, earlier, events });
        let running = Running { drive: task.drive(), task, events: publishing };
        let mut outlasting = false;
        let result = Self::owned(
            runner,
            node,
            &step,
            running.drive.clone(),
            files,
            admission,
            digests,
            fresh,
            job,
            &mut outlasting,
        )
        .await;
        let Running { drive, task, events } = running;
        drop(drive);
        if outlasting {
            // A call or a request outlasts the stop, the fence or the harness. It keeps the session's task until its outcome is recorded
            // or the process ends; waiting for it here would hold the node for as long as its tool or provider may take.
            return result;
        }
        task.join().await;
        if let Some(events) = events {
            // The publisher ends with the task's sender; a panic of the host's callback is the host's.
            let _ = events.await;
        }
        result
    }

    #[allow(clippy::too_many_arguments, reason = "the one caller hands over what it read and took")]
    async fn owned<J: Job>(
        runner: &'a HarnessRunner,
        node: Node,
        step: &Step,
        drive: Drive,
        mut files: RecordedFiles,
        admission: Admission,
        digests: PlanDigests,
        fresh: bool,
        job: J,
        outlasting: &mut bool,
    ) -> Result<J::End, NodeError> {
        let options = &runner.options;
        let fail = |word, message: String| NodeError::new(&step.session, word, message);
        // The fence is durable: what older epochs started may still act, so it is ended before anything is decided as cut.
        let marker =
            Marker { store: options.store.id().to_owned(), session: step.session.to_string(), epoch: drive.epoch().0 };
        // A first owner has nothing to look for, and a look reads all processes of the machine.
        if drive.epoch() > FIRST {
            sweep(&marker, Epochs::Before, SWEEP).await.map_err(|error| fail(NodeWord::Harness, error.to_string()))?;
        }
        crossing!(Swept);
        record_opening(runner, step, &drive, &admission, digests, &node, fresh)
            .await
            .map_err(|error| of_drive(step, &error))?;
        let ledger = runner.ledger(&step.run).await.map_err(|error| of_ledger(step, &error))?;
        crossing!(Ledger);
        if drive.epoch() > FIRST {
            ledger.reconcile(&drive).await.map_err(|error| of_ledger(step, &error))?;
        }
        let stop = StopRaiser::new();
        let _running = runner.running.enter(&stop);
        if runner.stop.signal().level() >= StopLevel::Drain {
            // It came before we were known to run.
            stop.raise(StopLevel::Drain, Why::Host);
        }
        let limits = Limits { turns: job.turn_limit(&node), requests: node.request_limit, budget: node.budget };
        let gate = Arc::new(AttemptGate::new(
            drive.clone(),
            ledger.clone(),
            options.catalog.clone(),
            limits,
            options.before_request.clone(),
            stop.clone(),
        ));
        let parts = BridgeParts {
            drive: drive.clone(),
            ledger: ledger.clone(),
            gate: gate.clone(),
            raiser: stop.clone(),
            store_id: options.store.id().to_owned(),
            workspace: options.workspace.clone(),
        };
        let bridge = Bridge::new(node.clone(), parts)
            .map_err(|(place, error)| fail(NodeWord::Refused, format!("{place}: {error}")))?;
        let capabilities = admission.checked().capabilities;
        let attempt = Attempt {
            runner,
            node,
            step: step.clone(),
            drive,
            stop,
            ledger,
            gate,
            bridge: Arc::new(bridge),
            own_ids: capabilities.own_ids,
            drains: capabilities.drain,
        };
        let watchers = attempt.watchers();
        let result = job.work(&attempt, &mut files, admission, marker).await;
        for watcher in watchers {
            watcher.abort();
        }
        *outlasting = !(attempt.bridge.quiesce(Duration::ZERO).await && attempt.gate.quiesce(Duration::ZERO).await);
        result
    }

    /// Raises the attempt's stop when the runner is stopped and when the session is lost.
    fn watchers(&self) -> [tokio::task::JoinHandle<()>; 2] {
        let (drive, stop) = (self.drive.clone(), self.stop.clone());
        let lost = tokio::spawn(async move {
            let restart = drive.lost().await;
            stop.raise(StopLevel::Kill, if restart.is_fenced() { Why::Fenced } else { Why::Storage });
        });
        let (mut host, stop, drains) = (self.runner.stop.signal(), self.stop.clone(), self.drains);
        let (gate, bridge, drain) = (self.gate.clone(), self.bridge.clone(), self.runner.drain.subscribe());
        let stopped = tokio::spawn(async move {
            host.reached(StopLevel::Drain).await;
            stop.raise(StopLevel::Drain, Why::Host);
            if drains {
                let deadline = *drain.borrow();
                let quiet = async {
                    bridge.quiesce(deadline).await;
                    gate.quiesce(deadline).await;
                };
                tokio::select! {
                    () = quiet => {}
                    () = tokio::time::sleep(deadline) => {}
                    _ = host.reached(StopLevel::Kill) => {}
                }
            }
            stop.raise(StopLevel::Kill, Why::Host);
        });
        [lost, stopped]
    }

    /// Turn after turn until the session has answered or cannot go on.
    async fn turns(
        &self,
        files: &mut RecordedFiles,
        admission: Admission,
        marker: Marker,
    ) -> Result<Delivered, NodeError> {
        submit_once(&self.drive, "node", Source::Node, &self.node.prompt)
            .await
            .map_err(|error| of_drive(&self.step, &error))?;
        let resumed = self.drive.with_state(|state| state.turns > 0);
        let mut start = match self.begun(files).await? {
            Some(start) => start,
            None => return self.answer(),
        };
        let Seated { mut session, home, _key } = self.seated(files, admission, marker).await?;
        let mut note = if resumed { RECOVERY_NOTE.to_owned() } else { String::new() };
        let result = loop {
            match self.turn(&mut *session, start, std::mem::take(&mut note)).await {
                Ok(Some(next)) => start = next,
                Ok(None) => break self.answer(),
                Err(error) => break Err(error),
            }
        };
        self.wind_down(session).await;
        drop(home);
        // A delivery may have landed while the end was decided: it is what counts.
        if result.is_err() && self.drive.with_state(|state| state.delivered.is_some()) { self.answer() } else { result }
    }

    /// The harness's session in a home of its own, restored from the records.
    pub(crate) async fn seated(
        &self,
        files: &RecordedFiles,
        admission: Admission,
        marker: Marker,
    ) -> Result<Seated, NodeError> {
        let options = &self.runner.options;
        let home =
            Home::make(&options.homes, options.store.id(), &self.step.session, self.drive.epoch(), &options.workspace)
                .map_err(|error| {
                    self.fail(
                        NodeWord::Storage,
                        format!("the private home under {} cannot be made: {error}", options.homes.display()),
                    )
                })?;
        files.restore(&home.dirs().home).map_err(|error| self.fail(NodeWord::Storage, error.to_string()))?;
        let (model, _key) = match &options.provider {
            ModelProvider::Direct => (ModelEndpoint::Direct(Arc::new(GatePort(self.gate.clone()))), None),
            ModelProvider::Proxy(proxy) => {
                let (key, guard) =
                    proxy.admit(self.gate.clone()).map_err(|error| self.fail(NodeWord::Harness, error.to_string()))?;
                let api = provider_api(proxy.provider());
                let endpoint = ModelEndpoint::Http { base_url: proxy.base_url(), key: Arc::from(key.as_str()), api };
                (endpoint, Some(guard))
            }
        };
        let seat = Seat {
            drive: self.drive.clone(),
            journal: Journal::new(self.drive.clone(), &home.dirs().home),
            tools: self.bridge.clone(),
            model,
            dirs: home.dirs().clone(),
            deltas: self.runner.live.of(&self.step.session),
            marker: marker.clone(),
        };
        let session = match self.runner.adapter.open(admission, seat).await {
            Ok(session) => session,
            Err(_) if self.taken().await => return Err(self.fenced()),
            Err(error) => return Err(self.harness(&error)),
        };
        self.gate.set_barrier(session.request_barrier());
        Ok(Seated { session, home, _key })
    }

    /// One turn: its start, its end, and what the records and bounds say then. `None`: answered.
    async fn turn(
        &self,
        session: &mut dyn AdapterSession,
        start: Start,
        recovery_note: String,
    ) -> Result<Option<Start>, NodeError> {
        let scope = self.gate.open_turn();
        let words = self.words(session.capabilities().steer).await?;
        let end = session.run_turn(Turn { start, stop: self.stop.signal(), recovery_note, words }).await;
        drop(scope);
        // A newer owner's sweep ends our harness before our own watch tells us of the fence, and a fenced owner waits for nothing.
        if !matches!(end, Ok(TurnEnd::Idle)) && self.taken().await {
            self.stop.raise(StopLevel::Kill, Why::Fenced);
        }
        self.quiet_requests().await;
        if self.drive.with_state(|state| state.delivered.is_some()) {
            self.end_turn(TurnEndHow::Done).await?;
            return Ok(None);
        }
        self.own_bounds().await?;
        match end {
            Ok(TurnEnd::Idle) => self.end_turn(TurnEndHow::Done).await?,
            Ok(TurnEnd::Stopped(_)) => return Err(self.stopped()),
            Ok(TurnEnd::Failed { status, message }) => return Err(self.upstream(status, &message)),
            Err(error) => return Err(self.harness(&error)),
        }
        self.after_turn().await
    }

    /// People's words for a turn, where the session can be steered.
    async fn words(&self, can: bool) -> Result<Option<Box<dyn Words>>, NodeError> {
        if !can {
            return Ok(None);
        }
        let steering = Steering::new(&self.runner.options.store, &self.drive, self.stop.signal()).await;
        Ok(Some(Box::new(steering.map_err(|error| storage(&self.step, &error))?)))
    }

    /// Bounds a call or a request ran into, and the reasons that outrank what the harness says of its end.
    async fn own_bounds(&self) -> Result<(), NodeError> {
        if let Some((word, message)) = self.bridge.failed() {
            return Err(self.record_failure(word, message).await);
        }
        match self.stop.signal().why() {
            Some(Why::Fenced) => return Err(self.fenced()),
            Some(Why::Storage) => return Err(self.lost().await),
            _ => {}
        }
        match self.gate.trouble() {
            Some(Trouble::Denied(denied)) if denied.word != agentrun_cap::Word::Stopped => {
                if let Some(park) = park_of(&denied) {
                    return Err(self.park(&park, denied.to_string()).await);
                }
                Err(self.record_failure(word_of(&denied), denied.to_string()).await)
            }
            Some(Trouble::Host(fault)) => {
                Err(self.fail(NodeWord::HostFault, format!("the host's own check failed: {fault}")))
            }
            Some(Trouble::Storage(why)) => Err(self.fail(NodeWord::Storage, why)),
            Some(Trouble::Barrier(why)) => {
                Err(self.fail(NodeWord::Harness, format!("{why}; nothing was sent, run the same command to go on")))
            }
            Some(Trouble::Denied(_) | Trouble::Upstream { .. }) | None => Ok(()),
        }
    }

    async fn after_turn(&self) -> Result<Option<Start>, NodeError> {
        let (turns, empty) = self.drive.with_state(|state| (state.turns, state.empty_turns));
        if empty >= EMPTY_TURNS {
            let message = format!("{EMPTY_TURNS} turns in a row ended with neither a model request nor a delivery");
            return Err(self.record_failure(NodeWord::NoProgress, message).await);
        }
        match self.node.turn_limit {
            Some(limit) if turns >= limit => {
                let message =
                    format!("the node used its turn_limit of {limit} and delivered nothing; give it a higher one");
                return Err(self.record_failure(NodeWord::TurnLimit, message).await);
            }
            None if turns >= MAX_SENDS => {
                let message = format!("{MAX_SENDS} messages were sent and nothing was delivered");
                return Err(self.record_failure(NodeWord::MaxSends, message).await);
            }
            _ => {}
        }
        if self.stop.signal().level() >= StopLevel::Drain {
            return Err(self.stopped());
        }
        // The harness lives, so only what waits matters: its history is its own to read. A person's words come before a reminder.
        match self.recover(&mut RecordedFiles::default()).await? {
            Next::Idle => {}
            waits => return self.started(waits),
        }
        let cut = self
            .drive
            .with_state(|state| state.last_turn.as_ref().is_some_and(|turn| turn.how == TurnEndHow::Interrupted));
        let words = if cut { NUDGE_SETTLED } else { NUDGE };
        submit_once(&self.drive, &format!("nudge:{turns}"), Source::Nudge, words)
            .await
            .map_err(|error| of_drive(&self.step, &error))?;
        self.next(&mut RecordedFiles::default()).await
    }

    /// What a session that was just opened begins with. One that was cut behind a turn without delivery has nothing waiting: what follows
    /// such a turn follows it now, its bounds first, then the nudge.
    async fn begun(&self, files: &mut RecordedFiles) -> Result<Option<Start>, NodeError> {
        match self.recover(files).await? {
            Next::Idle => self.after_turn().await,
            next => self.started(next),
        }
    }

    async fn next(&self, files: &mut RecordedFiles) -> Result<Option<Start>, NodeError> {
        let next = self.recover(files).await?;
        self.started(next)
    }

    fn started(&self, next: Next) -> Result<Option<Start>, NodeError> {
        match next {
            Next::Answered => Ok(None),
            Next::Start(start) => Ok(Some(start)),
            Next::Parked(parked) => {
                Err(parked_error(&self.step, &parked, "the cap still has no room; raise it and resume".to_owned()))
            }
            Next::Idle => Err(self
                .fail(NodeWord::Storage, "nothing waits to be sent, though the session has not answered".to_owned())),
        }
    }

    async fn recover(&self, files: &mut RecordedFiles) -> Result<Next, NodeError> {
        let mut recovery = Recovery {
            adapter: &*self.runner.adapter,
            store: &self.runner.options.store,
            drive: &self.drive,
            ledger: &self.ledger,
            bridge: &self.bridge,
            files,
            own_ids: self.own_ids,
        };
        match recovery.next().await {
            Ok(next) => Ok(next),
            Err(RecoveryError::Ledger(LedgerError::Cut)) => {
                self.own_bounds().await?;
                Err(self.stopped())
            }
            Err(error) => Err(of_recovery(&self.step, error)),
        }
    }

    pub(crate) async fn end_turn(&self, how: TurnEndHow) -> Result<(), NodeError> {
        let open = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone()));
        let Some(turn) = open else { return Ok(()) };
        self.end_builtins().await?;
        let unsent = in_vain(&*self.runner.adapter, &self.runner.options.store, &self.drive).await;
        let unsent = unsent.map_err(|error| of_recovery(&self.step, error))?;
        let appended = self.drive.append(turn_end(turn, how, unsent), None).await;
        appended.map(drop).map_err(|error| of_drive(&self.step, &error))
    }

    /// Built-ins whose end the harness never told are closed with their turn: only it could have run them.
    pub(crate) async fn end_builtins(&self) -> Result<(), NodeError> {
        let built_ins: Vec<_> = self.drive.with_state(|state| {
            state
                .open_effects()
                .filter(|effect| effect.intent.effect == agentrun_kernel::EffectKind::Builtin)
                .map(|effect| effect.intent.key.clone())
                .collect()
        });
        for key in built_ins {
            self.bridge.interrupt(&key).await.map_err(|error| of_ledger(&self.step, &error))?;
        }
        Ok(())
    }

    /// Closes the harness, then waits for what is still being recorded.
    pub(crate) async fn wind_down(&self, session: Box<dyn AdapterSession>) {
        let killed = self.stop.signal().level() >= StopLevel::Kill;
        session.close(if killed { Duration::ZERO } else { CLOSE }).await;
        crossing!(Closed);
        self.gate.set_barrier(None);
        let quiet = self.quiet();
        self.gate.quiesce(quiet).await;
        self.bridge.quiesce(quiet).await;
    }

    /// Waits until no request is in flight; a stop that rises meanwhile shortens the wait.
    pub(crate) async fn quiet_requests(&self) {
        let mut stop = self.stop.signal();
        tokio::select! {
            _ = self.gate.quiesce(self.quiet()) => return,
            _ = stop.reached(StopLevel::Kill) => {}
        }
        self.gate.quiesce(self.quiet()).await;
    }

    /// Whether the store knows a newer owner of the session.
    pub(crate) async fn taken(&self) -> bool {
        let (log, next) = (LogKey::from(&self.step.session), self.drive.with_state(|state| state.head.next()));
        let page = self.runner.options.store.read(&log, next, 1).await;
        page.is_ok_and(|page| page.head.epoch > self.drive.epoch())
    }

    /// How long what still runs is waited for. An owner that lost its session waits for nothing: whatever ends now is recorded nowhere.
    fn quiet(&self) -> Duration {
        let stop = self.stop.signal();
        match stop.why() {
            Some(Why::Fenced | Why::Storage) => Duration::ZERO,
            _ if stop.level() >= StopLevel::Kill => QUIET_KILLED,
            _ => QUIET,
        }
    }
}

/// A harness's session and what it needs while it lives.
pub(crate) struct Seated {
    pub(crate) session: Box<dyn AdapterSession>,
    pub(crate) home: Home,
    /// Ends the session's key at the proxy.
    pub(crate) _key: Option<KeyGuard>,
}

type EventSender = tokio::sync::mpsc::UnboundedSender<Arc<Record>>;

fn publish(
    runner: &HarnessRunner,
    step: &Step,
    state: &SessionState,
) -> (Option<EventSender>, Option<tokio::task::JoinHandle<()>>) {
    let Some(on_event) = runner.options.on_event.clone() else { return (None, None) };
    let (to, mut records) = tokio::sync::mpsc::unbounded_channel::<Arc<Record>>();
    let mut publisher = Publisher::new(step.session.clone(), state.clone());
    let task = tokio::spawn(async move {
        while let Some(record) = records.recv().await {
            if let Some(event) = publisher.publish(&record) {
                on_event(event);
            }
        }
    });
    (Some(to), Some(task))
}

/// The epoch of the session's newest owner, whether or not it has written yet.
pub(crate) async fn owner(store: &Store, step: &Step, state: &SessionState) -> Result<Epoch, NodeError> {
    let page = store.read(&LogKey::from(&step.session), state.head.next(), 1).await;
    page.map(|page| page.head.epoch).map_err(|error| storage(step, &error))
}

async fn read_session(store: &Store, step: &Step) -> Result<Vec<Record>, NodeError> {
    read_all::<Body>(&**store, &LogKey::from(&step.session)).await.map_err(|error| storage(step, &error))
}

pub(crate) async fn earlier(store: &Store, step: &Step) -> Result<Vec<SessionState>, NodeError> {
    let mut states = Vec::with_capacity(step.earlier.len());
    for key in &step.earlier {
        let records = read_all::<Body>(&**store, &LogKey::from(key)).await.map_err(|error| storage(step, &error))?;
        states.push(SessionState::fold(&records));
    }
    Ok(states)
}

/// The recorded answer, if there is one.
fn answered(state: &SessionState, step: &Step, from_records: bool) -> Option<Result<Delivered, NodeError>> {
    if let Some(value) = &state.delivered {
        return Some(Ok(Delivered {
            session: step.session.clone(),
            value: (**value).clone(),
            spent: state.spent,
            turns: state.turns,
            from_records,
        }));
    }
    let failed = state.failed.as_ref()?;
    let word = NodeWord::from_recorded(&failed.word).unwrap_or(NodeWord::Refused);
    Some(Err(NodeError::new(&step.session, word, failed.message.clone())))
}

/// A park that a raise has not ended yet: answered from what is read, so that asking for it fences nobody.
async fn still_parked(runner: &HarnessRunner, state: &SessionState, step: &Step) -> Result<Option<Parked>, NodeError> {
    let Some(parked) = &state.parked else { return Ok(None) };
    let ledger = runner.ledger(&step.run).await.map_err(|error| of_ledger(step, &error))?;
    ledger.refresh().await.map_err(|error| of_ledger(step, &error))?;
    Ok(ledger.refuses(parked).then(|| parked.clone()))
}
