//! The suite proven: the faux adapter with one promise broken is caught by the case that names it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::process::Spawn;
use agentrun_adapter::{
    AdapterError, AdapterErrorKind, AdapterProfile, AdapterSession, Admission, AgentAdapter, Answer, Capabilities,
    Checked, CloseReport, ModelEndpoint, ModelPort, NativeHistory, NativeIdentity, Observed, PaidCall, Refusal,
    RequestBarrier, Seat, SessionPlan, Start, Tail, ToolCall, ToolHost, ToolSpec, Turn, TurnEnd,
};
use agentrun_kernel::{Message, MessageId, Restart, StopLevel, StopRaiser, Survey, Why};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::{Conversation, Script};
use agentrun_testing::suites::adapter::{Options, Subject, conform_only};
use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::subjects::Faux;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Asks the model before the message has its record.
    AsksBeforeRecording,
    /// Hands a call over without the history that explains it.
    RecordsWithoutHistory,
    /// Says a message a second time when the turn goes on.
    PlacesTwice,
    /// A denial is never told.
    ForgetsToAnswer,
    /// A process stays.
    LeavesAProcess,
    /// The end of the turn behind an accepted submit is not heard.
    GoesOnAfterSubmit,
    /// A built-in runs, then it is asked for.
    RunsBeforeItAsks,
    /// A denied one too.
    RunsWhatIsDenied,
    /// A call that is to be withheld is answered.
    AnswersTheWithheld,
    /// A fence is the turn's end.
    FenceIsIdle,
    /// A stop is not heard.
    DeafToDrain,
    /// It says it can do what its profile does not say.
    Boasts,
}

const MUTANTS: &[(Flaw, &str)] = &[
    (Flaw::AsksBeforeRecording, "b38_a_message_is_in_the_records_before_anything_is_sent"),
    (
        Flaw::RecordsWithoutHistory,
        "b69_a_call_is_in_the_native_history_no_later_than_its_intent_and_the_model_gets_its_text",
    ),
    (Flaw::PlacesTwice, "b36_a_message_that_was_taken_reaches_the_model_once"),
    (Flaw::ForgetsToAnswer, "b70_a_denied_built_in_never_runs_and_the_model_is_told"),
    (Flaw::LeavesAProcess, "b21_a_kill_ends_it_with_all_it_started"),
    (Flaw::GoesOnAfterSubmit, "an_accepted_submit_ends_the_turn_with_no_further_call_or_request"),
    (Flaw::RunsBeforeItAsks, "b70_a_built_in_has_its_intent_before_it_runs_and_the_text_the_model_gets_for_an_outcome"),
    (Flaw::RunsWhatIsDenied, "b70_a_denied_built_in_never_runs_and_the_model_is_told"),
    (Flaw::AnswersTheWithheld, "b19_a_withheld_call_is_not_answered_and_no_request_follows"),
    (Flaw::FenceIsIdle, "b43_a_fenced_session_unwinds_and_runs_nothing_more"),
    (Flaw::DeafToDrain, "b19_a_drain_lets_a_running_call_record_its_outcome_and_begins_nothing"),
    (Flaw::Boasts, "what_a_session_can_do_is_never_wider_than_its_profile"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_mutant_is_caught_by_the_case_that_names_its_fault() {
    let mut missed = Vec::new();
    for (flaw, due) in MUTANTS {
        // Unbroken it passes, so that what is caught is the flaw.
        for (flaw, sound) in [(Flaw::None, true), (*flaw, false)] {
            // Only a mutant that hangs waits this out, and a slow machine cannot make one pass.
            let patience = if sound { Options::default().patience } else { Duration::from_secs(20) };
            let options = Options { patience, ..Options::default() };
            let report = conform_only(&format!("{flaw:?}"), Arc::new(Mutant(flaw)), options, |it| it == *due).await;
            assert_eq!(report.cases.len(), 1, "no such case: {due}");
            if sound != report.passed() {
                missed.push(format!("{flaw:?}:\n{report}"));
            } else if !sound {
                println!("{report}");
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

struct Mutant(Flaw);

impl Subject for Mutant {
    fn adapter(&self, script: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(Flawed { inner: FauxAdapter::new(script.clone()), flaw: self.0 })
    }

    fn model(&self) -> &str {
        Faux.model()
    }

    fn command(&self, line: &str) -> Option<(String, Map<String, Value>)> {
        Faux.command(line)
    }

    fn conversation(&self, body: &[u8]) -> Conversation {
        Faux.conversation(body)
    }
}

struct Flawed {
    inner: FauxAdapter,
    flaw: Flaw,
}

#[async_trait]
impl AgentAdapter for Flawed {
    fn profile(&self) -> &AdapterProfile {
        self.inner.profile()
    }

    fn history(&self) -> &dyn NativeHistory {
        self.inner.history()
    }

    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        self.inner.check(plan, prior).await
    }

    async fn open(&self, admission: Admission, mut seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        let flaw = self.flaw;
        if flaw == Flaw::LeavesAProcess {
            let child = Spawn::new("/bin/sleep", "/", seat.marker.clone()).arg("1000").spawn().unwrap();
            std::mem::forget(child);
        }
        let ModelEndpoint::Direct(port) = seat.model.clone() else { panic!("no port") };
        seat.tools = Arc::new(FlawedTools { inner: seat.tools, flaw, workspace: seat.dirs.workspace.clone() });
        Ok(Box::new(FlawedSession { inner: self.inner.open(admission, seat).await?, flaw, port }))
    }
}

struct FlawedSession {
    inner: Box<dyn AdapterSession>,
    flaw: Flaw,
    port: Arc<dyn ModelPort>,
}

#[async_trait]
impl AdapterSession for FlawedSession {
    fn capabilities(&self) -> Capabilities {
        let has = self.inner.capabilities();
        Capabilities { steer: has.steer || self.flaw == Flaw::Boasts, ..has }
    }

    fn native(&self) -> Option<NativeIdentity> {
        self.inner.native()
    }

    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        self.inner.request_barrier()
    }

    async fn run_turn(&mut self, mut turn: Turn) -> Result<TurnEnd, AdapterError> {
        match (self.flaw, turn.start) {
            (Flaw::AsksBeforeRecording, start) => {
                let body = Arc::from(&br#"{"messages":[]}"#[..]);
                drop(self.port.begin(PaidCall { model: "some-model".to_owned(), body, max_output: 1 }).await);
                turn.start = start;
            }
            (Flaw::PlacesTwice, Start::Continue(message)) => {
                turn.start = Start::Again(Message { id: MessageId::fresh(), ..message });
            }
            (_, start) => turn.start = start,
        }
        if self.flaw == Flaw::DeafToDrain {
            let (raiser, mut heard) = (StopRaiser::new(), turn.stop.clone());
            turn.stop = raiser.signal();
            return tokio::select! {
                end = self.inner.run_turn(turn) => end,
                level = heard.reached(StopLevel::Interrupt) => { raiser.raise(level, Why::Host); Ok(TurnEnd::Stopped(level)) }
            };
        }
        match self.inner.run_turn(turn).await {
            Err(AdapterError { kind: AdapterErrorKind::Restart(_), .. }) if self.flaw == Flaw::FenceIsIdle => {
                Ok(TurnEnd::Idle)
            }
            end => end,
        }
    }

    async fn close(self: Box<Self>, deadline: Duration) -> CloseReport {
        self.inner.close(deadline).await
    }
}

struct FlawedTools {
    inner: Arc<dyn ToolHost>,
    flaw: Flaw,
    workspace: PathBuf,
}

impl FlawedTools {
    fn runs(&self, call: &ToolCall) {
        let line = call.arguments["line"].as_str().unwrap();
        assert!(Command::new("sh").args(["-c", line]).current_dir(&self.workspace).status().unwrap().success());
    }
}

#[async_trait]
impl ToolHost for FlawedTools {
    fn specs(&self) -> &[ToolSpec] {
        self.inner.specs()
    }

    async fn call(&self, mut call: ToolCall) -> Result<Answer, Restart> {
        if self.flaw == Flaw::RecordsWithoutHistory {
            call.tail = Tail::none();
        }
        Ok(match (self.flaw, self.inner.call(call).await?) {
            (Flaw::GoesOnAfterSubmit, Answer::Text { text, is_error, .. }) => {
                Answer::Text { text, is_error, end_turn: false }
            }
            (Flaw::AnswersTheWithheld, Answer::Withhold) => {
                Answer::Text { text: Arc::from("answered"), is_error: false, end_turn: false }
            }
            (_, answer) => answer,
        })
    }

    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        let denied = call.arguments.to_string().contains("forbidden");
        if (self.flaw == Flaw::RunsBeforeItAsks && !denied) || (self.flaw == Flaw::RunsWhatIsDenied && denied) {
            self.runs(&call);
        }
        match self.inner.observe(call).await? {
            Observed::Deny(_) if self.flaw == Flaw::ForgetsToAnswer => std::future::pending().await,
            observed => Ok(observed),
        }
    }
}
