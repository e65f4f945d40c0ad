//! The loop guard in the runner: a model that goes round in circles is told so once, by a refused call, and then the node ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_kernel::{EffectKind, OutcomeEnd, Replay};
use agentrun_runner::{HostFault, NodeWord, Review, ReviewVerdict, ToolEnd, ToolInvocation, ToolRun};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::bounds::{always, ends_finally};
use crate::world::{Probe, World, calls, intents, node, outcomes, step, submits, when, within};

fn ends(records: &[agentrun_kernel::Record], kind: EffectKind) -> Vec<OutcomeEnd> {
    outcomes(records, kind).iter().map(|outcome| outcome.end).collect()
}

/// Asks for the same search whatever it is told.
fn circles() -> Value {
    always(calls("search", json!({"q": "n"})))
}

/// The same, until it is told that it goes round in circles.
fn heeds() -> Value {
    json!([
        when(json!({"anywhere": "Do something else"}), submits(1)),
        when(json!({}), calls("search", json!({"q": "n"})))
    ])
}

#[tokio::test]
async fn b92_a_model_in_a_circle_is_told_first_and_then_ends_the_node_as_doom_loop() {
    let (world, probe) = (World::new(), Probe::new());
    let error =
        ends_finally(&world, world.runner(circles()), node(vec![probe.tool(Replay::Safe)]), NodeWord::DoomLoop).await;
    assert!(error.message.contains("`search`"), "{error}");
    let records = world.records().await;
    assert_eq!(ends(&records, EffectKind::Tool), [OutcomeEnd::Ok, OutcomeEnd::Ok, OutcomeEnd::Refused]);
    assert_eq!(probe.runs(), 2, "the call that would close the circle is not run");
    let note = outcomes(&records, EffectKind::Tool)[2];
    assert!(note.text.contains("the task ends"), "it says what comes next: {}", note.text);
}

#[tokio::test]
async fn a_model_that_heeds_the_note_delivers() {
    let (world, probe) = (World::new(), Probe::new());
    let delivered = world.runner(heeds()).run_node(node(vec![probe.tool(Replay::Safe)]), step()).await.unwrap();
    assert_eq!((delivered.value, probe.runs()), (json!({"n": 1}), 2));
}

/// Finds something else each time.
struct Finds(AtomicUsize);

#[async_trait]
impl ToolRun for Finds {
    async fn run(&self, _: ToolInvocation) -> ToolEnd {
        ToolEnd::Ok(format!("found {}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

#[tokio::test]
async fn the_same_call_with_another_result_is_progress() {
    let (world, probe) = (World::new(), Probe::new());
    let mut tool = probe.tool(Replay::Safe);
    tool.run = Arc::new(Finds(AtomicUsize::new(0)));
    let asks =
        json!([when(json!({"contains": "found 7"}), submits(8)), when(json!({}), calls("search", json!({"q": "n"})))]);
    let delivered = world.runner(asks).run_node(node(vec![tool]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 8}));
}

#[tokio::test]
async fn a_call_whose_arguments_never_fit_is_a_circle_too() {
    let (world, probe) = (World::new(), Probe::new());
    let runner = world.runner(always(calls("search", json!({"q": 1}))));
    ends_finally(&world, runner, node(vec![probe.tool(Replay::Never)]), NodeWord::DoomLoop).await;
    assert_eq!(ends(&world.records().await, EffectKind::Tool), [OutcomeEnd::Refused; 3]);
    assert_eq!(probe.runs(), 0);
}

#[tokio::test]
async fn a_resumed_session_knows_the_circle_of_the_one_that_was_cut() {
    let (world, probe) = (World::new(), Probe::held());
    let runner = world.runner(circles());
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Safe)]);
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    probe.let_go();
    probe.began().await;
    running.abort();
    assert!(within(running).await.unwrap_err().is_cancelled());

    // The second call, safe, is run again under its intent; the third would close the circle.
    let (after, second) = (world.again(), Probe::new());
    let error = after.runner(circles()).run_node(node(vec![second.tool(Replay::Safe)]), step()).await.unwrap_err();
    assert_eq!((error.word, second.runs()), (NodeWord::DoomLoop, 1), "{error}");
    assert_eq!(ends(&after.records().await, EffectKind::Tool), [OutcomeEnd::Ok, OutcomeEnd::Ok, OutcomeEnd::Refused]);
}

#[tokio::test]
async fn a_built_in_in_a_circle_is_denied_with_the_note_and_then_ends_the_node() {
    let world = World::new();
    let mut reads = node(Vec::new());
    reads.builtins = vec!["Read".to_owned()];
    ends_finally(&world, world.runner(always(calls("Read", json!({"path": "a"})))), reads, NodeWord::DoomLoop).await;
    let records = world.records().await;
    assert_eq!(ends(&records, EffectKind::Builtin), [OutcomeEnd::Ok, OutcomeEnd::Ok, OutcomeEnd::Refused]);
}

/// Accepts nothing.
struct Never(AtomicUsize);

#[async_trait]
impl Review for Never {
    async fn review(&self, _: &str, _: &Value) -> Result<ReviewVerdict, HostFault> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(ReviewVerdict::Reject("not that".to_owned()))
    }
}

#[tokio::test]
async fn a_value_that_is_submitted_again_and_again_reaches_the_review_twice() {
    let (world, review) = (World::new(), Arc::new(Never(AtomicUsize::new(0))));
    let mut reviewed = node(Vec::new());
    reviewed.review = Some(review.clone());
    ends_finally(&world, world.runner(always(submits(1))), reviewed, NodeWord::DoomLoop).await;
    assert_eq!(review.0.load(Ordering::SeqCst), 2);
    let submitted = intents(&world.records().await, EffectKind::Submit).len();
    assert_eq!(submitted, 3, "the third is refused behind its intent, the fourth never begins");
}
