//! A harness that asks the model on and on is refused, told, and its node ends finally: no harness decides how long it may spend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_adapter::{AdapterError, AdapterErrorKind, ModelEndpoint, PaidCall, Seat, Start, Turn, TurnEnd};
use agentrun_kernel::{Built, EffectKind, StopLevel, Usage};
use agentrun_runner::{HarnessRunner, NodeWord};
use async_trait::async_trait;

use crate::stub::{Stub, Turns};
use crate::world::{World, books_are_quiet, count, intents, node, step, within};

/// As OpenCode on an answer whose finish it does not know: asks again at once, whatever it is answered, a refusal too.
struct Circles(Arc<AtomicUsize>);

#[async_trait]
impl Turns for Circles {
    async fn turn(&self, seat: &Seat, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let ModelEndpoint::Direct(port) = &seat.model else {
            return Err(AdapterError::new(AdapterErrorKind::Protocol, "no port"));
        };
        let Turn { start, stop, .. } = turn;
        if let Start::Place(ticket) = start {
            ticket.place().await.unwrap();
        }
        loop {
            if stop.level() >= StopLevel::Interrupt {
                return Ok(TurnEnd::Stopped(stop.level()));
            }
            let call = PaidCall {
                model: "claude-haiku-4-5".to_owned(),
                body: Arc::from(*b"{\"messages\":[]}"),
                max_output: 10,
            };
            match port.begin(call).await {
                Ok(paid) => {
                    let used = Usage { input: 10, output: 1, ..Usage::default() };
                    paid.finish(used, "r".to_owned(), Arc::from(*b"{}")).await.ok();
                }
                Err(refused) => {
                    assert_eq!(
                        refused.word,
                        if self.0.load(Ordering::SeqCst) == 0 { "request_limit" } else { "stopped" }
                    );
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }
}

/// Runs the circling harness under a limit of requests. Answers how many were sent.
async fn circles(request_limit: u32) -> (String, usize) {
    let (world, refused) = (World::new(), Arc::new(AtomicUsize::new(0)));
    let mut node = node(Vec::new());
    node.request_limit = request_limit;
    let runner = HarnessRunner::new(Stub::of("circles", Built::Neither, Circles(refused.clone())), world.options());
    let error = within(runner.run_node(node.clone(), step())).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::RequestLimit, true), "{error}");
    assert!(refused.load(Ordering::SeqCst) >= 1, "it was refused, and ended by the stop it was told of");
    let records = world.records().await;
    assert_eq!((count(&records, "failed"), count(&records, "placed")), (1, 1));
    books_are_quiet(&world).await;
    let again = runner.run_node(node, step()).await.unwrap_err();
    assert_eq!(again, error, "the same from the records");
    (error.message, intents(&records, EffectKind::Request).len())
}

#[tokio::test]
async fn b92_a_harness_that_goes_round_in_circles_is_refused_and_told_and_the_node_ends_finally() {
    let (message, sent) = circles(1_000).await;
    // The guard looks at a window of time: a machine that takes longer for ten requests lets a few more through, and never all of them.
    assert!((10..1_000).contains(&sent), "{sent} requests");
    assert!(message.contains("circles"), "{message}");
}

#[tokio::test]
async fn b92_a_turn_over_its_request_limit_is_told_too() {
    let (message, sent) = circles(3).await;
    assert_eq!(sent, 3);
    assert!(message.contains("3 of 3"), "{message}");
}
