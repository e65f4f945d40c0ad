//! A node that was stopped, cut or taken over goes on from its records: what ran is not run again, what was paid is not paid again.

use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{EffectKind, Outcome, OutcomeEnd, Replay};
use agentrun_runner::{HarnessRunner, Node, NodeWord, Step};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{
    Probe, World, books_are_quiet, calls, count, intents, key, node, outcomes, step, submits, when, within,
};

/// Long enough that no test meets it.
const DRAIN: Duration = Duration::from_secs(600);

/// Searches, then submits what it is told: 1 for a result, 2 for an interruption, 3 for a refused repeat.
fn script() -> Value {
    json!([
        when(json!({"contains": "found"}), submits(1)),
        when(json!({"contains": "was not run again. Find out"}), submits(2)),
        when(json!({"contains": "this tool must not run twice"}), submits(3)),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
    ])
}

type Running = JoinHandle<Result<agentrun_runner::Delivered, agentrun_runner::NodeError>>;

fn start(runner: &HarnessRunner, node: Node) -> Running {
    let runner = runner.clone();
    tokio::spawn(async move { runner.run_node(node, step()).await })
}

/// Drops the node's future where it is, as the death of its process would.
async fn cut(running: Running) {
    running.abort();
    assert!(within(running).await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn b22_b24_a_stop_lets_the_running_call_end_and_the_resume_answers_it_from_its_record() {
    let (world, probe) = (World::new(), Probe::held());
    let runner = world.runner(script());
    let running = start(&runner, node(vec![probe.tool(Replay::Never)]));
    probe.began().await;
    runner.stop(DRAIN);
    probe.let_go();
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Aborted, false), "B22 {error}");
    let records = world.records().await;
    assert_eq!(outcomes(&records, EffectKind::Tool)[0].end, OutcomeEnd::Ok, "B20: it ended and was recorded");
    assert_eq!(intents(&records, EffectKind::Request).len(), 1, "B19: no request was begun after the stop");
    books_are_quiet(&world).await;

    let delivered = world.runner(script()).run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 1}), "B24: the model sees the recorded text");
    assert_eq!(probe.runs(), 1);
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 2);
    books_are_quiet(&world).await;
}

#[tokio::test]
async fn b19_after_a_stop_a_node_does_not_begin() {
    let world = World::new();
    let runner = world.runner(script());
    runner.stop(Duration::ZERO);
    let error = runner.run_node(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::Aborted);
    assert_eq!(world.records().await, []);
}

#[tokio::test]
async fn f25_a_call_that_outlasts_the_drain_is_not_called_interrupted_while_it_runs() {
    let (world, probe) = (World::new(), Probe::held());
    let runner = world.runner(script());
    let running = start(&runner, node(vec![probe.tool(Replay::Never)]));
    probe.began().await;
    runner.stop(Duration::ZERO);
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!(error.word, NodeWord::Aborted);
    assert_eq!(outcomes(&world.records().await, EffectKind::Tool), Vec::<&Outcome>::new());

    probe.let_go();
    let recorded = async {
        while outcomes(&world.records().await, EffectKind::Tool).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within(recorded).await;
    let delivered = world.runner(script()).run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    assert_eq!((delivered.value, probe.runs()), (json!({"n": 1}), 1), "its real outcome was kept");
}

#[tokio::test]
async fn b53_a_never_call_that_was_cut_is_interrupted_and_not_run_again() {
    let (world, probe) = (World::new(), Probe::held());
    let running = start(&world.runner(script()), node(vec![probe.tool(Replay::Never)]));
    probe.began().await;
    cut(running).await;

    let after = world.again();
    let delivered = after.runner(script()).run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 2}), "the model is told");
    assert_eq!(probe.runs(), 1);
    let records = after.records().await;
    assert_eq!(outcomes(&records, EffectKind::Tool)[0].end, OutcomeEnd::Interrupted);
    assert_eq!((count(&records, "placed"), count(&records, "opened")), (1, 2));
    books_are_quiet(&after).await;
}

#[tokio::test]
async fn f04_an_interrupted_never_call_that_the_model_repeats_is_refused() {
    let (world, probe) = (World::new(), Probe::held());
    let running = start(&world.runner(script()), node(vec![probe.tool(Replay::Never)]));
    probe.began().await;
    cut(running).await;

    let stubborn = json!([
        when(json!({"contains": "this tool must not run twice"}), submits(3)),
        when(json!({}), calls("search", json!({"q": "n"}))),
    ]);
    let delivered = world.runner(stubborn).run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 3}));
    assert_eq!(probe.runs(), 1);
    let ends: Vec<_> = outcomes(&world.records().await, EffectKind::Tool).iter().map(|outcome| outcome.end).collect();
    assert_eq!(ends, [OutcomeEnd::Interrupted, OutcomeEnd::Refused]);
}

#[tokio::test]
async fn b52_a_safe_call_that_was_cut_runs_again_with_its_stored_arguments() {
    let (world, probe) = (World::new(), Probe::held());
    let running = start(&world.runner(script()), node(vec![probe.tool(Replay::Safe)]));
    probe.began().await;
    cut(running).await;

    // What the cut run does later belongs to nobody: only the second run is let go.
    let second = Probe::new();
    let after = world.again();
    let delivered = after.runner(script()).run_node(node(vec![second.tool(Replay::Safe)]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 1}));
    assert_eq!((probe.runs(), second.runs()), (1, 1));
    let records = after.records().await;
    assert_eq!(intents(&records, EffectKind::Tool).len(), 1, "under its first intent");
    assert_eq!(outcomes(&records, EffectKind::Tool)[0].text.as_ref(), "found \"n\"");
}

#[tokio::test]
async fn b46_a_second_owner_takes_the_session_and_the_first_does_nothing_more() {
    let (world, probe) = (World::new(), Probe::held());
    let first = start(&world.runner(script()), node(vec![probe.tool(Replay::Never)]));
    probe.began().await;

    let second = world.again();
    let delivered =
        within(second.runner(script()).run_node(node(vec![probe.tool(Replay::Never)]), step())).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 2}));
    let error = within(first).await.unwrap().unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Fenced, false), "{error}");

    let records = second.records().await;
    probe.let_go();
    let late = second.again();
    assert_eq!(late.records().await, records, "the first run's late result is written nowhere");
    assert_eq!(probe.runs(), 1);
    assert_eq!(world.homes(), 0, "the first owner's home is gone");
}

#[tokio::test]
async fn f03_of_owners_that_race_for_one_key_one_delivers_and_no_never_call_runs_twice() {
    let (world, probe) = (World::new(), Probe::new());
    let worlds: Vec<World> = (0..4).map(|_| world.again()).collect();
    let running: Vec<Running> =
        worlds.iter().map(|world| start(&world.runner(script()), node(vec![probe.tool(Replay::Never)]))).collect();
    let mut values = Vec::new();
    for running in running {
        match within(running).await.unwrap() {
            Ok(delivered) => values.push(delivered.value),
            Err(error) => assert_eq!(error.word, NodeWord::Fenced, "{error}"),
        }
    }
    assert!(!values.is_empty(), "the last owner is fenced by nobody");
    assert!(values.iter().all(|value| *value == values[0]), "one value: {values:?}");
    assert!(probe.runs() <= 1, "the records let it run once");
    assert_eq!(count(&world.records().await, "delivered"), 1);
}

#[tokio::test]
async fn b14_a_request_that_was_cut_in_flight_is_asked_anew_and_its_spend_stays_unknown() {
    let world = World::new();
    let stalls = json!([{"stall_after_events": 0}]);
    let stalled = world.runner(stalls);
    let running = start(&stalled, node(Vec::new()));
    let open = async {
        while world.state().await.open_effects().count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(open).await;
    cut(running).await;

    let after = world.again();
    let delivered = after.runner(json!([submits(1)])).run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!((delivered.spent.unknown_count, delivered.turns), (1, 1));
    assert!(delivered.spent.unknown > agentrun_kernel::Usd::ZERO);
    let books = after.books().await;
    assert_eq!(
        (books.unknown(), books.unknown_count()),
        (delivered.spent.unknown, 1),
        "it keeps counting against the cap"
    );
    assert_eq!(intents(&after.records().await, EffectKind::Request).len(), 2);
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_attempt_and_the_same_command_goes_on() {
    let world = World::new();
    let runner = world.runner(json!([{"status": 529}, submits(1)]));
    let error = runner.run_node(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Upstream, false), "{error}");
    assert!(error.message.contains("529"), "{error}");
    let delivered = runner.run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!(delivered.turns, 1, "its prompt was not placed again");
}

#[tokio::test]
async fn a_script_without_a_step_is_the_harnesss_fault_and_says_which_step_was_left() {
    let world = World::new();
    let never = json!({"when": {"contains": "nobody says this"}, "text": "x"});
    let error = world.runner(json!([never])).run_node(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::Harness);
    assert!(error.message.contains("nobody says this"), "{error}");
}

#[tokio::test]
async fn f04_a_completed_never_call_of_an_earlier_attempt_is_answered_from_its_receipt() {
    let (world, probe) = (World::new(), Probe::new());
    let mut limited = node(vec![probe.tool(Replay::Never)]);
    limited.turn_limit = Some(1);
    let first = json!([calls("search", json!({"q": "n"})), {"text": "I give up."}]);
    let error = world.runner(first).run_node(limited.clone(), step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::TurnLimit);

    let second = Step { session: "s-2".parse().unwrap(), attempt: 2, earlier: vec![key()], ..step() };
    let delivered = world.runner(script()).run_node(limited, second).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 1}));
    assert_eq!(probe.runs(), 1, "over both attempts");
}

#[tokio::test]
async fn b18_a_stop_pauses_every_node_of_the_runner() {
    let (world, probe) = (World::new(), Probe::held());
    let runner = Arc::new(world.runner(script()));
    let running: Vec<_> = ["one", "two", "three"]
        .map(|name| {
            let (runner, node) = (runner.clone(), node(vec![probe.tool(Replay::Never)]));
            tokio::spawn(async move { runner.run_node(node, Step::first(name.parse().unwrap())).await })
        })
        .into();
    for _ in &running {
        probe.began().await;
    }
    runner.stop(DRAIN);
    for _ in &running {
        probe.let_go();
    }
    for running in running {
        assert_eq!(within(running).await.unwrap().unwrap_err().word, NodeWord::Aborted);
    }
    assert_eq!(probe.runs(), 3);
}
