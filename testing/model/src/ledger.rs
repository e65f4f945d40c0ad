//! One run's ledger, shared by two sessions under one cap, and two processes of which either may take either session at any moment.
//! Each session wants two requests, quoted at 2 and billed at 1; the cap is 4.

use stateright::{Model, Property};

const CAP: u8 = 4;
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
    /// It dies.
    Kill(Who),
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
}

const DOWN: Process = Process { doing: Doing::Down, session: Which::A, epoch: 0, folded: 0, wrote_fenced: false };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Hold { id: u8, session: Which, epoch: u8 },
    Booking { id: u8, session: Which },
    Unknown { id: u8, session: Which },
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    epoch_a: u8,
    epoch_b: u8,
    ledger: Vec<Record>,
    first: Process,
    second: Process,
    sent: u8,
    over_cap: bool,
    acted_after_refusal: bool,
    sent_without_hold: bool,
    refused: bool,
    conflict: bool,
    opens: u8,
    kills: u8,
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
    fn length(&self) -> u8 {
        u8::try_from(self.ledger.len()).unwrap_or(u8::MAX)
    }
    fn ends(&self, hold: u8) -> usize {
        let ends =
            |record: &&Record| matches!(record, Record::Booking { id, .. } | Record::Unknown { id, .. } if *id == hold);
        self.ledger.iter().filter(ends).count()
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

impl Ledger {
    /// Booked and held by the first `folded` records, as `rules` count them for `own`.
    fn counted(rules: Rules, ledger: &[Record], folded: u8, own: Which) -> u8 {
        let counts = |session: Which| rules.whole_run || session == own;
        let mut sum = 0;
        let mut held = Vec::new();
        for record in ledger.iter().take(usize::from(folded)) {
            match *record {
                Record::Hold { id, session, .. } if counts(session) => held.push(id),
                Record::Booking { id, session } if counts(session) => {
                    held.retain(|open| *open != id);
                    sum += BILL;
                }
                Record::Unknown { id, session } if counts(session) => {
                    held.retain(|open| *open != id);
                    sum += if rules.unknown_counts { QUOTE } else { 0 };
                }
                _ => {}
            }
        }
        let held = u8::try_from(held.len()).unwrap_or(u8::MAX);
        if rules.held_counts { sum + QUOTE * held } else { sum }
    }

    fn step(&self, state: &mut State, who: Who) {
        let process = state.process(who);
        let fenced = process.epoch != state.epoch(process.session);
        match process.doing {
            Doing::Down => {}
            Doing::Folding => {
                let folded = state.length();
                *state.process_mut(who) = Process { doing: Doing::Deciding, folded, ..process };
            }
            Doing::Deciding => self.decide(state, who, process, fenced),
            Doing::Sending(id) => {
                let held = Record::Hold { id, session: process.session, epoch: process.epoch };
                state.sent += 1;
                state.sent_without_hold |= !state.ledger.contains(&held);
                state.acted_after_refusal |= fenced && process.wrote_fenced;
                state.process_mut(who).doing = Doing::Sent(id);
            }
            Doing::Sent(id) => {
                if fenced && self.rules.booking_fenced {
                    *state.process_mut(who) = DOWN;
                } else {
                    // True whatever the ledger holds by now: a conflict is folded and the same written again.
                    state.ledger.push(Record::Booking { id, session: process.session });
                    let wrote_fenced = process.wrote_fenced || fenced;
                    *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, wrote_fenced, ..process };
                }
            }
        }
    }

    fn decide(&self, state: &mut State, who: Who, process: Process, fenced: bool) {
        let own = process.session;
        if let Some(id) = state.open_hold(own) {
            if fenced {
                *state.process_mut(who) = DOWN;
            } else {
                state.ledger.push(Record::Unknown { id, session: own });
                *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, ..process };
            }
        } else if state.booked(own) >= WANTED {
            *state.process_mut(who) = DOWN;
        } else if Self::counted(self.rules, &state.ledger, process.folded, own) + QUOTE > CAP {
            // Parked: nothing is sent, and the next owner asks the gate again.
            state.refused = true;
            *state.process_mut(who) = DOWN;
        } else if fenced && self.rules.hold_fenced {
            *state.process_mut(who) = DOWN;
        } else if self.rules.at_the_folded_end && process.folded != state.length() {
            state.conflict = true;
            *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, ..process };
        } else {
            let id = state.length();
            state.ledger.push(Record::Hold { id, session: own, epoch: process.epoch });
            state.over_cap |= Self::counted(Rules::whole(), &state.ledger, u8::MAX, own) > CAP;
            let wrote_fenced = process.wrote_fenced || fenced;
            *state.process_mut(who) = Process { doing: Doing::Sending(id), folded: 0, wrote_fenced, ..process };
        }
    }
}

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch_a: 0,
            epoch_b: 0,
            ledger: Vec::new(),
            first: DOWN,
            second: DOWN,
            sent: 0,
            over_cap: false,
            acted_after_refusal: false,
            sent_without_hold: false,
            refused: false,
            conflict: false,
            opens: self.opens,
            kills: self.kills,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for who in [Who::First, Who::Second] {
            if state.process(who).doing != Doing::Down {
                actions.push(Action::Step(who));
                if state.kills > 0 {
                    actions.push(Action::Kill(who));
                }
            } else if state.opens > 0 {
                actions.extend([Which::A, Which::B].map(|session| Action::Open(who, session)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Open(who, session) => {
                state.opens -= 1;
                match session {
                    Which::A => state.epoch_a += 1,
                    Which::B => state.epoch_b += 1,
                }
                let epoch = state.epoch(session);
                *state.process_mut(who) = Process { doing: Doing::Folding, session, epoch, ..DOWN };
            }
            Action::Step(who) => self.step(&mut state, who),
            Action::Kill(who) => {
                state.kills -= 1;
                *state.process_mut(who) = DOWN;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("booked and held are within the cap at admission", |_, state: &State| !state.over_cap),
            Property::always("the bills are within the cap", |_, state: &State| state.sent * BILL <= CAP),
            Property::always("a hold ends at most once", |_, state: &State| {
                (0..state.length()).all(|id| state.ends(id) <= 1)
            }),
            Property::always("every request has its hold", |_, state: &State| !state.sent_without_hold),
            Property::always("a fenced owner does nothing new after its next write", |_, state: &State| {
                !state.acted_after_refusal
            }),
            Property::sometimes("a session has all it wants", |_, state: &State| state.booked(Which::A) == WANTED),
            Property::sometimes("the cap refuses", |_, state: &State| state.refused),
            Property::sometimes("a conflict is folded and tried again", |_, state: &State| state.conflict),
            Property::sometimes("a cut request stays unknown", |_, state: &State| {
                state.ledger.iter().any(|record| matches!(record, Record::Unknown { .. }))
            }),
        ]
    }
}
