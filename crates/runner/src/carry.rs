//! The text of a message: words that never reached the model come first, behind one notice; the rest follows.

use std::sync::Arc;

use agentrun_kernel::{Carry, SessionState, SubmissionId};

/// Most bytes of a message's words: whoever accepts more refuses it, since what was accepted must be placed.
pub(crate) const CARRIED_BYTES: usize = 8 << 20;

/// Prefaces carried words (B31).
pub(crate) const NOTICE: &str = "The following was sent to you before and did not reach you: the session was stopped first. No work on it has begun.";

/// The message's text, and the submissions in it, in order.
pub(crate) fn compose(state: &SessionState, carry: &Carry) -> (Arc<str>, Vec<SubmissionId>) {
    let words = |ids: &[SubmissionId]| {
        ids.iter()
            .filter_map(|id| state.submission(id))
            .map(|accepted| accepted.submission.text.to_string())
            .collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    let unsent = words(&carry.unsent);
    if !unsent.is_empty() {
        parts.push(NOTICE.to_owned());
        parts.extend(unsent);
    }
    parts.extend(words(&carry.fresh));
    let carries = carry.unsent.iter().chain(&carry.fresh).cloned().collect();
    (Arc::from(parts.join("\n\n")), carries)
}

/// What a resumed harness is told (B68).
pub(crate) const RECOVERY_NOTE: &str = "The session was interrupted and is resumed now. Everything recorded before is above. A tool call whose \
result says it was interrupted may have partly run and was not run again. Go on from where you left off.";

/// What is sent after a turn that was settled: it did not end by itself, and nothing of it is taken up unasked.
pub(crate) const NUDGE_SETTLED: &str = "Your last turn was ended from outside before you delivered. Take the task up again from where it stands. \
The result counts only if you call the `submit` tool with it in `value`.";

/// What is sent after a turn without delivery.
pub(crate) const NUDGE: &str = "You ended without delivering. The result counts only if you call the `submit` tool with it in `value`. If work is \
left, finish it, then call `submit`.";
