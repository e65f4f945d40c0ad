//! The invariants of a session log, each checked in the same step as the fence (by the session task, on its fold) and over whole logs
//! (by `validate`). A batch that breaks one is refused and nothing is written.

use super::state::SessionState;
use crate::ids::{Epoch, Seq};
use crate::record::{Body, EffectKind, Placed, Record, Source};

/// What a batch or a log would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invariant {
    /// Records are dense and epochs never decrease; a record's epoch is its writer's.
    #[error("order: records are dense and epochs never decrease")]
    Order,
    /// `bound` is the first record and comes once.
    #[error("bound-first: the first record, and only it, is `bound`")]
    BoundFirst,
    /// `intent(k)` precedes every run of k; the key is not reused.
    #[error("one-intent: an effect key has one intent")]
    OneIntent,
    /// At most one `outcome(k)`, none without an intent.
    #[error("one-outcome: an effect has one outcome, after its intent")]
    OneOutcome,
    /// A submission is in at most one effective message and in none after `withdrawn`.
    #[error("one-message: a submission is in one effective message, and in none after it was withdrawn")]
    OneMessage,
    /// At most one open turn; an ended or settled turn is never reopened. Into the open one people's words are steered, and nothing else.
    #[error("one-turn: one turn is open at a time, none is opened twice, and only people's words are steered into one")]
    OneTurn,
    /// `delivered` at most once, with no open tool effect beside it; after it only a follow-up's or a person's turn opens anything, and
    /// nothing more is submitted.
    #[error(
        "delivered-once: a session delivers once, with no tool open, and only a follow-up or a person opens a turn after it"
    )]
    DeliveredOnce,
    /// A candidate is decided once, in order, and before a value is delivered.
    #[error("one-verdict: candidates are numbered, and each is decided once, before a value is delivered")]
    OneVerdict,
    /// A paid effect names its hold and its quote together.
    #[error("hold-and-quote: a paid effect names its hold and its quote")]
    HoldAndQuote,
    /// A native write starts inside what the stream holds.
    #[error("native-extent: a native write starts within its stream")]
    NativeExtent,
    /// Nothing follows a failure's or a move's record that would begin anything.
    #[error("ended: nothing begins after `failed`, and nothing follows `moved`")]
    Ended,
    /// A submission's id is used once.
    #[error("one-submission: a submission id is accepted once")]
    OneSubmission,
}

/// A record that does not fit the log it is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal `{kind}` record at seq {seq}: {invariant}")]
pub struct Illegal {
    /// Where it would stand.
    pub seq: Seq,
    /// Its kind.
    pub kind: &'static str,
    /// What it breaks.
    pub invariant: Invariant,
}

impl Invariant {
    /// Every one, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Order,
        Self::BoundFirst,
        Self::OneIntent,
        Self::OneOutcome,
        Self::OneMessage,
        Self::OneTurn,
        Self::DeliveredOnce,
        Self::OneVerdict,
        Self::HoldAndQuote,
        Self::NativeExtent,
        Self::Ended,
        Self::OneSubmission,
    ];

    /// Its name: the first word of what it says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::BoundFirst => "bound-first",
            Self::OneIntent => "one-intent",
            Self::OneOutcome => "one-outcome",
            Self::OneMessage => "one-message",
            Self::OneTurn => "one-turn",
            Self::DeliveredOnce => "delivered-once",
            Self::OneVerdict => "one-verdict",
            Self::HoldAndQuote => "hold-and-quote",
            Self::NativeExtent => "native-extent",
            Self::Ended => "ended",
            Self::OneSubmission => "one-submission",
        }
    }
}

impl SessionState {
    /// Whether `record` may follow what this state was folded from.
    ///
    /// # Errors
    /// [`Illegal`] names the first invariant it breaks.
    pub fn check(&self, record: &Record) -> Result<(), Illegal> {
        self.broken(record)
            .map_or(Ok(()), |invariant| Err(Illegal { seq: record.seq, kind: record.body.kind(), invariant }))
    }

    fn broken(&self, record: &Record) -> Option<Invariant> {
        use Invariant as I;
        let unless = |holds: bool, invariant: I| (!holds).then_some(invariant);
        if record.seq != self.head.next() || record.epoch < self.epoch || record.epoch == Epoch(0) {
            return Some(I::Order);
        }
        if self.moved.is_some() {
            return Some(I::Ended);
        }
        if self.bound.is_none() != matches!(record.body, Body::Bound(_)) {
            return Some(I::BoundFirst);
        }
        let begins = matches!(
            record.body,
            Body::Placed(_) | Body::Intent(_) | Body::Candidate(_) | Body::Delivered(_) | Body::Failed(_)
        );
        if begins && self.failed.is_some() {
            return Some(I::Ended);
        }
        match &record.body {
            Body::Submission(submission) => unless(self.submission(&submission.id).is_none(), I::OneSubmission),
            Body::Withdrawn(withdrawn) => {
                unless(withdrawn.ids.iter().all(|id| self.submission(id).is_some()), I::OneMessage)
            }
            Body::Placed(placed) => self.misplaced(placed),
            Body::TurnEnd { turn, .. } => unless(self.is_open_turn(turn), I::OneTurn),
            Body::Settled(settled) => {
                let kept = |id| self.submission(id).is_some_and(|accepted| !accepted.withdrawn);
                if !settled.unsent.iter().all(kept) {
                    return Some(I::OneMessage);
                }
                unless(settled.turn.as_ref().is_none_or(|turn| self.is_open_turn(turn)), I::OneTurn)
            }
            Body::Intent(intent) => {
                if self.effect(&intent.key).is_some() {
                    return Some(I::OneIntent);
                }
                if intent.hold.is_some() != intent.quote.is_some() {
                    return Some(I::HoldAndQuote);
                }
                let allowed = self.delivered.is_none()
                    || intent.effect == EffectKind::FollowUp
                    || self.open_turn.as_ref().is_some_and(|turn| turn.after_delivery);
                unless(allowed, I::DeliveredOnce)
            }
            Body::Outcome(outcome) => {
                let open = self.effect(&outcome.key).is_some_and(|effect| effect.outcome.is_none());
                unless(open, I::OneOutcome)
            }
            Body::Native(write) => unless(write.offset <= self.native_length(&write.stream), I::NativeExtent),
            // The value stands: a later turn's submit is answered, never decided.
            Body::Candidate(_) if self.delivered.is_some() => Some(I::DeliveredOnce),
            Body::Candidate(candidate) => {
                let last = self.candidate.as_ref().map_or(0, |candidate| candidate.number);
                unless(self.undecided().is_none() && candidate.number == last.saturating_add(1), I::OneVerdict)
            }
            Body::Verdict(verdict) => {
                unless(self.undecided().is_some_and(|candidate| candidate.number == verdict.number), I::OneVerdict)
            }
            Body::Delivered(_) if self.delivered.is_none() && self.undecided().is_some() => Some(I::OneVerdict),
            Body::Delivered(_) => {
                let tool_open = self.open_effects().any(|effect| {
                    matches!(effect.intent.effect, EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin)
                });
                unless(self.delivered.is_none() && !tool_open, I::DeliveredOnce)
            }
            Body::Failed(_) => unless(self.delivered.is_none(), I::Ended),
            Body::Bound(_)
            | Body::Opened(_)
            | Body::Parked(_)
            | Body::Ask(_)
            | Body::Answer(_)
            | Body::Checkpoint(_)
            | Body::Data { .. }
            | Body::Moved { .. } => None,
        }
    }

    fn is_open_turn(&self, turn: &crate::ids::TurnId) -> bool {
        self.open_turn.as_ref().is_some_and(|open| &open.id == turn)
    }

    fn misplaced(&self, placed: &Placed) -> Option<Invariant> {
        use Invariant as I;
        let open = self.open_turn.as_ref();
        let steered = open.filter(|open| open.id == placed.turn);
        let reused = self.messages().any(|message| {
            message.placed.message == placed.message || (message.placed.turn == placed.turn && steered.is_none())
        });
        if reused || open.is_some() != steered.is_some() {
            return Some(I::OneTurn);
        }
        if let Some(open) = steered {
            let person = |id| self.submission(id).is_some_and(|accepted| accepted.submission.source == Source::Person);
            if !placed.replaces.is_empty() || placed.carries.is_empty() || !placed.carries.iter().all(person) {
                return Some(I::OneTurn);
            }
            // The delivery ended it, though its harness may not know yet.
            if self.delivered.is_some() && !open.after_delivery {
                return Some(I::DeliveredOnce);
            }
        }
        for id in &placed.carries {
            let Some(accepted) = self.submission(id) else { return Some(I::OneMessage) };
            let carried_elsewhere = accepted.message.as_ref().is_some_and(|message| !placed.replaces.contains(message));
            if accepted.withdrawn || carried_elsewhere {
                return Some(I::OneMessage);
            }
            if self.delivered.is_some()
                && !matches!(accepted.submission.source, Source::Person | Source::FollowUp(_) | Source::Recovery)
            {
                return Some(I::DeliveredOnce);
            }
        }
        None
    }
}

/// Checks a whole log: every invariant, in order.
///
/// # Errors
/// The first record that breaks one.
pub fn validate<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<SessionState, Illegal> {
    let mut state = SessionState::default();
    for record in records {
        state.check(record)?;
        state.apply(record);
    }
    Ok(state)
}
