//! One turn: the message is placed until it is read back, then the log and the program's status are read until they agree that it is over.
//! Its live events only say when to look.
//!
//! ```text
//!  place ──204, which is no receipt──► read back? ──no, for a while──► place again, same ids
//!                                          │ yes
//!        ┌──────────── look ◄──────────────┴── hint · a call ended · stop · a second
//!        └─► answered and idle ─► over      failed and idle ─► failed      aborted ─► stopped, or over once delivered
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentrun_kernel::{StopLevel, StopSignal};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{Api, Status};
use super::calls::{Cut, Offered};
use super::mirror::Mirror;
use super::server::Server;
use super::timeline::{Standing, Timeline};
use crate::calls::{Failure, STALL, above, until, unwind};
use crate::error::AdapterErrorKind;
use crate::seat::Seat;
use crate::session::TurnEnd;

/// At least this often the log is read: an event can be lost. What it writes between is read behind its barriers, and each read takes the
/// one thread the program works on.
const LOOK: Duration = Duration::from_millis(500);
/// At most this often.
const REST: Duration = Duration::from_millis(5);
/// A message that is not in the log by then is placed again. The first of a program takes some seconds.
const READ_BACK: Duration = Duration::from_secs(20);
/// Times a message is placed before it is given up.
const PLACINGS: u32 = 3;
/// How long a program may be idle with the turn open before it is asked to go on: between storing a message and working on it it is idle.
const IDLE: Duration = Duration::from_secs(15);
/// How long an aborted turn may take to be idle.
const ABORT_DEADLINE: Duration = Duration::from_secs(5);

/// What is placed.
pub(super) struct Placing<'a> {
    pub(super) session: &'a str,
    /// The program's id of our message.
    pub(super) message: &'a str,
    /// What it is given; the same each time.
    pub(super) body: Value,
    /// The part that must be read back.
    pub(super) part: Option<String>,
    /// The number of messages before it: earlier answers to it say nothing of this run.
    pub(super) from: usize,
}

/// A turn that runs.
pub(super) struct Running<'a> {
    pub(super) server: &'a mut Server,
    pub(super) mirror: &'a Mirror,
    pub(super) offered: &'a Arc<Offered>,
    pub(super) seat: &'a Seat,
    pub(super) stop: StopSignal,
    pub(super) placing: Placing<'a>,
}

/// What a look found.
struct Look {
    standing: Standing,
    /// The message stands in the log with all its parts.
    taken: bool,
    /// A request may be in flight.
    asks: bool,
    /// The delivering call's result is stored.
    answered_calls: bool,
    next: u64,
}

/// Why a turn was aborted by us.
enum Aborted {
    Stopped,
    Delivered,
    Failed { status: Option<u16>, message: String },
}

impl Running<'_> {
    /// Runs until the program is idle, or is to be ended: on [`TurnEnd::Stopped`] and on a failure the caller ends it.
    pub(super) async fn run(self) -> Result<TurnEnd, Failure> {
        let api = self.server.api.clone();
        let drive = self.seat.drive.clone();
        let lost = drive.lost();
        tokio::pin!(lost);
        self.place(&api).await?;
        let heard = self.server.heard.clone();
        let (mut placings, mut placed) = (1, Instant::now());
        let (mut idle_since, mut changed, mut seen) = (None::<Instant>, Instant::now(), (0, 0));
        let (mut was_idle, mut level) = (false, StopLevel::Run);
        let mut aborted: Option<(Aborted, Instant)> = None;
        loop {
            // Nothing is over as it begins, and a read would be in the way of what was just asked for.
            let deadline = aborted.as_ref().map(|(_, deadline)| *deadline);
            let mut rises = self.stop.clone();
            tokio::select! {
                restart = &mut lost => return Err(unwind(restart)),
                _ = rises.reached(above(level)) => {}
                () = self.offered.changed.notified() => {}
                () = heard.hint.notified() => tokio::time::sleep(REST).await,
                () = tokio::time::sleep(LOOK) => {}
                () = until(deadline) => {}
            }
            // One wait for both: neither is the later one for certain, and what they do not agree on yet they will the next time.
            let (look, status) = tokio::try_join!(self.look(), self.status(&api))?;
            // A look that began when the program was idle shows every end there will be.
            let cut = match &aborted {
                Some(_) if was_idle => Cut::Aborted,
                None if was_idle => Cut::Idle,
                _ => Cut::Nothing,
            };
            self.offered.record_ends(cut).await?;
            let calls = self.offered.standing();
            if let Some(restart) = calls.lost {
                return Err(unwind(restart));
            }
            let now = Instant::now();
            let so_far = (look.next, self.server.heard.words.load(Ordering::Relaxed));
            if so_far != seen || calls.in_flight > 0 {
                (seen, changed) = (so_far, now);
            }
            level = self.stop.level();
            let quiet = calls.in_flight == 0;
            let drained = level >= StopLevel::Drain && quiet && !look.asks && aborted.is_none();
            if level >= StopLevel::Kill || drained || (calls.withheld && quiet) {
                return Ok(TurnEnd::Stopped(level.max(StopLevel::Drain)));
            }
            let idle = status == Status::Idle;
            was_idle = idle && look.taken;
            if idle && look.taken && quiet {
                if let Some((why, _)) = &aborted {
                    return Ok(self.over(why, level));
                }
                match &look.standing {
                    Standing::Answered => return Ok(TurnEnd::Idle),
                    // Its next request was refused because it is to stop.
                    Standing::Failed { .. } if level >= StopLevel::Drain => return Ok(TurnEnd::Stopped(level)),
                    Standing::Failed { status, message } => {
                        return Ok(TurnEnd::Failed { status: *status, message: message.clone() });
                    }
                    Standing::NotTaken | Standing::Open | Standing::Aborted | Standing::Unfinished => {}
                }
            }
            if aborted.is_none() {
                let why = match (&status, &look.standing) {
                    _ if level >= StopLevel::Interrupt => Some(Aborted::Stopped),
                    _ if calls.delivered && quiet && look.answered_calls => Some(Aborted::Delivered),
                    // Each of its own retries would be one more paid request.
                    (Status::Retries(message), _) => Some(Aborted::Failed { status: None, message: message.clone() }),
                    (_, Standing::Unfinished) => Some(Aborted::Failed {
                        status: None,
                        message: "the model's answer ended without a reason, which OpenCode asks again without bound"
                            .to_owned(),
                    }),
                    _ => None,
                };
                if let Some(why) = why {
                    api.abort(self.placing.session).await.map_err(protocol)?;
                    aborted = Some((why, now.checked_add(ABORT_DEADLINE).unwrap_or(now)));
                    continue;
                }
            }
            if let Some((why, deadline)) = &aborted
                && now >= *deadline
            {
                // It does not become idle; the caller ends it.
                return match why {
                    Aborted::Failed { message, .. } => Err((AdapterErrorKind::Stalled, message.clone())),
                    Aborted::Stopped | Aborted::Delivered => Ok(TurnEnd::Stopped(level.max(StopLevel::Interrupt))),
                };
            }
            idle_since = if idle && quiet { idle_since.or(Some(now)) } else { None };
            let lacks_words = !look.taken && now.duration_since(placed) >= READ_BACK;
            let sleeps = look.taken && idle_since.is_some_and(|since| now.duration_since(since) >= IDLE);
            if (lacks_words || sleeps) && aborted.is_none() {
                if placings >= PLACINGS {
                    let message = "OpenCode was given a message and did not work on it; the session can be resumed";
                    return Err((AdapterErrorKind::Stalled, message.to_owned()));
                }
                // The same ids: stored already, it changes nothing.
                self.place(&api).await?;
                (placings, placed, idle_since) = (placings.saturating_add(1), now, None);
            }
            if quiet && now.duration_since(changed) >= STALL {
                let message = format!("OpenCode said nothing for {} s; the session can be resumed", STALL.as_secs());
                return Err((AdapterErrorKind::Stalled, message));
            }
        }
    }

    async fn place(&self, api: &Api) -> Result<(), Failure> {
        api.prompt(self.placing.session, &self.placing.body).await.map_err(protocol)
    }

    async fn status(&self, api: &Api) -> Result<Status, Failure> {
        api.status(self.placing.session).await.map_err(protocol)
    }

    /// Reads the log. A tool nobody offers is told to the host as it is seen.
    async fn look(&self) -> Result<Look, Failure> {
        let Placing { message, part, from, .. } = &self.placing;
        let look = |timeline: &Timeline| {
            let row = timeline.row(message);
            let taken = row.is_some_and(|row| {
                row.ours().is_some() && part.as_ref().is_none_or(|part| row.parts.contains_key(part))
            });
            self.offered.look_for_unknown(timeline, message, *from);
            let answered_calls = timeline.answers(message, *from).flat_map(|it| it.calls()).all(|it| it.is_answered());
            let (standing, asks) = (timeline.standing(message, *from), timeline.asks(message));
            Look { standing, taken, asks, answered_calls, next: timeline.next }
        };
        self.mirror.now(look).await.map_err(|error| (AdapterErrorKind::History, error.to_string()))
    }

    fn over(&self, why: &Aborted, level: StopLevel) -> TurnEnd {
        match why {
            Aborted::Stopped => TurnEnd::Stopped(level),
            Aborted::Delivered => TurnEnd::Idle,
            Aborted::Failed { status, message } => TurnEnd::Failed { status: *status, message: message.clone() },
        }
    }
}

/// The body of a message: its words under our ids, or nothing but the note for one that was taken.
pub(super) fn body(message: &str, model: &str, parts: Vec<Value>) -> Value {
    json!({
        "messageID": message,
        "agent": super::launch::AGENT,
        "model": { "providerID": super::launch::PROVIDER, "modelID": model },
        "parts": parts,
    })
}

fn protocol(error: super::api::ApiError) -> Failure {
    (AdapterErrorKind::Protocol, error.to_string())
}
