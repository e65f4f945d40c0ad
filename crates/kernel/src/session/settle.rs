//! Ending what is open in a session without running anything: the ordered table of a settle. It asks only the records and the harness's
//! history as the records keep it, so it works where no program is installed; each row is recorded before the table is asked again.

use super::decide::{
    Decision, Repair, Survey, cut_follow_up, lacking_answers, lacking_responses, not_taken, open_of, steered_in_vain,
    unrest,
};
use super::state::SessionState;
use crate::ids::SubmissionId;
use crate::record::{EffectKind, Source, TurnEndHow};

/// What the model reads of a submit that a settle came before.
pub const UNDECIDED: &str =
    "Not accepted: the host ended the turn before the submission was decided. Submit it again if it still holds.";

/// The next thing to do to end what is open; [`Decision::Idle`] when nothing is.
///
/// Nothing is run again, not even what is safe to run; no review is asked, no message placed. The turn's message counts as taken only if
/// the recorded history holds it: the home that may have held more is gone with its epoch, and no paid request passes before the history
/// that explains it is recorded.
#[must_use]
pub fn settle(state: &SessionState, survey: &Survey) -> Decision {
    if let Some(decision) = cut_follow_up(state, survey) {
        return decision;
    }
    let lost = open_of(state, |kind| matches!(kind, EffectKind::Request | EffectKind::Decision));
    if !lost.is_empty() {
        return Decision::LoseRequests(lost);
    }
    // Its submit is ended with it.
    if let Some(candidate) = state.undecided() {
        return Decision::Undecided(candidate.clone());
    }
    let cut = open_of(state, |kind| matches!(kind, EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin));
    if !cut.is_empty() {
        return Decision::Interrupt(cut);
    }
    if let Some(decision) = open_turn(state, survey) {
        return decision;
    }
    unrest(state, survey).unwrap_or(Decision::Idle)
}

/// Whether a settle would find nothing to do: no turn, no effect and no candidate is open, and the history is at rest.
#[must_use]
pub fn is_quiet(state: &SessionState, survey: &Survey) -> bool {
    state.open_turn.is_none()
        && state.open_effects().next().is_none()
        && state.undecided().is_none()
        && unrest(state, survey).is_none()
}

fn open_turn(state: &SessionState, survey: &Survey) -> Option<Decision> {
    let turn = state.open_turn.as_ref()?;
    let taken = survey.taken.contains(&turn.message);
    if taken {
        let lacking = lacking_responses(state, survey, &turn.id);
        if !lacking.is_empty() {
            return Some(Decision::Repair(lacking));
        }
        let answers = lacking_answers(state, survey, &turn.id);
        if !answers.is_empty() {
            return Some(Decision::Repair(answers));
        }
    }
    let answered = state.delivered.is_some() && !turn.after_delivery;
    let end = || {
        let unsent = steered_in_vain(state, survey);
        Decision::EndTurn { turn: turn.id.clone(), how: TurnEndHow::Done, unsent }
    };
    if taken && survey.ended {
        return Some(end());
    }
    // The delivery was the end of it; only the history has yet to say so.
    if answered {
        return Some(match survey.resumable {
            true if taken => Decision::Repair(vec![Repair::EndTurn]),
            _ => end(),
        });
    }
    Some(Decision::CarryOn { turn: turn.id.clone(), unsent: unsent(state, survey) })
}

/// What a settle of the open turn leaves for the next message: the words of its messages that the history lacks, and prompts that were
/// accepted and never placed.
fn unsent(state: &SessionState, survey: &Survey) -> Vec<SubmissionId> {
    let lost = not_taken(state, survey);
    let prompt = |source: &Source| matches!(source, Source::Node | Source::Person);
    state
        .submissions()
        .filter(|accepted| !accepted.withdrawn)
        .filter(|accepted| match &accepted.message {
            Some(_) => lost.contains(&accepted.submission.id),
            None => prompt(&accepted.submission.source),
        })
        .map(|accepted| accepted.submission.id.clone())
        .collect()
}
