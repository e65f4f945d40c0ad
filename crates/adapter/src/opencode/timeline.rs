//! What OpenCode recorded of a session, read from its event log. One line is one event as the program gave it, or a note of ours on
//! something its events cannot say. Nothing here touches a file or the program.

use std::collections::{BTreeMap, BTreeSet};

use agentrun_kernel::{CallId, MessageId, NativeCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::at;
use crate::native::HistoryError;

/// The one stream, below the private home.
pub(super) const STREAM: &str = "opencode/session.jsonl";
/// Where a part of ours names our message.
pub(super) const OURS: &str = "agentrun";

/// One event, as the program gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    /// The session.
    pub(super) aggregate_id: String,
    /// From zero, without gaps.
    pub(super) seq: u64,
    /// With the version of its form: `message.updated.1`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) data: Value,
}

/// What the events cannot say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Note {
    /// The turn of this message is over, though its last answer asked for more.
    Ended(String),
    /// This message holds the response with this id of the provider's, which the program does not keep.
    Response { id: String, message: String },
}

/// A line of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Note { agentrun: Note },
    Event(Event),
}

/// A message with its parts.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) info: Value,
    /// By id, which is the order they are shown in.
    pub(super) parts: BTreeMap<String, Value>,
}

/// A tool call among the parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) part: &'a Value,
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
}

/// How far a message's turn is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The program has not stored the message whole.
    NotTaken,
    /// No last word yet.
    Open,
    /// The model has said its last.
    Answered,
    /// It was aborted.
    Aborted,
    /// A request failed for good.
    Failed { status: Option<u16>, message: String },
    /// An answer ended without a reason. The program asks again at once and without bound.
    Unfinished,
}

/// A session's events, read.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    pub(super) session: Option<String>,
    /// The number of the next event.
    pub(super) next: u64,
    rows: Vec<Row>,
    ended: BTreeSet<String>,
    pub(super) responses: Vec<(String, String)>,
    /// The latest moment any event tells of, in milliseconds.
    pub(super) clock: u64,
    /// Where the next line belongs, in bytes.
    pub(super) end: u64,
}

impl Timeline {
    /// Reads what records hold. A torn last line holds nothing.
    ///
    /// # Errors
    /// [`HistoryError::Unreadable`]: a line that is no event, or a gap in the numbers.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, HistoryError> {
        let mut timeline = Self::default();
        for (number, piece) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(text) = piece.strip_suffix(b"\n") else { break };
            let unreadable = |what: String| HistoryError::Unreadable {
                stream: STREAM.to_owned(),
                what: format!("line {}: {what}", number.saturating_add(1)),
            };
            let line: Line = serde_json::from_slice(text).map_err(|error| unreadable(error.to_string()))?;
            timeline.take(line).map_err(unreadable)?;
            timeline.end = timeline.end.saturating_add(piece.len() as u64);
        }
        Ok(timeline)
    }

    /// One more line. Its bytes are the caller's to count.
    pub(super) fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Note { agentrun: Note::Ended(message) } => {
                self.ended.insert(message);
            }
            Line::Note { agentrun: Note::Response { id, message } } => self.responses.push((id, message)),
            Line::Event(event) => {
                let session = self.session.get_or_insert_with(|| event.aggregate_id.clone());
                if *session != event.aggregate_id || self.next != event.seq {
                    return Err(format!(
                        "event {} of {} where event {} of {session} belongs",
                        event.seq, event.aggregate_id, self.next
                    ));
                }
                self.next = self.next.saturating_add(1);
                self.apply(event);
            }
        }
        Ok(())
    }

    fn apply(&mut self, event: Event) {
        let data = event.data;
        for moment in [at(&data, "/time"), at(&data, "/info/time/created"), at(&data, "/info/time/completed")] {
            self.clock = self.clock.max(moment.as_u64().unwrap_or(0));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event.kind.rsplit_once('.').map_or(event.kind.as_str(), |(kind, _)| kind) {
            "message.updated" => {
                let (id, info) = (text(at(&data, "/info/id")), at(&data, "/info").clone());
                match self.rows.iter_mut().find(|row| row.id == id) {
                    Some(row) => row.info = info,
                    None => self.rows.push(Row { id, info, parts: BTreeMap::new() }),
                }
            }
            "message.removed" => {
                let id = text(at(&data, "/messageID"));
                self.rows.retain(|row| row.id != id);
            }
            "message.part.updated" => {
                let (message, id) = (text(at(&data, "/part/messageID")), text(at(&data, "/part/id")));
                if let Some(row) = self.row_mut(&message) {
                    row.parts.insert(id, at(&data, "/part").clone());
                }
            }
            "message.part.removed" => {
                let (message, id) = (text(at(&data, "/messageID")), text(at(&data, "/partID")));
                if let Some(row) = self.row_mut(&message) {
                    row.parts.remove(&id);
                }
            }
            _ => {}
        }
    }

    fn row_mut(&mut self, id: &str) -> Option<&mut Row> {
        self.rows.iter_mut().rev().find(|row| row.id == id)
    }

    /// A message.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().rev().find(|row| row.id == id)
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The newest message.
    pub(super) fn newest(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// The newest message of ours that has its words.
    pub(super) fn last_user(&self) -> Option<&Row> {
        self.rows.iter().rev().find(|row| row.is("user") && row.ours().is_some())
    }

    /// The answers to a message, in order, from the `from`th message on.
    pub(super) fn answers<'a>(&'a self, message: &'a str, from: usize) -> impl DoubleEndedIterator<Item = &'a Row> {
        let rows = self.rows.get(from..).unwrap_or_default().iter();
        rows.filter(move |row| row.is("assistant") && *at(&row.info, "/parentID") == message)
    }

    /// Messages that were taken, by our ids.
    pub(super) fn taken(&self) -> Vec<MessageId> {
        self.rows.iter().filter_map(|row| row.ours()).map(|id| MessageId(id.to_owned())).collect()
    }

    /// Every tool call, in order.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&Row, Call<'_>)> {
        self.rows.iter().flat_map(|row| row.calls().map(move |call| (row, call)))
    }

    /// Calls that have no result, as the records ask for them.
    pub(super) fn open_calls(&self) -> Vec<NativeCall> {
        let open = self.calls().filter(|(_, call)| call.is_open());
        open.map(|(_, call)| NativeCall {
            call: CallId(call.id.to_owned()),
            tool: call.tool.to_owned(),
            arguments: call.arguments().clone(),
        })
        .collect()
    }

    /// How many results the id of a call has.
    pub(super) fn results(&self, id: &str) -> u32 {
        let count = self.calls().filter(|(_, call)| call.id == id && call.is_answered()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Calls that have a result, once for each.
    pub(super) fn answered(&self) -> Vec<CallId> {
        self.calls().filter(|(_, call)| call.is_answered()).map(|(_, call)| CallId(call.id.to_owned())).collect()
    }

    /// Whether the newest turn is over.
    pub(super) fn is_over(&self) -> bool {
        self.last_user().is_some_and(|user| {
            self.ended.contains(&user.id)
                || self.standing(&user.id, 0) == Standing::Answered
                    && !self.answers(&user.id, 0).any(|row| row.calls().any(|call| call.is_open()))
        })
    }

    /// How far the turn of `message` is, by the answers from the `from`th message on.
    pub(super) fn standing(&self, message: &str, from: usize) -> Standing {
        if self.row(message).is_none_or(|row| row.ours().is_none()) {
            return Standing::NotTaken;
        }
        let Some(last) = self.answers(message, from).next_back() else { return Standing::Open };
        let error = at(&last.info, "/error");
        if error.is_object() {
            return match at(error, "/name").as_str() {
                Some("MessageAbortedError") => Standing::Aborted,
                name => {
                    let words = at(error, "/data/message").as_str().or(name).unwrap_or_default().to_owned();
                    let status = at(error, "/data/statusCode").as_u64().and_then(|status| u16::try_from(status).ok());
                    Standing::Failed { status, message: words }
                }
            };
        }
        if self.answers(message, from).any(|row| *at(&row.info, "/finish") == "unknown" && row.calls().next().is_none())
        {
            return Standing::Unfinished;
        }
        let finish = at(&last.info, "/finish").as_str().filter(|finish| !matches!(*finish, "tool-calls" | "unknown"));
        let done = at(&last.info, "/time/completed").is_u64() && finish.is_some();
        if done { Standing::Answered } else { Standing::Open }
    }

    /// Whether a model request may be in flight for this message: an answer stands open and none of its calls runs.
    pub(super) fn asks(&self, message: &str) -> bool {
        self.answers(message, 0).next_back().is_some_and(|row| {
            !at(&row.info, "/time/completed").is_u64() && !row.calls().any(|call| call.status() == "running")
        })
    }
}

impl Row {
    pub(super) fn is(&self, role: &str) -> bool {
        *at(&self.info, "/role") == role
    }

    /// Our id of it, once its words are stored: the row and its parts are separate writes, and a row alone is not taken.
    pub(super) fn ours(&self) -> Option<&str> {
        self.parts.values().find_map(|part| at(part, "/metadata").get(OURS)?.as_str())
    }

    /// Its calls, in order.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        self.parts.values().filter(|part| *at(part, "/type") == "tool").filter_map(|part| {
            Some(Call { part, id: at(part, "/callID").as_str()?, tool: at(part, "/tool").as_str()? })
        })
    }

    /// Its words.
    pub(super) fn text(&self) -> String {
        let texts = self.parts.values().filter(|part| *at(part, "/type") == "text");
        texts.filter_map(|part| at(part, "/text").as_str()).collect()
    }
}

impl<'a> Call<'a> {
    pub(super) fn status(&self) -> &'a str {
        at(self.part, "/state/status").as_str().unwrap_or_default()
    }

    pub(super) fn arguments(&self) -> &'a Value {
        at(self.part, "/state/input")
    }

    /// An abort ends a call as an error of its own; the host's outcome is another matter.
    fn was_aborted(&self) -> bool {
        self.status() == "error" && *at(self.part, "/state/metadata/interrupted") == true
    }

    /// It was made, and the model has no result. One that is `pending` was never made: its arguments did not come whole.
    pub(super) fn is_open(&self) -> bool {
        self.status() == "running" || self.was_aborted()
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.status(), "completed" | "error") && !self.was_aborted()
    }
}
