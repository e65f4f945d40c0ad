//! The steps: an owner decides by one ordered table over what it has folded, live and at resume alike; it is taken over, killed, or loses
//! its power between any two.

use stateright::{Model, Property};

use super::store::{Append, DOWN};
use super::{Action, Call, Doing, History, Owner, Place, Record, Session, State, Tool, Who};

impl Model for Session {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch: 0,
            log: Vec::new(),
            durable: 0,
            first: DOWN,
            second: DOWN,
            world: super::World::default(),
            leftover: History::default(),
            keys: 0,
            takes: 0,
            opens: self.opens,
            kills: self.kills,
            power_cuts: self.power_cuts,
            drops: self.drops,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for who in [Who::First, Who::Second] {
            let owner = state.owner(who);
            match owner.doing {
                // The two are alike: that the first opens first loses nothing.
                Doing::Down if state.opens > 0 && (who == Who::First || state.epoch > 0) => {
                    actions.push(Action::Open(who));
                }
                Doing::Down | Doing::Done => {}
                _ => {
                    actions.push(Action::Step(who));
                    if state.drops > 0 {
                        actions.push(Action::StepDropped(who));
                    }
                    if owner.file < owner.memory.level {
                        actions.push(Action::Flush(who));
                    }
                    if owner.mirrored < owner.file {
                        actions.push(Action::Mirror(who));
                    }
                    if state.kills > 0 {
                        actions.push(Action::Kill(who));
                    }
                }
            }
        }
        if state.power_cuts > 0 && state.epoch > 0 {
            actions.push(Action::PowerCut);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.world.acted_after_fence = false;
        match action {
            Action::Open(who) => self.open(&mut state, who),
            Action::Step(who) => self.step(&mut state, who),
            Action::StepDropped(who) => {
                self.step(&mut state, who);
                if state.log.len() == last.log.len() {
                    return None;
                }
                state.drops -= 1;
                // It landed; the caller goes on from what it knew before.
                *state.owner_mut(who) = *last.owner(who);
            }
            Action::Flush(who) => {
                let owner = state.owner_mut(who);
                owner.file = owner.memory.level;
                if !self.rules.home_from_records {
                    state.leftover = state.owner(who).memory;
                }
            }
            Action::Mirror(who) => {
                let owner = *state.owner(who);
                if !self.rules.handed_over {
                    *state.owner_mut(who) = Owner { mirrored: owner.file, waiting: owner.file, ..owner };
                } else if self.append(
                    &mut state,
                    who,
                    Append::Buffered,
                    &[Record::Native(owner.memory.cut(owner.file))],
                ) {
                    state.owner_mut(who).mirrored = owner.file;
                }
            }
            Action::Kill(who) => {
                state.kills -= 1;
                *state.owner_mut(who) = DOWN;
            }
            Action::PowerCut => {
                state.power_cuts -= 1;
                state.log.truncate(usize::from(state.durable));
                (state.first, state.second) = (DOWN, DOWN);
                state.leftover = History::default();
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties::all()
    }
}

impl Session {
    /// Takes the session: a synced write, so that all before it is durable too. The harness's home is built from the records.
    fn open(&self, state: &mut State, who: Who) {
        state.opens -= 1;
        state.epoch += 1;
        state.durable = state.length();
        let view = state.view(state.durable);
        let recorded = view.history();
        // A leftover that is behind the records is not one to start on.
        let leftover = !self.rules.home_from_records && state.leftover.level > recorded.level;
        let memory = if leftover { state.leftover } else { recorded };
        let doing = if !self.rules.read_back && view.holds(Record::Placed) { Doing::Giving } else { Doing::Deciding };
        let (epoch, seen) = (state.epoch, state.durable);
        let (file, mirrored) = (memory.level, recorded.level);
        *state.owner_mut(who) = Owner { doing, epoch, seen, memory, file, mirrored, ..DOWN };
    }

    fn step(&self, state: &mut State, who: Who) {
        let owner = *state.owner(who);
        let writes = matches!(owner.doing, Doing::Deciding | Doing::Replied(..) | Doing::Ran(_));
        if writes && self.rules.fence && !self.rules.fence_in_append && !owner.compared {
            let fenced = owner.epoch != state.epoch;
            *state.owner_mut(who) = if fenced { DOWN } else { Owner { compared: true, ..owner } };
            return;
        }
        match owner.doing {
            Doing::Down | Doing::Done => {}
            Doing::Deciding => self.decide(state, who),
            Doing::Giving => {
                state.takes += 1;
                let take = state.takes;
                let owner = state.owner_mut(who);
                match owner.memory.level {
                    0 => owner.memory = History { level: 1, take, copies: 1, reply: 0 },
                    _ => owner.memory.copies += 1,
                }
                owner.doing = Doing::Deciding;
            }
            Doing::Unheld(place, key) => {
                let hold = [Record::Hold { key }];
                self.write(state, who, Append::LedgerAlone, &hold, Doing::Sending(place, key));
            }
            Doing::Sending(place, key) => {
                self.send(state, who, place, key);
                state.owner_mut(who).doing = Doing::Replied(place, key);
            }
            Doing::Replied(place, key) => {
                let booking = Record::Booking { place, key };
                if self.rules.booking_with_response {
                    let response = Record::Response { place, key, take: owner.memory.take };
                    if self.write(state, who, Append::Session, &[response, booking], Doing::Deciding) {
                        reply(state.owner_mut(who), place, key);
                    }
                } else {
                    self.write(state, who, Append::LedgerAlone, &[booking], Doing::Unrecorded(place, key));
                }
            }
            Doing::Unrecorded(place, key) => {
                let response = Record::Response { place, key, take: owner.memory.take };
                if self.write(state, who, Append::Session, &[response], Doing::Deciding) {
                    reply(state.owner_mut(who), place, key);
                }
            }
            Doing::Running(call) => {
                self.run(state, who, call);
                state.owner_mut(who).doing = Doing::Ran(call);
            }
            Doing::Ran(call) => {
                self.write(state, who, Append::Session, &[Record::Outcome(call, true)], Doing::Deciding);
            }
        }
    }

    /// The ordered table: the first row that holds.
    fn decide(&self, state: &mut State, who: Who) {
        let owner = *state.owner(who);
        let view = state.view(owner.seen);
        if view.holds(Record::Delivered) {
            *state.owner_mut(who) = Owner { doing: Doing::Done, ..DOWN };
        } else if let Some(key) = view.open_request() {
            let mut batch = vec![Record::Lost { key }];
            if view.open_hold(key) {
                batch.push(Record::Unknown { key });
            }
            self.write(state, who, Append::Session, &batch, Doing::Deciding);
        } else if let Some(call) = view.open_call() {
            if call.tool == Tool::Never && self.rules.never_interrupted {
                self.write(state, who, Append::Session, &[Record::Outcome(call, false)], Doing::Deciding);
            } else {
                state.owner_mut(who).doing = Doing::Running(call);
            }
        } else {
            match owner.memory.level {
                0 => self.place(state, who),
                1 => self.request(state, who, Place::First),
                2 => self.call(state, who, Tool::Safe),
                3 => self.call(state, who, Tool::Never),
                4 => self.request(state, who, Place::Second),
                _ => {
                    self.write(state, who, Append::Session, &[Record::Delivered], Doing::Done);
                }
            }
        }
    }

    fn place(&self, state: &mut State, who: Who) {
        if !state.view(state.owner(who).seen).holds(Record::Placed) {
            self.write(state, who, Append::Session, &[Record::Placed], Doing::Giving);
        } else if self.rules.taken_by_history {
            state.owner_mut(who).doing = Doing::Giving;
        } else {
            state.owner_mut(who).memory.level = 1;
        }
    }

    fn request(&self, state: &mut State, who: Who, place: Place) {
        let owner = *state.owner(who);
        if self.rules.responses_restored
            && let Some(key) = state.view(owner.seen).response(place, owner.memory.take)
        {
            let owner = state.owner_mut(who);
            reply(owner, place, key);
            owner.file = owner.memory.level;
            return;
        }
        let needs = if self.rules.request_barrier { owner.memory.level } else { 0 };
        let Some(mut batch) = explained(&owner, needs) else { return };
        state.keys += 1;
        let key = state.keys;
        batch.push(Record::Request { place, key });
        let next = if self.rules.hold_with_intent {
            batch.push(Record::Hold { key });
            Doing::Sending(place, key)
        } else {
            Doing::Unheld(place, key)
        };
        self.write_explained(state, who, &batch, next);
    }

    fn call(&self, state: &mut State, who: Who, tool: Tool) {
        let owner = *state.owner(who);
        let call = Call { reply: owner.memory.reply, tool };
        if state.view(owner.seen).ended(call) {
            state.owner_mut(who).memory.level += 1;
            return;
        }
        let Some(mut batch) = explained(&owner, if self.rules.tool_barrier { 2 } else { 0 }) else { return };
        batch.push(Record::Intent(call));
        self.write_explained(state, who, &batch, Doing::Running(call));
    }

    fn write(&self, state: &mut State, who: Who, how: Append, batch: &[Record], next: Doing) -> bool {
        let landed = self.append(state, who, how, batch);
        if landed {
            state.owner_mut(who).doing = next;
        }
        landed
    }

    fn write_explained(&self, state: &mut State, who: Who, batch: &[Record], next: Doing) {
        let file = state.owner(who).file;
        if self.write(state, who, Append::Session, batch, next)
            && batch.iter().any(|record| matches!(record, Record::Native(_)))
        {
            state.owner_mut(who).mirrored = file;
        }
    }
}

/// The native bytes that go into a decision's own batch: none where the log has them (or nothing is needed), no batch at all while the
/// harness has yet to write them.
fn explained(owner: &Owner, needs: u8) -> Option<Vec<Record>> {
    if owner.file < needs {
        None
    } else if needs > 0 && owner.mirrored < owner.file {
        Some(vec![Record::Native(owner.memory.cut(owner.file))])
    } else {
        Some(Vec::new())
    }
}

/// The harness takes a reply into its history.
fn reply(owner: &mut Owner, place: Place, key: u8) {
    owner.memory.level += 1;
    if place == Place::First {
        owner.memory.reply = key;
    }
}
