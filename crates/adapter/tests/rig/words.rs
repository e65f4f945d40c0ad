//! What the tests of words in a running turn need on every harness: somebody who says them, a gate before the model, and what became of them
//! in the records.
// Each harness's tests use their part of it.
#![allow(dead_code)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_adapter::{RequestBarrier, Turn, Words};
use agentrun_kernel::{Batch, Body, Drive, Message, MessageId, PlaceTicket, Restart, Source, Submission, SubmissionId};
use agentrun_testing::script::{Script, Step};
use agentrun_testing::scripted::{Before, ScriptedModel};
use async_trait::async_trait;
use tokio::sync::{mpsc as channel, watch};

use crate::rig::{Host, Owner, Rig, Work, answer};

/// Far above what a loaded machine needs.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const WORDS: &str = "look at the other one too";
pub(crate) const THIRD: &str = "and the third";

/// A ticket that steers `text` into the open turn.
pub(crate) async fn steers(drive: &Drive, text: &'static str) -> PlaceTicket {
    let id = SubmissionId::fresh();
    let submission = Submission::new(id.clone(), Source::Person, text);
    drive.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
    let turn = drive.with_state(|state| state.open_turn.as_ref().unwrap().id.clone());
    drive.ticket(Message { id: MessageId::fresh(), turn, carries: vec![id], replaces: Vec::new(), text: text.into() })
}

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
        let ticket = steers(&self.drive, text).await;
        self.next = None;
        Ok(ticket)
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

/// Waits for what must come.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(BOUND, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

/// Waits until so many messages were placed. What was placed goes to the program before anything that is told to it later.
pub(crate) async fn placed(drive: &Drive, wanted: usize) {
    until("the words were not placed", || drive.with_state(|state| state.messages().count()) >= wanted).await;
}

/// Says the words while a call of `work` runs, and lets it end once they are placed.
pub(crate) async fn said_in_a_call(host: &Host, drive: &Drive, mouth: &Mouth) {
    host.begun.notified().await;
    mouth.say(WORDS);
    placed(drive, 2).await;
    host.let_go.notify_one();
}

/// What was placed and is not in the history, as this owner found it.
pub(crate) fn lost(owner: &Owner) -> Vec<Message> {
    owner.drive.with_state(|state| {
        let lost = state.messages().filter(|message| !owner.survey.taken.contains(&message.placed.message));
        lost.map(|message| Message::from(&*message.placed)).collect()
    })
}

/// The history's own account of what it took is what was placed, in that order. Answers how many that are.
pub(crate) fn took_what_was_placed(owner: &Owner) -> usize {
    let placed: Vec<_> =
        owner.drive.with_state(|state| state.messages().map(|message| message.placed.message.clone()).collect());
    assert_eq!(owner.survey.taken, placed);
    placed.len()
}

/// The same of what the records hold now.
pub(crate) async fn all_taken(rig: &Rig) -> usize {
    took_what_was_placed(&rig.own(Work::Answers, &[]).await)
}

/// The next owner behind a cut, on a history whose open calls have a recorded result.
pub(crate) async fn repaired(rig: &Rig) -> Owner {
    let owner = rig.own(Work::Answers, &[]).await;
    let open: Vec<_> =
        owner.survey.open_calls.iter().map(|call| answer(call.call.as_str(), "the recorded text")).collect();
    owner.crash().await;
    rig.own(Work::Answers, &open).await
}

/// A test of `words_are_shown_once` for each moment.
macro_rules! moments {
    ($($name:ident: $moment:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            words_are_shown_once(Moment::$moment).await;
        }
    )+};
}
pub(crate) use moments;

/// Stands before the model as the gate does: each request waits for the barrier, then until it is let through.
#[derive(Default)]
pub(crate) struct Gate {
    seat: Mutex<Option<(Drive, Arc<dyn RequestBarrier>)>>,
    came: watch::Sender<usize>,
    passed: watch::Sender<usize>,
    recorded: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

impl Gate {
    /// A model behind a gate that lets the first `open` requests through.
    pub(crate) fn before(steps: Vec<Step>, open: usize) -> (Arc<Self>, ScriptedModel) {
        let gate = Arc::new(Self::default());
        gate.recorded.send_replace(usize::MAX);
        gate.open(open);
        let model = ScriptedModel::start_behind(Script::new(steps).unwrap(), gate.clone()).unwrap();
        (gate, model)
    }

    pub(crate) fn open(&self, requests: usize) {
        self.open.send_replace(requests);
    }

    /// How many requests are explained by the records; a later one does not come so far.
    pub(crate) fn record(&self, requests: usize) {
        self.recorded.send_replace(requests);
    }

    pub(crate) fn own(&self, owner: &Owner) {
        let barrier = owner.session.request_barrier().unwrap();
        *self.seat.lock().unwrap() = Some((owner.drive.clone(), barrier));
    }

    /// Lets go of the owner's records.
    pub(crate) fn disown(&self) {
        *self.seat.lock().unwrap() = None;
    }

    /// Waits until so many requests came.
    pub(crate) async fn came(&self, requests: usize) {
        let mut came = self.came.subscribe();
        let waited = tokio::time::timeout(BOUND, came.wait_for(|came| *came >= requests)).await;
        waited.expect("the model was not asked").unwrap();
    }

    /// Waits until so many requests passed the barrier.
    pub(crate) async fn passed(&self, requests: usize) {
        let mut passed = self.passed.subscribe();
        let waited = tokio::time::timeout(BOUND, passed.wait_for(|passed| *passed >= requests)).await;
        waited.expect("the model was not asked, or the history did not explain why").unwrap();
    }
}

/// Counts one more; answers how many those are.
fn count(sender: &watch::Sender<usize>) -> usize {
    let mut number = 0;
    sender.send_modify(|count| {
        *count += 1;
        number = *count;
    });
    number
}

#[async_trait]
impl Before for Gate {
    async fn admit(&self, body: &[u8]) -> Result<(), String> {
        let came = count(&self.came);
        let _ = self.recorded.subscribe().wait_for(|recorded| *recorded >= came).await;
        let seat = self.seat.lock().unwrap().clone();
        let Some((drive, barrier)) = seat else { return Err("nobody owns the session".to_owned()) };
        let tail = barrier.before_request(body).await.map_err(|error| error.to_string())?;
        let bodies = tail.bodies();
        if !bodies.is_empty() {
            drive.append(Batch::of(bodies), None).await.map_err(|error| error.to_string())?;
        }
        drop((tail, drive, barrier));
        let number = count(&self.passed);
        // One that is never let through ends with its connection.
        let _ = self.open.subscribe().wait_for(|open| *open >= number).await;
        Ok(())
    }
}
