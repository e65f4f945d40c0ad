//! The embeddable runner: one adapter, one store, any number of nodes at once.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::{AgentAdapter, ModelApi};
use agentrun_cap::{Catalog, Denied};
use agentrun_host::{ModelProxy, Provider};
use agentrun_kernel::{RunId, SessionKey, Spent, StopLevel, StopRaiser, Store, Usage, Usd, Why};
use async_trait::async_trait;
use serde_json::Value;

use crate::attempt;
use crate::books::{LedgerError, Ledgers, RunLedger};
use crate::error::NodeError;
use crate::events::Event;
use crate::follow_up::{self, FollowUp, FollowUpError, FollowedUp};
use crate::in_flight::Running;
use crate::live::LiveSender;
use crate::node::{HostFault, Node, Step};

/// How a runner does its work.
#[derive(Clone)]
pub struct RunnerOptions {
    /// Where sessions and ledgers live.
    pub store: Store,
    /// What things cost.
    pub catalog: Arc<Catalog>,
    /// Where model requests go.
    pub provider: ModelProvider,
    /// Cap of a new run; `None`: none. An existing run keeps its own.
    pub cap: Option<Usd>,
    /// Folder in which private homes are made, one an epoch.
    pub homes: PathBuf,
    /// Folder the harness and the tools work in.
    pub workspace: PathBuf,
    /// Told of every event, in order. Must be quick: events wait for it.
    pub on_event: Option<Arc<dyn Fn(Event) + Send + Sync>>,
    /// Asked before each paid request, after the turn cap.
    pub before_request: Option<Arc<dyn HostCheck>>,
}

impl RunnerOptions {
    /// Options without cap and host policy; harness and tools work in `workspace`, and private homes are made under `homes`.
    #[must_use]
    pub fn new(
        store: Store,
        catalog: Arc<Catalog>,
        provider: ModelProvider,
        homes: impl Into<PathBuf>,
        workspace: impl Into<PathBuf>,
    ) -> Self {
        Self {
            store,
            catalog,
            provider,
            cap: None,
            homes: homes.into(),
            workspace: workspace.into(),
            on_event: None,
            before_request: None,
        }
    }
}

impl fmt::Debug for RunnerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerOptions").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

/// Where model requests go.
#[derive(Clone)]
pub enum ModelProvider {
    /// Through the loopback proxy.
    Proxy(Arc<ModelProxy>),
    /// The adapter makes its own steps and asks the gate directly.
    Direct,
}

impl ModelProvider {
    /// What is spoken there; `None`: nothing is.
    pub(crate) fn api(&self) -> Option<ModelApi> {
        match self {
            Self::Direct => None,
            Self::Proxy(proxy) => Some(provider_api(proxy.provider())),
        }
    }
}

/// What a provider's proxy speaks.
pub(crate) const fn provider_api(provider: Provider) -> ModelApi {
    match provider {
        Provider::Anthropic => ModelApi::Messages,
        Provider::OpenAi => ModelApi::Responses,
        Provider::OpenAiChat => ModelApi::ChatCompletions,
    }
}

/// The host's own word on a paid request.
#[async_trait]
pub trait HostCheck: Send + Sync {
    /// Asked once a paid request, with the node's budget and what the session has spent so far.
    ///
    /// # Errors
    /// [`HostFault`] when the check itself failed: the request is not sent, the node ends, not finally.
    async fn before_request(
        &self,
        session: &SessionKey,
        budget: Option<Usd>,
        spent: Spent,
    ) -> Result<Result<(), Denied>, HostFault>;

    /// Told of each paid request once its outcome and its booking are recorded. Must be quick: the node's end waits for it.
    async fn after_request(&self, _session: &SessionKey, _booked: Booked) {}
}

/// A paid request as it was booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// The model that was asked.
    pub model: String,
    /// What it used; `None`: the provider did not say.
    pub usage: Option<Usage>,
    /// What was booked; `None`: nobody can say, and its quote counts in full.
    pub cost: Option<Usd>,
    /// What the session has spent so far, this request included.
    pub spent: Spent,
}

/// A node's value: as JSON, or as a type of the host's ([`HarnessRunner::run_typed`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered<V = Value> {
    /// The session.
    pub session: SessionKey,
    /// The value.
    pub value: V,
    /// What the session spent.
    pub spent: Spent,
    /// Messages placed.
    pub turns: u32,
    /// Answered from the records: nothing was opened, started or paid.
    pub from_records: bool,
}

/// Runs nodes on one adapter.
#[derive(Clone)]
pub struct HarnessRunner {
    pub(crate) adapter: Arc<dyn AgentAdapter>,
    pub(crate) options: RunnerOptions,
    pub(crate) stop: StopRaiser,
    pub(crate) drain: tokio::sync::watch::Sender<Duration>,
    pub(crate) ledgers: Ledgers,
    pub(crate) live: LiveSender,
    pub(crate) running: Running,
}

impl fmt::Debug for HarnessRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessRunner").field("adapter", &self.adapter.profile().name).finish_non_exhaustive()
    }
}

impl HarnessRunner {
    /// A runner of `adapter`.
    #[must_use]
    pub fn new(adapter: Arc<dyn AgentAdapter>, options: RunnerOptions) -> Self {
        Self {
            adapter,
            options,
            stop: StopRaiser::new(),
            drain: tokio::sync::watch::Sender::new(Duration::ZERO),
            ledgers: Ledgers::default(),
            live: LiveSender::new(),
            running: Running::default(),
        }
    }

    /// The ledger of `run`, shared with the runner's sessions: what the run has spent, its raises, and the host's own paid decisions. A new
    /// one begins with the runner's cap.
    ///
    /// # Errors
    /// As [`RunLedger::open`].
    pub async fn ledger(&self, run: &RunId) -> Result<Arc<RunLedger>, LedgerError> {
        self.ledgers.open(&self.options.store, run, self.options.cap).await
    }

    /// Runs a node to its value: a fresh session, one that is resumed from its records, or one that has answered.
    ///
    /// Returns after the books are quiet, the harness is gone and the session's task has ended. Not cancel safe in what it costs: dropping
    /// the future ends the harness by force, and the session is resumed by the next call. Raise [`HarnessRunner::stop`] instead.
    ///
    /// # Errors
    /// [`NodeError`] says the word, whether it is final, and what to do.
    pub async fn run_node(&self, node: Node, step: Step) -> Result<Delivered, NodeError> {
        attempt::run(self, node, step, &mut None).await
    }

    /// Sends one more turn with a prompt of the host's into a session that has answered (it delivered, or its last turn ended by itself), at
    /// most once a (session, name): asked again it answers the recorded outcome. `node` and `step` are those of the session.
    ///
    /// Returns as [`HarnessRunner::run_node`] does. Dropped, or ended with its process, it stays interrupted: its turn is settled by whoever
    /// next needs the session, and never resumed.
    ///
    /// # Errors
    /// [`FollowUpError`]: nothing of it was written, but for a node's `fenced` and `storage`, where the log decides.
    pub async fn follow_up_once(
        &self,
        node: Node,
        step: Step,
        follow_up: FollowUp,
    ) -> Result<FollowedUp, FollowUpError> {
        follow_up::run(self, node, step, follow_up).await
    }

    /// Pauses every node this runner runs: from now on nothing new begins; calls in flight may end and be recorded for at most `drain`,
    /// where the adapter can drain. The nodes end `aborted` and can be resumed.
    pub fn stop(&self, drain: Duration) {
        self.drain.send_replace(drain);
        self.stop.raise(StopLevel::Drain, Why::Host);
        self.running.raise(StopLevel::Drain);
    }

    /// Ends everything now.
    pub fn kill(&self) {
        self.stop.raise(StopLevel::Kill, Why::Host);
        self.running.raise(StopLevel::Kill);
    }
}
