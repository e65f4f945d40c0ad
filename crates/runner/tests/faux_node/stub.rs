//! A harness of a test's own: what it does in its turns, and nothing else of an adapter.

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, Admission, AgentAdapter, Capabilities, Checked, CloseReport,
    NativeHistory, NativeIdentity, Refusal, RequestBarrier, Seat, SessionPlan, Turn, TurnEnd,
};
use agentrun_kernel::{Built, HarnessVersion, Survey};
use agentrun_testing::faux::FauxHistory;
use async_trait::async_trait;

/// What it does in a turn.
#[async_trait]
pub(crate) trait Turns: Send + Sync {
    async fn turn(&self, seat: &Seat, turn: Turn) -> Result<TurnEnd, AdapterError>;
}

/// The adapter.
pub(crate) struct Stub<T> {
    profile: AdapterProfile,
    turns: Arc<T>,
}

impl<T> Stub<T> {
    pub(crate) fn of(name: &'static str, builtins: Built, turns: T) -> Arc<Self> {
        let widest = Capabilities {
            own_ids: true,
            drain: false,
            fork: false,
            steer: false,
            restores_responses: false,
            builtins,
        };
        let profile = AdapterProfile { speaks: &[], name, widest, program: None };
        Arc::new(Self { profile, turns: Arc::new(turns) })
    }
}

#[async_trait]
impl<T: Turns + 'static> AgentAdapter for Stub<T> {
    fn profile(&self) -> &AdapterProfile {
        &self.profile
    }
    fn history(&self) -> &dyn NativeHistory {
        &FauxHistory
    }
    async fn check(&self, plan: &SessionPlan, _prior: Option<&Survey>) -> Result<Checked, Refusal> {
        let harness = HarnessVersion { name: self.profile.name.to_owned(), version: "1".to_owned() };
        Ok(Checked { capabilities: self.profile.widest, harness, program: None, plan: plan.clone() })
    }
    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        let capabilities = admission.checked().capabilities;
        Ok(Box::new(Session { capabilities, seat, turns: Arc::clone(&self.turns) }))
    }
}

struct Session<T> {
    capabilities: Capabilities,
    seat: Seat,
    turns: Arc<T>,
}

#[async_trait]
impl<T: Turns + 'static> AdapterSession for Session<T> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
    fn native(&self) -> Option<NativeIdentity> {
        None
    }
    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        None
    }
    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        self.turns.turn(&self.seat, turn).await
    }
    async fn close(self: Box<Self>, _deadline: Duration) -> CloseReport {
        CloseReport::default()
    }
}
