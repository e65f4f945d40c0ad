//! The hand of a recovery, in memory: what a decision makes of the records and of the harness's history.

use agentrun_kernel::{
    Body, CallId, Decision, Digest, EffectKey, EffectKind, Intent, NativeCall, Outcome, OutcomeEnd, Repair, Replay,
    Settled, Survey, Withdrawn, turn_end,
};
use serde_json::json;

use super::{Log, intent, verdict};

/// A call in a history, of the tool and with the arguments that `intent` gives it.
pub(crate) fn native_call(id: &str) -> NativeCall {
    NativeCall { call: CallId(id.to_owned()), tool: "tool".to_owned(), arguments: json!({ "of": id }) }
}

/// What a recovery does with a decision: the records it appends, and what a repair does to the history. `None`: the table came to its end.
pub(crate) fn done(log: &Log, survey: &mut Survey, gate_open: &mut bool, decision: Decision) -> Option<Vec<Body>> {
    let end = |key: &EffectKey, end| Body::Outcome(Outcome::new(key.clone(), end, "decided"));
    Some(match decision {
        Decision::Delivered(_)
        | Decision::Failed(_)
        | Decision::Continue(_)
        | Decision::PlaceAgain(_)
        | Decision::Place(_)
        | Decision::Idle => return None,
        Decision::SettleFollowUp { key, turn, submissions, unsent } => {
            let open = log.state().effect(&key).is_some_and(|effect| effect.outcome.is_none());
            open.then(|| end(&key, OutcomeEnd::Interrupted))
                .into_iter()
                .chain([
                    Body::Withdrawn(Withdrawn { ids: submissions, why: "cut".to_owned() }),
                    Body::Settled(Settled { turn, unsent }),
                ])
                .collect()
        }
        Decision::AskGate(_) => {
            *gate_open = true;
            vec![]
        }
        Decision::LoseRequests(keys) | Decision::Interrupt(keys) => {
            keys.iter().map(|key| end(key, OutcomeEnd::Interrupted)).collect()
        }
        Decision::RunAgain(key) => vec![end(&key, OutcomeEnd::Ok)],
        Decision::RunNew { call, ordinal } => {
            // As the runner makes the key, so that the call is found begun.
            let in_turn = log.state().open_turn.unwrap().id;
            let digest = Digest::of_json(&call.arguments);
            let key = EffectKey::of_call(&in_turn, &call.call, &call.tool, &digest, ordinal);
            let new = Intent { call: Some(call.call), ..intent(key.as_str(), EffectKind::Tool, Replay::Never, None) };
            let key = new.key.clone();
            vec![Body::Intent(new), end(&key, OutcomeEnd::Ok)]
        }
        Decision::Review(candidate) => {
            let open = log.state().effect(&candidate.key).is_some_and(|effect| effect.outcome.is_none());
            let verdict = verdict(candidate.number, false);
            std::iter::once(verdict).chain(open.then(|| end(&candidate.key, OutcomeEnd::Error))).collect()
        }
        Decision::Undecided(candidate) => {
            let open = log.state().effect(&candidate.key).is_some_and(|effect| effect.outcome.is_none());
            let verdict = verdict(candidate.number, false);
            std::iter::once(verdict).chain(open.then(|| end(&candidate.key, OutcomeEnd::Interrupted))).collect()
        }
        Decision::Repair(want) => {
            for repair in want {
                match repair {
                    Repair::Answer { call, .. } => {
                        survey.open_calls.retain(|open| open.call != call);
                        survey.answered.push(call);
                    }
                    Repair::Response { id, .. } => survey.responses.push(id),
                    Repair::EndTurn => survey.ended = true,
                }
            }
            vec![]
        }
        Decision::EndTurn { turn, how, unsent } => turn_end(turn, how, unsent).bodies,
        Decision::CarryOn { turn, unsent } => vec![Body::Settled(Settled { turn: Some(turn), unsent })],
    })
}
