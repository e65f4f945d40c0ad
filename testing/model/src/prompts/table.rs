//! What comes next: the ordered table over the records and the harness's history, as the records keep it. One for an owner that runs the
//! node, one for a settle; the first row that holds is taken, recorded, and the table is asked again.

use super::{ALL, From, Native, Prompts, Record, State, Words};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Append these, in one batch.
    Write(Vec<Record>),
    /// The outcome of a cut follow-up alone; its turn is settled after it.
    EndFollowUp(Words),
    /// Make the home show that the message's turn is over.
    EndInHistory(u8),
    /// Go on with the open turn.
    Continue(u8),
    /// The same message again, under its own id.
    PlaceAgain(u8),
    /// A new message.
    Place(Words),
    /// Nothing waits.
    Idle,
}

fn write(record: Record) -> Decision {
    Decision::Write(vec![record])
}

/// A message as it was placed.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) message: u8,
    pub(super) carries: Words,
    pub(super) epoch: u8,
}

impl State {
    pub(super) fn holds(&self, record: Record) -> bool {
        self.log.contains(&record)
    }
    pub(super) fn placed(&self) -> impl Iterator<Item = Placed> {
        self.log.iter().filter_map(|record| match *record {
            Record::Placed { message, carries, epoch } => Some(Placed { message, carries, epoch }),
            _ => None,
        })
    }
    pub(super) fn open_turn(&self) -> Option<Placed> {
        let last = self.placed().last()?;
        let at = |wanted: fn(&Record) -> bool| self.log.iter().rposition(wanted);
        let ended = at(|record| matches!(record, Record::TurnEnd | Record::Settled { .. }));
        (ended < at(|record| matches!(record, Record::Placed { .. }))).then_some(last)
    }
    /// How far a message got, by the recorded history.
    pub(super) fn recorded(&self, of: u8) -> Native {
        let says = self.log.iter().filter_map(|record| match *record {
            Record::Native { message, says } if message == of => Some(says),
            _ => None,
        });
        says.max().unwrap_or_default()
    }
    pub(super) fn accepted(&self, from: From) -> bool {
        self.holds(Record::Submission(from)) && !self.holds(Record::Withdrawn(from))
    }
    pub(super) fn begun(&self) -> Option<u8> {
        self.log.iter().rev().find_map(|record| match record {
            Record::FollowUpIntent { epoch } => Some(*epoch),
            _ => None,
        })
    }
    /// Whether a follow-up was begun and has no outcome.
    pub(super) fn follow_up_open(&self) -> bool {
        let count = |wanted: fn(&Record) -> bool| self.log.iter().filter(|record| wanted(record)).count();
        count(|record| matches!(record, Record::FollowUpIntent { .. }))
            > count(|record| matches!(record, Record::FollowUpOutcome))
    }
    /// Whether the node's last turn ended by itself: only then has the session answered.
    pub(super) fn answered(&self) -> bool {
        let mut answered = false;
        let mut open = Words::default();
        for record in &self.log {
            match record {
                Record::Placed { carries, .. } => open = *carries,
                Record::TurnEnd if !open.follow_up => answered = true,
                Record::Settled { .. } if !open.follow_up => answered = false,
                _ => {}
            }
        }
        answered
    }
}

impl Prompts {
    /// Whether the history that the owner starts from has the message.
    fn taken(&self, state: &State, message: u8) -> bool {
        !self.rules.taken_by_history || state.recorded(message) >= Native::Took
    }

    /// Accepted words that wait for a message: never in one, or in one that was settled without having reached the model.
    pub(super) fn waiting(&self, state: &State) -> Words {
        let waits = |from: &From| {
            let mut carried = state.placed().filter(|placed| placed.carries.has(*from));
            let asked = if self.rules.taken_is_transitive { carried.last() } else { carried.next() };
            state.accepted(*from)
                && match asked {
                    None => true,
                    Some(placed) => {
                        self.rules.unsent_is_carried
                            && !self.taken(state, placed.message)
                            && state.open_turn().is_none_or(|open| !open.carries.has(*from))
                    }
                }
        };
        Words::of(ALL.into_iter().filter(waits))
    }

    /// The table of a run.
    pub(super) fn decide(&self, state: &State) -> Decision {
        let cut = self.cut_follow_up(state).filter(|_| self.rules.follow_up_row_first);
        if let Some(decision) = cut {
            return decision;
        }
        if let Some(open) = state.open_turn() {
            return match state.recorded(open.message) {
                Native::Ended => write(Record::TurnEnd),
                _ if self.taken(state, open.message) => Decision::Continue(open.message),
                _ if self.own_ids => Decision::PlaceAgain(open.message),
                _ => write(Record::Settled { unsent: open.carries }),
            };
        }
        if let Some(message) = self.unrest(state) {
            return Decision::EndInHistory(message);
        }
        let waiting = self.waiting(state);
        if waiting.is_empty() { Decision::Idle } else { Decision::Place(waiting) }
    }

    /// The table of a settle: no row of it gives, places or asks anything.
    pub(super) fn settle(&self, state: &State) -> Decision {
        if let Some(decision) = self.cut_follow_up(state) {
            return decision;
        }
        if let Some(open) = state.open_turn() {
            return match state.recorded(open.message) {
                Native::Ended => write(Record::TurnEnd),
                Native::Took => write(Record::Settled { unsent: Words::default() }),
                Native::Nothing => write(Record::Settled { unsent: open.carries }),
            };
        }
        self.unrest(state).map_or(Decision::Idle, Decision::EndInHistory)
    }

    /// A follow-up of an older epoch is ended as interrupted; its turn, if it had one, with it.
    fn cut_follow_up(&self, state: &State) -> Option<Decision> {
        let outcome = Record::FollowUpOutcome;
        let own = state.open_turn().filter(|open| open.carries.follow_up);
        if let Some(open) = own {
            if open.epoch >= state.epoch {
                return None;
            }
            let lost = state.recorded(open.message) == Native::Nothing;
            let beside = Words { follow_up: false, ..open.carries };
            let unsent = if lost { beside } else { Words::default() };
            if !self.rules.settled_in_one_batch {
                return state.follow_up_open().then_some(Decision::EndFollowUp(unsent));
            }
            let mut batch: Vec<_> = state.follow_up_open().then_some(outcome).into_iter().collect();
            batch.push(Record::Withdrawn(From::FollowUp));
            if !self.rules.withdraws_its_own {
                batch.extend(beside.each().map(Record::Withdrawn));
            }
            batch.push(Record::Settled { unsent });
            return Some(Decision::Write(batch));
        }
        let cut = state.follow_up_open() && state.begun().is_some_and(|epoch| epoch < state.epoch);
        cut.then(|| Decision::Write(vec![outcome, Record::Withdrawn(From::FollowUp)]))
    }

    /// The message whose turn is over in the records and not in the history that a harness would be started on.
    fn unrest(&self, state: &State) -> Option<u8> {
        let last = state.placed().last().filter(|_| self.rules.at_rest && state.open_turn().is_none())?;
        (state.home_of(last.message) == Native::Took).then_some(last.message)
    }
}
