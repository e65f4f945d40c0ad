//! A harness without process and network: a loop over a script that does everything a real one does at the seam. It writes a native
//! history of its own under its private home, asks the gate before each model step, calls the host's tools behind the barrier, and goes on
//! from a restored history.
//!
//! ```text
//!  [prompt] ─► begin (gate) ─► step of the script ─► finish (booked) ─► [response] ─► calls, together ─► [result]… ─► begin …
//!     └ in brackets: lines of `faux/history.jsonl`, on disk before what follows ┘         a step with text alone ends the turn
//! ```
//!
//! The script is shared by all sessions of one adapter, as a model server is. A session whose history holds responses from elsewhere (an
//! earlier process) first spends the steps that gave them: see `played`.
//!
//! What of a script has a meaning here: `when`, `times`, `text`, `tools`, `usage`; `status`, `failure`, `cut_after_events` and `corrupt` fail the
//! turn and leave the request's spend unknown; `stall_ms` waits; `stall_after_events` waits for the stop. The rest is of the wire, and ignored.

mod history;
mod played;
mod session;

use std::sync::{Arc, Mutex};

use agentrun_adapter::{
    AdapterError, AdapterErrorKind, AdapterProfile, AdapterSession, Admission, AgentAdapter, Capabilities, Checked,
    ModelEndpoint, NativeHistory, Refusal, Seat, SessionPlan,
};
use agentrun_kernel::{Built, HarnessVersion, Survey};
use async_trait::async_trait;

use crate::script::{Conversation, Script};

pub use history::FauxHistory;

use played::Played;
use session::FauxSession;

/// What a faux session can do; see [`FauxAdapter::steered`] for the rest.
const CAPABILITIES: Capabilities = Capabilities {
    own_ids: true,
    drain: true,
    fork: true,
    steer: false,
    restores_responses: true,
    builtins: Built::Gated,
};

const PROFILE: AdapterProfile = AdapterProfile { name: "faux", widest: CAPABILITIES, speaks: &[], program: None };

/// Told of a request just before the model answers it, with what the model is shown.
pub type Told = Arc<dyn Fn(&Conversation) + Send + Sync>;

/// An adapter whose model is a script.
#[derive(Clone)]
pub struct FauxAdapter {
    played: Arc<Mutex<Played>>,
    told: Option<Told>,
    profile: AdapterProfile,
    capabilities: Capabilities,
}

impl std::fmt::Debug for FauxAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FauxAdapter").field("played", &self.played).finish_non_exhaustive()
    }
}

impl FauxAdapter {
    /// An adapter that plays `script`, none of it served yet. Clones play on in the same script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        let played = Arc::new(Mutex::new(Played::new(script)));
        Self { played, told: None, profile: PROFILE, capabilities: CAPABILITIES }
    }

    /// The same as a harness that takes people's words while its calls run: they stand behind the results.
    #[must_use]
    pub fn steered(mut self) -> Self {
        self.capabilities.steer = true;
        self.profile.widest.steer = true;
        self
    }

    /// The same as a harness that makes up its own ids of messages, so that none is placed a second time under ours.
    #[must_use]
    pub fn without_own_ids(mut self) -> Self {
        self.capabilities.own_ids = false;
        self
    }

    /// The same as a harness that cannot let calls end while nothing new begins.
    #[must_use]
    pub fn without_drain(mut self) -> Self {
        self.capabilities.drain = false;
        self
    }

    /// The same with `told` called for each request that reaches the model: a count that rests on no record.
    #[must_use]
    pub fn telling(mut self, told: Told) -> Self {
        self.told = Some(told);
        self
    }
}

#[async_trait]
impl AgentAdapter for FauxAdapter {
    fn profile(&self) -> &AdapterProfile {
        &self.profile
    }

    fn history(&self) -> &dyn NativeHistory {
        &FauxHistory
    }

    async fn check(&self, plan: &SessionPlan, _prior: Option<&Survey>) -> Result<Checked, Refusal> {
        let harness = HarnessVersion { name: PROFILE.name.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Ok(Checked { capabilities: self.capabilities, harness, program: None, plan: plan.clone() })
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        let ModelEndpoint::Direct(port) = seat.model.clone() else {
            return Err(AdapterError::new(
                AdapterErrorKind::Spawn,
                "the faux adapter speaks no HTTP: give its runner the direct way to the gate",
            ));
        };
        let session =
            FauxSession::open(self.played.clone(), self.told.clone(), admission.checked(), seat, port).await?;
        Ok(Box::new(session))
    }
}
