//! Keeps the kernel's loop guard up with a session's calls: it is asked before each one begins, with every call in it that has ended in the
//! records by then. What it says is the model's to read (a note), or the node's end.

use std::sync::{Mutex, PoisonError};

use agentrun_kernel::{
    Body, Circle, Digest, Drive, Effect, EffectKey, EffectKind, LoopGuard, LoopVerdict, Record, SessionState,
};

/// The calls of one session, as its guard knows them.
pub(crate) struct Circles(Mutex<Known>);

struct Known {
    guard: LoopGuard,
    /// Calls that began and that the guard has not seen the end of. Few at any time.
    open: Vec<EffectKey>,
}

impl Circles {
    /// What the records say: a resumed session knows what the cut one knew.
    pub(crate) fn of(drive: &Drive) -> Self {
        drive.with_state(|state| {
            let calls: Vec<EffectKey> =
                state.effects().filter(|effect| is_call(effect)).map(|effect| effect.intent.key.clone()).collect();
            let mut known = Known { guard: LoopGuard::default(), open: calls };
            known.catch_up(state);
            Self(Mutex::new(known))
        })
    }

    /// What to do with a call that is about to begin under `key`. From here on its end is waited for.
    pub(crate) fn before(&self, drive: &Drive, key: &EffectKey, tool: &str, arguments: &Digest) -> LoopVerdict {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drive.with_state(|state| {
            known.catch_up(state);
            // It began before: it is answered or joined, whatever it was part of.
            if state.effect(key).is_some() {
                return LoopVerdict::Go;
            }
            known.open.push(key.clone());
            known.guard.verdict(tool, arguments)
        })
    }
}

impl Known {
    fn catch_up(&mut self, state: &SessionState) {
        let mut ended: Vec<&Effect> = Vec::new();
        self.open.retain(|key| match state.effect(key) {
            Some(effect) if effect.outcome.is_some() => {
                ended.push(effect);
                false
            }
            _ => true,
        });
        ended.sort_by_key(|effect| effect.outcome_seq);
        for effect in ended {
            self.tell(effect, Body::Intent((*effect.intent).clone()));
            if let Some(outcome) = &effect.outcome {
                self.tell(effect, Body::Outcome((**outcome).clone()));
            }
        }
    }

    fn tell(&mut self, effect: &Effect, body: Body) {
        self.guard.apply(&Record { seq: effect.seq, epoch: effect.epoch, at: 0, body });
    }
}

fn is_call(effect: &Effect) -> bool {
    matches!(effect.intent.effect, EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin)
}

/// What the model reads when a call is refused for it.
pub(crate) fn note(tool: &str, circle: Circle) -> String {
    let what = told(tool, circle);
    format!("Not run: {what}. Do something else. Ask for this same call once more and the task ends without a result.")
}

/// Why the node ended.
pub(crate) fn ended(tool: &str, circle: Circle) -> String {
    let what = told(tool, circle);
    format!(
        "{what}; the model was told and asked for it again. Change the prompt or the tool, and run the node under another session key"
    )
}

fn told(tool: &str, circle: Circle) -> String {
    match circle {
        Circle::Failing(times) => {
            format!("`{tool}` was called {times} times with these same arguments and never succeeded")
        }
        Circle::Round(1) => format!(
            "`{tool}` was called again and again with these same arguments, and the result was the same each time"
        ),
        Circle::Round(calls) => {
            format!(
                "the same round of {calls} calls, which `{tool}` would begin again, came again and again with the same results"
            )
        }
    }
}
