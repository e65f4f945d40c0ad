//! One run's ledger, shared by two sessions under one cap, and two processes of which either may take either session at any moment.
//! Each session wants two requests, quoted at 2 and billed at 1; the cap is 4, and a person may raise it to 5.

mod properties;
mod steps;
mod variants;

pub use variants::variants;

const CAP: u8 = 4;
const RAISED: u8 = 5;
const QUOTE: u8 = 2;
const BILL: u8 = 1;
const WANTED: usize = 2;

/// The rules of the cap, each of which can be left out.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A hold lands only at the end of the ledger that its owner has folded.
    pub at_the_folded_end: bool,
    /// The gate counts every session of the run, not its own alone.
    pub whole_run: bool,
    /// What is held and not yet booked counts.
    pub held_counts: bool,
    /// A cut request's hold becomes unknown and keeps counting.
    pub unknown_counts: bool,
    /// A hold is written in one batch with the request's intent, under the session's epoch.
    pub hold_fenced: bool,
    /// A booking is written in one batch with the response, under the session's epoch.
    pub booking_fenced: bool,
    /// The ledger has many writers and no epoch; else one writer, which fences the one before it.
    pub many_writers: bool,
    /// What a session holds is ended by its owner alone, under its epoch.
    pub ended_by_owner: bool,
    /// A raise says what the cap is from here on, and a second one by the same id changes nothing; else it says by how much.
    pub raise_by_id: bool,
    /// A parked session asks the gate again when it is opened.
    pub parked_asks_again: bool,
}

impl Rules {
    /// The design: every rule holds.
    #[must_use]
    pub const fn whole() -> Self {
        Self {
            at_the_folded_end: true,
            whole_run: true,
            held_counts: true,
            unknown_counts: true,
            hold_fenced: true,
            booking_fenced: true,
            many_writers: true,
            ended_by_owner: true,
            raise_by_id: true,
            parked_asks_again: true,
        }
    }
}

/// The model: its rules, and how much may go wrong in one history. Every append is synced, so a power cut is two kills.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    /// The rules that hold.
    pub rules: Rules,
    /// Times that a process takes a session.
    pub opens: u8,
    /// Processes killed.
    pub kills: u8,
    /// Times that a person asks for the one raise; a second time where the first answer never came.
    pub raises: u8,
    /// Requests that a stop keeps from going out, behind their hold.
    pub withheld: u8,
}

/// One of the two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The one.
    A,
    /// The other.
    B,
}

/// One of the two processes.
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
    /// A process takes a session.
    Open(Who, Which),
    /// It folds, decides, writes or sends once.
    Step(Who),
    /// It is stopped before the first byte of its request, and says that nothing was spent.
    Withhold(Who),
    /// It dies.
    Kill(Who),
    /// A person raises the cap.
    Raise,
    /// Somebody who does not own the session ends what it holds.
    Free(Which),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Down,
    Folding,
    Deciding,
    Sending(u8),
    Sent(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    doing: Doing,
    session: Which,
    epoch: u8,
    folded: u8,
    wrote_fenced: bool,
    /// Which writer of the ledger it is, where the ledger has one at a time.
    writer: u8,
}

const DOWN: Process =
    Process { doing: Doing::Down, session: Which::A, epoch: 0, folded: 0, wrote_fenced: false, writer: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Hold { id: u8, session: Which, epoch: u8 },
    Booking { id: u8, session: Which },
    Unknown { id: u8, session: Which },
    Release { id: u8, session: Which },
    Raise,
}

/// What was noticed beside the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    sent: u8,
    over_cap: bool,
    sent_without_hold: bool,
    acted_after_refusal: bool,
    noted: Option<Note>,
}

/// What happened in the step just done: said for one step only, so that it tells no two later states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Note {
    Conflict,
    WentOn,
    BookedBeside,
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    epoch_a: u8,
    epoch_b: u8,
    parked_a: bool,
    parked_b: bool,
    writer: u8,
    ledger: Vec<Record>,
    first: Process,
    second: Process,
    world: World,
    opens: u8,
    kills: u8,
    raises: u8,
    withheld: u8,
}

impl State {
    fn process(&self, who: Who) -> Process {
        match who {
            Who::First => self.first,
            Who::Second => self.second,
        }
    }
    fn process_mut(&mut self, who: Who) -> &mut Process {
        match who {
            Who::First => &mut self.first,
            Who::Second => &mut self.second,
        }
    }
    fn epoch(&self, session: Which) -> u8 {
        match session {
            Which::A => self.epoch_a,
            Which::B => self.epoch_b,
        }
    }
    fn parked_mut(&mut self, session: Which) -> &mut bool {
        match session {
            Which::A => &mut self.parked_a,
            Which::B => &mut self.parked_b,
        }
    }
    fn length(&self) -> u8 {
        u8::try_from(self.ledger.len()).unwrap_or(u8::MAX)
    }
    fn ends(&self, hold: u8) -> usize {
        self.ledger.iter().filter(|record| ended(record) == Some(hold)).count()
    }
    fn booked(&self, of: Which) -> usize {
        self.ledger.iter().filter(|record| matches!(record, Record::Booking { session, .. } if *session == of)).count()
    }
    /// The first hold of a session that nothing has ended.
    fn open_hold(&self, of: Which) -> Option<u8> {
        self.ledger.iter().find_map(|record| match record {
            Record::Hold { id, session, .. } if *session == of && self.ends(*id) == 0 => Some(*id),
            _ => None,
        })
    }
}

/// The hold that a record ends.
const fn ended(record: &Record) -> Option<u8> {
    match record {
        Record::Booking { id, .. } | Record::Unknown { id, .. } | Record::Release { id, .. } => Some(*id),
        Record::Hold { .. } | Record::Raise => None,
    }
}

impl Ledger {
    /// The cap after these records.
    fn cap(&self, ledger: &[Record]) -> u8 {
        let raises = ledger.iter().filter(|record| matches!(record, Record::Raise)).count();
        let raises = u8::try_from(raises).unwrap_or(u8::MAX);
        if self.rules.raise_by_id { CAP + (RAISED - CAP) * raises.min(1) } else { CAP + (RAISED - CAP) * raises }
    }

    /// What these records count against the cap, as `rules` count for `own`.
    fn counted(rules: Rules, ledger: &[Record], own: Which) -> u8 {
        let counts = |session: Which| rules.whole_run || session == own;
        let mut sum = 0;
        let mut held: Vec<u8> = Vec::new();
        for record in ledger {
            match *record {
                Record::Hold { id, session, .. } if counts(session) => held.push(id),
                Record::Booking { session, .. } if counts(session) => sum += BILL,
                Record::Unknown { session, .. } if counts(session) && rules.unknown_counts => sum += QUOTE,
                _ => {}
            }
            held.retain(|open| Some(*open) != ended(record));
        }
        let held = u8::try_from(held.len()).unwrap_or(u8::MAX);
        if rules.held_counts { sum + QUOTE * held } else { sum }
    }
}
