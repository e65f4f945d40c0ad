//! One more turn in a session that has answered, at most once a name. Asked again it answers what is recorded; cut inside, it stays
//! interrupted and its turn is settled, never resumed.
//!
//! ```text
//!  read (no fence) ─► known? answer it ─► has the session answered? ─► does an owner live? busy ─► settle what is open ─► admit ─► open
//!      ─► adapter ─► [intent, submission] ─► [placed] ─► turn ─► [turn_end, outcome] ─► close
//! ```
//! The harness is there before the intent: one that cannot be started costs the name nothing.

use std::sync::Arc;

use agentrun_adapter::process::Marker;
use agentrun_adapter::{
    AdapterError, AdapterSession, Admission, HistoryError, RecordedFiles, Start, Turn, TurnEnd, admit,
};
use agentrun_cap::{Denied, Scope, Word, fits};
use agentrun_kernel::{
    Begun, Body, Digest, EffectKey, EffectKind, EffectSpec, FollowUpName, FollowUpNext, LogKey, Message, MessageId,
    NotAnswered, OnRepeat, OpenEffect, OpenError, Outcome, OutcomeEnd, Record, Replay, SessionKey, SessionState,
    Source, Spent, StopLevel, Submission, SubmissionId, TurnEndHow, TurnId, Usd, Why, follow_up_next, is_quiet,
    read_all,
};
use serde_json::json;

use crate::attempt::{Attempt, Job, RACES, Seated, Taken, earlier};
use crate::binding::{check_binding, plan, plan_digests};
use crate::bridge::bounded;
use crate::carry::{CARRIED_BYTES, RECOVERY_NOTE, compose};
use crate::error::{NodeError, NodeWord};
use crate::faults::{of_drive, of_recovery, refused, storage};
use crate::gate::Trouble;
use crate::inbox::take;
use crate::node::{Node, PROMPT_BYTES, Step};
use crate::presence::{Presence, live_owner};
use crate::runner::HarnessRunner;
use crate::settle::{Here, SettleIn, cut_follow_up, settle_read};

/// What is asked.
#[derive(Clone, Debug)]
pub struct FollowUp {
    /// Its name in the session.
    pub name: FollowUpName,
    /// What the model is asked.
    pub prompt: String,
    /// The most its paid steps may cost, counted from its first; what the session spent before is left out. `None`: the node's budget and
    /// the run's cap alone bound it.
    pub reserve: Option<Usd>,
}

/// How a follow-up ended, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedUp {
    /// The session.
    pub session: SessionKey,
    /// Its name.
    pub name: FollowUpName,
    /// `ok`: the turn ended by itself. `error`: a bound, a refusal or the provider ended it. `interrupted`: it was cut.
    pub end: OutcomeEnd,
    /// The model's words, where its harness's history keeps them; else what ended it.
    pub text: Arc<str>,
    /// What it cost.
    pub spent: Spent,
    /// Answered from the records: nothing was run.
    pub from_records: bool,
}

/// Why a follow-up did not run. Nothing of it was written: the same name may be asked again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowUpError {
    /// The session has not answered.
    #[error("session `{session}` takes no follow-up: {why}")]
    NotAnswered {
        /// The session.
        session: SessionKey,
        /// What stands in the way.
        why: NotAnswered,
    },
    /// Its owner lives: the node runs, or another follow-up. One turn is open at a time.
    #[error("session `{0}` is busy: its owner lives; ask again when it has ended")]
    Busy(SessionKey),
    /// What a node would say of it.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// What a follow-up may cost.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    amount: Usd,
    key: EffectKey,
}

impl Reserve {
    /// Whether a paid step of the follow-up may begin.
    pub(crate) fn admits(&self, state: &SessionState, needed: Usd) -> Result<(), Denied> {
        let spent = state.effect(&self.key).map_or_else(Spent::default, |own| state.spent_in(own));
        if spent.unknown_count > 0 {
            let what = "a paid step of this follow-up ended and nobody can say what it cost";
            return Err(Denied::because(Word::UnknownSpend, Scope::FollowUp, what));
        }
        fits(Word::OverReserve, Scope::FollowUp, self.amount, spent.counted(), needed)
    }
}

pub(crate) async fn run(
    runner: &HarnessRunner,
    node: Node,
    step: Step,
    ask: FollowUp,
) -> Result<FollowedUp, FollowUpError> {
    let fail = |word, message: String| NodeError::new(&step.session, word, message);
    let digests = plan_digests(&node, &step);
    let plan = plan(&node, &step, runner.options.provider.api()).map_err(|message| fail(NodeWord::Refused, message))?;
    if ask.prompt.len() > PROMPT_BYTES {
        let message = format!("the prompt has {} bytes, more than {PROMPT_BYTES}", ask.prompt.len());
        return Err(fail(NodeWord::Refused, message).into());
    }
    let options = &runner.options;
    let at = SettleIn { store: options.store.clone(), adapter: runner.adapter.clone(), homes: options.homes.clone() };
    let mut presence = None;
    for _ in 0..RACES {
        let here = Here::read(&at, &step).await?;
        match follow_up_next(&here.state, &ask.name) {
            FollowUpNext::Known(outcome) => return Ok(told(&step, &ask, &here.state, &outcome, true)),
            // It may answer yet.
            FollowUpNext::NotAnswered(why)
                if why != NotAnswered::Failed
                    && live_owner(&options.homes, options.store.id(), &step.session).is_some() =>
            {
                return Err(FollowUpError::Busy(step.session.clone()));
            }
            FollowUpNext::NotAnswered(why) => {
                return Err(FollowUpError::NotAnswered { session: step.session.clone(), why });
            }
            FollowUpNext::Begun | FollowUpNext::Begin => {}
        }
        check_binding(&here.state, runner, &digests, &step)?;
        if presence.is_none() {
            let alone = Presence::alone(&options.homes, options.store.id(), &step.session);
            presence = alone.map_err(|error| fail(NodeWord::Storage, format!("homes: {error}")))?;
            if presence.is_none() {
                return Err(FollowUpError::Busy(step.session.clone()));
            }
            // Read again: the owner that is gone now may have written since.
            continue;
        }
        if !is_quiet(&here.state, &here.survey) {
            settle_read(&at, &step, here, None).await?;
            continue;
        }
        carried(&step, &here.state, &ask)?;
        let Here { state, files, survey } = here;
        let admission =
            admit(&*runner.adapter, &plan, Some(&survey)).await.map_err(|refusal| refused(&step, &refusal))?;
        if runner.stop.signal().level() >= StopLevel::Drain {
            return Err(fail(NodeWord::Aborted, "stopped before it began".to_owned()).into());
        }
        let earlier = earlier(&options.store, &step).await?;
        let writer = match options.store.open(&step.session, Some(state.head)).await {
            Ok(writer) => writer,
            Err(OpenError::HeadChanged { .. }) => continue,
            Err(OpenError::Store(error)) => return Err(storage(&step, &error).into()),
            Err(error) => return Err(fail(NodeWord::Binding, error.to_string()).into()),
        };
        let taken = Taken { writer, state, files, admission, digests };
        let ended = Attempt::start(runner, node, step.clone(), taken, earlier, ask.clone()).await?;
        let Ended { state, outcome } = ended;
        return Ok(told(&step, &ask, &state, &outcome, false));
    }
    Err(fail(NodeWord::Fenced, "another owner keeps writing to the session; nothing was taken".to_owned()).into())
}

fn told(step: &Step, ask: &FollowUp, state: &SessionState, outcome: &Outcome, from_records: bool) -> FollowedUp {
    let own = state.effect(&EffectKey::of_follow_up(&ask.name));
    FollowedUp {
        session: step.session.clone(),
        name: ask.name.clone(),
        end: outcome.end,
        text: outcome.text.clone(),
        spent: own.map_or_else(Spent::default, |effect| state.spent_in(effect)),
        from_records,
    }
}

/// Whether all that the message must hold fits: refused here, since what was accepted must be placed.
fn carried(step: &Step, state: &SessionState, ask: &FollowUp) -> Result<(), NodeError> {
    let key = EffectKey::of_follow_up(&ask.name);
    let waiting = state.follow_up_carry(&SubmissionId::of_follow_up(&key)).unsent;
    let bytes: usize = waiting
        .iter()
        .filter_map(|id| state.submission(id))
        .map(|accepted| accepted.submission.text.len())
        .sum::<usize>()
        .saturating_add(ask.prompt.len());
    if bytes <= CARRIED_BYTES {
        return Ok(());
    }
    let message = format!(
        "its message would hold {bytes} bytes, more than {CARRIED_BYTES}: prompts wait in the session; resume it first"
    );
    Err(NodeError::new(&step.session, NodeWord::Refused, message))
}

/// The follow-up's outcome and the state it was recorded in.
pub(crate) struct Ended {
    state: SessionState,
    outcome: Arc<Outcome>,
}

impl Job for FollowUp {
    type End = Ended;

    /// The node's bound is on the work for its value; a follow-up is one turn by itself.
    fn turn_limit(&self, _node: &Node) -> Option<u32> {
        None
    }

    async fn work(
        self,
        attempt: &Attempt<'_>,
        files: &mut RecordedFiles,
        admission: Admission,
        marker: Marker,
    ) -> Result<Ended, NodeError> {
        let Seated { mut session, home, _key } = attempt.seated(files, admission, marker).await?;
        // What people sent since the session answered goes with it.
        let taken = take(&attempt.runner.options.store, &attempt.drive).await;
        taken.map_err(|error| of_recovery(&attempt.step, error.into()))?;
        let ended = attempt.follow_up(&mut *session, &self).await;
        attempt.wind_down(session).await;
        drop(home);
        Ok(Ended { outcome: ended?, state: attempt.drive.state() })
    }
}

impl Attempt<'_> {
    /// The follow-up's one turn, from its intent to its outcome.
    async fn follow_up(&self, session: &mut dyn AdapterSession, ask: &FollowUp) -> Result<Arc<Outcome>, NodeError> {
        let key = EffectKey::of_follow_up(&ask.name);
        let own = SubmissionId::of_follow_up(&key);
        let text: Arc<str> = Arc::from(ask.prompt.as_str());
        let arguments = json!({ "prompt": Digest::of(text.as_bytes()), "reserve": ask.reserve });
        let spec = EffectSpec {
            key: key.clone(),
            kind: EffectKind::FollowUp,
            replay: Replay::Never,
            on_repeat: OnRepeat::Refuse,
            name: ask.name.to_string(),
            turn: None,
            call: None,
            digest: Digest::of_json(&arguments),
            arguments,
            paid: None,
        };
        let submission = Body::Submission(Submission::new(own.clone(), Source::FollowUp(key.clone()), text));
        let begun = self.drive.begin(spec, vec![submission], None).await;
        let effect = match begun.map_err(|error| of_drive(&self.step, &error))? {
            Begun::Open(effect) => effect,
            Begun::Known(outcome) => return Ok(outcome),
            Begun::Running(_) => return Err(self.fail(NodeWord::Storage, "it runs already".to_owned())),
        };
        let state = self.drive.state();
        if let Some(amount) = ask.reserve {
            self.gate.hold_to(Reserve { amount, key: key.clone() });
        }
        let cut_before = state.last_turn.as_ref().is_some_and(|turn| turn.how != TurnEndHow::Done);
        let carry = state.follow_up_carry(&own);
        let (text, carries) = compose(&state, &carry);
        let message =
            Message { id: MessageId::fresh(), turn: TurnId::fresh(), carries, replaces: carry.replaces, text };
        let scope = self.gate.open_turn();
        let end = session
            .run_turn(Turn {
                start: Start::Place(self.drive.ticket(message)),
                stop: self.stop.signal(),
                recovery_note: if cut_before { RECOVERY_NOTE.to_owned() } else { String::new() },
                // It is the host's: what people send meanwhile waits for the next message.
                words: None,
            })
            .await;
        drop(scope);
        if !matches!(end, Ok(TurnEnd::Idle)) && self.taken().await {
            self.stop.raise(StopLevel::Kill, Why::Fenced);
        }
        self.quiet_requests().await;
        match self.stop.signal().why() {
            // Whoever has the session now settles it.
            Some(Why::Fenced) => return Err(self.fenced()),
            Some(Why::Storage) => return Err(self.lost().await),
            _ => {}
        }
        self.record(effect, self.verdict(end)).await
    }

    /// How the turn ended, the reasons that outrank the harness's word first.
    fn verdict(&self, end: Result<TurnEnd, AdapterError>) -> Verdict {
        if let Some((word, message)) = self.bridge.failed() {
            return Verdict::Over(format!("{}: {message}", word.as_str()));
        }
        match (self.gate.trouble(), end) {
            (Some(Trouble::Denied(denied)), _) if denied.word != Word::Stopped => {
                Verdict::Over(format!("{}: {denied}", denied.word))
            }
            (Some(Trouble::Host(fault)), _) => Verdict::Over(format!("the host's own check failed: {fault}")),
            (Some(Trouble::Storage(why) | Trouble::Barrier(why)), _) => Verdict::Over(why),
            (_, Ok(TurnEnd::Idle)) => Verdict::Done,
            // A harness whose next request the stop refused says that its turn failed.
            (_, Ok(TurnEnd::Stopped(_))) => Verdict::Cut("it was stopped".to_owned()),
            _ if self.stop.signal().level() >= StopLevel::Drain => Verdict::Cut("it was stopped".to_owned()),
            (_, Ok(TurnEnd::Failed { status, message })) => {
                let status = status.map_or_else(String::new, |status| format!("{status}: "));
                Verdict::Over(format!("the turn failed: {status}{message}"))
            }
            (_, Err(error)) => Verdict::Cut(error.to_string()),
        }
    }

    /// Ends the turn and the follow-up in one batch.
    async fn record(&self, effect: OpenEffect, verdict: Verdict) -> Result<Arc<Outcome>, NodeError> {
        self.end_builtins().await?;
        let key = effect.key().clone();
        let state = self.drive.state();
        let files = self.recorded().await?;
        let history = self.runner.adapter.history();
        let read = |error: HistoryError| self.fail(NodeWord::Harness, error.to_string());
        let survey = history.survey(&files).map_err(read)?;
        let turn = state.open_turn.as_ref();
        let taken = turn.is_some_and(|turn| survey.taken.contains(&turn.message));
        let turn = turn.map(|turn| turn.id.clone());
        let over = |how| turn.clone().map(|turn| Body::TurnEnd { turn, how }).into_iter().collect::<Vec<_>>();
        // A message that reached nobody is settled, so that what else it carried begins the next one.
        let settled = || cut_follow_up(None, turn.clone(), state.opening(&key), state.unsent_beside(&key, &survey));
        let (before, end, text, after) = match verdict {
            Verdict::Done => {
                let words = history.last_words(&files).map_err(read)?.unwrap_or_default();
                (over(TurnEndHow::Done), OutcomeEnd::Ok, words, Vec::new())
            }
            Verdict::Over(what) if taken => (over(TurnEndHow::Failed), OutcomeEnd::Error, what, Vec::new()),
            Verdict::Over(what) => (Vec::new(), OutcomeEnd::Error, what, settled()),
            Verdict::Cut(what) => {
                let text = format!("{what}; it may have partly run, and is not run again");
                (Vec::new(), OutcomeEnd::Interrupted, text, settled())
            }
        };
        let outcome = Outcome::new(key.clone(), end, bounded(text));
        let done = effect.finish_after(before, outcome, after).await;
        done.map_err(|unfinished| of_drive(&self.step, &unfinished.error))
    }

    async fn recorded(&self) -> Result<RecordedFiles, NodeError> {
        let log = LogKey::from(&self.step.session);
        let records: Vec<Record> =
            read_all::<Body>(&*self.runner.options.store, &log).await.map_err(|error| storage(&self.step, &error))?;
        Ok(RecordedFiles::fold(&records))
    }
}

/// How a follow-up's turn ended.
enum Verdict {
    /// By itself.
    Done,
    /// By a bound, a refusal or the provider.
    Over(String),
    /// It was cut.
    Cut(String),
}
