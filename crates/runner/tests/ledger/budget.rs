//! What a node's budget counts, and what it does not: the node's own requests and tools, never what the host decides for itself.

use agentrun_kernel::{Body, EffectKind, Usd};
use agentrun_runner::{Decide, NodeWord};
use serde_json::json;

use crate::parks::{costs, laid, usd, whole};
use crate::world::{Probe, World, key, node, step, submits};

/// A decision of the host's is the host's spend: it stands in the run's ledger, under the run's cap. Were it to count against a node's budget
/// too, a node would end finally by what somebody else did, and its session's log alone could not tell why.
#[tokio::test]
async fn b75_b80_a_hosts_decision_counts_against_the_cap_and_not_against_a_nodes_budget() {
    let world = World::new();
    let capped = || world.runner_with(json!([costs(submits(7))]), |options| options.cap = Some(usd("0.1")));
    let runner = capped();
    let ledger = runner.ledger(&(&key()).into()).await.unwrap();
    let Decide::Open(decision) = ledger.decide("route", &key(), usd("0.07")).await.unwrap() else { panic!("new") };
    decision.made(usd("0.07")).await.unwrap();
    assert_eq!(world.books().await.booked(), usd("0.07"), "in the run's ledger");

    let mut small = node(Vec::new());
    small.budget = Some(usd("0.025"));
    let delivered = runner.run_node(small.clone(), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 7}), "the budget has room for the node's own request");
    assert_eq!(delivered.spent.booked, usd("0.0151"), "and the node's spend is its own");

    // The cap counts both: with a dearer decision the same node parks.
    let world = World::new();
    let runner = world.runner_with(json!([costs(submits(7))]), |options| options.cap = Some(usd("0.1")));
    let ledger = runner.ledger(&(&key()).into()).await.unwrap();
    let Decide::Open(decision) = ledger.decide("route", &key(), usd("0.09")).await.unwrap() else { panic!("new") };
    decision.made(usd("0.09")).await.unwrap();
    let error = runner.run_node(small, step()).await.unwrap_err();
    assert_eq!((error.word, error.park.unwrap().spent), (NodeWord::OverCap, usd("0.09")), "{error}");
}

/// A budget is a number of the node, so no record could raise it: the end is final, and it says that a cut is what fills the budget.
#[tokio::test]
async fn b92_a_budget_filled_by_what_was_cut_ends_the_node_finally_and_says_so() {
    let moments = whole().await;
    let open = |moment: &crate::parks::Moment| {
        let body = moment.session.as_ref().map(|record| &record.body);
        matches!(body, Some(Body::Intent(intent)) if intent.effect == EffectKind::Request)
    };
    let at = moments.iter().position(open).unwrap();
    let (world, probe) = (laid(&moments[..=at]).await, Probe::new());
    let mut tool = probe.tool(agentrun_kernel::Replay::Never);
    tool.price = Some(usd("0.006"));
    let mut small = node(vec![tool]);
    small.budget = Some(usd("0.03"));
    let run = || world.runner(json!([costs(submits(7))]));
    let error = run().run_node(small.clone(), step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final(), error.park), (NodeWord::OverBudget, true, None), "{error}");
    let unknown = world.books().await.unknown();
    assert!(unknown > Usd::ZERO && unknown < usd("0.03"));
    assert!(error.message.contains(&format!("${unknown} of what counts was cut")), "{error}");
    assert_eq!(run().run_node(small, step()).await.unwrap_err(), error, "the same from the records");
}
