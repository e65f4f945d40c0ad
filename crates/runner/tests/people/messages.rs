//! People's messages: sent and retracted through the inbox, beside a live owner and without one.

use std::sync::{Arc, Mutex};

use agentrun_kernel::{Body, FollowUpName, InboxBody, LogKey, Placed, Record, Replay, SharedLog, Store, read_all};
use agentrun_runner::{FollowUp, HarnessRunner, InboxError, PostState, Posted, retract_message, send_message};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::{Conversation, Script, Side};
use serde_json::{Value, json};

use crate::world::{Probe, World, calls, count, key, node, says, step, submits, when, within};

pub(crate) const WORDS: &str = "Look at db-4 too.";

/// What the model was shown with each request.
pub(crate) type Shown = Arc<Mutex<Vec<Conversation>>>;

/// A runner, and all its model is shown.
fn told(world: &World, steps: &Value) -> (HarnessRunner, Shown) {
    let shown = Shown::default();
    let to = shown.clone();
    let script = Script::parse(&json!({ "steps": steps }).to_string()).unwrap();
    let adapter = FauxAdapter::new(script).telling(Arc::new(move |talk| to.lock().unwrap().push(talk.clone())));
    (HarnessRunner::new(Arc::new(adapter), world.options()), shown)
}

/// How often a request's messages of the user's side hold the words, request by request.
pub(crate) fn seen(shown: &Shown, words: &str) -> Vec<usize> {
    let times = |talk: &Conversation| {
        let user = talk.messages.iter().filter(|message| message.side == Side::User);
        user.map(|message| message.text.matches(words).count()).sum()
    };
    shown.lock().unwrap().iter().map(times).collect()
}

pub(crate) fn store(world: &World) -> Store {
    Arc::new(world.store.clone())
}

pub(crate) async fn send(world: &World, id: &str, text: &str) -> Result<Posted, InboxError> {
    send_message(&store(world), &key(), id, text).await
}

async fn retract(world: &World, id: &str) -> Result<Posted, InboxError> {
    retract_message(&store(world), &key(), id).await
}

pub(crate) fn placed(records: &[Record]) -> Vec<&Placed> {
    records
        .iter()
        .filter_map(|record| if let Body::Placed(placed) = &record.body { Some(placed) } else { None })
        .collect()
}

async fn inbox(world: &World) -> Vec<Record<InboxBody>> {
    read_all::<InboxBody>(&world.store, &LogKey::Shared(SharedLog::Inbox(key()))).await.unwrap()
}

/// A model that searches, says something, and submits once it has read the words.
pub(crate) fn heeds_words() -> Value {
    json!([
        when(json!({"contains": WORDS}), submits(4)),
        when(json!({"contains": "ended without delivering"}), submits(1)),
        when(json!({"contains": "found"}), says("I found something.")),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
        when(json!({}), says("Go on.")),
    ])
}

#[tokio::test]
async fn b71_m33_words_sent_in_a_turn_are_the_next_turn_and_come_before_any_reminder() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, shown) = told(&world, &heeds_words());
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Never)]);
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    let sent = send(&world, "one", WORDS).await.unwrap();
    assert_eq!(sent, Posted { id: "one".to_owned(), state: PostState::Waiting, again: false });
    probe.let_go();
    let delivered = within(running).await.unwrap().unwrap();
    assert_eq!(delivered.value, json!({"n": 4}));
    let records = world.records().await;
    let messages = placed(&records);
    assert_eq!(messages.len(), 2);
    assert_eq!(&*messages[1].text, WORDS, "exactly what was sent, and no reminder beside it");
    assert_eq!(count(&records, "submission"), 2);
    assert_eq!(seen(&shown, WORDS), [0, 0, 1]);
    assert_eq!(probe.runs(), 1);
}

#[tokio::test]
async fn b71_m34_the_same_message_is_one_whoever_sends_it_and_other_words_under_its_id_conflict() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, shown) = told(&world, &heeds_words());
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Never)]);
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    let beside = world.again();
    let all = (0..8).map(|nth| {
        let store = store(if nth % 2 == 0 { &world } else { &beside });
        tokio::spawn(async move { send_message(&store, &key(), "one", WORDS).await.unwrap().again })
    });
    let mut first = 0;
    for sent in all.collect::<Vec<_>>() {
        first += usize::from(!within(sent).await.unwrap());
    }
    assert_eq!(first, 1, "one of them wrote it");
    let conflict = send(&world, "one", "Other words.").await;
    assert!(matches!(&conflict, Err(InboxError::Conflict(id)) if id == "one"), "{conflict:?}");
    assert_eq!(inbox(&world).await.len(), 1);
    probe.let_go();
    within(running).await.unwrap().unwrap();
    assert_eq!(send(&world, "one", WORDS).await.unwrap().state, PostState::Taken, "known also after it was taken");
    assert!(matches!(send(&world, "one", "Other words.").await, Err(InboxError::Conflict(_))));
    assert_eq!(seen(&shown, WORDS), [0, 0, 1]);
}

#[tokio::test]
async fn m33_a_message_is_retracted_while_it_waits_and_never_after_it_was_taken() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, shown) = told(&world, &heeds_words());
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Never)]);
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    send(&world, "wrong", "Forget all of it.").await.unwrap();
    send(&world, "one", WORDS).await.unwrap();
    assert_eq!(retract(&world, "wrong").await.unwrap().state, PostState::Retracted);
    assert!(retract(&world, "wrong").await.unwrap().again, "asked again it is the same");
    assert_eq!(send(&world, "wrong", "Forget all of it.").await.unwrap().state, PostState::Retracted, "and stays so");
    assert!(matches!(retract(&world, "nobody").await, Err(InboxError::NoMessage(_))));
    probe.let_go();
    within(running).await.unwrap().unwrap();
    let late = retract(&world, "one").await;
    assert!(matches!(&late, Err(InboxError::TooLate(id)) if id == "one"), "{late:?}");
    assert_eq!(seen(&shown, "Forget"), [0, 0, 0]);
    assert_eq!(seen(&shown, WORDS), [0, 0, 1]);
    assert_eq!(count(&world.records().await, "withdrawn"), 0, "it never came into the session");
}

#[tokio::test]
async fn b71_words_for_a_session_that_rests_are_taken_by_its_resume_behind_the_turn_that_was_cut() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, _) = told(&world, &heeds_words());
    let owner = runner.clone();
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Safe)]);
        async move { owner.run_node(node, step()).await }
    });
    probe.began().await;
    runner.kill();
    within(running).await.unwrap().unwrap_err();
    send(&world, "one", WORDS).await.unwrap();
    assert_eq!(send(&world, "one", WORDS).await.unwrap().state, PostState::Waiting, "nobody is there to take it");

    let again = world.again();
    let quick = Probe::new();
    let (runner, shown) = told(&again, &heeds_words());
    let delivered = within(runner.run_node(node(vec![quick.tool(Replay::Safe)]), step())).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 4}));
    let records = again.records().await;
    assert_eq!(placed(&records).len(), 2, "the cut turn went on, then the words had theirs");
    assert_eq!(seen(&shown, WORDS).last(), Some(&1));
}

#[tokio::test]
async fn m33_words_sent_after_the_delivery_go_with_the_next_follow_up() {
    let world = World::new();
    let steps = json!([when(json!({"contains": WORDS}), says("Both, then.")), when(json!({}), submits(1))]);
    let (runner, shown) = told(&world, &steps);
    within(runner.run_node(node(Vec::new()), step())).await.unwrap();
    assert_eq!(send(&world, "one", WORDS).await.unwrap().state, PostState::Waiting);
    let from_records = within(runner.run_node(node(Vec::new()), step())).await.unwrap();
    assert!(from_records.from_records, "B12: a session that has answered is not opened for it");
    let name = FollowUpName::new("why").unwrap();
    let ask = FollowUp { name, prompt: "Why?".to_owned(), reserve: None };
    let followed = within(runner.follow_up_once(node(Vec::new()), step(), ask)).await.unwrap();
    assert_eq!(&*followed.text, "Both, then.");
    assert_eq!(seen(&shown, WORDS), [0, 1]);
    assert_eq!(send(&world, "one", WORDS).await.unwrap().state, PostState::Taken);
    world.records().await;
}

#[tokio::test]
async fn r15_what_cannot_be_sent_is_refused_and_nothing_is_written() {
    let world = World::new();
    assert!(matches!(send(&world, "one", WORDS).await, Err(InboxError::Unknown(_))));
    let mut bounded = node(Vec::new());
    bounded.turn_limit = Some(1);
    let (runner, _) = told(&world, &json!([when(json!({}), says("Hm."))]));
    within(runner.run_node(bounded, step())).await.unwrap_err();
    let over = send(&world, "one", WORDS).await;
    assert!(matches!(&over, Err(InboxError::Over { why: "has failed", .. })), "{over:?}");
    let long = "x".repeat(agentrun_runner::PROMPT_BYTES + 1);
    for (id, text) in [("", WORDS), ("two words", WORDS), ("one", ""), ("one", " \n"), ("one", long.as_str())] {
        assert!(matches!(send(&world, id, text).await, Err(InboxError::Unfit(_))), "{id:?}");
    }
    assert_eq!(inbox(&world).await.len(), 0);
}

#[tokio::test]
async fn m33_a_message_that_is_retracted_while_its_owner_takes_it_is_either_taken_or_not() {
    for round in 0..10 {
        let (world, probe) = (World::new(), Probe::held());
        let (runner, shown) = told(&world, &heeds_words());
        let running = tokio::spawn({
            let node = node(vec![probe.tool(Replay::Never)]);
            async move { runner.run_node(node, step()).await }
        });
        probe.began().await;
        send(&world, "one", WORDS).await.unwrap();
        probe.let_go();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let retracted = retract(&world, "one").await;
        let delivered = within(running).await.unwrap().unwrap();
        let times: usize = seen(&shown, WORDS).iter().sum();
        match retracted {
            Ok(posted) => {
                assert_eq!(posted.state, PostState::Retracted);
                assert_eq!((times, delivered.value), (0, json!({"n": 1})), "never seen");
            }
            Err(error) => {
                assert!(matches!(error, InboxError::TooLate(_)), "{error}");
                assert_eq!((times, delivered.value), (1, json!({"n": 4})), "seen once");
            }
        }
        world.records().await;
    }
}
