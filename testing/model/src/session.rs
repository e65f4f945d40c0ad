//! One session and two owners that may take it from each other at any moment: prompt, request 1, a safe and a never tool, request 2,
//! delivered. The log is the only thing that outlives a process; what the outside noticed is counted outside every process.

mod properties;
mod steps;
mod store;
mod variants;

pub use variants::variants;

/// The rules of the protocol, each of which can be left out. `whole()` is the design.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// An append compares the owner's epoch.
    pub fence: bool,
    /// It does so in the step that writes.
    pub fence_in_append: bool,
    /// What must be on disk before an act is synced before the act.
    pub synced: bool,
    /// The writer refuses a batch that breaks an invariant, in the step that writes.
    pub checked: bool,
    /// A paid request is admitted only with the native bytes that it rests on.
    pub request_barrier: bool,
    /// A tool's intent is written only with the native bytes that explain it.
    pub tool_barrier: bool,
    /// A hold and its request's intent are one batch.
    pub hold_with_intent: bool,
    /// A response and its booking are one batch.
    pub booking_with_response: bool,
    /// A recorded response that the restored history lacks is put back.
    pub responses_restored: bool,
    /// An open `never` effect is interrupted at resume.
    pub never_interrupted: bool,
    /// A resume reads back whether the harness has the prompt, and gives it again only where it has not.
    pub read_back: bool,
    /// A placed prompt counts as taken only once the history shows it.
    pub taken_by_history: bool,
    /// A harness's home is made anew from the records at every open; else it starts on what the last one left on its disk.
    pub home_from_records: bool,
    /// Unsynced native bytes are handed to the store at once; else they wait in the process for its next synced batch.
    pub handed_over: bool,
}

impl Rules {
    /// The design: every rule holds.
    #[must_use]
    pub const fn whole() -> Self {
        Self {
            fence: true,
            fence_in_append: true,
            synced: true,
            checked: true,
            request_barrier: true,
            tool_barrier: true,
            hold_with_intent: true,
            booking_with_response: true,
            responses_restored: true,
            never_interrupted: true,
            read_back: true,
            taken_by_history: true,
            home_from_records: true,
            handed_over: true,
        }
    }
}

/// The model: its rules, and how much may go wrong in one history.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// The rules that hold.
    pub rules: Rules,
    /// Times that an owner takes the session, the first included.
    pub opens: u8,
    /// Processes killed.
    pub kills: u8,
    /// Power cuts: both processes die and what was not synced is lost.
    pub power_cuts: u8,
    /// Appends that land though their caller was dropped and never learns it.
    pub drops: u8,
}

/// How a tool stands a second run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tool {
    /// May run again.
    Safe,
    /// Must not.
    Never,
}

/// A tool call: the reply that asked for it, and which of the two it is. Every reply has calls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    reply: u8,
    tool: Tool,
}

/// A model request's place in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    First,
    Second,
}

/// A harness's own history, as how far it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct History {
    /// 0 nothing, 1 the prompt, 2 a reply with the calls, 3 the safe tool's result, 4 the never tool's, 5 the reply that delivers.
    level: u8,
    /// Which giving of the prompt it holds; every one has a number of its own.
    take: u8,
    /// How often it holds the prompt.
    copies: u8,
    /// The reply that asked for the calls.
    reply: u8,
}

/// What an owner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    /// Not running, or fenced and gone.
    Down,
    Deciding,
    Giving,
    /// Only where hold and intent are two appends.
    Unheld(Place, u8),
    Sending(Place, u8),
    Replied(Place, u8),
    /// Only where booking and response are two appends.
    Unrecorded(Place, u8),
    Running(Call),
    Ran(Call),
    Done,
}

/// A process that owns, or thinks that it owns, the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    doing: Doing,
    epoch: u8,
    /// How much of the log it has folded: all it decides by.
    seen: u8,
    memory: History,
    /// How much of its memory the harness has on disk, and how much of that is in our log.
    file: u8,
    mirrored: u8,
    /// How much of it waits in the process to be handed to the log; 0 where nothing waits.
    waiting: u8,
    /// It wrote after it was fenced.
    wrote_fenced: bool,
    /// It compared its epoch, in the mutant that does so before it writes.
    compared: bool,
}

/// A record of either log; both are in one store, whose order is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Placed,
    Native(History),
    Request {
        place: Place,
        key: u8,
    },
    Response {
        place: Place,
        key: u8,
        take: u8,
    },
    Lost {
        key: u8,
    },
    Intent(Call),
    Outcome(Call, bool),
    Delivered,
    /// The ledger's.
    Hold {
        key: u8,
    },
    Booking {
        place: Place,
        key: u8,
    },
    Unknown {
        key: u8,
    },
}

/// What the outside has noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    never_runs: u8,
    safe_runs: u8,
    /// The giving of the prompt that the model saw first.
    take: u8,
    saw_two_takes: bool,
    saw_two_copies: bool,
    saw_no_prompt: bool,
    acted_before_disk: bool,
    acted_after_refusal: bool,
    /// What nobody can close: an act that was admitted before the fence and began after it, in the step just done.
    acted_after_fence: bool,
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    epoch: u8,
    log: Vec<(u8, Record)>,
    durable: u8,
    first: Owner,
    second: Owner,
    world: World,
    /// What the last harness left on its disk, where a home is not made from the records.
    leftover: History,
    keys: u8,
    takes: u8,
    opens: u8,
    kills: u8,
    power_cuts: u8,
    drops: u8,
}

/// One of the two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The one that opens first.
    First,
    /// The other.
    Second,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Takes the session.
    Open(Who),
    /// Decides, writes or acts once.
    Step(Who),
    /// The same, where the append lands and its caller does not learn it.
    StepDropped(Who),
    /// The harness writes its history to its own disk.
    Flush(Who),
    /// The owner hands that to the log, not synced.
    Mirror(Who),
    /// The process dies.
    Kill(Who),
    /// The machine dies.
    PowerCut,
}
