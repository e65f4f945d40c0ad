//! What the tests of words in a running turn need: somebody who says them, a gate before the model, and a model that pauses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use agentrun_adapter::{RequestBarrier, Turn, Words};
use agentrun_kernel::{Batch, Body, Drive, Message, MessageId, PlaceTicket, Restart, Source, Submission, SubmissionId};
use agentrun_testing::script::{Script, Step};
use agentrun_testing::scripted::{Before, ScriptedModel};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{mpsc as channel, watch};

use crate::rig::Owner;

/// Far above what a loaded machine needs.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const WORDS: &str = "look at the other one too";

/// What somebody says, one message each.
#[derive(Debug)]
struct Said {
    drive: Drive,
    said: channel::UnboundedReceiver<&'static str>,
    next: Option<&'static str>,
}

#[async_trait]
impl Words for Said {
    async fn next(&mut self) -> Result<PlaceTicket, Restart> {
        if self.next.is_none() {
            self.next = self.said.recv().await;
        }
        let Some(text) = self.next else { std::future::pending().await };
        let (id, turn) =
            (SubmissionId::fresh(), self.drive.with_state(|state| state.open_turn.as_ref().unwrap().id.clone()));
        let submission = Submission::new(id.clone(), Source::Person, text);
        self.drive.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
        self.next = None;
        let message =
            Message { id: MessageId::fresh(), turn, carries: vec![id], replaces: Vec::new(), text: text.into() };
        Ok(self.drive.ticket(message))
    }
}

/// Says things into the turns of an owner.
pub(crate) struct Mouth(channel::UnboundedSender<&'static str>);

impl Mouth {
    pub(crate) fn say(&self, text: &'static str) {
        self.0.send(text).unwrap();
    }
}

/// A turn that words can be said into.
pub(crate) fn heard(owner: &Owner, turn: Turn) -> (Turn, Mouth) {
    let (to, said) = channel::unbounded_channel();
    let words = Said { drive: owner.drive.clone(), said, next: None };
    (Turn { words: Some(Box::new(words)), ..turn }, Mouth(to))
}

/// Waits until so many messages were placed. What was placed goes to the program before anything that is told to it later.
pub(crate) async fn placed(drive: &Drive, wanted: usize) {
    let reached = tokio::time::timeout(BOUND, async {
        while drive.with_state(|state| state.messages().count()) < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    reached.await.expect("the words were not placed");
}

/// What was placed and is not in the history, as this owner found it.
pub(crate) fn lost(owner: &Owner) -> Vec<Message> {
    owner.drive.with_state(|state| {
        let lost = state.messages().filter(|message| !owner.survey.taken.contains(&message.placed.message));
        lost.map(|message| Message::from(&*message.placed)).collect()
    })
}

/// Stands before the model as the gate does: each request waits for the barrier, then until it is let through.
#[derive(Default)]
pub(crate) struct Gate {
    seat: Mutex<Option<(Drive, Arc<dyn RequestBarrier>)>>,
    passed: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

impl Gate {
    /// A model behind a gate that lets the first `open` requests through.
    pub(crate) fn before(steps: Vec<Step>, open: usize) -> (Arc<Self>, ScriptedModel) {
        let gate = Arc::new(Self::default());
        gate.open(open);
        let model = ScriptedModel::start_behind(Script::new(steps).unwrap(), gate.clone()).unwrap();
        (gate, model)
    }

    pub(crate) fn open(&self, requests: usize) {
        self.open.send_replace(requests);
    }

    pub(crate) fn own(&self, owner: &Owner) {
        let barrier = owner.session.request_barrier().unwrap();
        *self.seat.lock().unwrap() = Some((owner.drive.clone(), barrier));
    }

    /// Lets go of the owner's records.
    pub(crate) fn disown(&self) {
        *self.seat.lock().unwrap() = None;
    }

    /// Waits until so many requests passed the barrier.
    pub(crate) async fn passed(&self, requests: usize) {
        let mut passed = self.passed.subscribe();
        let waited = tokio::time::timeout(BOUND, passed.wait_for(|passed| *passed >= requests)).await;
        waited.expect("the model was not asked").unwrap();
    }
}

#[async_trait]
impl Before for Gate {
    async fn admit(&self, body: &[u8]) -> Result<(), String> {
        let seat = self.seat.lock().unwrap().clone();
        let Some((drive, barrier)) = seat else { return Err("nobody owns the session".to_owned()) };
        let tail = barrier.before_request(body).await.map_err(|error| error.to_string())?;
        let bodies = tail.bodies();
        if !bodies.is_empty() {
            drive.append(Batch::of(bodies), None).await.map_err(|error| error.to_string())?;
        }
        drop((tail, drive, barrier));
        let mut number = 0;
        self.passed.send_modify(|passed| {
            *passed += 1;
            number = *passed;
        });
        // One that is never let through ends with its connection.
        let _ = self.open.subscribe().wait_for(|open| *open >= number).await;
        Ok(())
    }
}

/// A model that answers the first request up to its middle, and goes on once it is told; and the requests it was asked.
pub(crate) fn pausing() -> (String, mpsc::Receiver<Value>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, seen) = mpsc::channel();
    let (go_on, told) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if asked.send(body_of(&stream)).is_err() {
                return;
            }
            let whole = json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]});
            let events = [
                json!({"type": "response.created", "response": {"id": format!("resp_{number}")}}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": []}}),
                json!({"type": "response.output_text.delta", "item_id": format!("msg_{number}"), "output_index": 0, "content_index": 0, "delta": "I "}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": whole}),
                json!({"type": "response.completed", "response": {"id": format!("resp_{number}"), "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}}),
            ];
            // A client that hung up wants no more.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
            for (at, event) in events.iter().enumerate() {
                if number == 0 && at == 3 && told.recv().is_err() {
                    return;
                }
                let _ = write!(stream, "event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
                let _ = stream.flush();
            }
        }
    });
    (url, seen, go_on)
}

fn body_of(stream: &TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}
