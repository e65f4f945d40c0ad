//! An answer that ends without a reason, which OpenCode takes for one to go on from: left alone it asks again at once and without bound, 39
//! requests in 5 seconds. Played by a provider that gives no other answer.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::marked;
use crate::world::{Running, World};

cases! {
    opencode: b92_an_answer_without_a_reason_is_not_asked_for_without_bound_and_the_request_limit_holds_what_would;
}

/// A provider of chat completions that never says why an answer ended; its origin, and how often it was asked.
fn provider() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (origin, asked) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), count.clone());
            std::thread::spawn(move || {
                let (mut read, mut piece) = (Vec::new(), [0; 16 * 1024]);
                let whole = |read: &[u8]| {
                    let head = read.windows(4).position(|at| at == b"\r\n\r\n")? + 4;
                    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
                    let length =
                        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
                    (read.len() >= head + length.unwrap_or(0)).then_some(())
                };
                while whole(&read).is_none() {
                    match stream.read(&mut piece) {
                        Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
                        _ => return,
                    }
                }
                count.fetch_add(1, Ordering::SeqCst);
                let words = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"role":"assistant","content":"and so on"},"finish_reason":null}]}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                // Whoever hangs up was given enough.
                let _ = stream.write_all(format!("{head}{words}\n\ndata: [DONE]\n\n").as_bytes());
            });
        }
    });
    (origin, asked)
}

fn b92_an_answer_without_a_reason_is_not_asked_for_without_bound_and_the_request_limit_holds_what_would(on: Harness) {
    const LIMIT: usize = 3;
    let (origin, asked) = provider();
    let world = World::new(on);
    let ended = Running::to_end(world.run(&origin));
    assert_eq!(ended.code, Some(4), "the same command may go on: {ended:?}");
    assert!(ended.stdout.contains("without a reason"), "{ended:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it was asked again");
    assert_eq!(marked(&world.session), []);
    world.check();

    // The same program without what our script tells it in there: what is left is the adapter, which looks from outside and may be later,
    // and the bound of the node.
    let (origin, asked) = provider();
    let mut world = World::new(on);
    world.node = json!({"request_limit": LIMIT, "budget_usd": "50"});
    let real = world.harness.display().to_string();
    world.harness = world.program(
        "bin/unguarded",
        &format!(
            "#!/bin/sh\n[ \"$1\" = serve ] && sed -i 's/finish === \"unknown\"/finish === \"no such\"/' \"$HOME/agentrun.js\"\nexec '{real}' \"$@\"\n"
        ),
    );
    let ended = Running::to_end(world.run(&origin));
    assert!(matches!(ended.code, Some(3 | 4)), "{ended:?}");
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=LIMIT).contains(&asked), "{asked} requests");
    assert_eq!(marked(&world.session), []);
    world.check();
}
