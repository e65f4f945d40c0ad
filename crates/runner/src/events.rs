//! What a host is told while a node runs. Every event but live text is made from a durable record, in the order of the records, with the
//! record's seq: a host never sees a result its store does not hold.

use std::sync::Arc;

use agentrun_kernel::{Body, EffectKey, EffectKind, OutcomeEnd, Record, Seq, SessionKey, SessionState, Usd};
use serde::Serialize;

use crate::inbox::sent_as;

/// One event of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The session.
    pub session: SessionKey,
    /// The record's seq.
    pub seq: Seq,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// The session was opened by this process.
    Opened {
        /// Its epoch.
        epoch: u64,
    },
    /// A message was placed and opened a turn.
    TurnStart {
        /// The nth of the session.
        turn: u32,
    },
    /// People's words were placed into the turn that runs.
    Steered {
        /// The nth of the session.
        turn: u32,
    },
    /// The turn ended.
    TurnEnd {
        /// `done`, `interrupted` or `failed`.
        how: agentrun_kernel::TurnEndHow,
    },
    /// A tool is about to run.
    ToolStart {
        /// The tool.
        tool: String,
        /// The effect.
        key: EffectKey,
        /// Its arguments.
        arguments: serde_json::Value,
    },
    /// A tool's outcome is in the records.
    ToolEnd {
        /// The tool.
        tool: String,
        /// The effect.
        key: EffectKey,
        /// How it ended.
        end: OutcomeEnd,
        /// Exactly the recorded text.
        result: Arc<str>,
    },
    /// A paid request is about to be sent.
    RequestStart {
        /// The model.
        model: String,
        /// The most it can cost.
        quote: Option<Usd>,
    },
    /// A paid request has ended.
    RequestEnd {
        /// The model.
        model: String,
        /// `ok`; `error`: it failed, and nothing was to be paid; `interrupted`: it was cut.
        end: OutcomeEnd,
        /// What was booked; `null`: nobody can say.
        cost: Option<Usd>,
        /// What the session has spent so far.
        spent: Usd,
    },
    /// A submitted value was decided.
    Verdict {
        /// Whether it was accepted.
        accepted: bool,
        /// What the model was told.
        message: String,
    },
    /// The cap refused.
    Parked {
        /// The cap that would do.
        needed: Usd,
    },
    /// A person's message was taken into the session.
    Message {
        /// The id it was sent under.
        id: String,
    },
    /// The value is in the records.
    Answered {
        /// It.
        value: serde_json::Value,
    },
    /// One of the runner's own bounds ended the node.
    Bounded {
        /// Its word.
        word: String,
        /// What happened.
        message: String,
    },
    /// The session lives elsewhere now.
    Moved {
        /// Where, in words.
        to: String,
    },
}

/// Makes events from records. Keeps a fold of its own, since an outcome's record names its effect only by key.
#[derive(Debug)]
pub(crate) struct Publisher {
    state: SessionState,
    session: SessionKey,
}

impl Publisher {
    pub(crate) const fn new(session: SessionKey, state: SessionState) -> Self {
        Self { state, session }
    }

    /// The event of the next record, if it is one a host is told of.
    pub(crate) fn publish(&mut self, record: &Record) -> Option<Event> {
        let open = self.state.open_turn.as_ref().map(|turn| turn.id.clone());
        self.state.apply(record);
        let what = match &record.body {
            Body::Opened(_) => What::Opened { epoch: record.epoch.0 },
            Body::Placed(placed) if open.as_ref() == Some(&placed.turn) => What::Steered { turn: self.state.turns },
            Body::Placed(_) => What::TurnStart { turn: self.state.turns },
            Body::TurnEnd { how, .. } => What::TurnEnd { how: *how },
            Body::Intent(intent) => match intent.effect {
                EffectKind::Request => What::RequestStart { model: intent.name.clone(), quote: intent.quote },
                EffectKind::Tool | EffectKind::Builtin | EffectKind::Submit => What::ToolStart {
                    tool: intent.name.clone(),
                    key: intent.key.clone(),
                    arguments: intent.arguments.clone(),
                },
                EffectKind::Decision | EffectKind::FollowUp => return None,
            },
            Body::Outcome(outcome) => {
                let intent = self.state.effect(&outcome.key)?.intent.clone();
                match intent.effect {
                    EffectKind::Request => What::RequestEnd {
                        model: intent.name.clone(),
                        end: outcome.end,
                        cost: outcome.cost,
                        spent: self.state.spent.booked,
                    },
                    EffectKind::Tool | EffectKind::Builtin | EffectKind::Submit => What::ToolEnd {
                        tool: intent.name.clone(),
                        key: outcome.key.clone(),
                        end: outcome.end,
                        result: outcome.text.clone(),
                    },
                    EffectKind::Decision | EffectKind::FollowUp => return None,
                }
            }
            Body::Verdict(verdict) => What::Verdict { accepted: verdict.accepted, message: verdict.message.clone() },
            Body::Parked(parked) => What::Parked { needed: parked.needed },
            Body::Submission(submission) => What::Message { id: sent_as(&submission.id)?.to_owned() },
            Body::Settled(settled) if settled.turn.is_some() => {
                What::TurnEnd { how: agentrun_kernel::TurnEndHow::Interrupted }
            }
            Body::Delivered(delivered) => What::Answered { value: delivered.value.clone() },
            Body::Failed(failed) => What::Bounded { word: failed.word.clone(), message: failed.message.clone() },
            Body::Moved { to } => What::Moved { to: to.clone() },
            _ => return None,
        };
        Some(Event { session: self.session.clone(), seq: record.seq, what })
    }
}
