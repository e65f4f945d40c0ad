//! A relay between the adapter and the program that loses what can be lost: live events, and a message that was said to be accepted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::Step;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::times_sent;
use crate::rig::{Rig, Work, calls};

/// What is done to whom asks for live events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    Given,
    /// The head, and then the end of the connection.
    Cut,
    /// The head, and then nothing for ever.
    Silent,
}

/// What is done to a message that is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placing {
    Given,
    /// Said to be accepted, and given to nobody.
    Lost,
    /// Given twice.
    Doubled,
}

struct Shared {
    /// Where the program's port is written.
    port: PathBuf,
    live: Mutex<Live>,
    /// For each message in turn; the last stays.
    placing: Mutex<Vec<Placing>>,
    /// How often live events were asked for.
    heard: Mutex<usize>,
    placed: Mutex<Vec<Value>>,
}

/// A rig whose program says that it listens where the relay does.
async fn relayed(steps: Vec<Step>, live: Live, placing: &[Placing]) -> (Rig, Arc<Shared>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let rig = Rig::new(steps);
    let port = rig.scratch("port");
    let rig = rig.with_program(&format!(
        r#"HARNESS "$@" | while IFS= read -r line; do
             case "$line" in
               *" listening on "*) echo "${{line##*:}}" >'{}'; echo "opencode server listening on http://{address}" ;;
               *) echo "$line" ;;
             esac
           done"#,
        port.display()
    ));
    let shared = Arc::new(Shared {
        port,
        live: Mutex::new(live),
        placing: Mutex::new(placing.to_vec()),
        heard: Mutex::new(0),
        placed: Mutex::default(),
    });
    let relay = shared.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let relay = relay.clone();
            tokio::spawn(async move {
                let _ = pass_on(stream, &relay).await;
            });
        }
    });
    (rig, shared)
}

/// One request, whole.
async fn request_of(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|at| at == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if bytes.len() >= head + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn pass_on(mut stream: TcpStream, relay: &Shared) -> Option<()> {
    let request = request_of(&mut stream).await?;
    let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next()?).into_owned();
    let port: u16 = std::fs::read_to_string(&relay.port).ok()?.trim().parse().ok()?;
    if line.contains("/prompt_async") {
        let body = request.windows(4).position(|at| at == b"\r\n\r\n")? + 4;
        relay.placed.lock().unwrap().push(serde_json::from_slice(&request[body..]).unwrap());
        let placing = {
            let mut placing = relay.placing.lock().unwrap();
            if placing.len() > 1 { placing.remove(0) } else { placing[0] }
        };
        if placing == Placing::Lost {
            return stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.ok();
        }
        if placing == Placing::Doubled {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            server.write_all(&request).await.ok()?;
            server.read_buf(&mut Vec::new()).await.ok()?;
        }
    }
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    server.write_all(&request).await.ok()?;
    if line.starts_with("GET /event") {
        *relay.heard.lock().unwrap() += 1;
        let live = *relay.live.lock().unwrap();
        if live != Live::Given {
            let mut head = Vec::new();
            server.read_buf(&mut head).await.ok()?;
            stream.write_all(&head).await.ok()?;
            if live == Live::Silent {
                // Until the adapter has enough of it.
                while stream.read_buf(&mut Vec::new()).await.ok()? > 0 {}
            }
            return Some(());
        }
    }
    tokio::io::copy_bidirectional(&mut stream, &mut server).await.ok().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_a_turn_whose_live_events_are_cut_or_silent_loses_nothing_and_they_are_asked_for_again() {
    let steps =
        vec![calls(&[("work", json!({}))]), Step::says("one"), calls(&[("work", json!({}))]), Step::says("two")];
    let (rig, relay) = relayed(steps, Live::Cut, &[Placing::Given]).await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    for (text, live) in [("first", Live::Cut), ("second", Live::Silent)] {
        *relay.live.lock().unwrap() = live;
        let turn = owner.place(text).await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle, "{live:?}");
        owner.end_turn().await;
        let waited = tokio::time::timeout(Duration::from_secs(60), async {
            // They are asked for again and again, until somebody holds the connection.
            while *relay.heard.lock().unwrap() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.expect("the live events are not asked for again");
    }
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!((times_sent(&requests[3], "first"), times_sent(&requests[3], "second")), (1, 1));
    assert_eq!(rig.outcomes().await.len(), 2);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_an_accepted_message_that_was_lost_is_placed_again_and_one_placed_twice_is_one() {
    let steps = vec![Step::says("one"), Step::says("two")];
    let placing = [Placing::Lost, Placing::Doubled, Placing::Given];
    let (rig, relay) = relayed(steps, Live::Given, &placing).await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    for text in ["first", "second"] {
        let turn = owner.place(text).await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
        owner.end_turn().await;
    }
    owner.close().await;
    let placed = relay.placed.lock().unwrap().clone();
    // The first was lost and placed again, to the letter; the second needed no more than once.
    assert_eq!(placed.len(), 3, "{placed:?}");
    assert_eq!(placed[0], placed[1]);
    assert_ne!(placed[1]["messageID"], placed[2]["messageID"]);
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2, "a message that is placed twice is paid once");
    assert_eq!((times_sent(&requests[1], "first"), times_sent(&requests[1], "second")), (1, 1));
    rig.assert_valid().await;
}
