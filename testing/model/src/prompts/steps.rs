//! The steps of an owner, of its harness, and of who asks things of both.

use stateright::{Model, Property};

use super::table::{Decision, Placed};
use super::{Action, Doing, From, Job, Native, Prompts, Record, State, Words, World};

impl Model for Prompts {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            log: vec![Record::Submission(From::Node)],
            epoch: 0,
            doing: Doing::Down,
            job: Job::Run,
            home: Vec::new(),
            world: World::default(),
            messages: 0,
            kills: self.kills,
            settles: self.settles,
            asks: self.asks,
            said: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.said {
            actions.push(Action::Say);
        }
        if state.doing == Doing::Down {
            let waits = state.open_turn().is_some() || state.follow_up_open() || !self.waiting(state).is_empty();
            if waits {
                actions.push(Action::Open(Job::Run));
            }
            if state.settles > 0 && state.epoch > 0 {
                actions.push(Action::Open(Job::Settle));
            }
            if state.asks > 0 && state.answered() && state.open_turn().is_none_or(|open| open.carries.follow_up) {
                actions.push(Action::Open(Job::FollowUp));
            }
            return;
        }
        actions.push(Action::Step);
        match state.doing {
            Doing::Turn { message, given, asked } => {
                match state.home_of(message) {
                    Native::Nothing if given => actions.push(Action::Take),
                    Native::Took if asked => actions.push(Action::End),
                    Native::Nothing | Native::Took => actions.push(Action::Ask),
                    Native::Ended => {}
                }
                if state.recorded(message) < state.home_of(message) {
                    actions.push(Action::Mirror);
                }
                if state.home_of(message) == Native::Nothing && state.home_of(message - 1) == Native::Took {
                    actions.push(Action::TakeUp);
                }
            }
            // It takes and asks while the owner has yet to write.
            Doing::Unplaced { .. } => actions.push(Action::Ask),
            Doing::Down | Doing::Deciding | Doing::Giving(_) | Doing::Unsettled(_) => {}
        }
        if state.kills > 0 {
            actions.push(Action::Kill);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Open(job) => state.open(job),
            Action::Step => self.step(&mut state),
            Action::Say => {
                state.said = true;
                state.log.push(Record::Submission(From::Person));
            }
            Action::Take => state.set_home(Native::Took),
            Action::End => state.set_home(Native::Ended),
            Action::TakeUp => state.world.took_up_an_ended_turn = true,
            Action::Ask => self.ask(&mut state),
            Action::Mirror => state.mirror(),
            Action::Kill => {
                state.kills -= 1;
                state.down();
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties::all()
    }
}

impl State {
    pub(super) fn home_of(&self, message: u8) -> Native {
        let at = usize::from(message).checked_sub(1);
        at.and_then(|at| self.home.get(at)).copied().unwrap_or_default()
    }

    /// Sets how far the message of the turn that runs got.
    fn set_home(&mut self, says: Native) {
        if let Doing::Turn { message, .. } = self.doing {
            self.put(message, says);
        }
    }

    fn put(&mut self, message: u8, says: Native) {
        let length = usize::from(message);
        if self.home.len() < length {
            self.home.resize(length, Native::Nothing);
        }
        if let Some(known) = self.home.get_mut(length - 1) {
            *known = says;
        }
    }

    /// The home is made from the records.
    fn open(&mut self, job: Job) {
        match job {
            Job::Run => {}
            Job::Settle => self.settles -= 1,
            Job::FollowUp => self.asks -= 1,
        }
        self.epoch += 1;
        self.job = job;
        self.doing = Doing::Deciding;
        self.home = (1..=self.messages).map(|message| self.recorded(message)).collect();
    }

    fn down(&mut self) {
        self.doing = Doing::Down;
        self.job = Job::Run;
        self.home = Vec::new();
    }

    fn mirror(&mut self) {
        if let Doing::Turn { message, .. } = self.doing {
            let says = self.home_of(message);
            if self.recorded(message) < says {
                self.log.push(Record::Native { message, says });
            }
        }
    }
}

impl Prompts {
    /// A paid request: the model reads all that the history holds.
    fn ask(&self, state: &mut State) {
        let (message, carries) = match state.doing {
            Doing::Unplaced { message, carries } => {
                state.put(message, Native::Took);
                (message, carries)
            }
            Doing::Turn { message, given, .. } => {
                state.doing = Doing::Turn { message, given, asked: true };
                let placed = state.placed().find(|placed| placed.message == message);
                let Some(Placed { carries, epoch, .. }) = placed else { return };
                state.world.went_on_with_a_cut_follow_up |= carries.follow_up && epoch < state.epoch;
                (message, carries)
            }
            _ => return,
        };
        if state.home_of(message) == Native::Nothing {
            state.world.asked_without_its_words = true;
            return;
        }
        if self.rules.request_barrier && state.recorded(message) == Native::Nothing {
            state.log.push(Record::Native { message, says: Native::Took });
        }
        for from in carries.each() {
            let [node, person, follow_up] = &mut state.world.by;
            let by = match from {
                From::Node => node,
                From::Person => person,
                From::FollowUp => follow_up,
            };
            state.world.told_twice |= *by != 0 && *by != message;
            if *by == 0 {
                *by = message;
            }
        }
    }

    fn step(&self, state: &mut State) {
        match state.doing {
            Doing::Down => {}
            Doing::Deciding => self.decided(state),
            Doing::Unplaced { message, carries } => {
                state.log.push(Record::Placed { message, carries, epoch: state.epoch });
                let asked = state.home_of(message) != Native::Nothing;
                state.doing = Doing::Turn { message, given: true, asked };
            }
            Doing::Giving(message) => state.doing = Doing::Turn { message, given: true, asked: false },
            Doing::Unsettled(unsent) => {
                state.log.extend([Record::Withdrawn(From::FollowUp), Record::Settled { unsent }]);
                state.doing = Doing::Deciding;
            }
            Doing::Turn { message, .. } => {
                // The harness is idle and the records show it: the turn is over, and with it a follow-up.
                if state.recorded(message) == Native::Ended {
                    state.log.push(Record::TurnEnd);
                    if state.job == Job::FollowUp {
                        state.log.push(Record::FollowUpOutcome);
                        state.down();
                    } else {
                        state.doing = Doing::Deciding;
                    }
                }
            }
        }
    }

    fn decided(&self, state: &mut State) {
        let decision = match state.job {
            Job::Run => self.decide(state),
            Job::Settle => self.settle(state),
            Job::FollowUp if state.follow_up_open() && state.begun() == Some(state.epoch) => {
                // Its prompt, behind what waits.
                Decision::Place(Words { follow_up: true, ..self.waiting(state) })
            }
            Job::FollowUp => match self.settle(state) {
                Decision::Idle => return self.begin_follow_up(state),
                settle => settle,
            },
        };
        match decision {
            Decision::Write(records) => state.log.extend(records),
            Decision::EndFollowUp(unsent) => {
                state.log.push(Record::FollowUpOutcome);
                state.doing = Doing::Unsettled(unsent);
            }
            Decision::EndInHistory(message) => {
                state.put(message, Native::Ended);
                state.log.push(Record::Native { message, says: Native::Ended });
            }
            Decision::Continue(message) => state.doing = Doing::Turn { message, given: false, asked: false },
            Decision::PlaceAgain(message) => state.doing = Doing::Giving(message),
            Decision::Place(carries) => {
                state.messages += 1;
                let message = state.messages;
                if self.rules.placed_first {
                    state.log.push(Record::Placed { message, carries, epoch: state.epoch });
                    state.doing = Doing::Giving(message);
                } else {
                    state.doing = Doing::Unplaced { message, carries };
                }
            }
            Decision::Idle => state.down(),
        }
    }

    fn begin_follow_up(&self, state: &mut State) {
        let known = state.begun().is_some();
        if (known && self.rules.asked_once) || !state.answered() {
            state.down();
        } else {
            state.log.push(Record::FollowUpIntent { epoch: state.epoch });
            if !known {
                state.log.push(Record::Submission(From::FollowUp));
            }
        }
    }
}
