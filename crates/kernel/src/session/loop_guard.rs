//! The loop guard: whether the model goes round in circles. A fold of its own over the session's records, so a resumed session knows what
//! the cut one knew; it only decides, the runner refuses or ends.
//!
//! A call is told by its tool and the digest of its arguments, what came of it by how it ended and the digest of its text. So progress
//! breaks a circle: the same call with another result is not the same step.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::ids::{Digest, EffectKey};
use crate::record::{Body, EffectKind, OutcomeEnd, Record};

/// The longest circle that is looked for, in calls.
const LONGEST: usize = 4;
/// A third occurrence is one too many: of a failure, of a call with its result, of a circle.
const TOO_MANY: usize = 3;
/// Calls that must be remembered: all before the last occurrence of the longest circle.
const WINDOW: usize = LONGEST * (TOO_MANY - 1);

/// A call as the guard tells calls apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    tool: Arc<str>,
    arguments: Digest,
}

/// A call that ran, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ran {
    call: Call,
    end: OutcomeEnd,
    text: Digest,
}

/// What the calls of a session have been, as far as the guard needs it. Its size is bounded but for one counter a call that fails and has
/// never succeeded since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopGuard {
    open: HashMap<EffectKey, Call>,
    /// The newest calls that ran, newest last.
    ran: VecDeque<Ran>,
    /// Calls refused since the newest that ran.
    refused: Vec<Call>,
    /// Ends in a row that were no success, a call.
    failures: HashMap<Call, usize>,
}

/// A circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circle {
    /// The same call has failed this often and never succeeded in between.
    Failing(usize),
    /// The same calls with the same results, again and again; how many calls make one round.
    Round(usize),
}

/// What to do with a call the model asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopVerdict {
    /// It may run.
    Go,
    /// Refuse it and tell the model why: it may not have noticed.
    Note(Circle),
    /// It was told and asks again: the node ends `doom_loop`.
    End(Circle),
}

impl LoopGuard {
    /// The guard of a session with these records.
    #[must_use]
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut guard = Self::default();
        records.into_iter().for_each(|record| guard.apply(record));
        guard
    }

    /// Takes in the next record.
    pub fn apply(&mut self, record: &Record) {
        match &record.body {
            Body::Intent(intent)
                if matches!(intent.effect, EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin) =>
            {
                let call = Call { tool: Arc::from(intent.name.as_str()), arguments: intent.digest.clone() };
                self.open.insert(intent.key.clone(), call);
            }
            Body::Outcome(outcome) => {
                if let Some(call) = self.open.remove(&outcome.key) {
                    self.ended(call, outcome.end, &outcome.text);
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, call: Call, end: OutcomeEnd, text: &str) {
        if end == OutcomeEnd::Ok {
            self.failures.remove(&call);
        } else {
            *self.failures.entry(call.clone()).or_default() += 1;
        }
        if end == OutcomeEnd::Refused {
            self.refused.push(call);
            return;
        }
        self.refused.clear();
        self.ran.push_back(Ran { call, end, text: Digest::of(text.as_bytes()) });
        if self.ran.len() > WINDOW {
            self.ran.pop_front();
        }
    }

    /// What to do with a call of `tool` whose canonical arguments have this digest.
    #[must_use]
    pub fn verdict(&self, tool: &str, arguments: &Digest) -> LoopVerdict {
        let call = Call { tool: Arc::from(tool), arguments: arguments.clone() };
        let failed = self.failures.get(&call).copied().unwrap_or_default();
        if failed >= TOO_MANY {
            // One of them was the refusal that told the model.
            return LoopVerdict::End(Circle::Failing(failed));
        }
        if failed + 1 == TOO_MANY {
            return LoopVerdict::Note(Circle::Failing(failed));
        }
        match (1..=LONGEST).find(|round| self.begins_again(*round, &call)) {
            None => LoopVerdict::Go,
            Some(round) if self.refused.contains(&call) => LoopVerdict::End(Circle::Round(round)),
            Some(round) => LoopVerdict::Note(Circle::Round(round)),
        }
    }

    /// Whether the newest calls are whole rounds of this length, all alike, one short of too many, and this call would begin the next.
    fn begins_again(&self, round: usize, call: &Call) -> bool {
        let newest: Vec<&Ran> = self.ran.iter().rev().take(round * (TOO_MANY - 1)).collect();
        let alike = || newest.iter().zip(newest.iter().skip(round)).all(|(later, earlier)| later == earlier);
        newest.len() == round * (TOO_MANY - 1)
            && newest.get(round - 1).is_some_and(|first| first.call == *call)
            && alike()
    }
}
