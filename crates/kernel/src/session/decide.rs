//! What to do with a session next: one ordered table over (records, native history). The same `match` serves the live run, recovery and
//! the docs; the first row that holds is taken, its records are appended, and the table is asked again.

use std::sync::Arc;

use serde_json::Value;

use super::state::{Effect, SessionState};
use crate::ids::{CallId, Digest, EffectKey, MessageId, SubmissionId, TurnId};
use crate::record::{Body, Candidate, EffectKind, Failed, OutcomeEnd, Parked, Placed, Replay, Settled, TurnEndHow};
use crate::store::Batch;

/// A safe effect that was open at this many opens is not run again: it may be what ends the host each time.
pub const SAFE_OPENS: u32 = 3;

/// What a call that never began is answered, when the harness will not ask for it again by itself.
pub const NOT_RUN: &str =
    "This call was not run: the session was interrupted before it began. Call it again if it is still needed.";

/// What the harness's own history says, read from the mirrored files: no program is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The harness's id of the session.
    pub native_session: Option<String>,
    /// Whether the harness can go on from this history.
    pub resumable: bool,
    /// Messages it took, by our ids.
    pub taken: Vec<MessageId>,
    /// Calls it made that have no result yet, in order.
    pub open_calls: Vec<NativeCall>,
    /// Calls that have a result, once for each.
    pub answered: Vec<CallId>,
    /// The provider's ids of the responses it holds.
    pub responses: Vec<String>,
    /// Whether it shows the newest turn as ended.
    pub ended: bool,
}

/// A call in a harness's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCall {
    /// The harness's id of it.
    pub call: CallId,
    /// The tool as we name it.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// What a native history must be made to say before the harness goes on from it.
#[derive(Clone, Debug, PartialEq)]
pub enum Repair {
    /// The result of an open call, as recorded.
    Answer {
        /// The call.
        call: CallId,
        /// The recorded text.
        text: Arc<str>,
        /// Whether it is an error result.
        is_error: bool,
    },
    /// A response that was paid for and never reached the history. Its bytes are in the outcome's record.
    Response {
        /// The request's effect.
        key: EffectKey,
        /// The provider's id.
        id: String,
    },
    /// The turn is over.
    EndTurn,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Return the value; open nothing.
    Delivered(Arc<Value>),
    /// Return the failure; open nothing.
    Failed(Arc<Failed>),
    /// One batch: outcome interrupted, withdrawn, settled.
    SettleFollowUp {
        /// The follow-up's effect.
        key: EffectKey,
        /// The turn it opened; `None` when it was cut before that.
        turn: Option<TurnId>,
        /// Its own submissions; no person's message among them.
        submissions: Vec<SubmissionId>,
        /// What else its message carried, if the history lacks the message: the next one begins with it.
        unsent: Vec<SubmissionId>,
    },
    /// The cap refused: ask the gate again before anything else.
    AskGate(Parked),
    /// Their holds become unknown; each is ended as interrupted.
    LoseRequests(Vec<EffectKey>),
    /// Run again with the stored arguments, under the first intent.
    RunAgain(EffectKey),
    /// End as interrupted; the model is told, nothing is run.
    Interrupt(Vec<EffectKey>),
    /// The history holds a call of our tool that never began: run it as new.
    RunNew {
        /// The call.
        call: NativeCall,
        /// How many results the history holds for its id.
        ordinal: u32,
    },
    /// Ask the review again.
    Review(Arc<Candidate>),
    /// A settle came before the review: the candidate is not accepted and its submit ends as interrupted, in one batch.
    Undecided(Arc<Candidate>),
    /// Make the restored history say what the records say.
    Repair(Vec<Repair>),
    /// The history shows the turn ended: record it.
    EndTurn {
        /// The turn.
        turn: TurnId,
        /// How.
        how: TurnEndHow,
        /// What was steered into it and not taken: it stays unsent.
        unsent: Vec<SubmissionId>,
    },
    /// The turn is open and its messages were taken: go on, place nothing.
    Continue(Arc<Placed>),
    /// A message of it was placed and not taken, and the harness takes our ids: the same message again under its own id.
    PlaceAgain(Arc<Placed>),
    /// End the turn as interrupted. A message of it was placed and not taken and the harness knows nothing of our ids, or a settle ends it: the
    /// next message carries the words that did not reach the model.
    CarryOn {
        /// The turn.
        turn: TurnId,
        /// What stays unsent.
        unsent: Vec<SubmissionId>,
    },
    /// Place a message with these submissions.
    Place(Carry),
    /// Nothing waits.
    Idle,
}

/// What the next message holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carry {
    /// Words that were accepted before and never reached the model, oldest first: they come first, behind a notice.
    pub unsent: Vec<SubmissionId>,
    /// The rest, in order.
    pub fresh: Vec<SubmissionId>,
    /// Placed messages that this one stands for.
    pub replaces: Vec<MessageId>,
}

/// What holds today, beside the records and the history.
#[derive(Clone, Copy)]
pub struct Today<'a> {
    /// The harness takes messages under our ids, and they are read back by them.
    pub own_ids: bool,
    /// The gate was asked again since the park, and no longer refuses.
    pub gate_open: bool,
    /// Whether an effect may run again: its tool is safe today as in the record, and its stored arguments still fit.
    pub rerunnable: &'a dyn Fn(&EffectKey) -> bool,
    /// Whether a tool is run by us: a call of it that the history holds and that never began is begun now. Only the harness can run its
    /// own tools.
    pub ours: &'a dyn Fn(&str) -> bool,
}

/// The next thing to do.
#[must_use]
pub fn decide(state: &SessionState, survey: &Survey, today: Today<'_>) -> Decision {
    if state.delivered.is_none()
        && let Some(failed) = &state.failed
    {
        return Decision::Failed(failed.clone());
    }
    if let Some(value) = &state.delivered {
        return Decision::Delivered(value.clone());
    }
    if let Some(decision) = cut_follow_up(state, survey) {
        return decision;
    }
    if let Some(parked) = &state.parked
        && !today.gate_open
    {
        return Decision::AskGate(parked.clone());
    }
    let lost: Vec<_> = open_of(state, |kind| matches!(kind, EffectKind::Request | EffectKind::Decision));
    if !lost.is_empty() {
        return Decision::LoseRequests(lost);
    }
    if let Some(decision) = open_tools(state, today.rerunnable) {
        return decision;
    }
    if let Some(candidate) = state.undecided() {
        return Decision::Review(candidate.clone());
    }
    if let Some(decision) = open_turn(state, survey, today).or_else(|| unrest(state, survey)) {
        return decision;
    }
    let waits = |unsent: bool| {
        state
            .submissions()
            .filter(move |accepted| accepted.waits() && accepted.unsent == unsent)
            .map(|accepted| accepted.submission.id.clone())
            .collect::<Vec<_>>()
    };
    let carry = Carry { unsent: waits(true), fresh: waits(false), replaces: replaced(state) };
    if carry.unsent.is_empty() && carry.fresh.is_empty() { Decision::Idle } else { Decision::Place(carry) }
}

fn replaced(state: &SessionState) -> Vec<MessageId> {
    let mut messages: Vec<MessageId> = state
        .submissions()
        .filter(|accepted| accepted.unsent && !accepted.withdrawn)
        .filter_map(|accepted| accepted.message.clone())
        .collect();
    messages.dedup();
    messages
}

/// A follow-up of an older epoch, in its turn or still before it. It is settled, never gone on with.
pub(super) fn cut_follow_up(state: &SessionState, survey: &Survey) -> Option<Decision> {
    if let Some(turn) = &state.open_turn
        && let Some(key) = &turn.follow_up
    {
        if turn.epoch >= state.epoch {
            return None;
        }
        let submissions = state.opening(key);
        let unsent = state.unsent_beside(key, survey);
        return Some(Decision::SettleFollowUp { key: key.clone(), turn: Some(turn.id.clone()), submissions, unsent });
    }
    let cut = |effect: &&Effect| effect.intent.effect == EffectKind::FollowUp && effect.epoch < state.epoch;
    let key = &state.open_effects().find(cut)?.intent.key;
    let submissions = state.opening(key);
    Some(Decision::SettleFollowUp { key: key.clone(), turn: None, submissions, unsent: Vec::new() })
}

/// What a message carries and is not withdrawn since.
pub(super) fn kept(state: &SessionState, placed: &Placed) -> impl Iterator<Item = SubmissionId> {
    let kept = |id: &&SubmissionId| state.submission(id).is_some_and(|accepted| !accepted.withdrawn);
    placed.carries.iter().filter(kept).cloned()
}

pub(super) fn open_of(state: &SessionState, of: impl Fn(EffectKind) -> bool) -> Vec<EffectKey> {
    state.open_effects().filter(|effect| of(effect.intent.effect)).map(|effect| effect.intent.key.clone()).collect()
}

fn open_tools(state: &SessionState, rerunnable: &dyn Fn(&EffectKey) -> bool) -> Option<Decision> {
    let mut ended = Vec::new();
    // A turn that is over asks for nothing any more.
    let wanted =
        |effect: &Effect| state.open_turn.as_ref().is_some_and(|turn| effect.intent.turn.as_ref() == Some(&turn.id));
    for effect in state.open_effects() {
        let intent = &effect.intent;
        match intent.effect {
            EffectKind::Tool
                if (intent.replay == Replay::Safe || crate::planted!(RerunNever))
                    && wanted(effect)
                    && effect.opens < SAFE_OPENS
                    && rerunnable(&intent.key) =>
            {
                return Some(Decision::RunAgain(intent.key.clone()));
            }
            // A submit without a candidate never reached the review: whoever recovers may decide it from its intent, a settle ends it. With
            // one, the review row decides.
            EffectKind::Submit if state.undecided().is_some_and(|candidate| candidate.key == intent.key) => {}
            EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin => ended.push(intent.key.clone()),
            EffectKind::Request | EffectKind::Decision | EffectKind::FollowUp => {}
        }
    }
    (!ended.is_empty()).then_some(Decision::Interrupt(ended))
}

fn open_turn(state: &SessionState, survey: &Survey, today: Today<'_>) -> Option<Decision> {
    let turn = state.open_turn.as_ref()?;
    let placed = state.message(&turn.message)?.placed.clone();
    let taken = survey.taken.contains(&turn.message);
    if taken {
        let lacking = lacking_responses(state, survey, &turn.id);
        if !lacking.is_empty() {
            return Some(Decision::Repair(lacking));
        }
        if let Some(call) = survey
            .open_calls
            .iter()
            .find(|call| begun(state, survey, &turn.id, call).is_none() && (today.ours)(&call.tool))
        {
            let ordinal = ordinal(survey, call);
            return Some(Decision::RunNew { call: call.clone(), ordinal: u32::try_from(ordinal).unwrap_or(u32::MAX) });
        }
        let answers = lacking_answers(state, survey, &turn.id);
        if !answers.is_empty() {
            return Some(Decision::Repair(answers));
        }
    }
    // Words steered into a turn come behind what it did; its first message comes before anything was done.
    let Some(lost) = untaken(state, survey, &turn.id).next().cloned() else {
        return Some(if survey.ended {
            Decision::EndTurn { turn: turn.id.clone(), how: TurnEndHow::Done, unsent: Vec::new() }
        } else {
            Decision::Continue(placed)
        });
    };
    if today.own_ids {
        return Some(Decision::PlaceAgain(lost));
    }
    Some(Decision::CarryOn { turn: turn.id.clone(), unsent: not_taken(state, survey) })
}

/// The end of a turn, with what was steered into it and not taken: the next message begins with that.
#[must_use]
pub fn turn_end(turn: TurnId, how: TurnEndHow, unsent: Vec<SubmissionId>) -> Batch {
    let settled = (!unsent.is_empty()).then_some(Body::Settled(Settled { turn: None, unsent }));
    Batch::of([Body::TurnEnd { turn, how }].into_iter().chain(settled))
}

/// The words of the open turn's messages that the history lacks.
pub(super) fn not_taken(state: &SessionState, survey: &Survey) -> Vec<SubmissionId> {
    let turn = state.open_turn.iter();
    turn.flat_map(|turn| untaken(state, survey, &turn.id)).flat_map(|placed| kept(state, placed)).collect()
}

/// What was steered into the open turn and is not in the history: a turn that ends now ends without it.
#[must_use]
pub fn steered_in_vain(state: &SessionState, survey: &Survey) -> Vec<SubmissionId> {
    let Some(turn) = &state.open_turn else { return Vec::new() };
    let steered = untaken(state, survey, &turn.id).filter(|placed| placed.message != turn.message);
    steered.flat_map(|placed| kept(state, placed)).collect()
}

/// Messages of the newest turn that the history lacks, in order.
pub(super) fn untaken<'s>(
    state: &'s SessionState,
    survey: &'s Survey,
    turn: &TurnId,
) -> impl Iterator<Item = &'s Arc<Placed>> {
    state.messages_of(turn).filter(|placed| !survey.taken.contains(&placed.message))
}

/// A history that does not show what the records say: its last turn is over. It is made to say so before anything is placed on it, or the
/// harness would take the ended turn up again by itself.
pub(super) fn unrest(state: &SessionState, survey: &Survey) -> Option<Decision> {
    let last = state.last_turn.as_ref().filter(|_| state.open_turn.is_none() && survey.resumable)?;
    let cut = last.how != TurnEndHow::Done;
    // A turn that ended by itself ended as its harness wanted, unless its delivery ended it under way.
    if !cut && state.delivered.is_none() {
        return None;
    }
    if cut {
        let lacking = lacking_responses(state, survey, &last.id);
        if !lacking.is_empty() {
            return Some(Decision::Repair(lacking));
        }
    }
    let answers = lacking_answers(state, survey, &last.id);
    if !answers.is_empty() {
        return Some(Decision::Repair(answers));
    }
    (!survey.ended).then(|| Decision::Repair(vec![Repair::EndTurn]))
}

/// Responses that were paid for and never reached the history. They come before the calls they hold are looked at.
pub(super) fn lacking_responses(state: &SessionState, survey: &Survey, turn: &TurnId) -> Vec<Repair> {
    if crate::planted!(ForgetResponse) {
        return Vec::new();
    }
    let mut lacking: Vec<_> = state
        .effects()
        .filter(|effect| effect.intent.effect == EffectKind::Request && effect.intent.turn.as_ref() == Some(turn))
        .filter(|effect| effect.response_bytes > 0)
        .filter_map(|effect| {
            let outcome = effect.outcome.as_ref().filter(|outcome| outcome.end == OutcomeEnd::Ok)?;
            let id = outcome.response_id.clone()?;
            (!survey.responses.contains(&id))
                .then(|| (effect.seq, Repair::Response { key: effect.intent.key.clone(), id }))
        })
        .collect();
    lacking.sort_by_key(|(seq, _)| *seq);
    lacking.into_iter().map(|(_, repair)| repair).collect()
}

/// How many results the history holds for the id of this open call.
fn ordinal(survey: &Survey, call: &NativeCall) -> usize {
    survey.answered.iter().filter(|answered| **answered == call.call).count()
}

/// The effect that an open call of the history began: by its key, or else by place. Some providers use an id again (`call_0` in every
/// response), and a new call must not be answered with an old result: it is the one behind those whose results are there.
fn begun<'s>(state: &'s SessionState, survey: &Survey, turn: &TurnId, call: &NativeCall) -> Option<&'s Effect> {
    let place = ordinal(survey, call);
    let count = u32::try_from(place).unwrap_or(u32::MAX);
    let key = EffectKey::of_call(turn, &call.call, &call.tool, &Digest::of_json(&call.arguments), count);
    state.effect(&key).or_else(|| state.effects_of_call(&call.call).into_iter().nth(place))
}

pub(super) fn lacking_answers(state: &SessionState, survey: &Survey, turn: &TurnId) -> Vec<Repair> {
    let answer = |open: &NativeCall| {
        let (text, is_error) = match begun(state, survey, turn, open).and_then(|effect| effect.outcome.as_ref()) {
            Some(outcome) => (outcome.text.clone(), outcome.end != OutcomeEnd::Ok),
            None => (Arc::from(NOT_RUN), true),
        };
        Repair::Answer { call: open.call.clone(), text, is_error }
    };
    survey.open_calls.iter().map(answer).collect()
}
