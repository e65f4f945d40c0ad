//! Values as types of the host's own, and what a host is told of its money.

use std::sync::{Arc, Mutex};

use agentrun_cap::Denied;
use agentrun_kernel::{SessionKey, Spent, Usd};
use agentrun_runner::{Booked, HostCheck, HostFault, NodeWord};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{World, key, node, says, step, submits};

#[derive(Debug, Deserialize, PartialEq)]
struct Found {
    n: u8,
}

#[tokio::test]
async fn b01_a_value_is_read_as_the_hosts_own_type() {
    let world = World::new();
    let delivered = world.runner(json!([submits(7)])).run_typed::<Found>(node(Vec::new()), step()).await.unwrap();
    assert_eq!((delivered.value, delivered.turns, delivered.from_records), (Found { n: 7 }, 1, false));
    let again = world.runner(json!([])).run_typed::<Found>(node(Vec::new()), step()).await.unwrap();
    assert_eq!((again.value, again.from_records), (Found { n: 7 }, true));
}

#[tokio::test]
async fn a_value_that_the_type_cannot_read_is_final_and_its_place_is_named() {
    let world = World::new();
    let first = world.runner(json!([submits(256)])).run_typed::<Found>(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!((first.word, first.is_final(), first.session.clone()), (NodeWord::Mistyped, true, key()));
    assert!(first.message.contains("`n`") && first.message.contains("256"), "{first}");
    let records = world.records().await;
    let again = world.runner(json!([])).run_typed::<Found>(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!(again, first, "the same from the records");
    assert_eq!(world.records().await, records);
    let value = world.runner(json!([])).run_typed::<Value>(node(Vec::new()), step()).await.unwrap().value;
    assert_eq!(value, json!({"n": 256}), "what was paid for is there for another type");
}

/// Keeps what it is told of.
#[derive(Default)]
struct Told(Mutex<Vec<Booked>>);

#[async_trait]
impl HostCheck for Told {
    async fn before_request(
        &self,
        _: &SessionKey,
        _: Option<Usd>,
        spent: Spent,
    ) -> Result<Result<(), Denied>, HostFault> {
        let last = self.0.lock().unwrap().last().map(|booked| booked.spent.booked);
        assert_eq!(last.unwrap_or_default(), spent.booked, "each request is told of before the next is asked for");
        Ok(Ok(()))
    }

    async fn after_request(&self, _: &SessionKey, booked: Booked) {
        self.0.lock().unwrap().push(booked);
    }
}

#[tokio::test]
async fn b06_the_host_is_told_of_each_paid_request_once_it_is_booked() {
    let (world, told) = (World::new(), Arc::new(Told::default()));
    let check = told.clone();
    let runner = world.runner_with(json!([says("a"), {"status": 529}, submits(1)]), |options| {
        options.before_request = Some(check);
    });
    assert_eq!(runner.run_node(node(Vec::new()), step()).await.unwrap_err().word, NodeWord::Upstream);
    let delivered = runner.run_node(node(Vec::new()), step()).await.unwrap();
    let told = told.0.lock().unwrap();
    assert_eq!(told.len(), 2, "the one that failed was let go of: its spend is unknown");
    assert!(told.iter().all(|booked| booked.cost > Some(Usd::ZERO) && booked.usage.is_some()));
    assert_eq!(told.last().unwrap().spent.booked, delivered.spent.booked);
}
