//! The steps of calls: a permit, an intent, a run, an outcome, each apart, and what cuts them.

use stateright::{Model, Property};

use super::{Action, Call, Calls, Doing, End, State, Tool, World};

/// Opens at which a safe call is no longer run again.
const SAFE_OPENS: u8 = 3;

impl Model for Calls {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            alive: true,
            draining: false,
            attempt: 1,
            calls: Vec::new(),
            delivered: false,
            world: World::default(),
            kills: self.kills,
            stops: self.stops,
            cuts: self.cuts,
            twice: self.twice,
            repeats: self.repeats,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (place, call) in (0_u8..).zip(&state.calls) {
            // What no process has any more may still end.
            if call.orphan || call.doing == Doing::Running {
                actions.push(Action::Return(place));
            }
            match call.doing {
                Doing::Waiting if self.permitted(state, call.tool) => actions.push(Action::Begin(place)),
                Doing::Begun => actions.push(Action::Run(place)),
                Doing::Ran => actions.push(Action::Record(place)),
                Doing::Running if state.cuts > 0 && call.end.is_none() => actions.push(Action::Cut(place)),
                _ => {}
            }
            if state.twice > 0 && call.doing == Doing::Running {
                actions.push(Action::Twice(place));
            }
        }
        if state.delivered {
            return;
        }
        if state.attempt < self.attempts && !state.calls.iter().any(|call| call.doing != Doing::Rest) {
            actions.push(Action::Attempt);
        }
        if !state.alive {
            actions.push(Action::Open);
            return;
        }
        if !state.draining {
            actions.extend(state.asks());
            if state.stops > 0 {
                actions.push(Action::Stop);
            }
        } else {
            actions.push(Action::Deadline);
        }
        if state.kills > 0 {
            actions.push(Action::Kill);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        (state.world.answered_from_a_receipt, state.world.joined) = (false, false);
        match action {
            Action::Open => self.open(&mut state),
            Action::AskBoth => {
                self.ask(&mut state, Tool::Never);
                self.ask(&mut state, Tool::Safe);
            }
            Action::Ask(tool) => {
                state.repeats -= u8::from(tool != Tool::Submit);
                self.ask(&mut state, tool);
            }
            Action::Begin(place) => self.begin(&mut state, place),
            Action::Run(place) => self.run(&mut state, place),
            Action::Return(place) => {
                let call = state.call_mut(place)?;
                if call.doing == Doing::Running {
                    call.ran = true;
                    call.doing = if call.end.is_none() { Doing::Ran } else { Doing::Rest };
                } else {
                    call.orphan = false;
                }
            }
            Action::Record(place) => {
                let call = state.call_mut(place)?;
                (call.end, call.answered, call.doing) = (Some(End::Ok), true, Doing::Rest);
                if call.tool == Tool::Submit {
                    state.delivered = true;
                    state.world.ran_beside_submit |= state.calls.iter().any(|call| call.open(state.attempt));
                }
            }
            Action::Cut(place) => {
                state.cuts -= 1;
                let interrupted = self.rules.cut_is_interrupted;
                let call = state.call_mut(place)?;
                let end = if call.tool == Tool::Never && interrupted { End::Interrupted } else { End::Error };
                (call.end, call.answered, call.doing) = (Some(end), true, Doing::Rest);
            }
            Action::Twice(place) => {
                state.twice -= 1;
                let never = state.call_mut(place)?.tool == Tool::Never;
                if self.rules.joined {
                    state.world.joined = true;
                } else {
                    state.world.one_ran_twice_at_once = true;
                    state.world.never_runs += u8::from(never);
                }
            }
            Action::Stop => {
                state.stops -= 1;
                state.draining = true;
            }
            Action::Deadline if self.rules.deadline_writes_nothing => {
                // What runs is ended with the process, and is called so by who comes next.
                state.down(false);
            }
            Action::Deadline => {
                for call in state.calls.iter_mut().filter(|call| call.doing == Doing::Running) {
                    call.end = Some(End::Interrupted);
                }
            }
            Action::Kill => {
                state.kills -= 1;
                state.down(true);
            }
            Action::Attempt => {
                state.attempt += 1;
                (state.alive, state.draining) = (true, false);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties::all()
    }
}

impl Call {
    /// Whether it has an intent and no outcome, in `attempt`.
    pub(super) const fn open(&self, attempt: u8) -> bool {
        self.attempt == attempt && self.intent && self.end.is_none()
    }
    const fn held(&self) -> bool {
        matches!(self.doing, Doing::Begun | Doing::Running | Doing::Ran)
    }
}

impl State {
    fn call_mut(&mut self, place: u8) -> Option<&mut Call> {
        self.calls.get_mut(usize::from(place))
    }

    fn of_attempt(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.attempt == self.attempt)
    }

    /// What the model may ask for next.
    fn asks(&self) -> Vec<Action> {
        if self.of_attempt().next().is_none() {
            return vec![Action::AskBoth];
        }
        let mut asks = Vec::new();
        if !self.of_attempt().any(|call| call.tool == Tool::Submit && !call.answered) {
            asks.push(Action::Ask(Tool::Submit));
        }
        if self.repeats > 0 && self.of_attempt().all(|call| call.answered) {
            let last = self.of_attempt().filter(|call| call.tool == Tool::Never).last();
            if last.is_some_and(|call| call.end != Some(End::Ok)) {
                asks.push(Action::Ask(Tool::Never));
            }
            asks.push(Action::Ask(Tool::Safe));
        }
        asks
    }

    fn down(&mut self, leaves_running: bool) {
        (self.alive, self.draining) = (false, false);
        for call in &mut self.calls {
            call.orphan |= leaves_running && call.doing == Doing::Running;
            call.ran &= call.end.is_some();
            call.doing = Doing::Rest;
        }
    }
}

impl Calls {
    /// Whether a call of `tool` may have its permit now.
    fn permitted(&self, state: &State, tool: Tool) -> bool {
        let beside = |call: &Call| call.held() && (tool == Tool::Submit || call.tool == Tool::Submit);
        let stopped = state.draining && self.rules.stop_withholds;
        let waits = self.rules.exclusive && state.calls.iter().any(beside);
        !stopped && !waits
    }

    fn ask(&self, state: &mut State, tool: Tool) {
        state.calls.push(Call {
            tool,
            attempt: state.attempt,
            doing: Doing::Waiting,
            permit: false,
            intent: !self.rules.intent_after_permit,
            end: None,
            ran: false,
            orphan: false,
            opens: 0,
            answered: false,
        });
    }

    fn begin(&self, state: &mut State, place: u8) {
        let Some(call) = state.calls.get(usize::from(place)).copied() else { return };
        let known = self.known(state, place, call);
        let (draining, delivered) = (state.draining, state.delivered);
        let Some(call) = state.call_mut(place) else { return };
        if delivered {
            // Told so, and nothing is written.
            (call.answered, call.doing) = (true, Doing::Rest);
            return;
        }
        (call.permit, call.intent) = (true, true);
        if let Some(end) = known {
            (call.end, call.answered, call.doing) = (Some(end), true, Doing::Rest);
            state.world.answered_from_a_receipt |= end == End::Ok;
            state.world.told_of_another_call |= call_is_new(place, state);
        } else {
            call.doing = Doing::Begun;
            state.world.began_after_stop |= draining;
        }
    }

    /// What the records say of a call before it runs.
    fn known(&self, state: &State, place: u8, call: Call) -> Option<End> {
        let before = state.calls.get(..usize::from(place)).unwrap_or_default();
        if !self.rules.keys_have_ordinals {
            let same = before.iter().rev().find(|old| old.tool == call.tool && old.attempt == call.attempt);
            if let Some(end) = same.and_then(|old| old.end) {
                return Some(end);
            }
        }
        if call.tool != Tool::Never {
            return None;
        }
        let counts = |old: &&Call| {
            let refused = old.end == Some(End::Refused) && self.rules.refusal_hides_nothing;
            old.tool == Tool::Never && old.intent && !refused
        };
        let receipt =
            |earlier: bool| before.iter().rev().filter(counts).find(|old| (old.attempt < call.attempt) == earlier);
        let of_earlier = receipt(true).filter(|_| self.rules.receipts_kept);
        if of_earlier.is_some_and(|old| old.end == Some(End::Ok)) {
            return Some(End::Ok);
        }
        let in_doubt = |old: &&Call| old.end.is_none() || old.end == Some(End::Interrupted);
        let repeated = receipt(false).filter(in_doubt).or_else(|| of_earlier.filter(in_doubt)).is_some();
        (repeated && self.rules.repeat_refused).then_some(End::Refused)
    }

    fn run(&self, state: &mut State, place: u8) {
        let submit = |call: &Call| call.tool == Tool::Submit;
        let Some(call) = state.call_mut(place) else { return };
        call.doing = Doing::Running;
        let call = *call;
        match call.tool {
            Tool::Never => state.world.never_runs += 1,
            Tool::Safe => state.world.safe_ran_too_often |= call.opens >= SAFE_OPENS,
            Tool::Submit => {}
        }
        let held = state.calls.iter().filter(|call| call.held()).count();
        state.world.ran_beside_submit |= held > 1 && state.calls.iter().any(|call| call.held() && submit(call));
    }

    /// Takes the session and decides what is open; what was asked and never began is begun as new.
    fn open(&self, state: &mut State) {
        state.alive = true;
        let attempt = state.attempt;
        for call in state.calls.iter_mut().filter(|call| call.attempt == attempt) {
            call.orphan &= !self.rules.swept_first;
            if call.open(attempt) {
                call.opens += 1;
                if call.tool == Tool::Safe && (call.opens < SAFE_OPENS || !self.rules.safe_ends) {
                    call.doing = Doing::Begun;
                } else {
                    (call.end, call.answered) = (Some(End::Interrupted), true);
                    state.world.told_interrupted_while_it_ran |= call.orphan;
                }
            } else if !call.answered && !call.intent {
                call.doing = Doing::Waiting;
            }
        }
    }
}

/// Whether the model asked for this call anew in its own attempt, and is told of an earlier one that did not forbid it.
fn call_is_new(place: u8, state: &State) -> bool {
    let at = usize::from(place);
    let (before, call) = (state.calls.get(..at).unwrap_or_default(), state.calls.get(at));
    call.is_some_and(|call| {
        call.tool != Tool::Never && before.iter().any(|old| old.tool == call.tool && old.attempt == call.attempt)
    })
}
