//! People's words for the turn that runs: one message at a time is asked for while a call runs, recorded as placed, held until every call of
//! the response has its result, and given to the program before it goes on. It folds them in behind the results, so that the request which
//! shows those shows the words too.
//!
//! ```text
//!  PreToolUse ─► words.next() ─► placed, held ─► PostToolBatch ─► user line ─► queued ─► the hook answered ─► folded in ─► the next request
//!                                         └─ the turn ends first ─► never given: the runner carries them
//! ```
//!
//! Not sooner: what the program holds when a turn ends, by an accepted submit or an interrupt, it begins a paid turn of its own with.
//! Not twice: a message it folded in it does not know by its id after a resume, and would show again; so only what the recorded history lacks
//! is ever placed again.

use std::pin::Pin;
use std::sync::Arc;

use agentrun_kernel::{Drive, Message, PlaceTicket, Restart};

use super::barrier::TranscriptBarrier;
use crate::session::Words;

/// The words of one turn.
pub(super) struct Steering {
    transcript: Arc<TranscriptBarrier>,
    drive: Drive,
    /// Whom to ask; `None` while they are asked, and where the turn takes no words.
    words: Option<Box<dyn Words>>,
    /// Not begun anew whenever the program says something, and no task: what was handed out is placed before the program is heard again.
    waits: Option<Pin<Box<dyn Future<Output = Waited> + Send>>>,
    /// The message that the records do not show in the transcript yet: the one that opened the turn, then each of the words. A crash finds
    /// no more than this one on its way.
    on_its_way: Option<String>,
    /// Placed, and not given to the program yet.
    held: Option<Message>,
    /// Given to the program, which has not folded them in yet.
    given: Option<Given>,
}

/// What was waited for.
enum Waited {
    /// The records show the message that was on its way.
    Stands,
    Asked(Box<dyn Words>, Result<PlaceTicket, Restart>),
}

struct Given {
    id: String,
    /// The program's question behind its calls. It goes on once that is answered, so not before it has the words.
    hook: Option<String>,
}

impl Steering {
    /// `opening`: the message that opens the turn, if the transcript may lack it.
    pub(super) fn new(
        transcript: Arc<TranscriptBarrier>,
        drive: Drive,
        words: Option<Box<dyn Words>>,
        opening: Option<String>,
    ) -> Self {
        Self { transcript, drive, words, waits: None, on_its_way: opening, held: None, given: None }
    }

    /// Asks for the next message, once the one before it stands.
    pub(super) fn ask(&mut self) {
        if self.waits.is_some() || self.held.is_some() || self.given.is_some() {
            return;
        }
        let Some(mut words) = self.words.take() else { return };
        self.waits = Some(match self.on_its_way.clone() {
            Some(message) => {
                self.words = Some(words);
                let (transcript, drive) = (self.transcript.clone(), self.drive.clone());
                Box::pin(async move {
                    transcript.took(&drive, &message).await;
                    Waited::Stands
                })
            }
            None => Box::pin(async move {
                let next = words.next().await;
                Waited::Asked(words, next)
            }),
        });
    }

    /// Waits for the next message, to be placed or dropped: its words stay with the session until they are placed. `None`: the one before
    /// it stands now, so that another can be asked for. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<PlaceTicket, Restart>> {
        let Some(waits) = &mut self.waits else { std::future::pending().await };
        let waited = waits.await;
        self.waits = None;
        match waited {
            Waited::Stands => {
                self.on_its_way = None;
                None
            }
            Waited::Asked(words, next) => {
                self.words = Some(words);
                Some(next)
            }
        }
    }

    /// The turn was over when its words were to be placed: it takes no others.
    pub(super) fn close(&mut self) {
        self.words = None;
    }

    /// The message was placed. It waits here until the calls that run have their results.
    pub(super) fn hold(&mut self, message: Message) {
        self.on_its_way = Some(message.id.as_str().to_owned());
        self.held = Some(message);
    }

    /// What waits, to be given to the program before its question `hook` is answered.
    pub(super) fn give(&mut self, hook: &str) -> Option<Message> {
        let message = self.held.take()?;
        let id = message.id.as_str().to_owned();
        self.transcript.expect_message(&id);
        self.given = Some(Given { id, hook: Some(hook.to_owned()) });
        Some(message)
    }

    /// The program has this message. Answers the question it may go on from, if the words were waited for with it.
    pub(super) fn has(&mut self, message: &str) -> Option<String> {
        self.given.as_mut().filter(|given| given.id == message)?.hook.take()
    }

    /// The program folded this message in, or is done with it.
    pub(super) fn folded(&mut self, message: &str) {
        self.given.take_if(|given| given.id == message);
    }

    /// What the program was given and has not folded in: it would begin a turn with it.
    pub(super) fn queued(&self) -> Option<&str> {
        self.given.as_ref().map(|given| given.id.as_str())
    }
}
