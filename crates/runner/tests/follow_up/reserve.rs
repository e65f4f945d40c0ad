//! A follow-up's paid steps are held to its reserve, counted from its first; its own word comes before the host's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_cap::Denied;
use agentrun_kernel::{EffectKind, Intent, OutcomeEnd, Record, Replay, SessionKey, Spent, Usd};
use agentrun_runner::{HostCheck, HostFault, ToolEnd, ToolInvocation, ToolRun};
use async_trait::async_trait;
use serde_json::json;

use crate::stage::{answered, done, follow, held_to, script, why};
use crate::world::{Probe, books_are_quiet, calls, intents, node, says, step, submits, when, within};

/// Counts how often the host was asked.
#[derive(Default)]
struct Asked(AtomicUsize);

#[async_trait]
impl HostCheck for Asked {
    async fn before_request(&self, _: &SessionKey, _: Option<Usd>, _: Spent) -> Result<Result<(), Denied>, HostFault> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Ok(()))
    }
}

fn quotes(records: &[Record]) -> Vec<Usd> {
    intents(records, EffectKind::Request).into_iter().filter_map(|intent: &Intent| intent.quote).collect()
}

#[tokio::test]
async fn b62_b63_over_its_reserve_nothing_is_sent_and_the_host_is_not_asked() {
    let world = answered(&node(Vec::new())).await;
    let (asked, before) = (Arc::new(Asked::default()), done(&world).await);
    let check = asked.clone();
    let runner = world.runner_with(script(), |options| options.before_request = Some(check));
    let followed = follow(&runner, held_to("0.000001", why())).await.unwrap();
    assert_eq!((followed.end, followed.spent), (OutcomeEnd::Error, Spent::default()));
    assert!(followed.text.starts_with("over_reserve"), "{}", followed.text);
    assert_eq!(asked.0.load(Ordering::SeqCst), 0, "B62: its own is asked first");
    let (placed, requests, counted) = done(&world).await;
    assert_eq!((placed, requests, counted), (before.0 + 1, before.1, before.2), "nothing was held");
    books_are_quiet(&world).await;
    let again = follow(&world.runner(script()), held_to("1", why())).await.unwrap();
    assert!(
        again.from_records && again.end == OutcomeEnd::Error,
        "B57: a larger reserve under the name changes nothing"
    );
}

#[tokio::test]
async fn b62_within_its_reserve_the_host_is_asked_once_a_request() {
    let world = answered(&node(Vec::new())).await;
    let asked = Arc::new(Asked::default());
    let check = asked.clone();
    let runner = world.runner_with(script(), |options| options.before_request = Some(check));
    assert_eq!(follow(&runner, held_to("1", why())).await.unwrap().end, OutcomeEnd::Ok);
    assert_eq!(asked.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn b63_what_the_session_spent_before_is_not_counted_and_what_it_spends_itself_is() {
    let probe = Probe::new();
    let node = node(vec![probe.tool(Replay::Never)]);
    // Each answer costs about a cent, and a request may cost about two.
    let dear = |mut step: serde_json::Value| {
        step["usage"] = json!({"input": 5_000, "output": 1_000});
        step
    };
    let steps = json!([
        when(json!({"contains": "Why?"}), dear(calls("search", json!({"q": "a"})))),
        when(json!({"contains": "found \"a\""}), dear(says("Because."))),
        when(json!({"results": 0}), dear(submits(7))),
    ]);
    let world = crate::world::World::new();
    world.runner(steps.clone()).run_node(node.clone(), step()).await.unwrap();
    let spent = world.state().await.spent.booked;
    let quote = quotes(&world.records().await)[0];

    // Room for one request at what it may cost, though the session alone has spent more than the difference.
    let reserve = quote.saturating_add(Usd::from_pico(quote.pico() / 10));
    assert!(spent.saturating_add(quote) > reserve, "{spent} {quote}");
    let ask = agentrun_runner::FollowUp { reserve: Some(reserve), ..why() };
    let followed = within(world.runner(steps).follow_up_once(node, step(), ask)).await.unwrap();
    assert_eq!(
        (followed.end, probe.runs()),
        (OutcomeEnd::Error, 1),
        "the first request went through: {}",
        followed.text
    );
    assert!(followed.text.starts_with("over_reserve"), "its own spend left no room for the second: {}", followed.text);
    assert_eq!(followed.spent.booked, world.state().await.spent.booked.checked_sub(spent).unwrap());
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 2);
}

/// A tool that is cut in each call.
struct Cut;

#[async_trait]
impl ToolRun for Cut {
    async fn run(&self, _call: ToolInvocation) -> ToolEnd {
        ToolEnd::Interrupted("its service went away".to_owned())
    }
}

#[tokio::test]
async fn b64_behind_a_spend_that_nobody_can_say_no_further_request_is_admitted() {
    let mut tool = Probe::new().tool(Replay::Never);
    (tool.price, tool.run) = (Some("0.01".parse().unwrap()), Arc::new(Cut));
    let node = node(vec![tool]);
    let world = answered(&node).await;
    let requests = done(&world).await.1;
    let runner = world.runner(json!([
        when(json!({"contains": "Why?"}), calls("search", json!({"q": "a"}))),
        when(json!({"contains": "interrupted"}), says("Because.")),
    ]));
    let followed = within(runner.follow_up_once(node.clone(), step(), held_to("5", why()))).await.unwrap();
    assert_eq!(followed.end, OutcomeEnd::Error);
    assert!(followed.text.starts_with("unknown_spend"), "{}", followed.text);
    assert_eq!(done(&world).await.1, requests + 1);
    assert_eq!(followed.spent.unknown_count, 1);

    // An unknown spend of the session's before it is not its own.
    let other = agentrun_runner::FollowUp { name: crate::stage::name("else"), ..held_to("5", why()) };
    let steps = json!([when(json!({"contains": "Why?"}), says("Because."))]);
    let followed = within(world.runner(steps).follow_up_once(node, step(), other)).await.unwrap();
    assert_eq!(followed.end, OutcomeEnd::Ok, "{}", followed.text);
}

#[tokio::test]
async fn b63_a_priced_tool_is_held_to_it_too() {
    let probe = Probe::new();
    let mut tool = probe.tool(Replay::Never);
    tool.price = Some("3".parse().unwrap());
    let node = node(vec![tool]);
    let world = answered(&node).await;
    let runner = world.runner(json!([
        when(json!({"contains": "Why?"}), calls("search", json!({"q": "a"}))),
        when(json!({}), says("Because.")),
    ]));
    let followed = within(runner.follow_up_once(node, step(), held_to("2", why()))).await.unwrap();
    assert!(followed.text.starts_with("over_reserve"), "{}", followed.text);
    assert_eq!(probe.runs(), 0);
    books_are_quiet(&world).await;
}
