//! Priced tools stand before the same cap as requests, and are booked at what they were held for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_kernel::{Body, EffectKind, LedgerBody, Replay, Usd};
use agentrun_runner::{NodeWord, Reconciled, ToolEnd, ToolInvocation, ToolRun};
use async_trait::async_trait;
use serde_json::json;

use crate::parks::{CAP, Moment, costs, laid, raise, script, usd, whole};
use crate::world::{Probe, World, calls, count, intents, node, outcomes, step, submits};

#[tokio::test]
async fn b75_b78_f11_a_priced_tool_over_the_cap_parks_and_runs_once_after_a_raise() {
    let (world, probe) = (World::new(), Probe::new());
    let mut tool = probe.tool(Replay::Never);
    tool.price = Some(usd("0.03"));
    let nodes = node(vec![tool]);
    let script = json!([costs(calls("search", json!({"q": "n"}))), costs(submits(7))]);
    let capped = || world.runner_with(script.clone(), |options| options.cap = Some(usd(CAP)));
    let error = capped().run_node(nodes.clone(), step()).await.unwrap_err();
    let park = error.park.unwrap();
    assert_eq!((error.word, park.spent), (NodeWord::OverCap, usd("0.0151")));
    assert!(park.needed >= usd("0.0451"), "{} would do", park.needed);
    let records = world.records().await;
    assert_eq!((probe.runs(), intents(&records, EffectKind::Tool).len()), (0, 0), "it never began");
    assert_eq!(world.books().await.counted(), usd("0.0151"), "and nothing is held for it");

    raise(&world).await;
    let delivered = capped().run_node(nodes, step()).await.unwrap();
    assert_eq!((probe.runs(), delivered.value), (1, json!({"n": 7})));
    assert_eq!((delivered.spent.booked, delivered.spent.unknown), (usd("0.0602"), Usd::ZERO));
    assert_eq!(count(&world.records().await, "placed"), 1);
    assert_eq!(world.books().await.booked(), usd("0.0602"));
}

/// A tool that can tell that an interrupted call happened.
struct Remembers(AtomicUsize);

#[async_trait]
impl ToolRun for Remembers {
    async fn run(&self, _: ToolInvocation) -> ToolEnd {
        self.0.fetch_add(1, Ordering::SeqCst);
        ToolEnd::Ok("found".to_owned())
    }

    async fn reconcile(&self, _: ToolInvocation) -> Reconciled {
        Reconciled::Happened("found before".to_owned())
    }
}

/// The run cut right behind the intent of its tool, which was held at 0.006.
async fn cut_behind_the_tool() -> World {
    let moments = whole().await;
    let tool = |moment: &Moment| {
        let body = moment.session.as_ref().map(|record| &record.body);
        matches!(body, Some(Body::Intent(intent)) if intent.effect == EffectKind::Tool)
    };
    let at = moments.iter().position(tool).unwrap();
    assert!(matches!(moments[at].ledger[..], [LedgerBody::Hold { .. }]));
    laid(&moments[..=at]).await
}

#[tokio::test]
async fn b75_a_call_that_happened_is_booked_at_what_it_was_held_for_though_it_is_cheaper_today() {
    let (world, tool) = (cut_behind_the_tool().await, Arc::new(Remembers(AtomicUsize::new(0))));
    let mut cheap = Probe::new().tool(Replay::Never);
    (cheap.price, cheap.run) = (Some(usd("0.001")), tool.clone());
    let runner = world.runner_with(script(), |options| options.cap = Some(usd(CAP)));
    let error = runner.run_node(node(vec![cheap]), step()).await.unwrap_err();
    assert_eq!((error.word, tool.0.load(Ordering::SeqCst)), (NodeWord::OverCap, 0));
    let books = world.books().await;
    assert_eq!((books.booked(), books.held(), books.unknown()), (usd("0.0211"), Usd::ZERO, Usd::ZERO));
    let records = world.records().await;
    assert_eq!(outcomes(&records, EffectKind::Tool)[0].cost, Some(usd("0.006")));
}

#[tokio::test]
async fn b75_a_call_that_was_cut_counts_in_full_as_unknown() {
    let world = cut_behind_the_tool().await;
    let probe = Probe::new();
    let mut tool = probe.tool(Replay::Never);
    tool.price = Some(usd("0.006"));
    let runner = world.runner_with(script(), |options| options.cap = Some(usd(CAP)));
    let error = runner.run_node(node(vec![tool]), step()).await.unwrap_err();
    assert_eq!((error.word, probe.runs()), (NodeWord::OverCap, 0));
    let books = world.books().await;
    assert_eq!((books.booked(), books.unknown(), books.unknown_count()), (usd("0.0151"), usd("0.006"), 1));
}
