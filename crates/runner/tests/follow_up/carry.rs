//! Words that did not reach the model begin the next message, behind one notice, and are part of its recorded text.

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, Admission, AgentAdapter, Capabilities, Checked, CloseReport,
    NativeHistory, NativeIdentity, Refusal, RequestBarrier, Seat, SessionPlan, Start, Turn, TurnEnd,
};
use agentrun_kernel::{Body, Built, HarnessVersion, OutcomeEnd, SubmissionId, Survey};
use agentrun_runner::HarnessRunner;
use agentrun_testing::faux::FauxHistory;
use async_trait::async_trait;
use serde_json::json;

use crate::stage::{answered, ask, follow, messages, said, script, unsent, why};
use crate::world::{node, says, when};

const NOTICE: &str = "did not reach you";

#[tokio::test]
async fn b30_b31_b32_the_follow_ups_message_begins_with_the_words_that_wait() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    unsent(&world, "p1").await;
    said(&world, "p2", "And the sign.").await;
    let runner = world.runner(json!([when(json!({"contains": "Mind the units."}), says("I do. It is prime."))]));
    let followed = follow(&runner, why()).await.unwrap();
    assert_eq!((followed.end, followed.text.as_ref()), (OutcomeEnd::Ok, "I do. It is prime."), "the model read them");
    let records = world.records().await;
    let text = messages(&records).last().unwrap().clone();
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} in {text}"));
    let order = [NOTICE, "Mind the units.", "And the sign.", "Why?"].map(at);
    assert!(order.is_sorted(), "what was cut comes first, then what was sent since: {text}");
    assert_eq!(text.matches(NOTICE).count(), 1, "B31: one notice");
    let Some(Body::Placed(placed)) =
        records.iter().rev().map(|record| &record.body).find(|body| body.kind() == "placed")
    else {
        panic!("placed")
    };
    let carried = placed.carries.iter().map(SubmissionId::as_str).collect::<Vec<_>>();
    assert_eq!(carried, ["p1", "p2", "follow-up:name:why"], "B32: the carry is the message's own");
}

#[tokio::test]
async fn b36_words_that_were_carried_are_not_carried_again() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    follow(&world.runner(script()), why()).await.unwrap();
    follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap();
    assert_eq!(messages(&world.records().await).last().unwrap().as_ref(), "And why else?");
}

/// A harness that fails each turn before it takes its message.
struct Deaf;

#[async_trait]
impl AgentAdapter for Deaf {
    fn profile(&self) -> &AdapterProfile {
        &AdapterProfile {
            name: "faux",
            widest: Capabilities {
                own_ids: true,
                drain: false,
                fork: false,
                steer: false,
                restores_responses: false,
                builtins: Built::Neither,
            },
            speaks: &[],
            program: None,
        }
    }
    fn history(&self) -> &dyn NativeHistory {
        &FauxHistory
    }
    async fn check(&self, plan: &SessionPlan, _: Option<&Survey>) -> Result<Checked, Refusal> {
        let harness = HarnessVersion { name: "faux".to_owned(), version: "1".to_owned() };
        Ok(Checked { capabilities: self.profile().widest, harness, program: None, plan: plan.clone() })
    }
    async fn open(&self, _: Admission, _: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        Ok(Box::new(Self))
    }
}

#[async_trait]
impl AdapterSession for Deaf {
    fn capabilities(&self) -> Capabilities {
        Self.profile().widest
    }
    fn native(&self) -> Option<NativeIdentity> {
        None
    }
    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        None
    }
    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Start::Place(ticket) = turn.start else { panic!("a follow-up places a message") };
        ticket.place().await.unwrap();
        Ok(TurnEnd::Failed { status: None, message: "it does not listen".to_owned() })
    }
    async fn close(self: Box<Self>, _: Duration) -> CloseReport {
        CloseReport::default()
    }
}

#[tokio::test]
async fn b30_b34_words_in_a_message_that_its_harness_never_took_begin_the_next_one() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    let deaf = HarnessRunner::new(Arc::new(Deaf), world.options());
    let failed = follow(&deaf, why()).await.unwrap();
    assert_eq!(failed.end, OutcomeEnd::Error);
    assert!(failed.text.contains("it does not listen"), "{}", failed.text);
    follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap();
    let texts = messages(&world.records().await);
    let last = texts.last().unwrap();
    assert!(last.contains(NOTICE) && last.contains("Mind the units."), "{last}");
    assert!(!last.contains("Why?"), "B41: its own prompt is not carried: {last}");
}
