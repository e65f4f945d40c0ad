//! Named points where a crash is interesting, and faults that can be planted. They exist only in the crash sweep's own build (feature
//! `crossings`): there a process that was armed for a point kills itself at it, or waits at it while a second owner takes its session. In
//! every other build [`crossing!`](crate::crossing) is no code and [`planted!`](crate::planted) is `false`.
//!
//! | variable | what it does |
//! | --- | --- |
//! | `AGENTRUN_CROSSING` | `NAME#N=kill`: SIGKILL at the Nth time the point is crossed; `NAME#N=wait`: wait there; `*` is any point |
//! | `AGENTRUN_CROSSING_DOOR` | an address on loopback that is told of each crossing (`hit NAME N`) and of a wait (`wait NAME N`), and answers each with a line; a wait ends with its answer |
//! | `AGENTRUN_PLANTED` | names of [`Planted`] faults |

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::record::{Body, EffectKind, Record};
use crate::session::SessionState;

/// Says that a point was reached.
#[doc(hidden)]
#[macro_export]
macro_rules! crossing {
    ($point:ident) => {
        $crate::crossings::reached($crate::crossings::Crossing::$point.name())
    };
}

/// Whether a fault was planted.
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        $crate::crossings::is_planted($crate::crossings::Planted::$fault)
    };
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in the environment and in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// Every crossing. The first part are batches of records: each is crossed twice, as `NAME.before` when nothing of it is written and as
    /// `NAME.after` when it is durable and nobody was told.
    Crossing {
        /// The session's first records.
        Bind = "bind",
        /// A later owner's first record.
        Opened = "opened",
        /// A prompt is accepted.
        Submission = "submission",
        /// A prompt is taken back, with the settle of the follow-up it was for.
        Withdrawn = "withdrawn",
        /// A message is placed, and with it a turn opened.
        Place = "place",
        /// The same for a message that stands for one that was settled.
        Carry = "carry",
        /// A turn ended.
        TurnEnd = "turn_end",
        /// Hold and intent of a model request.
        Hold = "hold",
        /// The same in a follow-up's turn.
        FollowUpRequest = "fu_request",
        /// A model request's response and its booking.
        Book = "book",
        /// Hold and intent of a tool call or of a submit.
        ToolIntent = "tool_intent",
        /// A tool call's outcome and its booking.
        ToolOutcome = "tool_outcome",
        /// The harness's own history, mirrored or repaired.
        Native = "native",
        /// A submitted value.
        Candidate = "candidate",
        /// Its rejection.
        Verdict = "verdict",
        /// Its acceptance, the outcome and the delivery.
        Delivered = "delivered",
        /// A turn is ended by a settle.
        Settle = "settle",
        /// The cap refused.
        Park = "park",
        /// A bound of the runner's ended the node.
        Failed = "failed",
        /// A follow-up is begun.
        FollowUpIntent = "fu_intent",
        /// It has ended.
        FollowUpOutcome = "fu_outcome",

        /// The session was taken: the fence is durable, and no record says so yet.
        Take = "take",
        /// What older owners started is gone.
        Swept = "swept",
        /// The run's ledger is open.
        Ledger = "ledger",
        /// A group of writes is made and not committed. Others cannot write here, so nobody takes a session over at this point.
        Commit = "commit",
        /// The message is recorded as placed; the harness has nothing of it.
        Send = "send",
        /// The harness's own history has the message; the records do not.
        Taken = "taken",
        /// The request was let through; the model has not been asked.
        Request = "request",
        /// The model has answered; nothing says so.
        Response = "response",
        /// The harness's own history has the response; the records have only the paid one.
        Written = "written",
        /// A tool's intent is durable; it has not run.
        ToolRun = "tool_run",
        /// It has run; nothing says so.
        ToolReturn = "tool_return",
        /// Its outcome is recorded; the harness was not answered.
        ToolAnswer = "tool_answer",
        /// The harness's own history has the result; the records have only the outcome.
        Answered = "answered",
        /// A candidate is recorded; the review was not asked.
        Review = "review",
        /// The review has said its word; nothing says so.
        Reviewed = "reviewed",
        /// A raise of the run's cap is checked; the ledger does not have it.
        Raise = "raise",
        /// The ledger has it; nobody was told.
        Raised = "raised",
        /// The harness was ended.
        Closed = "closed",
        /// A person's message is in the inbox, or taken back; who did it was not told.
        Post = "post",
    }
}

named! {
    /// Faults that the sweep must find.
    Planted {
        /// Recovery runs an open `never` call again.
        RerunNever = "rerun_never",
        /// The store answers an intent before it is committed.
        AnswerIntentEarly = "answer_intent_early",
        /// A paid response that the history lacks is not written back, so it is asked for again.
        ForgetResponse = "forget_response",
        /// A request that was cut ends without its hold.
        LeakHold = "leak_hold",
        /// The store does not look at the fence.
        NoFence = "no_fence",
        /// What was cut ends as if nothing of it was spent.
        ReleaseCut = "release_cut",
    }
}

/// The crossing of one batch of records, on its way to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfBatch(Option<Crossing>);

impl OfBatch {
    /// Crosses `NAME.before`. `after` is the state that the batch leaves.
    pub(crate) fn before(records: &[Record], after: &SessionState) -> Self {
        let batch = Self(of(records, after));
        batch.reached("before");
        batch
    }

    /// Crosses `NAME.after`.
    pub(crate) fn after(self) {
        self.reached("after");
    }

    fn reached(self, edge: &str) {
        if let Some(crossing) = self.0 {
            reached(&format!("{}.{edge}", crossing.name()));
        }
    }
}

/// What a batch is named after: the record that it is for. Those that merely go with it (native bytes, an outcome) are not it.
fn of(records: &[Record], after: &SessionState) -> Option<Crossing> {
    records
        .iter()
        .filter_map(|record| of_record(&record.body, after))
        .max_by_key(|(weight, _)| *weight)
        .map(|(_, of)| of)
}

fn of_record(body: &Body, after: &SessionState) -> Option<(u8, Crossing)> {
    use Crossing as C;
    let kind = |key| after.effect(key).map(|effect| effect.intent.effect);
    Some(match body {
        Body::Native(_) => (0, C::Native),
        Body::Opened(_) => (1, C::Opened),
        Body::Submission(_) => (1, C::Submission),
        Body::TurnEnd { .. } => (1, C::TurnEnd),
        Body::Intent(intent) => match intent.effect {
            EffectKind::Request if after.open_turn.as_ref().is_some_and(|turn| turn.follow_up.is_some()) => {
                (2, C::FollowUpRequest)
            }
            EffectKind::Request => (2, C::Hold),
            EffectKind::FollowUp => (2, C::FollowUpIntent),
            EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin => (2, C::ToolIntent),
            EffectKind::Decision => return None,
        },
        Body::Outcome(outcome) => match kind(&outcome.key)? {
            EffectKind::Request => (2, C::Book),
            EffectKind::FollowUp => (2, C::FollowUpOutcome),
            EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin => (2, C::ToolOutcome),
            EffectKind::Decision => return None,
        },
        Body::Bound(_) => (3, C::Bind),
        Body::Candidate(_) => (3, C::Candidate),
        Body::Parked(_) => (3, C::Park),
        Body::Failed(_) => (3, C::Failed),
        Body::Verdict(_) => (4, C::Verdict),
        Body::Placed(placed) if placed.replaces.is_empty() => (4, C::Place),
        Body::Placed(_) => (4, C::Carry),
        Body::Settled(_) => (4, C::Settle),
        Body::Withdrawn(_) => (5, C::Withdrawn),
        Body::Delivered(_) => (5, C::Delivered),
        Body::Moved { .. } | Body::Ask(_) | Body::Answer(_) | Body::Checkpoint(_) | Body::Data { .. } => return None,
    })
}

/// Exit code of a process whose arming makes no sense, or whose door is gone: a sweep must not take it for a crash.
const BAD_ARMING: i32 = 97;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Kill,
    Wait,
}

struct Arm {
    point: String,
    nth: u32,
    act: Act,
}

struct Armed {
    arm: Option<Arm>,
    door: Option<Door>,
    /// How often each point was crossed; `*` counts all of them.
    crossed: Mutex<BTreeMap<String, u32>>,
}

struct Door {
    address: String,
    hits: Mutex<BufReader<TcpStream>>,
}

/// A point was reached. Blocks its thread where the process was armed to wait.
pub fn reached(point: &str) {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    if let Some(armed) = ARMED.get_or_init(Armed::from_environment) {
        armed.reached(point);
    }
}

/// Whether `fault` was planted.
#[must_use]
pub fn is_planted(fault: Planted) -> bool {
    static PLANTED: OnceLock<String> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("AGENTRUN_PLANTED").unwrap_or_default());
    planted.split(',').any(|name| name == fault.name())
}

fn bad(what: &str) -> ! {
    eprintln!("crossings: {what}");
    std::process::exit(BAD_ARMING)
}

impl Arm {
    fn parse(text: &str) -> Option<Self> {
        let (point, rest) = text.split_once('#')?;
        let (nth, act) = rest.split_once('=')?;
        let act = match act {
            "kill" => Act::Kill,
            "wait" => Act::Wait,
            _ => return None,
        };
        Some(Self { point: point.to_owned(), nth: nth.parse().ok()?, act })
    }
}

impl Armed {
    fn from_environment() -> Option<Self> {
        let arm = std::env::var("AGENTRUN_CROSSING").ok().map(|text| {
            Arm::parse(&text).unwrap_or_else(|| bad(&format!("`{text}` is not `NAME#N=kill` or `NAME#N=wait`")))
        });
        let door = std::env::var("AGENTRUN_CROSSING_DOOR").ok().map(Door::knock);
        (arm.is_some() || door.is_some()).then(|| Self { arm, door, crossed: Mutex::default() })
    }

    fn reached(&self, point: &str) {
        let (nth, any) = {
            let mut crossed = self.crossed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut count = |name: &str| {
                let count = crossed.entry(name.to_owned()).or_default();
                *count = count.saturating_add(1);
                *count
            };
            (count(point), count("*"))
        };
        self.tell(&format!("hit {point} {nth}\n"));
        let Some(arm) = &self.arm else { return };
        if (arm.point == point && arm.nth == nth) || (arm.point == "*" && arm.nth == any) {
            match arm.act {
                Act::Kill => die(),
                Act::Wait => self.wait(point, nth),
            }
        }
    }

    fn tell(&self, line: &str) {
        let Some(door) = &self.door else { return };
        let mut hits = door.hits.lock().unwrap_or_else(PoisonError::into_inner);
        // Waits for the answer: what is told elsewhere afterwards must not be heard before it.
        let told = hits.get_mut().write_all(line.as_bytes());
        let answered = told.and_then(|()| hits.read_line(&mut String::new()));
        if !matches!(answered, Ok(1..)) {
            bad("nobody answered the door");
        }
    }

    /// Over a connection of its own: other threads, a second owner among them, go on meanwhile.
    fn wait(&self, point: &str, nth: u32) {
        let Some(door) = &self.door else { bad("a wait needs a door") };
        let mut waiting = door.connect();
        let told = waiting.write_all(format!("wait {point} {nth}\n").as_bytes());
        let answered = told.and_then(|()| BufReader::new(waiting).read_line(&mut String::new()));
        if !matches!(answered, Ok(1..)) {
            bad("nobody answered the door");
        }
    }
}

impl Door {
    fn knock(address: String) -> Self {
        let door = |stream| Self { address: address.clone(), hits: Mutex::new(BufReader::new(stream)) };
        match TcpStream::connect(&address).and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => door(stream),
            Err(error) => bad(&format!("the door {address}: {error}")),
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap_or_else(|error| bad(&format!("the door {}: {error}", self.address)))
    }
}

fn die() -> ! {
    // Nothing of this process runs behind the call: the signal is there before it returns.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
