//! What is said to the model: the node's prompt, a person's, a follow-up's. One owner at a time, cut anywhere, and told to run the node, to
//! settle, or to ask the follow-up. What the model was told is counted outside; what the harness took is in its home until it is mirrored.

#[cfg(test)]
mod kernel_agrees;
mod properties;
mod steps;
mod table;
mod variants;

pub use variants::variants;

/// The rules of placement, carry, settle and follow-up, each of which can be left out. `whole()` is the design.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A message is recorded, with what it carries, before the harness is given it.
    pub placed_first: bool,
    /// A paid request is admitted only with the native bytes that it rests on.
    pub request_barrier: bool,
    /// A message counts as taken only once the history shows it.
    pub taken_by_history: bool,
    /// Whether a submission was taken is asked of the newest message that carries it, not of its first.
    pub taken_is_transitive: bool,
    /// What a settle leaves unsent begins the next message.
    pub unsent_is_carried: bool,
    /// A cut follow-up is looked for before the open turn is.
    pub follow_up_row_first: bool,
    /// A cut follow-up's outcome and its turn's settle are one batch.
    pub settled_in_one_batch: bool,
    /// The settle of a follow-up withdraws its own prompt, and none that its message carried beside.
    pub withdraws_its_own: bool,
    /// A follow-up is asked for once a name, whatever came of it.
    pub asked_once: bool,
    /// The history is made to show the end of a turn that the records ended, before a harness is started on it.
    pub at_rest: bool,
}

impl Rules {
    /// The design: every rule holds.
    #[must_use]
    pub const fn whole() -> Self {
        Self {
            placed_first: true,
            request_barrier: true,
            taken_by_history: true,
            taken_is_transitive: true,
            unsent_is_carried: true,
            follow_up_row_first: true,
            settled_in_one_batch: true,
            withdraws_its_own: true,
            asked_once: true,
            at_rest: true,
        }
    }
}

/// The model: its rules, and how much may go wrong in one history.
#[derive(Clone, Copy, Debug)]
pub struct Prompts {
    /// The rules that hold.
    pub rules: Rules,
    /// The harness takes messages under our ids: what it lacks is placed again as it is.
    pub own_ids: bool,
    /// Processes killed.
    pub kills: u8,
    /// Settles asked for.
    pub settles: u8,
    /// Follow-ups asked for, all by one name.
    pub asks: u8,
}

/// What an owner was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// To run or resume the node.
    Run,
    /// To end what is open.
    Settle,
    /// To ask the follow-up.
    FollowUp,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Takes the session.
    Open(Job),
    /// The owner decides and writes, or gives, once.
    Step,
    /// A person says something.
    Say,
    /// The harness takes the message it was given.
    Take,
    /// The harness asks the model.
    Ask,
    /// The harness is idle: it ends the turn in its history.
    End,
    /// The harness takes up the turn that its history holds, by itself.
    TakeUp,
    /// The owner mirrors what the harness has on disk.
    Mirror,
    /// The process dies.
    Kill,
}

/// Who a submission is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    Node,
    Person,
    FollowUp,
}

const ALL: [From; 3] = [From::Node, From::Person, From::FollowUp];

/// A set of submissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Words {
    node: bool,
    person: bool,
    follow_up: bool,
}

impl Words {
    fn of(from: impl IntoIterator<Item = From>) -> Self {
        let mut words = Self::default();
        for from in from {
            match from {
                From::Node => words.node = true,
                From::Person => words.person = true,
                From::FollowUp => words.follow_up = true,
            }
        }
        words
    }
    const fn has(self, from: From) -> bool {
        match from {
            From::Node => self.node,
            From::Person => self.person,
            From::FollowUp => self.follow_up,
        }
    }
    fn each(self) -> impl Iterator<Item = From> {
        ALL.into_iter().filter(move |from| self.has(*from))
    }
    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// How far a message got in the harness's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Native {
    #[default]
    Nothing,
    Took,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Submission(From),
    Withdrawn(From),
    /// Opens a turn of the same number.
    Placed {
        message: u8,
        carries: Words,
        epoch: u8,
    },
    Native {
        message: u8,
        says: Native,
    },
    TurnEnd,
    Settled {
        unsent: Words,
    },
    FollowUpIntent {
        epoch: u8,
    },
    FollowUpOutcome,
}

/// What an owner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Down,
    Deciding,
    /// Where the harness is given a message before it is recorded.
    Unplaced {
        message: u8,
        carries: Words,
    },
    Giving(u8),
    /// The turn runs: whether its harness was given the message by this owner or has it from its history, and whether it asked the model.
    Turn {
        message: u8,
        given: bool,
        asked: bool,
    },
    /// Only where a cut follow-up is ended in two appends.
    Unsettled(Words),
}

/// What the model was told, and what went on that should not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    /// The message by which each submission came to the model first, from 1.
    by: [u8; 3],
    told_twice: bool,
    asked_without_its_words: bool,
    went_on_with_a_cut_follow_up: bool,
    took_up_an_ended_turn: bool,
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    log: Vec<Record>,
    epoch: u8,
    doing: Doing,
    job: Job,
    /// The harness's home: each message, from 1, and how far it got.
    home: Vec<Native>,
    world: World,
    /// Messages numbered so far: a number is used once.
    messages: u8,
    kills: u8,
    settles: u8,
    asks: u8,
    said: bool,
}
