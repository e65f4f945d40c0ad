//! What the provider does wrong is a typed end within a bound: never a hang, never a second paid request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::Step;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::rig::{Rig, Work};

/// Far above what a loaded machine needs; a hang is what fails it.
const BOUND: Duration = Duration::from_secs(60);

/// How turns on these steps end, one after the other in one program, and how many requests each made.
async fn ends_of(steps: Vec<Step>) -> Vec<(TurnEnd, usize)> {
    let rig = Rig::new(steps.clone());
    let mut owner = rig.own(Work::Answers, &[]).await;
    let (mut ends, mut before) = (Vec::new(), 0);
    for step in steps {
        let turn = owner.place(&format!("do it: {step:?}")).await;
        let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("a hang").unwrap();
        owner.end_turn().await;
        let requests = rig.model.all_requests().len();
        ends.push((end, requests - std::mem::replace(&mut before, requests)));
    }
    owner.close().await;
    ends
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_and_an_answer_that_is_cut_or_broken_fail_the_turn_after_one_request() {
    let statuses = [400, 401, 403, 404, 413, 429, 500, 502, 503, 529];
    let cut = |after| Step { cut_after_events: Some(after), ..Step::says("half a word") };
    let broken = [cut(0), cut(1), cut(3), Step { corrupt: true, ..Step::says("half a word") }];
    let steps: Vec<_> = statuses.into_iter().map(Step::fails).chain(broken).collect();
    for (step, (end, requests)) in steps.clone().into_iter().zip(ends_of(steps).await) {
        let TurnEnd::Failed { status: said, message } = end else { panic!("{step:?}: {end:?}") };
        assert_eq!(requests, 1, "{step:?} was tried again");
        assert!(!message.is_empty());
        // Of what it would send again by itself, and of a full context, it tells no number; the gate saw it.
        assert!(said.is_none() || said == step.status, "{step:?} became {said:?}");
        assert!(said.is_some() || step.status.is_none_or(|status| status >= 413), "{step:?} was not told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_reason_is_not_asked_for_without_bound() {
    let asked = Arc::new(AtomicUsize::new(0));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = Rig::new(vec![Step::says("never asked")]).asking(format!("http://{}", listener.local_addr().unwrap()));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut read = Vec::new();
                // A request whole: its body is one JSON object, and no string in this test ends like it.
                while !read.ends_with(b"}}") {
                    if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                count.fetch_add(1, Ordering::Relaxed);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                let words =
                    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"and so on"},"finish_reason":null}]}"#;
                let _ = stream.write_all(format!("{head}{words}\n\ndata: [DONE]\n\n").as_bytes()).await;
            });
        }
    });
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("a hang").unwrap();
    assert!(matches!(&end, TurnEnd::Failed { message, .. } if message.contains("without a reason")), "{end:?}");
    owner.close().await;
    // Left alone it makes about eight a second.
    let asked = asked.load(Ordering::Relaxed);
    assert!((1..=2).contains(&asked), "{asked} requests");
}
