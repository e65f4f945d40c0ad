//! People's messages. Who sends writes to the session's inbox, a log of its own with many writers, so it works beside an owner that lives and
//! fences nobody; the owner takes what waits there just before it places a message, in one batch with the session's own records.
//!
//! ```text
//!  send ─► [post] ─────────────────► owner: inbox [taken] + session [submission], one batch ─► [placed] ─► the model
//!  retract ─► [retract], if not taken ┘ of the two, the inbox takes the one that comes first
//! ```

use std::collections::HashMap;

use agentrun_kernel::{
    AppendError, Batch, Body, Drive, DriveError, InboxBody, LogKey, Record, Refused, Seq, SessionKey, SessionState,
    SharedAppend, SharedBatch, SharedLog, Source, Store, StoreError, Submission, SubmissionId, Watch, crossing,
    read_all,
};

use crate::carry::CARRIED_BYTES;
use crate::node::PROMPT_BYTES;

/// Times a write is tried again because somebody else's came first: each of them got on.
const TRIES: u32 = 1_000;
/// Most bytes that may wait: what is taken goes into one message, beside a prompt.
const WAITING_BYTES: usize = CARRIED_BYTES - 2 * PROMPT_BYTES;

/// What became of a person's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostState {
    /// It waits for the session's owner.
    Waiting,
    /// It is in the session: it is sent, exactly once, and can no longer be retracted.
    Taken,
    /// It was taken back and is never sent.
    Retracted,
}

/// A message in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Its id, as it was sent under.
    pub id: String,
    /// What became of it.
    pub state: PostState,
    /// It was there already: nothing was written.
    pub again: bool,
}

/// Why nothing was written to the inbox.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// There is no such session.
    #[error("there is no session `{0}`")]
    Unknown(SessionKey),
    /// Nothing begins in the session any more.
    #[error("session `{session}` {why}, so nothing can be sent to it any more")]
    Over {
        /// Which.
        session: SessionKey,
        /// Why.
        why: &'static str,
    },
    /// The id stands for another message.
    #[error("message `{0}` was sent before with other words; send these under another id")]
    Conflict(String),
    /// No message has this id.
    #[error("no message `{0}` was sent to the session")]
    NoMessage(String),
    /// It is in the session already.
    #[error("message `{0}` was taken by the session's owner and cannot be retracted")]
    TooLate(String),
    /// An id or a text that cannot be one.
    #[error("{0}")]
    Unfit(String),
    /// Too much waits.
    #[error(
        "{waiting} bytes of messages wait in the session already and this one has {more}, over {most} in all; resume it first"
    )]
    Full {
        /// Bytes that wait.
        waiting: usize,
        /// Bytes of this one.
        more: usize,
        /// The bound.
        most: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The write may have landed: the same again, under its id, tells.
    #[error("nobody can say whether the message was written ({0}); send it again under the same id")]
    InDoubt(String),
    /// Others were first too often.
    #[error("the inbox is too busy: {TRIES} tries lost; try again")]
    Busy,
}

/// Sends a person's message to `session`, under `id`: the same id with the same words is the same message, whoever sends it how often.
/// It waits in the inbox until the session's owner places its next message, or until the session is resumed.
///
/// Dropping the future may leave it sent.
///
/// # Errors
/// [`InboxError`]; but for [`InboxError::InDoubt`] nothing was written.
pub async fn send_message(store: &Store, session: &SessionKey, id: &str, text: &str) -> Result<Posted, InboxError> {
    if id.is_empty() || id.len() > 128 || id.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(InboxError::Unfit("a message's id has 1 to 128 bytes and no blank".to_owned()));
    }
    if text.trim().is_empty() || text.len() > PROMPT_BYTES {
        return Err(InboxError::Unfit(format!("a message has words, and at most {PROMPT_BYTES} bytes of them")));
    }
    takes(store, session).await?;
    let submission = Submission::new(person(id), Source::Person, text);
    write(store, session, |inbox| {
        if let Some(post) = inbox.post(&submission.id) {
            let same = post.submission.digest == submission.digest;
            return if same { Ok(Write::Known(post.state)) } else { Err(InboxError::Conflict(id.to_owned())) };
        }
        let waiting: usize = inbox.waiting().map(|post| post.submission.text.len()).sum();
        if waiting.saturating_add(text.len()) > WAITING_BYTES {
            return Err(InboxError::Full { waiting, more: text.len(), most: WAITING_BYTES });
        }
        Ok(Write::Append(InboxBody::Post { submission: submission.clone() }, PostState::Waiting))
    })
    .await
    .map(|(state, again)| Posted { id: id.to_owned(), state, again })
}

/// Takes the message `id` back, if the session's owner has not taken it: then no model ever sees it.
///
/// # Errors
/// [`InboxError::TooLate`] when it was taken; but for [`InboxError::InDoubt`] nothing was written.
pub async fn retract_message(store: &Store, session: &SessionKey, id: &str) -> Result<Posted, InboxError> {
    let of = person(id);
    write(store, session, |inbox| match inbox.post(&of).map(|post| post.state) {
        None => Err(InboxError::NoMessage(id.to_owned())),
        Some(PostState::Taken) => Err(InboxError::TooLate(id.to_owned())),
        Some(PostState::Retracted) => Ok(Write::Known(PostState::Retracted)),
        Some(PostState::Waiting) => Ok(Write::Append(InboxBody::Retract { id: of.clone() }, PostState::Retracted)),
    })
    .await
    .map(|(state, again)| Posted { id: id.to_owned(), state, again })
}

/// How many messages wait in `session`'s inbox.
///
/// # Errors
/// [`StoreError`] when the inbox cannot be read.
pub async fn waiting_messages(store: &Store, session: &SessionKey) -> Result<usize, StoreError> {
    Ok(Inbox::read(store, session).await?.waiting().count())
}

/// The submission of a person's message. Never that of a prompt of the host's, whatever id the person chose.
pub(crate) fn person(id: &str) -> SubmissionId {
    SubmissionId(format!("person:{id}"))
}

/// The id that a person's message was sent under; `None` for another submission.
pub(crate) fn sent_as(id: &SubmissionId) -> Option<&str> {
    id.as_str().strip_prefix("person:")
}

/// Whether the session takes words at all, by its records.
async fn takes(store: &Store, session: &SessionKey) -> Result<(), InboxError> {
    let over = |why| InboxError::Over { session: session.clone(), why };
    let log = LogKey::from(session);
    let records: Vec<Record> = read_all::<Body>(&**store, &log).await?;
    let state = SessionState::fold(&records);
    if records.is_empty() {
        let removed = store.read(&log, Seq(1), 0).await?.head.epoch.0 > 0;
        return Err(if removed {
            over("was removed, or never got a record")
        } else {
            InboxError::Unknown(session.clone())
        });
    }
    if state.moved.is_some() {
        return Err(over("lives elsewhere now"));
    }
    if state.failed.is_some() {
        return Err(over("has failed"));
    }
    Ok(())
}

/// What is to be written, by the inbox as it is.
enum Write {
    /// Nothing: it says so already.
    Known(PostState),
    Append(InboxBody, PostState),
}

async fn write(
    store: &Store,
    session: &SessionKey,
    next: impl Fn(&Inbox) -> Result<Write, InboxError>,
) -> Result<(PostState, bool), InboxError> {
    for _ in 0..TRIES {
        let inbox = Inbox::read(store, session).await?;
        let (body, state) = match next(&inbox)? {
            Write::Known(state) => return Ok((state, true)),
            Write::Append(body, state) => (body, state),
        };
        match store.append_at(&log(session), inbox.seq, SharedBatch::Inbox(vec![body])).await {
            Ok(_) => {
                crossing!(Post);
                return Ok((state, false));
            }
            Err(AppendError::Conflict { .. }) => {}
            Err(AppendError::Refused(Refused::Ended(_))) => {
                return Err(InboxError::Over { session: session.clone(), why: "was removed or moved" });
            }
            Err(AppendError::Refused(refused)) => return Err(StoreError::Io(refused.to_string()).into()),
            Err(unsure) => return Err(InboxError::InDoubt(unsure.to_string())),
        }
    }
    Err(InboxError::Busy)
}

fn log(session: &SessionKey) -> SharedLog {
    SharedLog::Inbox(session.clone())
}

/// Follows the session's inbox.
pub(crate) async fn watch(store: &Store, session: &SessionKey) -> Result<Watch, StoreError> {
    store.watch(&LogKey::Shared(log(session))).await
}

/// Takes what waits into the session, in the order it was sent, as much as fits one message. Answers how many there were; a message that is
/// retracted in the same moment is either taken or not.
///
/// Dropping the future loses nothing: what was taken is in the session and waits there.
pub(crate) async fn take(store: &Store, drive: &Drive) -> Result<usize, TakeError> {
    let session = drive.key();
    for _ in 0..TRIES {
        let inbox = Inbox::read(store, session).await?;
        let (mut room, known) = drive.with_state(|state| {
            let waits = |id: &SubmissionId| state.submission(id).is_some();
            let known: Vec<bool> = inbox.waiting().map(|post| waits(&post.submission.id)).collect();
            (CARRIED_BYTES.saturating_sub(PROMPT_BYTES).saturating_sub(waiting_bytes(state)), known)
        });
        let mut taken = Vec::new();
        let mut bodies = Vec::new();
        for (post, known) in inbox.waiting().zip(known) {
            let Some(left) = room.checked_sub(post.submission.text.len()) else { break };
            room = left;
            taken.push(post.submission.id.clone());
            if !known {
                bodies.push(Body::Submission(Submission { source: Source::Person, ..post.submission.clone() }));
            }
        }
        if bodies.is_empty() {
            return Ok(0);
        }
        let count = bodies.len();
        let also = SharedAppend {
            log: log(session),
            expected: inbox.seq,
            batch: SharedBatch::Inbox(vec![InboxBody::Taken { ids: taken }]),
        };
        match drive.append(Batch::of(bodies), Some(also)).await {
            Ok(_) => return Ok(count),
            Err(DriveError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Somebody writes faster than we read; what is there is taken with the next message.
    Ok(0)
}

/// Bytes of words that wait in the session to be placed.
fn waiting_bytes(state: &SessionState) -> usize {
    state.submissions().filter(|accepted| accepted.waits()).map(|accepted| accepted.submission.text.len()).sum()
}

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// The fold of an inbox. Total: a record that no command of ours would write changes nothing.
#[derive(Debug, Default)]
struct Inbox {
    seq: Seq,
    posts: Vec<Post>,
    by_id: HashMap<SubmissionId, usize>,
}

#[derive(Debug)]
struct Post {
    submission: Submission,
    state: PostState,
}

impl Inbox {
    async fn read(store: &Store, session: &SessionKey) -> Result<Self, StoreError> {
        let records = read_all::<InboxBody>(&**store, &LogKey::Shared(log(session))).await?;
        let mut inbox = Self::default();
        for record in records {
            inbox.apply(record);
        }
        Ok(inbox)
    }

    fn apply(&mut self, record: Record<InboxBody>) {
        self.seq = record.seq;
        match record.body {
            InboxBody::Post { submission } => {
                if !self.by_id.contains_key(&submission.id) {
                    self.by_id.insert(submission.id.clone(), self.posts.len());
                    self.posts.push(Post { submission, state: PostState::Waiting });
                }
            }
            InboxBody::Retract { id } => self.set(&id, PostState::Retracted),
            InboxBody::Taken { ids } => {
                for id in ids {
                    self.set(&id, PostState::Taken);
                }
            }
        }
    }

    fn set(&mut self, id: &SubmissionId, state: PostState) {
        let post = self.by_id.get(id).and_then(|at| self.posts.get_mut(*at));
        if let Some(post) = post.filter(|post| post.state == PostState::Waiting) {
            post.state = state;
        }
    }

    fn post(&self, id: &SubmissionId) -> Option<&Post> {
        self.by_id.get(id).and_then(|at| self.posts.get(*at))
    }

    fn waiting(&self) -> impl Iterator<Item = &Post> {
        self.posts.iter().filter(|post| post.state == PostState::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use agentrun_kernel::Epoch;

    use super::*;

    fn inbox(bodies: impl IntoIterator<Item = InboxBody>) -> Inbox {
        let mut inbox = Inbox::default();
        for (at, body) in bodies.into_iter().enumerate() {
            inbox.apply(Record { seq: Seq(at as u64 + 1), epoch: Epoch(0), at: 0, body });
        }
        inbox
    }

    fn post(id: &str, text: &str) -> InboxBody {
        InboxBody::Post { submission: Submission::new(person(id), Source::Person, text) }
    }

    #[test]
    fn b71_the_first_word_on_a_message_counts_whatever_follows() {
        let retract = |id: &str| InboxBody::Retract { id: person(id) };
        let taken = |ids: &[&str]| InboxBody::Taken { ids: ids.iter().map(|id| person(id)).collect() };
        let inbox = inbox([
            retract("a"),
            post("a", "one"),
            post("b", "two"),
            post("a", "other words"),
            retract("b"),
            taken(&["a", "b"]),
            retract("a"),
            post("c", "three"),
        ]);
        let state = |id: &str| inbox.post(&person(id)).unwrap().state;
        assert_eq!((state("a"), state("b"), state("c")), (PostState::Taken, PostState::Retracted, PostState::Waiting));
        assert_eq!(&*inbox.post(&person("a")).unwrap().submission.text, "one");
        assert_eq!(inbox.seq, Seq(8));
    }
}
