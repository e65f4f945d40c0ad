//! The store as one value: what each call may answer, and what it leaves. A history is right when its calls can be put in one order, each
//! somewhere between its call and its return, in which this value gives every answer that was seen.

/// A call, by what decides its answer. `open` in an append is the number of the event whose writer it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Open { session: usize, expected: Option<u64> },
    Append { session: usize, open: usize, values: Vec<u32>, also: Option<(u64, u32)> },
    AppendAt { expected: u64, value: u32 },
    ReadSession { session: usize },
    ReadShared,
}

/// What it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Opened {
        epoch: u64,
        last: u64,
    },
    HeadChanged {
        found: u64,
    },
    Landed {
        seq: u64,
    },
    Fenced {
        newer: u64,
    },
    Conflict {
        found: u64,
    },
    Session {
        epoch: u64,
        seq: u64,
        records: Vec<(u64, u32)>,
    },
    Shared {
        seq: u64,
        records: Vec<u32>,
    },
    /// Nobody waited for it: it may have happened at any time since, or never.
    Unheard,
}

/// One call of a history, with the instants around it.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) client: usize,
    pub(super) call: Call,
    pub(super) answer: Answer,
    pub(super) called: u64,
    /// `u64::MAX` when nobody waited.
    pub(super) returned: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    epoch: u64,
    /// The event that opened it last.
    owner: Option<usize>,
    records: Vec<(u64, u32)>,
}

/// The logs of one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Value {
    sessions: [Session; super::SESSIONS],
    shared: Vec<u32>,
}

impl Value {
    /// The value after event number `at`, if it may answer that here.
    pub(super) fn after(&self, at: usize, event: &Event) -> Option<Self> {
        let mut next = self.clone();
        let due = next.answer(at, &event.call)?;
        (event.answer == Answer::Unheard || event.answer == due).then_some(next)
    }

    fn answer(&mut self, at: usize, call: &Call) -> Option<Answer> {
        Some(match call {
            Call::Open { session, expected } => {
                let session = self.sessions.get_mut(*session)?;
                let last = session.records.len() as u64;
                if expected.is_some_and(|expected| expected != last) {
                    return Some(Answer::HeadChanged { found: last });
                }
                session.epoch += 1;
                session.owner = Some(at);
                Answer::Opened { epoch: session.epoch, last }
            }
            Call::Append { session, open, values, also } => {
                let session = self.sessions.get_mut(*session)?;
                if session.owner != Some(*open) {
                    return Some(Answer::Fenced { newer: session.epoch });
                }
                if let Some((expected, value)) = also {
                    let found = self.shared.len() as u64;
                    if found != *expected {
                        return Some(Answer::Conflict { found });
                    }
                    self.shared.push(*value);
                }
                session.records.extend(values.iter().map(|value| (session.epoch, *value)));
                Answer::Landed { seq: session.records.len() as u64 }
            }
            Call::AppendAt { expected, value } => {
                let found = self.shared.len() as u64;
                if found != *expected {
                    return Some(Answer::Conflict { found });
                }
                self.shared.push(*value);
                Answer::Landed { seq: found + 1 }
            }
            Call::ReadSession { session } => {
                let session = self.sessions.get(*session)?;
                let seq = session.records.len() as u64;
                Answer::Session { epoch: session.epoch, seq, records: session.records.clone() }
            }
            Call::ReadShared => Answer::Shared { seq: self.shared.len() as u64, records: self.shared.clone() },
        })
    }
}
