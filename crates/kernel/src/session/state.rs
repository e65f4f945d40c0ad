//! The fold: what a session's records say. Pure, total and incremental (`fold(a ++ b) == fold(fold(a), b)`); every decision is a
//! function of it. Its maps share structure, so a snapshot costs nothing and a batch can be tried on one before it is written.

mod layered;

use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, VectorSync};
use serde_json::Value;

use self::layered::Layered;
use crate::ids::{CallId, Digest, EffectKey, Epoch, MessageId, Seq, SubmissionId, TurnId};
use crate::money::Usd;
use crate::record::{
    Body, Bound, Candidate, EffectKind, Failed, HarnessVersion, Intent, Outcome, OutcomeEnd, Parked, Placed, Record,
    Replay, Source, Submission, TurnEndHow, Verdict,
};

/// A session as its records tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionState {
    /// Seq of the last record folded.
    pub head: Seq,
    /// Epoch of the last record folded.
    pub epoch: Epoch,
    /// What the session is bound to; `None` for an empty log.
    pub bound: Option<Arc<Bound>>,
    /// How often it was opened.
    pub opens: u32,
    /// The harness and its version, as last seen.
    pub harness: Option<HarnessVersion>,
    /// The harness's own id of the session.
    pub native_session: Option<String>,
    /// The open turn.
    pub open_turn: Option<OpenTurn>,
    /// The newest that ended.
    pub last_turn: Option<EndedTurn>,
    /// The newest ended turn that was no follow-up's ended `done`: the model had its say.
    pub had_its_say: bool,
    /// How many turns were opened: the turn cap counts these.
    pub turns: u32,
    /// Turns in a row that ended with neither a paid request nor a delivery.
    pub empty_turns: u32,
    /// The value, once delivered.
    pub delivered: Option<Arc<Value>>,
    /// The runner's bound that ended the node.
    pub failed: Option<Arc<Failed>>,
    /// The cap's refusal; cleared by the next intent that is paid for.
    pub parked: Option<Parked>,
    /// Where the session lives now, when it was sealed.
    pub moved: Option<String>,
    /// The newest candidate.
    pub candidate: Option<Arc<Candidate>>,
    /// The newest verdict.
    pub verdict: Option<Verdict>,
    /// What the session spent and may have spent.
    pub spent: Spent,
    submissions: Layered<SubmissionId, Accepted>,
    submitted: VectorSync<SubmissionId>,
    messages: VectorSync<PlacedMessage>,
    effects: Layered<EffectKey, Effect>,
    /// Open effects by the seq of their intent: order is what recovery follows. Few at any time, so a batch that is tried copies them.
    open: Arc<Vec<(Seq, Arc<Intent>)>>,
    native: RedBlackTreeMapSync<String, u64>,
    /// Never effects that were begun, by (tool, digest of arguments), newest last: what the repeat rule reads.
    receipts: Layered<(String, Digest), Receipts>,
}

/// Keys of the never effects that were begun on one tool and the same arguments: one, unless the model repeats itself.
#[derive(Clone, Debug, PartialEq)]
enum Receipts {
    One(EffectKey),
    Many(VectorSync<EffectKey>),
}

/// A turn that is open in the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// The turn.
    pub id: TurnId,
    /// The message that opened it.
    pub message: MessageId,
    /// Epoch in which it was opened.
    pub epoch: Epoch,
    /// The follow-up it belongs to.
    pub follow_up: Option<EffectKey>,
    /// Paid requests begun in it.
    pub requests: u32,
    /// Whether it was opened after the delivery.
    pub after_delivery: bool,
}

/// A turn that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTurn {
    /// The turn.
    pub id: TurnId,
    /// How.
    pub how: TurnEndHow,
}

/// A submission and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// It.
    pub submission: Arc<Submission>,
    /// Seq of its record.
    pub seq: Seq,
    /// The message that carries it, the newest.
    pub message: Option<MessageId>,
    /// A settle left it unsent: the next message begins with it.
    pub unsent: bool,
    /// It will not be sent.
    pub withdrawn: bool,
}

/// A message as it was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedMessage {
    /// The record.
    pub placed: Arc<Placed>,
    /// A later message stands for it.
    pub replaced: bool,
}

/// An effect and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What was begun.
    pub intent: Arc<Intent>,
    /// Seq of the intent.
    pub seq: Seq,
    /// Epoch in which it was begun.
    pub epoch: Epoch,
    /// How often the session was opened while it was open.
    pub opens: u32,
    /// How it ended. A request's response is not kept here; its record is at `outcome_seq`.
    pub outcome: Option<Arc<Outcome>>,
    /// Seq of the outcome.
    pub outcome_seq: Option<Seq>,
    /// Bytes of response in the outcome's record.
    pub response_bytes: usize,
}

/// What a session spent. Unknown spend counts in full until somebody says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Sum of what was booked.
    pub booked: Usd,
    /// Sum of the quotes of open paid effects.
    pub held: Usd,
    /// Sum of the quotes of paid effects whose cost nobody can say.
    pub unknown: Usd,
    /// How many those are.
    pub unknown_count: u32,
}

impl Spent {
    /// What counts against a budget.
    #[must_use]
    pub const fn counted(&self) -> Usd {
        self.booked.saturating_add(self.held).saturating_add(self.unknown)
    }
}

impl SessionState {
    /// The state after `records`.
    #[must_use]
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut state = Self::default();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// Whether the session has an answer that ends the node: delivered or failed.
    #[must_use]
    pub const fn answered(&self) -> bool {
        self.delivered.is_some() || self.failed.is_some()
    }

    /// Whether nothing more is asked of the model: the value was delivered, and no turn was opened after it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.delivered.is_some() && !self.open_turn.as_ref().is_some_and(|turn| turn.after_delivery)
    }

    /// An effect.
    #[must_use]
    pub fn effect(&self, key: &EffectKey) -> Option<&Effect> {
        self.effects.get(key)
    }

    /// Every effect, in no order.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.values()
    }

    /// Effects without an outcome, in the order they were begun.
    pub fn open_effects(&self) -> impl Iterator<Item = &Effect> {
        self.open.iter().filter_map(|(_, intent)| self.effects.get(&intent.key))
    }

    /// The effects that the harness's call id began, in the order they were begun: ids can come again.
    #[must_use]
    pub fn effects_of_call(&self, call: &CallId) -> Vec<&Effect> {
        let mut effects: Vec<_> =
            self.effects.values().filter(|effect| effect.intent.call.as_ref() == Some(call)).collect();
        effects.sort_by_key(|effect| effect.seq);
        effects
    }

    /// The newest never effect on this tool and these arguments that may have run. A refused one did not: it must not hide the interrupted
    /// one for which it was refused.
    #[must_use]
    pub fn receipt(&self, tool: &str, digest: &Digest) -> Option<&Effect> {
        let ran = |key: &EffectKey| self.effects.get(key).filter(|effect| !effect.refused());
        match self.receipts.get(&(tool.to_owned(), digest.clone()))? {
            Receipts::One(key) => ran(key),
            Receipts::Many(keys) => keys.iter().rev().find_map(ran),
        }
    }

    /// A submission.
    #[must_use]
    pub fn submission(&self, id: &SubmissionId) -> Option<&Accepted> {
        self.submissions.get(id)
    }

    /// Submissions in the order they were accepted.
    pub fn submissions(&self) -> impl Iterator<Item = &Accepted> {
        self.submitted.iter().filter_map(|id| self.submissions.get(id))
    }

    /// Messages in the order they were placed.
    pub fn messages(&self) -> impl Iterator<Item = &PlacedMessage> {
        self.messages.iter()
    }

    /// A message by its id.
    #[must_use]
    pub fn message(&self, id: &MessageId) -> Option<&PlacedMessage> {
        self.messages.iter().rev().find(|message| &message.placed.message == id)
    }

    /// The messages of the newest turn that has any, in the order they were placed: the one that opened it, then what was steered into it.
    pub fn messages_of(&self, turn: &TurnId) -> impl Iterator<Item = &Arc<Placed>> {
        let of_it = self.messages.iter().rev().take_while(|message| &message.placed.turn == turn).count();
        self.messages.iter().skip(self.messages.len().saturating_sub(of_it)).map(|message| &message.placed)
    }

    /// Streams of the native history and their lengths in bytes.
    pub fn native(&self) -> impl Iterator<Item = (&str, u64)> {
        self.native.iter().map(|(stream, length)| (stream.as_str(), *length))
    }

    /// Length of one native stream; 0 for an unknown one.
    #[must_use]
    pub fn native_length(&self, stream: &str) -> u64 {
        self.native.get(stream).copied().unwrap_or_default()
    }

    /// A candidate that waits for its verdict.
    #[must_use]
    pub fn undecided(&self) -> Option<&Arc<Candidate>> {
        let candidate = self.candidate.as_ref()?;
        let decided = self.verdict.as_ref().is_some_and(|verdict| verdict.number == candidate.number);
        (!decided).then_some(candidate)
    }

    /// Folds one more record. Total: a record that no writer of ours would write changes what it can and nothing else; `check` is what
    /// refuses it.
    pub fn apply(&mut self, record: &Record) {
        self.head = record.seq;
        self.epoch = record.epoch;
        match &record.body {
            Body::Bound(bound) => self.bound = Some(Arc::new(bound.clone())),
            Body::Opened(opened) => {
                self.opens = self.opens.saturating_add(1);
                if opened.harness.is_some() {
                    self.harness.clone_from(&opened.harness);
                }
                if opened.native_session.is_some() {
                    self.native_session.clone_from(&opened.native_session);
                }
                for (_, intent) in self.open.iter() {
                    self.effects.change(&intent.key, |effect| effect.opens = effect.opens.saturating_add(1));
                }
            }
            Body::Submission(submission) => {
                let accepted = Accepted {
                    submission: Arc::new(submission.clone()),
                    seq: record.seq,
                    message: None,
                    unsent: false,
                    withdrawn: false,
                };
                if self.submissions.get(&submission.id).is_none() {
                    self.submitted.push_back_mut(submission.id.clone());
                }
                self.submissions.insert(submission.id.clone(), accepted);
            }
            Body::Withdrawn(withdrawn) => {
                for id in &withdrawn.ids {
                    self.submissions.change(id, |accepted| accepted.withdrawn = true);
                }
            }
            Body::Placed(placed) => self.placed(record, placed),
            Body::TurnEnd { turn, how } => self.end_turn(turn, *how),
            Body::Intent(intent) => self.intent(record, intent),
            Body::Outcome(outcome) => self.outcome(record, outcome),
            Body::Native(write) => {
                let length = write.offset.saturating_add(write.bytes.len() as u64);
                match self.native.get_mut(&write.stream) {
                    Some(known) => *known = length,
                    None => self.native.insert_mut(write.stream.clone(), length),
                }
            }
            Body::Candidate(candidate) => self.candidate = Some(Arc::new(candidate.clone())),
            Body::Verdict(verdict) => self.verdict = Some(verdict.clone()),
            Body::Delivered(delivered) => {
                self.delivered = Some(Arc::new(delivered.value.clone()));
                self.empty_turns = 0;
            }
            Body::Parked(parked) => self.parked = Some(parked.clone()),
            Body::Failed(failed) => self.failed = Some(Arc::new(failed.clone())),
            Body::Settled(settled) => {
                for id in &settled.unsent {
                    self.submissions.change(id, |accepted| accepted.unsent = true);
                }
                if let Some(turn) = &settled.turn {
                    self.end_turn(turn, TurnEndHow::Interrupted);
                }
            }
            Body::Moved { to } => self.moved = Some(to.clone()),
            Body::Ask(_) | Body::Answer(_) | Body::Checkpoint(_) | Body::Data { .. } => {}
        }
    }

    fn placed(&mut self, record: &Record, placed: &Placed) {
        let follow_up = placed.carries.iter().find_map(|id| match &self.submissions.get(id)?.submission.source {
            Source::FollowUp(key) => Some(key.clone()),
            _ => None,
        });
        for id in &placed.carries {
            self.submissions.change(id, |accepted| {
                accepted.message = Some(placed.message.clone());
                accepted.unsent = false;
            });
        }
        for replaced in &placed.replaces {
            let place = self.messages.iter().position(|message| &message.placed.message == replaced);
            if let Some((place, message)) = place.and_then(|place| Some((place, self.messages.get(place)?.clone()))) {
                self.messages.set_mut(place, PlacedMessage { replaced: true, ..message });
            }
        }
        self.messages.push_back_mut(PlacedMessage { placed: Arc::new(placed.clone()), replaced: false });
        if self.open_turn.as_ref().is_some_and(|open| open.id == placed.turn) {
            return;
        }
        self.turns = self.turns.saturating_add(1);
        self.open_turn = Some(OpenTurn {
            id: placed.turn.clone(),
            message: placed.message.clone(),
            epoch: record.epoch,
            follow_up,
            requests: 0,
            after_delivery: self.delivered.is_some(),
        });
    }

    fn end_turn(&mut self, turn: &TurnId, how: TurnEndHow) {
        if let Some(open) = self.open_turn.take_if(|open| &open.id == turn) {
            // A follow-up says nothing of how the node gets on.
            if open.follow_up.is_none() {
                self.empty_turns =
                    if open.requests == 0 && self.delivered.is_none() { self.empty_turns.saturating_add(1) } else { 0 };
                self.had_its_say = how == TurnEndHow::Done;
            }
            self.last_turn = Some(EndedTurn { id: open.id, how });
        }
    }

    fn intent(&mut self, record: &Record, intent: &Intent) {
        if let Some(quote) = intent.quote {
            self.spent.held = self.spent.held.saturating_add(quote);
            self.parked = None;
        }
        if intent.effect == EffectKind::Request
            && let Some(turn) = &mut self.open_turn
        {
            turn.requests = turn.requests.saturating_add(1);
            self.empty_turns = 0;
        }
        if intent.replay == Replay::Never && matches!(intent.effect, EffectKind::Tool | EffectKind::Builtin) {
            self.begun_never(intent);
        }
        let intent = Arc::new(intent.clone());
        match self.open.binary_search_by_key(&record.seq, |(seq, _)| *seq) {
            Err(place) => Arc::make_mut(&mut self.open).insert(place, (record.seq, intent.clone())),
            Ok(place) => drop(Arc::make_mut(&mut self.open).splice(place..=place, [(record.seq, intent.clone())])),
        }
        let key = intent.key.clone();
        let effect = Effect {
            intent,
            seq: record.seq,
            epoch: record.epoch,
            opens: 0,
            outcome: None,
            outcome_seq: None,
            response_bytes: 0,
        };
        self.effects.insert(key, effect);
    }

    fn begun_never(&mut self, intent: &Intent) {
        let of = (intent.name.clone(), intent.digest.clone());
        let repeated = self.receipts.change(&of, |begun| match begun {
            Receipts::One(first) => {
                *begun = Receipts::Many([first.clone(), intent.key.clone()].into_iter().collect());
            }
            Receipts::Many(keys) => keys.push_back_mut(intent.key.clone()),
        });
        if repeated.is_none() {
            self.receipts.insert(of, Receipts::One(intent.key.clone()));
        }
    }

    fn outcome(&mut self, record: &Record, outcome: &Outcome) {
        let ended = self.effects.change(&outcome.key, |effect| {
            let kept = Outcome { response: Arc::default(), ..outcome.clone() };
            effect.outcome = Some(Arc::new(kept));
            effect.outcome_seq = Some(record.seq);
            effect.response_bytes = outcome.response.len();
            (effect.seq, effect.intent.quote)
        });
        let Some((seq, quote)) = ended else { return };
        if let Ok(place) = self.open.binary_search_by_key(&seq, |(seq, _)| *seq) {
            Arc::make_mut(&mut self.open).remove(place);
        }
        let Some(quote) = quote else { return };
        self.spent.held = self.spent.held.checked_sub(quote).unwrap_or_default();
        match outcome.cost {
            Some(cost) => self.spent.booked = self.spent.booked.saturating_add(cost),
            None => {
                self.spent.unknown = self.spent.unknown.saturating_add(quote);
                self.spent.unknown_count = self.spent.unknown_count.saturating_add(1);
            }
        }
    }
}

impl Accepted {
    /// Whether it waits for a message: none carries it, or the one that did never reached the model.
    #[must_use]
    pub const fn waits(&self) -> bool {
        !self.withdrawn && (self.unsent || self.message.is_none())
    }
}

impl Effect {
    /// Whether it ended in a way that may have left something half done.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.end == OutcomeEnd::Interrupted)
    }

    /// Whether it was refused, so that it never ran.
    #[must_use]
    pub fn refused(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.end == OutcomeEnd::Refused)
    }
}
