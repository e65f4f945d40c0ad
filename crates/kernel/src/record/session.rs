//! The records of a session's log (design: "Records"). Every kind exists from the first format on, also those only later parts write,
//! so that no later part has to raise the format.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{CallId, Digest, EffectKey, HoldId, MessageId, RunId, Seq, SessionKey, SubmissionId, TurnId};
use crate::money::Usd;
use crate::usage::Usage;

/// One record of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// First record: what the session is bound to.
    Bound(Bound),
    /// After every `open` of the session.
    Opened(Opened),
    /// A prompt was accepted.
    Submission(Submission),
    /// A settle named it, or a person retracted it: it is never sent.
    Withdrawn(Withdrawn),
    /// Just before a message is sent; opens the turn.
    Placed(Placed),
    /// The harness is idle again.
    TurnEnd {
        /// The turn.
        turn: TurnId,
        /// How it ended.
        how: TurnEndHow,
    },
    /// Before an effect runs.
    Intent(Intent),
    /// After it ran: at most one an intent.
    Outcome(Outcome),
    /// The harness wrote its own history.
    Native(NativeWrite),
    /// A submit call arrived.
    Candidate(Candidate),
    /// It was decided.
    Verdict(Verdict),
    /// The value, in one batch with its verdict and outcome.
    Delivered(Delivered),
    /// The cap refused; not terminal, a resume asks again.
    Parked(Parked),
    /// One of the runner's own bounds; terminal.
    Failed(Failed),
    /// A turn was ended by a settle; it is never reopened.
    Settled(Settled),
    /// A built-in or tool waits for a person.
    Ask(Ask),
    /// The person's word.
    Answer(AskAnswer),
    /// An image of the workspace before an effect.
    Checkpoint(Checkpoint),
    /// A value of the host's.
    Data {
        /// The host's name for it.
        name: String,
        /// The value.
        value: Value,
    },
    /// Sealed: the session lives elsewhere now. Nothing follows.
    Moved {
        /// Where to, in words for a person.
        to: String,
    },
}

impl Body {
    /// Every kind this version writes and reads, as spelled in records.
    pub const KINDS: &[&str] = &[
        "bound",
        "opened",
        "submission",
        "withdrawn",
        "placed",
        "turn_end",
        "intent",
        "outcome",
        "native",
        "candidate",
        "verdict",
        "delivered",
        "parked",
        "failed",
        "settled",
        "ask",
        "answer",
        "checkpoint",
        "data",
        "moved",
    ];

    /// The kind as spelled in records.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bound(_) => "bound",
            Self::Opened(_) => "opened",
            Self::Submission(_) => "submission",
            Self::Withdrawn(_) => "withdrawn",
            Self::Placed(_) => "placed",
            Self::TurnEnd { .. } => "turn_end",
            Self::Intent(_) => "intent",
            Self::Outcome(_) => "outcome",
            Self::Native(_) => "native",
            Self::Candidate(_) => "candidate",
            Self::Verdict(_) => "verdict",
            Self::Delivered(_) => "delivered",
            Self::Parked(_) => "parked",
            Self::Failed(_) => "failed",
            Self::Settled(_) => "settled",
            Self::Ask(_) => "ask",
            Self::Answer(_) => "answer",
            Self::Checkpoint(_) => "checkpoint",
            Self::Data { .. } => "data",
            Self::Moved { .. } => "moved",
        }
    }
}

/// What the session is bound to: another binding refuses to resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Record format, so that a reader refuses what it does not know.
    pub format: u32,
    /// The adapter's name (`claude`, `codex`, `opencode`, `faux` …).
    pub adapter: String,
    /// Digest of everything the model is given: the fields are in `plan`.
    pub binding: Digest,
    /// The digests that make up `binding`, so that a refusal can name the field that moved.
    pub plan: PlanDigests,
    /// Names the run whose ledger the session's paid steps are held in.
    pub run: RunId,
    /// The session that started this one, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// What the adapter promises of the harness's built-in tools.
    pub builtins: Built,
    /// The host's own description of the node, opaque here; holds no credential.
    #[serde(default)]
    pub host: Value,
}

/// The parts of a binding. Replay class, price and time-outs are not in it: they may change between attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDigests {
    /// The node's prompt.
    pub prompt: Digest,
    /// The system prompt.
    pub system: Digest,
    /// The delivered value's schema.
    pub schema: Digest,
    /// Tool names, descriptions and input schemas, and the built-ins allowed.
    pub tools: Digest,
    /// The model's name.
    pub model: String,
    /// The node's label.
    pub label: String,
    /// The attempt of its step.
    pub attempt: u32,
}

impl PlanDigests {
    /// One digest over all of them.
    #[must_use]
    pub fn binding(&self) -> Digest {
        let parts = [
            self.prompt.as_str(),
            self.system.as_str(),
            self.schema.as_str(),
            self.tools.as_str(),
            self.model.as_str(),
            self.label.as_str(),
        ];
        Digest::of_json(&serde_json::json!([parts, self.attempt]))
    }

    /// Names of the fields in which two plans differ.
    #[must_use]
    pub fn moved(&self, other: &Self) -> Vec<&'static str> {
        [
            ("prompt", self.prompt != other.prompt),
            ("system", self.system != other.system),
            ("schema", self.schema != other.schema),
            ("tools", self.tools != other.tools),
            ("model", self.model != other.model),
            ("label", self.label != other.label),
            ("attempt", self.attempt != other.attempt),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }
}

/// What an adapter promises of a harness's built-in tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Built {
    /// Each is recorded before it runs and can be denied.
    Gated,
    /// Each is recorded, some only after they ran.
    Observed,
    /// They are neither seen nor stopped.
    Neither,
}

/// An `open` of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// Keys of earlier attempts of the same step: the repeat rule reads their receipts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<SessionKey>,
    /// Our version.
    pub version: String,
    /// The harness's version, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<HarnessVersion>,
    /// The harness's own id of the session, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_session: Option<String>,
}

/// A harness program and its version, as it said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HarnessVersion {
    /// The program's name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Where a prompt came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The node's own prompt.
    Node,
    /// The runner's reminder that the value is still to be submitted.
    Nudge,
    /// A person.
    Person,
    /// A follow-up, by its effect key.
    FollowUp(EffectKey),
    /// The note a resumed harness gets.
    Recovery,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::Nudge => f.write_str("nudge"),
            Self::Person => f.write_str("person"),
            Self::FollowUp(key) => write!(f, "follow-up:{key}"),
            Self::Recovery => f.write_str("recovery"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match (text.as_str(), text.strip_prefix("follow-up:")) {
            ("node", _) => Ok(Self::Node),
            ("nudge", _) => Ok(Self::Nudge),
            ("person", _) => Ok(Self::Person),
            ("recovery", _) => Ok(Self::Recovery),
            (_, Some(key)) => Ok(Self::FollowUp(EffectKey(key.to_owned()))),
            _ => Err(serde::de::Error::custom(format!("unknown source `{text}`"))),
        }
    }
}

/// A prompt accepted into the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Its id; the same id again is the same submission.
    pub id: SubmissionId,
    /// Where it came from.
    pub source: Source,
    /// Its words.
    pub text: Arc<str>,
    /// Digest of the words: the same id with another digest is a conflict.
    pub digest: Digest,
}

impl Submission {
    /// A submission of `text`.
    #[must_use]
    pub fn new(id: SubmissionId, source: Source, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self { id, source, digest: Digest::of(text.as_bytes()), text }
    }
}

/// Submissions that will never be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdrawn {
    /// Which.
    pub ids: Vec<SubmissionId>,
    /// Why, in words for a person.
    pub why: String,
}

/// A message, just before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The message's id; the harness's own where it takes one.
    pub message: MessageId,
    /// The turn it opens.
    pub turn: TurnId,
    /// The submissions its text holds, in order.
    pub carries: Vec<SubmissionId>,
    /// Earlier messages this one stands for: once it is taken, they count as taken too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<MessageId>,
    /// The text exactly as sent.
    pub text: Arc<str>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndHow {
    /// The harness went idle by itself.
    Done,
    /// It was stopped.
    Interrupted,
    /// It said it failed.
    Failed,
}

/// What kind of effect an intent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// A host tool, run by us.
    Tool,
    /// The injected submit tool.
    Submit,
    /// A harness's own tool; only the harness can run it.
    Builtin,
    /// A model request.
    Request,
    /// A paid decision of the host's.
    Decision,
    /// One more turn asked by the host.
    FollowUp,
}

/// Whether an effect may run a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// Free to run again, also while an earlier run of itself still goes on.
    Safe,
    /// Must not run twice.
    Never,
}

/// Before an effect runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// The effect.
    pub key: EffectKey,
    /// Its kind.
    pub effect: EffectKind,
    /// Whether it may run twice.
    pub replay: Replay,
    /// The tool's name, the model of a request, the follow-up's name.
    pub name: String,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The harness's own id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The arguments; a request's are its priced facts, not its body.
    #[serde(default)]
    pub arguments: Value,
    /// Digest of the canonical arguments (of the body, for a request).
    pub digest: Digest,
    /// The hold that pays for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldId>,
    /// The most it can cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Usd>,
}

/// How an effect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeEnd {
    /// It did what it was asked.
    Ok,
    /// It ran and said it failed.
    Error,
    /// It was cut: it may have partly run, and is not run again.
    Interrupted,
    /// It was refused before it ran.
    Refused,
}

/// After an effect ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The effect.
    pub key: EffectKey,
    /// How it ended.
    pub end: OutcomeEnd,
    /// The text exactly as the model is shown it; empty for a request.
    #[serde(default)]
    pub text: Arc<str>,
    /// What a request used, when the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What was booked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
    /// The provider's id of the response: how a history that lacks it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// A request's whole response as received, so that a paid answer is never asked for again. Not part of the JSON text.
    #[serde(skip)]
    pub response: Arc<[u8]>,
}

impl Outcome {
    /// An outcome of `key` that shows `text` to the model.
    #[must_use]
    pub fn new(key: EffectKey, end: OutcomeEnd, text: impl Into<Arc<str>>) -> Self {
        Self { key, end, text: text.into(), usage: None, cost: None, response_id: None, response: Arc::from([]) }
    }
}

/// A write to one stream of the harness's own history: the stream is cut at `offset`, then `bytes` follow. So append, trim and replace
/// are one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeWrite {
    /// Path relative to the harness's private home, or one row's id.
    pub stream: String,
    /// Where the stream is cut, in bytes.
    pub offset: u64,
    /// What follows from there. Not part of the JSON text.
    #[serde(skip)]
    pub bytes: Arc<[u8]>,
}

/// A submit call arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The nth of the session, from 1.
    pub number: u32,
    /// The submit call's effect.
    pub key: EffectKey,
    /// Digest of the value.
    pub digest: Digest,
    /// What was submitted, envelope and all: also what does not fit is decided from the record.
    pub submitted: Value,
}

/// A candidate was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The candidate.
    pub number: u32,
    /// Whether it was accepted.
    pub accepted: bool,
    /// What the model was told.
    #[serde(default)]
    pub message: String,
}

/// The session has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivered {
    /// The value.
    pub value: Value,
}

/// The cap refused a paid step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parked {
    /// The refusal's word.
    pub word: String,
    /// The cap that would let the step through.
    pub needed: Usd,
    /// The cap as it was.
    pub cap: Usd,
    /// What stood against it: booked, held and unknown.
    pub spent: Usd,
    /// The ledger's head when it was asked.
    pub ledger: Seq,
}

/// One of the runner's own bounds ended the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The failure's word.
    pub word: String,
    /// What happened and what to do.
    pub message: String,
}

/// A turn was ended by a settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    /// The turn; `None` when none was open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Submissions that stay unsent: the next message begins with them.
    #[serde(default)]
    pub unsent: Vec<SubmissionId>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Its id.
    pub id: String,
    /// What is asked.
    pub what: String,
    /// What may be answered; empty: anything.
    #[serde(default)]
    pub choices: Vec<String>,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskAnswer {
    /// The question's id.
    pub id: String,
    /// The answer.
    pub answer: String,
    /// Who gave it.
    pub by: String,
}

/// An image of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The record it belongs to.
    pub of: Seq,
    /// How the image is kept.
    pub image: String,
    /// Where it is.
    pub reference: String,
    /// Digest of its content.
    pub digest: Digest,
}
