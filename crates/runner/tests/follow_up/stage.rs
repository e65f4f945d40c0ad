//! What the tests of follow-ups share: an answered session, a model that answers prompts it knows, and the asking.

use std::sync::Arc;

use agentrun_kernel::{
    Batch, Body, EffectKey, EffectKind, FollowUpName, Outcome, Record, SessionStore as _, Settled, Source, Submission,
    SubmissionId, Usd,
};
use agentrun_runner::{FollowUp, FollowUpError, FollowedUp, HarnessRunner, Node};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{World, count, key, node, outcomes, says, step, submits, when, within};

/// A model that submits 7, and answers what it is asked later.
pub(crate) fn script() -> Value {
    json!([
        when(json!({"contains": "And why else?"}), says("It is odd, too.")),
        when(json!({"contains": "Why?"}), says("Because it is prime.")),
        when(json!({"results": 0}), submits(7)),
    ])
}

pub(crate) fn name(text: &str) -> FollowUpName {
    FollowUpName::new(text).unwrap()
}

pub(crate) fn ask(of: &str, prompt: &str) -> FollowUp {
    FollowUp { name: name(of), prompt: prompt.to_owned(), reserve: None }
}

pub(crate) fn why() -> FollowUp {
    ask("why", "Why?")
}

pub(crate) fn effect_key(of: &str) -> EffectKey {
    EffectKey::of_follow_up(&name(of))
}

pub(crate) fn held_to(reserve: &str, ask: FollowUp) -> FollowUp {
    FollowUp { reserve: Some(reserve.parse::<Usd>().unwrap()), ..ask }
}

/// A world in which the node has delivered.
pub(crate) async fn answered(node: &Node) -> World {
    let world = World::new();
    world.runner(script()).run_node(node.clone(), step()).await.unwrap();
    world
}

pub(crate) async fn follow(runner: &HarnessRunner, ask: FollowUp) -> Result<FollowedUp, FollowUpError> {
    within(runner.follow_up_once(node(Vec::new()), step(), ask)).await
}

pub(crate) type Running = JoinHandle<Result<FollowedUp, FollowUpError>>;

pub(crate) fn start(runner: &HarnessRunner, node: Node, ask: FollowUp) -> Running {
    let runner = runner.clone();
    tokio::spawn(async move { runner.follow_up_once(node, step(), ask).await })
}

/// Drops a follow-up where it is, as the death of its process would.
pub(crate) async fn cut(running: Running) {
    running.abort();
    assert!(within(running).await.unwrap_err().is_cancelled());
}

/// Waits until the session has an open request, which a stalled model never answers.
pub(crate) async fn asked(world: &World) {
    let open = async {
        while !world.state().await.open_effects().any(|effect| effect.intent.effect == EffectKind::Request) {
            tokio::task::yield_now().await;
        }
    };
    within(open).await;
}

pub(crate) fn stalls() -> Value {
    json!([{"stall_after_events": 0, "times": "always"}])
}

/// A person's words are accepted into the session, and nobody places them.
pub(crate) async fn said(world: &World, id: &str, words: &str) {
    let mut writer = world.store.open(&key(), None).await.unwrap();
    let submission = Submission::new(SubmissionId(id.to_owned()), Source::Person, words);
    writer.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
}

/// A settle finds the words not taken.
pub(crate) async fn unsent(world: &World, id: &str) {
    let mut writer = world.store.open(&key(), None).await.unwrap();
    let settled = Settled { turn: None, unsent: vec![SubmissionId(id.to_owned())] };
    writer.append(Batch::of([Body::Settled(settled)]), None).await.unwrap();
}

pub(crate) fn of_follow_up(records: &[Record]) -> Vec<&Outcome> {
    outcomes(records, EffectKind::FollowUp)
}

/// The texts of all messages, in order.
pub(crate) fn messages(records: &[Record]) -> Vec<Arc<str>> {
    records
        .iter()
        .filter_map(|record| if let Body::Placed(placed) = &record.body { Some(placed.text.clone()) } else { None })
        .collect()
}

/// What counts runs and money of a session, so that two of them tell whether anything was done between.
pub(crate) async fn done(world: &World) -> (usize, usize, Usd) {
    let records = world.records().await;
    let requests = crate::world::intents(&records, EffectKind::Request).len();
    (count(&records, "placed"), requests, world.books().await.counted())
}
