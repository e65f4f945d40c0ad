//! People's words for the turn that runs: one message at a time is asked for, recorded as placed, given to the program, and followed until
//! the rollout holds it. The program takes words between two steps of the model: behind the results of its calls, or behind its answer.
//!
//! ```text
//!  words.next() ─► placed ─► turn/steer ─► behind what runs now ─► the rollout holds it ─► words.next()
//!                                └─ the program's turn ended without it ─► turn/start, under the same id
//! ```

use std::sync::Arc;

use agentrun_kernel::{Message, MessageId, PlaceTicket, Restart};
use tokio::task::JoinSet;

use super::barrier::RolloutBarrier;
use crate::session::Words;

/// The words of one turn.
pub(super) struct Steering {
    rollout: Arc<RolloutBarrier>,
    /// Whom to ask; `None` while they are asked, and where the turn takes no words.
    words: Option<Box<dyn Words>>,
    /// Asks them, in a task: the program says many things while nobody sends anything.
    asking: JoinSet<Asked>,
    /// The message that the rollout does not hold yet: the one that opened the turn, then each of the words. A crash finds no more than
    /// this one on its way.
    on_its_way: Option<MessageId>,
    /// Waits until it does.
    standing: JoinSet<bool>,
    /// What was given to the program in the turn of its own that runs.
    given: Option<Message>,
    /// Our request that gave it, until that is answered.
    unanswered: Option<u64>,
}

type Asked = (Box<dyn Words>, Result<PlaceTicket, Restart>);

impl Steering {
    /// `opening`: the message that opens the turn, if the program is yet to be given it.
    pub(super) fn new(rollout: Arc<RolloutBarrier>, words: Option<Box<dyn Words>>, opening: Option<MessageId>) -> Self {
        Self {
            rollout,
            words,
            asking: JoinSet::new(),
            on_its_way: opening,
            standing: JoinSet::new(),
            given: None,
            unanswered: None,
        }
    }

    /// Asks for the next message, unless one is on its way.
    pub(super) fn ask(&mut self) {
        if self.on_its_way.is_some() {
            return;
        }
        if let Some(mut words) = self.words.take() {
            self.asking.spawn(async move {
                let next = words.next().await;
                (words, next)
            });
        }
    }

    /// Waits for the next message, to be placed or dropped: its words stay with the session until they are placed. `None`: the one before
    /// it stands, so that another can be asked for. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<PlaceTicket, Restart>> {
        tokio::select! {
            Some(asked) = self.asking.join_next() => {
                // A task that was lost asks no more.
                let (words, next) = asked.ok()?;
                self.words = Some(words);
                Some(next)
            }
            Some(stands) = self.standing.join_next() => {
                // One that does not show in time stays on its way: the records tell at the turn's end what became of it.
                if stands.unwrap_or(false) {
                    self.on_its_way = None;
                }
                None
            }
            else => std::future::pending().await,
        }
    }

    /// The turn was over when its words were to be placed: it takes no others.
    pub(super) fn close(&mut self) {
        self.words = None;
    }

    /// The message goes to the program with our request `request`.
    pub(super) fn gave(&mut self, message: Message, request: u64) {
        self.on_its_way = Some(message.id.clone());
        self.given = Some(message);
        self.unanswered = Some(request);
    }

    /// Whether this answers the request that gave the last message. Refused, the program's turn is over, or is none that takes words: its
    /// end finds the message not taken.
    pub(super) fn answered(&mut self, request: u64) -> bool {
        self.unanswered.take_if(|unanswered| *unanswered == request).is_some()
    }

    /// Whether the program has yet to say if it takes the last message.
    pub(super) const fn unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    /// The program says that it wrote this message down.
    pub(super) fn took(&mut self, message: &str) {
        if self.on_its_way.as_ref().is_none_or(|on_its_way| on_its_way.as_str() != message) {
            return;
        }
        let (rollout, message) = (self.rollout.clone(), message.to_owned());
        self.standing.spawn(async move { rollout.took(&message).await.is_ok() });
    }

    /// What was given to the program in the turn of its own that is over now.
    pub(super) fn given(&mut self) -> Option<Message> {
        self.given.take()
    }

    /// Ends what it waits for, and returns once nothing of it runs.
    pub(super) async fn end(&mut self) {
        self.asking.shutdown().await;
        self.standing.shutdown().await;
    }
}
