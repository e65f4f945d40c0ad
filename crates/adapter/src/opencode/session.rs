//! A session of OpenCode: when its program runs, what it goes on from, and how it ends. The turn itself is in `turn`.

use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{DriveError, Durability, Message, StopLevel};
use async_trait::async_trait;
use serde_json::json;

use super::callback::Callback;
use super::calls::{Barrier, Cut, Offered};
use super::ids;
use super::json::at;
use super::launch::Launch;
use super::mend;
use super::mirror::Mirror;
use super::plugin::{self, BEHIND, Endpoint};
use super::server::Server;
use super::timeline::OURS;
use super::turn::{Placing, Running, body};
use crate::adapter::{Admission, Capabilities};
use crate::error::{AdapterError, AdapterErrorKind};
use crate::process::Exit;
use crate::seat::{ModelEndpoint, RequestBarrier, Seat};
use crate::session::{AdapterSession, CloseReport, NativeIdentity, Start, Turn, TurnEnd};

/// How long a program that works may take to abort: then what its tools started ends too.
const ABORT: Duration = Duration::from_secs(2);

/// One session.
pub(super) struct OpenCodeSession {
    admission: Admission,
    seat: Seat,
    mirror: Arc<Mirror>,
    offered: Arc<Offered>,
    server: Option<Server>,
    identity: Option<NativeIdentity>,
}

impl OpenCodeSession {
    /// A session over what the runner restored into the private home. Starts nothing.
    pub(super) fn new(admission: Admission, seat: Seat) -> Result<Self, AdapterError> {
        let mirror = Mirror::open(seat.journal.clone())
            .map_err(|error| AdapterError::new(AdapterErrorKind::History, error.to_string()))?;
        let builtins = admission.plan().builtins.clone();
        let offered = Offered::new(seat.tools.clone(), mirror.clone(), builtins);
        Ok(Self { admission, seat, mirror, offered, server: None, identity: None })
    }

    /// Starts the program and gives it the session: restored from its log, or made new.
    async fn start(&mut self) -> Result<Server, AdapterError> {
        let spawn_error = |what: String| AdapterError::new(AdapterErrorKind::Spawn, what);
        let checked = self.admission.checked();
        let ModelEndpoint::Http { base_url, key, api } = &self.seat.model else {
            return Err(spawn_error(
                "OpenCode asks its model over HTTP; this session was given an in-process model".to_owned(),
            ));
        };
        let program = checked.program.as_deref();
        let program = program.ok_or_else(|| spawn_error("the check found no OpenCode program to start".to_owned()))?;
        let (token, password) = (secret()?, secret()?);
        let callback = Callback::listen(&token, self.offered.clone())
            .await
            .map_err(|error| spawn_error(format!("the endpoint for OpenCode's tools cannot be opened: {error}")))?;
        let specs = self.offered.specs();
        let endpoint = Endpoint { url: &callback.url, token: &token };
        let plugin = plugin::script(&endpoint, *api, &checked.plan.system, specs, &checked.plan.builtins);
        let launch = Launch {
            home: &self.seat.dirs.home,
            tmp: &self.seat.dirs.tmp,
            model: &checked.plan.model,
            api: *api,
            base_url,
            key,
            system: &checked.plan.system,
            tools: specs.iter().map(|spec| spec.name.as_str()).collect(),
            builtins: &checked.plan.builtins,
            password: &password,
            plugin: &plugin,
        };
        let workspace = &self.seat.dirs.workspace;
        let (marker, deltas) = (&self.seat.marker, self.seat.deltas.clone());
        let server = Server::start(program, &launch, workspace, marker, callback, deltas).await?;
        let known = self.mirror.session().await;
        let given = async {
            self.mirror.attach(&server.api, &workspace.to_string_lossy()).await?;
            if known.is_none() {
                self.mirror.follow(server.api.create().await?).await;
            }
            server.api.version().await
        };
        match given.await {
            Ok(version) => {
                let session = self.mirror.session().await.unwrap_or_default();
                self.identity = Some(NativeIdentity { session, version, resumed: known.is_some() });
                Ok(server)
            }
            Err(error) => {
                self.mirror.detach();
                let ended = server.end().await;
                let message = format!("OpenCode did not take its session: {error}");
                Err(AdapterError { kind: AdapterErrorKind::Protocol, message, stderr_tail: ended.stderr_tail })
            }
        }
    }

    async fn turn(&mut self, server: &mut Server, start: Start, note: &str, turn: StopTurn) -> TurnResult {
        let history = |error: crate::journal::JournalError| (AdapterErrorKind::History, error.to_string());
        let (message, taken) = match start {
            Start::Place(ticket) => (ticket.place().await.map_err(not_placed)?, false),
            Start::Again(message) => (message, false),
            Start::Continue(message) => (message, true),
        };
        let native = ids::message(&message.id);
        let (from, last, newest) = self
            .mirror
            .known(|log| (log.len(), log.last_user().map(|row| row.id.clone()), log.newest().map(|row| row.id.clone())))
            .await;
        if taken && last.as_deref() != Some(&native) {
            // An older message would run a second time, and be paid a second time.
            let message = format!("the history's newest message is not {}, which is to go on", message.id);
            return Err((AdapterErrorKind::History, message));
        }
        let parts = parts(&message, taken, note, newest.as_deref());
        let part = parts.first().and_then(|part| at(part, "/id").as_str()).map(str::to_owned);
        let session = self.mirror.session().await.unwrap_or_default();
        let placing = Placing {
            session: &session,
            message: &native,
            body: body(&native, &self.admission.plan().model, parts),
            part,
            from: if taken { from } else { 0 },
        };
        self.mirror.expect_message(&native);
        self.offered.begin_turn(turn.0.clone());
        let running =
            Running { server, mirror: &self.mirror, offered: &self.offered, seat: &self.seat, stop: turn.0, placing };
        let end = running.run().await?;
        if end == TurnEnd::Idle && self.offered.standing().delivered {
            self.mirror.note(mend::ended(&message.id)).await.map_err(history)?;
        }
        Ok(end)
    }

    /// Ends the program. What it wrote to its end is mirrored.
    async fn end(&self, server: Server, aborts: bool) -> CloseReport {
        if aborts && let Some(session) = self.mirror.session().await {
            let aborted = tokio::time::timeout(ABORT, server.api.abort(&session)).await;
            // It is ended by force in any case.
            drop(aborted);
        }
        // The records decide; what is lost here is asked for again.
        let _ = self.mirror.mirror(Durability::Synced).await;
        let _ = self.offered.record_ends(if aborts { Cut::Aborted } else { Cut::Nothing }).await;
        self.mirror.detach();
        let ended = server.end().await;
        // It has no other end: forced is only what could not be ended.
        CloseReport { exit: ended.exit.and_then(Exit::code), forced: ended.exit.is_none() }
    }
}

/// The signal of a turn.
struct StopTurn(agentrun_kernel::StopSignal);

type TurnResult = Result<TurnEnd, crate::calls::Failure>;

#[async_trait]
impl AdapterSession for OpenCodeSession {
    fn capabilities(&self) -> Capabilities {
        self.admission.checked().capabilities
    }

    fn native(&self) -> Option<NativeIdentity> {
        self.identity.clone()
    }

    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        Some(Arc::new(Barrier(self.offered.clone())))
    }

    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Turn { start, stop, recovery_note, words: _ } = turn;
        let mut server = match self.server.take() {
            Some(server) => server,
            None => {
                // It takes seconds to listen: a stop is not kept waiting, and a start that is let go is ended by its guard.
                let mut rises = stop.clone();
                let started = tokio::select! {
                    started = self.start() => Ok(started?),
                    level = rises.reached(StopLevel::Drain) => Err(level),
                };
                match started {
                    Ok(server) => server,
                    Err(level) => {
                        self.mirror.detach();
                        return Ok(TurnEnd::Stopped(level));
                    }
                }
            }
        };
        // Its exit ends every read, so it is heard before the reads' own errors are believed.
        match self.turn(&mut server, start, &recovery_note, StopTurn(stop)).await {
            Ok(TurnEnd::Stopped(level)) => {
                self.end(server, level < StopLevel::Kill).await;
                Ok(TurnEnd::Stopped(level))
            }
            Ok(end) => {
                // The last look read to the end of the turn.
                let mirrored = self.mirror.keep(Durability::Synced).await;
                self.server = Some(server);
                mirrored.map_err(|error| AdapterError::new(AdapterErrorKind::History, error.to_string()))?;
                Ok(end)
            }
            Err((kind, message)) => {
                self.mirror.detach();
                // The records decide; what is lost here is asked for again.
                let _ = self.mirror.mirror(Durability::Buffered).await;
                let reads = matches!(kind, AdapterErrorKind::Protocol | AdapterErrorKind::History);
                if reads && tokio::time::timeout(GONE, server.ended()).await.is_ok() {
                    return Err(server
                        .exited("OpenCode ended in the middle of a turn; the session can be resumed")
                        .await);
                }
                let ended = server.end().await;
                Err(AdapterError { kind, message, stderr_tail: ended.stderr_tail })
            }
        }
    }

    async fn close(mut self: Box<Self>, _deadline: Duration) -> CloseReport {
        match self.server.take() {
            Some(server) => self.end(server, false).await,
            None => CloseReport::default(),
        }
    }
}

/// A program whose connections broke is given this long to be gone.
const GONE: Duration = Duration::from_secs(2);

/// What the program is given of a message: its words, or, once it has them, no more than what happened since.
fn parts(message: &Message, taken: bool, note: &str, newest: Option<&str>) -> Vec<serde_json::Value> {
    let ours = json!({ OURS: message.id.as_str() });
    if !taken {
        let id = ids::words(&message.id);
        return vec![json!({ "id": id, "type": "text", "text": &*message.text, "metadata": ours })];
    }
    if note.is_empty() {
        return Vec::new();
    }
    // One id for all interruptions of this message: told twice, it stands once. It is stored with the message, which stands before what was
    // recorded since; the script shows it to the model where it belongs.
    let behind = json!({ BEHIND: newest });
    vec![json!({ "id": ids::note(&message.id), "type": "text", "text": note, "synthetic": true, "metadata": behind })]
}

fn secret() -> Result<String, AdapterError> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(|error| {
        AdapterError::new(AdapterErrorKind::Spawn, format!("the system has no random numbers for a password: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn not_placed(error: DriveError) -> crate::calls::Failure {
    match error {
        DriveError::Restart(restart) => crate::calls::unwind(restart),
        other => (AdapterErrorKind::History, format!("the message was not placed: {other}")),
    }
}
