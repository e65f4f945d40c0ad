//! What is told of a session: one stream of events in the order of its records, wherever it is read from, and live text beside it.

use std::sync::{Arc, Mutex};

use agentrun_kernel::{Batch, Body, MemoryStore, Replay, Seq, SessionKey, SessionStore as _, Store, seal};
use agentrun_runner::{Event, Following, Live, What, subscribe};
use serde_json::json;

use crate::world::{Probe, World, calls, key, node, says, step, submits, when, within};

fn store(world: &World) -> Store {
    Arc::new(world.store.clone())
}

/// A node whose owner is killed in a call, gone on with by another one. Answers what the two hosts were told.
async fn cut_and_gone_on(world: &World) -> Vec<Event> {
    let steps = json!([
        when(json!({"results": 1}), submits(7)),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
    ]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let held = Probe::held();
    let tell = move |event| to.lock().unwrap().push(event);
    let first = world.runner_with(steps.clone(), |options| options.on_event = Some(Arc::new(tell.clone())));
    let owner = first.clone();
    let node_of = |probe: &Arc<Probe>| node(vec![probe.tool(Replay::Safe)]);
    let running = tokio::spawn({
        let node = node_of(&held);
        async move { owner.run_node(node, step()).await }
    });
    held.began().await;
    first.kill();
    within(running).await.unwrap().unwrap_err();
    let again = world.again();
    let second = again.runner_with(steps, |options| options.on_event = Some(Arc::new(tell)));
    within(second.run_node(node_of(&Probe::new()), step())).await.unwrap();
    seen.lock().unwrap().clone()
}

/// All events behind `after`, up to the session's last one.
async fn all_of(store: &Store, after: Seq, last: Seq) -> Vec<Event> {
    let mut subscription = within(subscribe(store, &key(), after)).await.unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Event| event.seq < last) {
        events.push(within(subscription.next()).await.unwrap().unwrap());
    }
    events
}

#[tokio::test]
async fn r40_f30_a_subscriber_elsewhere_is_told_exactly_what_the_owners_hosts_were_told_over_a_takeover() {
    let world = World::new();
    let elsewhere = world.again();
    let following = tokio::spawn(async move {
        let mut subscription = subscribe(&store(&elsewhere), &key(), Seq(0)).await.unwrap();
        let mut events = Vec::new();
        loop {
            let event = subscription.next().await.unwrap().unwrap();
            let over = matches!(event.what, What::Answered { .. });
            events.push(event);
            if over {
                return (subscription, events);
            }
        }
    });
    let told = cut_and_gone_on(&world).await;
    let (mut subscription, mut events) = within(following).await.unwrap();
    let last = told.last().unwrap().seq;
    while events.last().unwrap().seq < last {
        events.push(within(subscription.next()).await.unwrap().unwrap());
    }
    assert_eq!(events, told);
    assert!(events.is_sorted_by(|one, two| one.seq < two.seq), "each seq once, in order: {events:?}");
    let epochs = events.iter().filter(|event| matches!(event.what, What::Opened { .. })).count();
    assert_eq!(epochs, 2);
}

#[tokio::test]
async fn r40_m46_whoever_comes_late_or_comes_back_misses_nothing_and_is_told_nothing_twice() {
    let world = World::new();
    let told = cut_and_gone_on(&world).await;
    let (store, last) = (store(&world.again()), told.last().unwrap().seq);
    // Nobody read until now: the slowest subscriber of all.
    assert_eq!(all_of(&store, Seq(0), last).await, told);
    for place in 0..told.len() - 1 {
        assert_eq!(all_of(&store, told[place].seq, last).await, told[place + 1..], "from event {place} on");
    }
}

#[tokio::test]
async fn r40_records_are_followed_without_a_gap_while_owners_take_the_session_from_each_other() {
    const EACH: u64 = 40;
    let of = MemoryStore::new().unwrap();
    let session = SessionKey::new("busy").unwrap();
    let readers = (0..3).map(|_| {
        let store: Store = Arc::new(of.again().unwrap());
        let session = session.clone();
        tokio::spawn(async move {
            let mut following = Following::open(&store, &session, Seq(0)).await.unwrap();
            let mut seqs = Vec::new();
            loop {
                let records = following.next().await.unwrap().unwrap();
                assert!(!records.is_empty());
                let over =
                    records.iter().any(|record| matches!(&record.body, Body::Data { name, .. } if name == "over"));
                seqs.extend(records.iter().map(|record| record.seq));
                if over {
                    return seqs;
                }
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let writers = (0..3).map(|who: u64| {
        let store = of.again().unwrap();
        let session = session.clone();
        tokio::spawn(async move {
            let mut written = 0_u64;
            while written < EACH {
                let mut writer = store.open(&session, None).await.unwrap();
                // Until the next one takes it.
                while written < EACH {
                    let body = Body::Data { name: "n".to_owned(), value: who.into() };
                    if writer.append(Batch::of([body.clone(), body]), None).await.is_err() {
                        break;
                    }
                    written += 1;
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        within(writer).await.unwrap();
    }
    let mut writer = of.open(&session, None).await.unwrap();
    writer.append(Batch::of([Body::Data { name: "over".to_owned(), value: 0.into() }]), None).await.unwrap();
    for reader in readers {
        let seqs = within(reader).await.unwrap();
        assert_eq!(seqs, (1..=3 * EACH * 2 + 1).map(Seq).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn r40_the_stream_ends_where_a_session_is_removed_or_sealed() {
    for sealed in [false, true] {
        let world = World::new();
        let told = cut_and_gone_on(&world).await;
        let mut subscription =
            within(subscribe(&store(&world.again()), &key(), told.last().unwrap().seq)).await.unwrap();
        let waiting = tokio::spawn(async move {
            let mut events = Vec::new();
            while let Some(event) = subscription.next().await.unwrap() {
                events.push(event.what);
            }
            events
        });
        let expected = if sealed {
            seal(&world.store, &key(), "elsewhere").await.unwrap();
            vec![What::Moved { to: "elsewhere".to_owned() }]
        } else {
            world.store.remove(&key(), None).await.unwrap();
            Vec::new()
        };
        assert_eq!(within(waiting).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn live_text_is_told_beside_the_events_and_names_its_session() {
    let world = World::new();
    let runner = world.runner(json!([says("one"), says("two"), submits(1)]));
    let mut live = runner.live_text();
    within(runner.run_node(node(Vec::new()), step())).await.unwrap();
    for expected in ["one", "two"] {
        let text = Arc::from(expected);
        assert_eq!(within(live.next()).await, Some(Live::Text { session: key(), text }));
    }
    drop(runner);
    assert_eq!(within(live.next()).await, None, "nothing comes any more");
}
