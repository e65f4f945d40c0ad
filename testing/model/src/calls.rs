//! The calls of a session and of a later attempt: in parallel, exclusive, repeated by the model, asked twice by the harness, cut, drained.
//! A never tool, a safe tool and submit, all with the same arguments each time. One owner at a time; fences are the session model's.

mod properties;
mod steps;
mod variants;

pub use variants::variants;

/// The rules of calls, each of which can be left out. `whole()` is the design.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A call that is asked again while it runs joins the one that runs.
    pub joined: bool,
    /// An interrupted never call that the model asks for again is refused.
    pub repeat_refused: bool,
    /// A refused call does not hide the interrupted one for which it was refused.
    pub refusal_hides_nothing: bool,
    /// A later attempt answers a completed never call from the earlier one's receipt.
    pub receipts_kept: bool,
    /// A never call that was cut, by a time-out too, is interrupted and no error.
    pub cut_is_interrupted: bool,
    /// Submit waits until nothing else runs, and nothing begins beside it.
    pub exclusive: bool,
    /// An intent is written once the call has its permit.
    pub intent_after_permit: bool,
    /// After a stop nothing begins, what waits included.
    pub stop_withholds: bool,
    /// At the deadline of a drain nothing is written of a call that still runs.
    pub deadline_writes_nothing: bool,
    /// A call's key counts the results that its id has already.
    pub keys_have_ordinals: bool,
    /// What an older epoch started is ended before it is called interrupted.
    pub swept_first: bool,
    /// A safe call is run again at two opens, and no more.
    pub safe_ends: bool,
}

impl Rules {
    /// The design: every rule holds.
    #[must_use]
    pub const fn whole() -> Self {
        Self {
            joined: true,
            repeat_refused: true,
            refusal_hides_nothing: true,
            receipts_kept: true,
            cut_is_interrupted: true,
            exclusive: true,
            intent_after_permit: true,
            stop_withholds: true,
            deadline_writes_nothing: true,
            keys_have_ordinals: true,
            swept_first: true,
            safe_ends: true,
        }
    }
}

/// The model: its rules, and how much may go wrong in one history.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The rules that hold.
    pub rules: Rules,
    /// Processes killed.
    pub kills: u8,
    /// Stops that drain.
    pub stops: u8,
    /// Calls that their time-out or a dropped caller cuts.
    pub cuts: u8,
    /// Calls that the harness asks twice.
    pub twice: u8,
    /// Times that the model repeats calls.
    pub repeats: u8,
    /// Attempts, the first included.
    pub attempts: u8,
}

/// What a call is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// Must not run twice.
    Never,
    /// May run again.
    Safe,
    /// Delivers; exclusive.
    Submit,
}

/// How a call ended in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Ok,
    Error,
    Interrupted,
    Refused,
}

/// How far the process is with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    /// It waits for its permit.
    Waiting,
    /// Its intent is written; it runs next.
    Begun,
    /// It runs.
    Running,
    /// It ran to its end, which is not recorded yet.
    Ran,
    /// It ended in the records, or no process has it.
    Rest,
}

/// A call in the harness's history, with its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    tool: Tool,
    attempt: u8,
    doing: Doing,
    permit: bool,
    intent: bool,
    end: Option<End>,
    /// It ran to its end while its owner lived.
    ran: bool,
    /// The process that ran it is gone, and it still runs.
    orphan: bool,
    /// Opens since its intent.
    opens: u8,
    /// The harness was answered.
    answered: bool,
}

/// What the outside noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    never_runs: u8,
    one_ran_twice_at_once: bool,
    ran_beside_submit: bool,
    began_after_stop: bool,
    told_interrupted_while_it_ran: bool,
    told_of_another_call: bool,
    safe_ran_too_often: bool,
    /// These two of the step just done only.
    answered_from_a_receipt: bool,
    joined: bool,
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    alive: bool,
    draining: bool,
    attempt: u8,
    /// What the model asked of this attempt, in order; earlier attempts' come first.
    calls: Vec<Call>,
    delivered: bool,
    world: World,
    kills: u8,
    stops: u8,
    cuts: u8,
    twice: u8,
    repeats: u8,
}

/// One step. A number is a call's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process takes the session; what is open is decided.
    Open,
    /// The model asks for the never and the safe tool at once.
    AskBoth,
    /// The model asks for the never tool again, or gives the answer while it runs.
    Ask(Tool),
    /// The call has its permit: it is answered from the records, refused, or begins.
    Begin(u8),
    /// It runs.
    Run(u8),
    /// It ends.
    Return(u8),
    /// Its end is recorded and the harness answered.
    Record(u8),
    /// Its time-out or a dropped caller cuts it.
    Cut(u8),
    /// The harness asks the same call once more, while it waits or runs.
    Twice(u8),
    /// The process is told to drain.
    Stop,
    /// The drain is over, with calls still running or not: the process ends.
    Deadline,
    /// The process dies.
    Kill,
    /// The host gives the node another attempt: a fresh session that knows the earlier one.
    Attempt,
}
