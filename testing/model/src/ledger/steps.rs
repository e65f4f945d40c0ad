//! The steps: a process folds, decides on what it folded, holds, sends and books, each in a step of its own.

use stateright::{Model, Property};

use super::{
    Action, DOWN, Doing, Ledger, Note, Process, QUOTE, RAISED, Record, Rules, State, WANTED, Which, Who, World,
};

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch_a: 0,
            epoch_b: 0,
            parked_a: false,
            parked_b: false,
            writer: 0,
            ledger: Vec::new(),
            first: DOWN,
            second: DOWN,
            world: World::default(),
            opens: self.opens,
            kills: self.kills,
            raises: self.raises,
            withheld: self.withheld,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for who in [Who::First, Who::Second] {
            let doing = state.process(who).doing;
            if doing != Doing::Down {
                actions.push(Action::Step(who));
                if state.kills > 0 {
                    actions.push(Action::Kill(who));
                }
                if state.withheld > 0 && matches!(doing, Doing::Sending(_)) {
                    actions.push(Action::Withhold(who));
                }
            } else if state.epoch_a + state.epoch_b == 0 {
                // The processes are alike and so are the sessions: that the one takes the one first loses nothing.
                if who == Who::First && state.opens > 0 {
                    actions.push(Action::Open(who, Which::A));
                }
            } else if state.opens > 0 {
                actions.extend([Which::A, Which::B].map(|session| Action::Open(who, session)));
            }
        }
        if state.raises > 0 && (state.parked_a || state.parked_b) {
            actions.push(Action::Raise);
        }
        if !self.rules.ended_by_owner {
            actions.extend([Which::A, Which::B].map(Action::Free));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.world.noted = None;
        match action {
            Action::Open(who, session) => {
                state.opens -= 1;
                match session {
                    Which::A => state.epoch_a += 1,
                    Which::B => state.epoch_b += 1,
                }
                if !self.rules.many_writers {
                    state.writer += 1;
                }
                let (epoch, writer) = (state.epoch(session), state.writer);
                *state.process_mut(who) = Process { doing: Doing::Folding, session, epoch, writer, ..DOWN };
            }
            Action::Step(who) => self.step(&mut state, who),
            Action::Withhold(who) => {
                state.withheld -= 1;
                let process = state.process(who);
                if let Doing::Sending(id) = process.doing {
                    self.end(&mut state, who, Record::Release { id, session: process.session });
                }
            }
            Action::Kill(who) => {
                state.kills -= 1;
                *state.process_mut(who) = DOWN;
            }
            Action::Raise => {
                state.raises -= 1;
                // The same raise again is on record already; without an id nobody can tell.
                if !self.rules.raise_by_id || self.cap(&state.ledger) < RAISED {
                    state.ledger.push(Record::Raise);
                }
            }
            Action::Free(session) => {
                let id = state.open_hold(session)?;
                state.ledger.push(Record::Release { id, session });
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties::all()
    }
}

impl Ledger {
    fn step(&self, state: &mut State, who: Who) {
        let process = state.process(who);
        match process.doing {
            Doing::Down => {}
            Doing::Folding => {
                let folded = state.length();
                *state.process_mut(who) = Process { doing: Doing::Deciding, folded, ..process };
            }
            Doing::Deciding => self.decide(state, who, process),
            Doing::Sending(id) => {
                let held = Record::Hold { id, session: process.session, epoch: process.epoch };
                let fenced = process.epoch != state.epoch(process.session);
                state.world.sent += 1;
                state.world.sent_without_hold |= !state.ledger.contains(&held);
                state.world.acted_after_refusal |= fenced && process.wrote_fenced;
                state.process_mut(who).doing = Doing::Sent(id);
            }
            Doing::Sent(id) => {
                // One that owns the other session, and did not come before this one.
                let other = state.process(if who == Who::First { Who::Second } else { Who::First });
                let beside = other.doing != Doing::Down && other.session != process.session;
                let landed = self.end(state, who, Record::Booking { id, session: process.session });
                if landed && beside && process.writer <= other.writer {
                    state.world.noted = Some(Note::BookedBeside);
                }
            }
        }
    }

    /// Ends a hold. True whatever the ledger holds by now: on a conflict the tail is folded and the same is written again.
    fn end(&self, state: &mut State, who: Who, record: Record) -> bool {
        let process = state.process(who);
        let fenced = process.epoch != state.epoch(process.session);
        let refused = (fenced && self.rules.booking_fenced) || process.writer != state.writer;
        if refused {
            *state.process_mut(who) = DOWN;
            return false;
        }
        state.ledger.push(record);
        let wrote_fenced = process.wrote_fenced || fenced;
        *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, wrote_fenced, ..process };
        true
    }

    fn decide(&self, state: &mut State, who: Who, process: Process) {
        let own = process.session;
        let fenced = process.epoch != state.epoch(own);
        let seen = state.ledger.get(..usize::from(process.folded)).unwrap_or(&state.ledger);
        let room = Self::counted(self.rules, seen, own) + QUOTE <= self.cap(seen);
        if let Some(id) = state.open_hold(own) {
            if fenced || process.writer != state.writer {
                *state.process_mut(who) = DOWN;
            } else {
                state.ledger.push(Record::Unknown { id, session: own });
                *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, ..process };
            }
        } else if state.booked(own) >= WANTED || (*state.parked_mut(own) && !self.rules.parked_asks_again) {
            *state.process_mut(who) = DOWN;
        } else if !room {
            // Parked under its epoch: nothing is sent, and the next owner asks the gate again.
            if !fenced {
                *state.parked_mut(own) = true;
            }
            *state.process_mut(who) = DOWN;
        } else if (fenced && self.rules.hold_fenced) || process.writer != state.writer {
            *state.process_mut(who) = DOWN;
        } else if self.rules.at_the_folded_end && process.folded != state.length() {
            state.world.noted = Some(Note::Conflict);
            *state.process_mut(who) = Process { doing: Doing::Folding, folded: 0, ..process };
        } else {
            let id = state.length();
            state.ledger.push(Record::Hold { id, session: own, epoch: process.epoch });
            if std::mem::take(state.parked_mut(own)) {
                state.world.noted = Some(Note::WentOn);
            }
            state.world.over_cap |= Self::counted(Rules::whole(), &state.ledger, own) > self.cap(&state.ledger);
            let wrote_fenced = process.wrote_fenced || fenced;
            *state.process_mut(who) = Process { doing: Doing::Sending(id), folded: 0, wrote_fenced, ..process };
        }
    }
}
