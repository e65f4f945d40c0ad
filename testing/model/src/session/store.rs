//! The store: one order of records for the session's log and the ledger, a durable length, and the append that compares, checks and
//! writes in one step.

use super::{Call, Doing, History, Owner, Place, Record, Session, State, Tool, Who};

pub(super) const DOWN: Owner = Owner {
    doing: Doing::Down,
    epoch: 0,
    seen: 0,
    memory: History { level: 0, take: 0, copies: 0, reply: 0 },
    file: 0,
    mirrored: 0,
    waiting: 0,
    wrote_fenced: false,
    compared: false,
};

impl History {
    /// What of it a file that holds `level` shows.
    pub(super) fn cut(self, level: u8) -> Self {
        match level {
            0 => Self::default(),
            1 => Self { level, reply: 0, ..self },
            _ => Self { level, ..self },
        }
    }
}

/// A part of the log, from its start.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(&'a [(u8, Record)]);

impl<'a> View<'a> {
    pub(super) fn records(self) -> impl Iterator<Item = Record> + use<'a> {
        self.0.iter().map(|(_, record)| *record)
    }
    pub(super) fn holds(&self, record: Record) -> bool {
        self.records().any(|known| known == record)
    }
    pub(super) fn history(&self) -> History {
        let natives =
            self.records().filter_map(|record| if let Record::Native(history) = record { Some(history) } else { None });
        natives.last().unwrap_or_default()
    }
    pub(super) fn ended(&self, call: Call) -> bool {
        self.records().any(|record| matches!(record, Record::Outcome(ended, _) if ended == call))
    }
    pub(super) fn open_call(&self) -> Option<Call> {
        let intents =
            self.records().filter_map(|record| if let Record::Intent(call) = record { Some(call) } else { None });
        intents.filter(|call| !self.ended(*call)).last()
    }
    fn answered(&self, asked: u8) -> bool {
        self.records()
            .any(|record| matches!(record, Record::Response { key, .. } | Record::Lost { key } if key == asked))
    }
    pub(super) fn open_request(&self) -> Option<u8> {
        let asked =
            self.records().filter_map(|record| if let Record::Request { key, .. } = record { Some(key) } else { None });
        asked.filter(|key| !self.answered(*key)).last()
    }
    /// A hold that neither a booking nor `unknown` has ended.
    pub(super) fn open_hold(&self, held: u8) -> bool {
        self.holds(Record::Hold { key: held })
            && !self
                .records()
                .any(|record| matches!(record, Record::Booking { key, .. } | Record::Unknown { key } if key == held))
    }
    pub(super) fn response(&self, at: Place, taken: u8) -> Option<u8> {
        self.records().find_map(|record| match record {
            Record::Response { place, key, take } if place == at && take == taken => Some(key),
            _ => None,
        })
    }
    /// Whether a batch may follow this log: the invariants that one owner alone can break.
    fn allows(&self, record: Record) -> bool {
        match record {
            Record::Placed => !self.holds(Record::Placed),
            Record::Request { .. } => !self.holds(Record::Delivered) && self.open_request().is_none(),
            Record::Response { key, .. } | Record::Lost { key } => !self.answered(key),
            Record::Intent(call) => !self.holds(Record::Delivered) && !self.holds(Record::Intent(call)),
            Record::Outcome(call, _) => self.holds(Record::Intent(call)) && !self.ended(call),
            Record::Delivered => !self.holds(Record::Delivered),
            Record::Booking { key, .. } | Record::Unknown { key } => self.open_hold(key),
            Record::Native(_) | Record::Hold { .. } => true,
        }
    }
}

impl State {
    pub(super) fn owner(&self, who: Who) -> &Owner {
        match who {
            Who::First => &self.first,
            Who::Second => &self.second,
        }
    }
    pub(super) fn owner_mut(&mut self, who: Who) -> &mut Owner {
        match who {
            Who::First => &mut self.first,
            Who::Second => &mut self.second,
        }
    }
    pub(super) fn view(&self, length: u8) -> View<'_> {
        View(self.log.get(..usize::from(length)).unwrap_or(&self.log))
    }
    pub(super) fn length(&self) -> u8 {
        u8::try_from(self.log.len()).unwrap_or(u8::MAX)
    }
}

/// How an append is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Append {
    /// Under the owner's epoch, synced.
    Session,
    /// Under the owner's epoch, not synced.
    Buffered,
    /// To the ledger alone, which has many writers and no epoch.
    LedgerAlone,
}

impl Session {
    /// Compares the epoch, checks the batch and writes it, in one step. Refused, the owner unwinds: it is gone.
    pub(super) fn append(&self, state: &mut State, who: Who, how: Append, batch: &[Record]) -> bool {
        let owner = *state.owner(who);
        let fenced = owner.epoch != state.epoch;
        let compares = self.rules.fence && self.rules.fence_in_append && how != Append::LedgerAlone;
        let legal = !self.rules.checked || batch.iter().all(|record| state.view(u8::MAX).allows(*record));
        if (compares && fenced) || !legal {
            *state.owner_mut(who) = DOWN;
            return false;
        }
        if owner.waiting > 0 {
            state.log.push((owner.epoch, Record::Native(owner.memory.cut(owner.waiting))));
            state.owner_mut(who).waiting = 0;
        }
        state.log.extend(batch.iter().map(|record| (owner.epoch, *record)));
        let synced = how != Append::Buffered && self.rules.synced;
        if synced {
            state.durable = state.length();
        }
        let length = state.length();
        let owner = state.owner_mut(who);
        owner.wrote_fenced |= fenced;
        owner.compared = false;
        owner.seen = length;
        true
    }

    /// Runs a tool.
    pub(super) fn run(&self, state: &mut State, who: Who, call: Call) {
        self.act(state, who, Record::Intent(call));
        match call.tool {
            // Saturating where it no longer tells anything.
            Tool::Safe => state.world.safe_runs = (state.world.safe_runs + 1).min(2),
            Tool::Never => state.world.never_runs = (state.world.never_runs + 1).min(2),
        }
    }

    /// Sends a request to the model, which sees the history.
    pub(super) fn send(&self, state: &mut State, who: Who, place: Place, key: u8) {
        self.act(state, who, Record::Request { place, key });
        let held = state.view(state.durable).holds(Record::Hold { key });
        let seen = state.owner(who).memory;
        let world = &mut state.world;
        world.acted_before_disk |= !held;
        if world.take == 0 {
            world.take = seen.take;
        }
        world.saw_two_takes |= seen.copies > 0 && world.take != seen.take;
        world.saw_two_copies |= seen.copies > 1;
        world.saw_no_prompt |= seen.copies == 0;
    }

    fn act(&self, state: &mut State, who: Who, intent: Record) {
        let owner = *state.owner(who);
        state.world.acted_before_disk |= !state.view(state.durable).holds(intent);
        state.world.acted_after_fence |= owner.epoch != state.epoch;
        state.world.acted_after_refusal |= owner.epoch != state.epoch && owner.wrote_fenced;
    }
}
