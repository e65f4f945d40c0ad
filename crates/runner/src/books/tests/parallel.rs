//! Many at once: as many are let through as fit, in one session and over two processes.

use std::sync::Arc;

use agentrun_adapter::{ModelPort as _, PaidCall};
use agentrun_cap::Catalog;
use agentrun_kernel::{StopRaiser, Store, Usd};
use tokio::task::JoinSet;

use super::super::{LedgerError, RunLedger};
use super::{begin, key, memory, run, session, usd};
use crate::gate::{AttemptGate, GatePort, Limits};

fn call() -> PaidCall {
    PaidCall { model: "claude-haiku-4-5".into(), body: Arc::from(*b"{\"messages\":[]}"), max_output: 1_000 }
}

/// A gate with an open turn over a run with this cap.
async fn gate(store: &Store, name: &str, cap: Option<Usd>) -> (GatePort, Arc<RunLedger>, impl Sized) {
    let session = session(store, &key(name), &run()).await;
    let ledger = Arc::new(RunLedger::open(store.clone(), &run(), cap).await.unwrap());
    let stop = StopRaiser::new();
    let limits = Limits { turns: None, requests: 1_000, budget: None };
    let catalog = Arc::new(Catalog::bundled().unwrap());
    let gate = AttemptGate::new(session.drive.clone(), ledger.clone(), catalog, limits, None, stop.clone());
    let gate = Arc::new(gate);
    let turn = gate.open_turn();
    (GatePort(gate), ledger, (session, stop, turn))
}

#[tokio::test]
async fn b75_report_1_of_64_requests_at_once_under_a_cap_that_fits_3_exactly_3_are_sent() {
    let (store, _) = memory();
    let (port, ledger, _open) = gate(&store, "a", None).await;
    let one = port.begin(call()).await.ok().unwrap();
    let quote = ledger.books().await.unwrap().held();
    drop(one);

    let (store, _) = memory();
    let cap = quote.checked_mul(4).unwrap().checked_sub(Usd::from_pico(1)).unwrap();
    let (port, ledger, _open) = gate(&store, "a", Some(cap)).await;
    let port = Arc::new(port);
    let mut asked = JoinSet::new();
    for _ in 0..64 {
        let port = port.clone();
        asked.spawn(async move { port.begin(call()).await });
    }
    let (mut sent, mut refused) = (Vec::new(), Vec::new());
    for answer in asked.join_all().await {
        match answer {
            Ok(step) => sent.push(step),
            Err(port_refused) => refused.push(port_refused.word),
        }
    }
    assert_eq!((sent.len(), refused.len()), (3, 61));
    assert!(refused.iter().all(|word| word == "over_cap"), "{refused:?}");
    let books = ledger.books().await.unwrap();
    assert_eq!((books.held(), books.open_holds().count()), (quote.checked_mul(3).unwrap(), 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f01_b77_64_sessions_of_two_processes_ask_at_once_under_a_cap_that_fits_3() {
    let (store, other) = memory();
    let mut asked = JoinSet::new();
    let mut ledgers = Vec::new();
    for store in [&store, &other] {
        ledgers.push(Arc::new(RunLedger::open(store.clone(), &run(), Some(usd("0.35"))).await.unwrap()));
    }
    let mut sessions = Vec::new();
    for n in 0..64 {
        let of = n % 2;
        let session = session([&store, &other][of], &key(&format!("s{n}")), &run()).await;
        let (drive, ledger) = (session.drive.clone(), ledgers[of].clone());
        sessions.push(session);
        asked.spawn(async move { begin(&ledger, &drive, usd("0.1")).await });
    }
    let answers = asked.join_all().await;
    let sent = answers.iter().filter(|answer| answer.is_ok()).count();
    let denied = answers.iter().filter(|answer| matches!(answer, Err(LedgerError::Denied(_)))).count();
    assert_eq!((sent, denied), (3, 61));
    assert!(sessions.iter().all(|session| session.drive.epoch().0 == 1), "none was fenced");
    for ledger in ledgers {
        assert_eq!(ledger.books().await.unwrap().held(), usd("0.3"));
    }
}
