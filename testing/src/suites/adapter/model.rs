//! The model of a case, and the gate before it: as in a host, no request passes that the harness's own history does not explain, none
//! once the session is to stop, and none while no turn is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentrun_adapter::{ModelApi, ModelEndpoint, ModelPort, PaidCall, PaidStep, PortRefused, RequestBarrier};
use agentrun_kernel::{Batch, Drive, StopLevel, StopSignal, Usage};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;

use super::subject::Subject;
use crate::script::{Conversation, Script};
use crate::scripted::{Before, ScriptedModel};
use crate::suites::failure::Failure;

const KEY: &str = "made-up-key-0001";
/// How long a request that must come is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays the script to the subject.
pub(super) struct Model {
    gate: Arc<Gate>,
    /// For a harness that asks over HTTP.
    server: Option<ScriptedModel>,
    subject: Arc<dyn Subject>,
}

/// What stands before the model.
#[derive(Default)]
pub(super) struct Gate {
    seat: Mutex<Option<Seated>>,
    /// Requests of an adapter without HTTP.
    bodies: Mutex<Vec<Arc<[u8]>>>,
    count: watch::Sender<usize>,
    refused: Mutex<Vec<String>>,
}

/// Whose requests they are now.
#[derive(Clone)]
struct Seated {
    drive: Drive,
    barrier: Option<Arc<dyn RequestBarrier>>,
    stop: StopSignal,
}

impl Model {
    pub(super) fn new(subject: Arc<dyn Subject>, script: Script, http: bool) -> Result<Self, Failure> {
        let gate = Arc::new(Gate::default());
        let server = if http { Some(ScriptedModel::start_behind(script, gate.clone())?) } else { None };
        Ok(Self { gate, server, subject })
    }

    pub(super) fn endpoint(&self, api: Option<ModelApi>) -> ModelEndpoint {
        match (&self.server, api) {
            (Some(server), Some(api)) => ModelEndpoint::Http { base_url: server.base_url(), key: Arc::from(KEY), api },
            _ => ModelEndpoint::Direct(Arc::new(Port(self.gate.clone()))),
        }
    }

    pub(super) fn key() -> &'static str {
        KEY
    }

    /// From now on requests are these owner's.
    pub(super) fn seat(&self, drive: Drive, barrier: Option<Arc<dyn RequestBarrier>>, stop: StopSignal) {
        *lock(&self.gate.seat) = Some(Seated { drive, barrier, stop });
    }

    /// Nobody is asked any more, and the last owner's records are let go.
    pub(super) fn leave(&self) {
        *lock(&self.gate.seat) = None;
    }

    /// Every request that was let through, as a script sees it.
    pub(super) fn requests(&self) -> Vec<Conversation> {
        match &self.server {
            Some(server) => server.requests().iter().map(crate::scripted::SeenRequest::conversation).collect(),
            None => lock(&self.gate.bodies).iter().map(|body| self.subject.conversation(body)).collect(),
        }
    }

    /// The bodies of an HTTP harness's requests.
    pub(super) fn bodies(&self) -> Vec<Value> {
        self.server.iter().flat_map(ScriptedModel::requests).map(|request| request.body).collect()
    }

    /// What the gate refused, in its words.
    pub(super) fn refused(&self) -> Vec<String> {
        lock(&self.gate.refused).clone()
    }

    pub(super) async fn wait_for_requests(&self, wanted: usize) -> Result<Vec<Conversation>, Failure> {
        if let Some(server) = &self.server {
            server.wait_for_requests(wanted).await?;
        } else {
            let mut count = self.gate.count.subscribe();
            let reached = tokio::time::timeout(PATIENCE, count.wait_for(|seen| *seen >= wanted)).await;
            if reached.is_err() {
                return Err(Failure(format!("waited for {wanted} requests and saw {}", self.requests().len())));
            }
        }
        Ok(self.requests())
    }
}

#[async_trait]
impl Before for Gate {
    async fn admit(&self, body: &[u8]) -> Result<(), String> {
        let answer = self.standing(body).await;
        if let Err(why) = &answer {
            lock(&self.refused).push(why.clone());
        }
        answer
    }
}

impl Gate {
    async fn standing(&self, body: &[u8]) -> Result<(), String> {
        let Some(Seated { drive, barrier, stop }) = lock(&self.seat).clone() else {
            return Err("nobody owns the session".to_owned());
        };
        let standing = || {
            if stop.level() >= StopLevel::Drain {
                return Err("the session is to stop".to_owned());
            }
            let open = drive.with_state(|state| state.open_turn.is_some());
            if open { Ok(()) } else { Err("no turn is open".to_owned()) }
        };
        standing()?;
        if let Some(barrier) = barrier {
            let tail = barrier.before_request(body).await.map_err(|error| error.to_string())?;
            let bodies = tail.bodies();
            if !bodies.is_empty() {
                drive.append(Batch::of(bodies), None).await.map_err(|error| error.to_string())?;
            }
            drop(tail);
        }
        // A stop or the turn's end may have come meanwhile.
        standing()
    }
}

/// The gate as an adapter without HTTP meets it.
struct Port(Arc<Gate>);

#[async_trait]
impl ModelPort for Port {
    async fn begin(&self, call: PaidCall) -> Result<Box<dyn PaidStep>, PortRefused> {
        let refused = |message| PortRefused { word: "refused".to_owned(), message };
        self.0.admit(&call.body).await.map_err(refused)?;
        lock(&self.0.bodies).push(call.body);
        self.0.count.send_modify(|count| *count = count.saturating_add(1));
        Ok(Box::new(Step))
    }
}

struct Step;

#[async_trait]
impl PaidStep for Step {
    async fn finish(self: Box<Self>, _: Usage, _: String, _: Arc<[u8]>) -> Result<(), PortRefused> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
