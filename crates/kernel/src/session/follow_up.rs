//! A follow-up: one more turn that the host asks of a session that has answered, at most once a name. Whether it may begin, is known or was
//! cut is a function of the fold; nothing here runs anything.
//!
//! ```text
//!  [intent, submission] ─► [placed] ─► … turn … ─► [turn_end, outcome]       the outcome answers every later call of that name
//!          └─────────── cut here: [outcome(interrupted), withdrawn, settled], one batch, by whoever opens next ┘
//! ```

use std::sync::Arc;

use super::decide::{Carry, Survey, not_taken};
use super::state::{Effect, SessionState, Spent};
use crate::ids::{EffectKey, FollowUpName, SubmissionId, TurnId};
use crate::record::{EffectKind, Outcome, Record, Source};

/// Whether a follow-up is under way, by the records alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowUpState {
    /// None is: no turn is open, or the open one is somebody else's.
    None,
    /// One was begun, and its prompt is not placed.
    Begun {
        /// Its effect.
        key: EffectKey,
    },
    /// The open turn is a follow-up's.
    Open {
        /// Its effect.
        key: EffectKey,
        /// The turn.
        turn: TurnId,
    },
}

/// Whether the open turn of a session is a follow-up's. Runs nothing, opens nothing.
#[must_use]
pub fn follow_up_state<'a>(records: impl IntoIterator<Item = &'a Record>) -> FollowUpState {
    SessionState::fold(records).follow_up_state()
}

/// What a host that asks for a follow-up is to be told, or what is to be done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowUpNext {
    /// It was asked before: this is its outcome, and nothing is run.
    Known(Arc<Outcome>),
    /// It was begun and never ended. It is not run again: a live owner runs it now, or it was cut and is to be settled.
    Begun,
    /// It is refused: nothing is written.
    NotAnswered(NotAnswered),
    /// It may begin, once what is open in the session is settled.
    Begin,
}

/// Why a session takes no follow-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswered {
    /// Nothing has run in it.
    #[error("nothing has run in the session yet; run its node first")]
    Fresh,
    /// A turn of its own is open.
    #[error("a turn is open in the session; resume it, or settle it first")]
    TurnOpen,
    /// Its last turn was cut or failed.
    #[error("the session's last turn did not end by itself; resume the session first")]
    TurnCut,
    /// One of the runner's bounds ended it.
    #[error("the session has failed, and nothing begins in it any more")]
    Failed,
}

/// What becomes of a host's wish for the follow-up `name`. A session has answered when it delivered, or when its last turn (a follow-up's
/// apart) ended by itself.
#[must_use]
pub fn follow_up_next(state: &SessionState, name: &FollowUpName) -> FollowUpNext {
    if let Some(effect) = state.effect(&EffectKey::of_follow_up(name)) {
        return effect.outcome.clone().map_or(FollowUpNext::Begun, FollowUpNext::Known);
    }
    let refused = |why| FollowUpNext::NotAnswered(why);
    if state.failed.is_some() {
        return refused(NotAnswered::Failed);
    }
    if state.delivered.is_some() {
        return FollowUpNext::Begin;
    }
    match &state.open_turn {
        Some(turn) if turn.follow_up.is_none() => refused(NotAnswered::TurnOpen),
        _ if state.had_its_say => FollowUpNext::Begin,
        _ if state.last_turn.is_none() => refused(NotAnswered::Fresh),
        _ => refused(NotAnswered::TurnCut),
    }
}

impl SessionState {
    /// See [`follow_up_state`].
    #[must_use]
    pub fn follow_up_state(&self) -> FollowUpState {
        if let Some(turn) = &self.open_turn
            && let Some(key) = &turn.follow_up
        {
            return FollowUpState::Open { key: key.clone(), turn: turn.id.clone() };
        }
        self.open_effects()
            .find(|effect| effect.intent.effect == EffectKind::FollowUp)
            .map_or(FollowUpState::None, |effect| FollowUpState::Begun { key: effect.intent.key.clone() })
    }

    /// A follow-up's own prompts that are not withdrawn: all that its settle names.
    #[must_use]
    pub fn opening(&self, key: &EffectKey) -> Vec<SubmissionId> {
        let own = |source: &Source| matches!(source, Source::FollowUp(of) if of == key);
        self.submissions()
            .filter(|accepted| own(&accepted.submission.source) && !accepted.withdrawn)
            .map(|accepted| accepted.submission.id.clone())
            .collect()
    }

    /// What a follow-up's message holds: words that did not reach the model, behind the notice, words that were sent since, then its own
    /// prompt. The runner's reminders wait for a turn of
    /// the node's, and after a delivery so do the node's own words: they have nothing left to ask for.
    #[must_use]
    pub fn follow_up_carry(&self, own: &SubmissionId) -> Carry {
        let prompt = |source: &Source| match source {
            Source::Person => true,
            Source::Node => self.delivered.is_none(),
            Source::Nudge | Source::Recovery | Source::FollowUp(_) => false,
        };
        let (mut unsent, mut fresh, mut replaces) = (Vec::new(), Vec::new(), Vec::new());
        let waits = self
            .submissions()
            .filter(|accepted| accepted.waits())
            .filter(|accepted| prompt(&accepted.submission.source));
        for accepted in waits {
            let sent_since = accepted.submission.source == Source::Person && !accepted.unsent;
            (if sent_since { &mut fresh } else { &mut unsent }).push(accepted.submission.id.clone());
            replaces.extend(accepted.message.clone());
        }
        replaces.dedup();
        fresh.push(own.clone());
        Carry { unsent, fresh, replaces }
    }

    /// What else the open messages of a follow-up carry, if the history lacks them: not its own prompt, and nothing withdrawn.
    #[must_use]
    pub fn unsent_beside(&self, key: &EffectKey, survey: &Survey) -> Vec<SubmissionId> {
        let own = self.opening(key);
        not_taken(self, survey).into_iter().filter(|id| !own.contains(id)).collect()
    }

    /// What a follow-up's paid effects cost and may have cost, from its first on: what the session spent before is not its own.
    #[must_use]
    pub fn spent_in(&self, follow_up: &Effect) -> Spent {
        let begun = |effect: &&Effect| {
            effect.seq > follow_up.seq && follow_up.outcome_seq.is_none_or(|ended| effect.seq < ended)
        };
        let mut spent = Spent::default();
        for Effect { intent, outcome, .. } in self.effects().filter(begun) {
            let Some(quote) = intent.quote else { continue };
            match outcome.as_ref().map(|outcome| outcome.cost) {
                None => spent.held = spent.held.saturating_add(quote),
                Some(Some(cost)) => spent.booked = spent.booked.saturating_add(cost),
                Some(None) => {
                    spent.unknown = spent.unknown.saturating_add(quote);
                    spent.unknown_count = spent.unknown_count.saturating_add(1);
                }
            }
        }
        spent
    }
}
