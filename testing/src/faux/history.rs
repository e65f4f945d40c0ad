//! The faux harness's own history: JSON lines in one file under its private home. Survey and repair are pure over the bytes. A torn last
//! line holds nothing and is cut by a repair; any other line that cannot be read is an error, never passed over.

use std::sync::Arc;

use agentrun_adapter::{HistoryError, NativeFiles, NativeHistory};
use agentrun_kernel::{CallId, MessageId, NOT_RUN, NativeCall, NativeWrite, Repair, Survey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::script::{Conversation, Message, Side};

/// The one stream, relative to the private home.
pub(super) const STREAM: &str = "faux/history.jsonl";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// First: who the session is.
    Session { id: String },
    /// A message that was taken, under the host's id.
    Prompt { id: MessageId, text: Arc<str> },
    /// What a resumed session was told.
    Note { text: String },
    /// An answer of the model. The recorded bytes of a paid response are this line.
    Response {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Call>,
    },
    /// The answer to one of its calls.
    Result { call: CallId, text: Arc<str>, is_error: bool },
    /// The turn is over, though the last answer asked for more.
    Ended,
}

/// A call of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) input: Map<String, Value>,
}

/// What the loop has to do, by the history alone.
#[derive(Debug, PartialEq)]
pub(super) enum Move {
    /// These calls have no result.
    Call(Vec<Call>),
    /// The model has not answered the last word.
    Ask,
    /// Nothing: the turn is over, or none was begun.
    Rest,
}

/// The lines, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct History {
    lines: Vec<Line>,
    /// Where the next line belongs, in bytes.
    end: u64,
    torn: bool,
}

impl History {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, HistoryError> {
        let mut history = Self::default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(text) = piece.strip_suffix(b"\n") else {
                history.torn = true;
                break;
            };
            let line = serde_json::from_slice(text).map_err(|error| HistoryError::Unreadable {
                stream: STREAM.to_owned(),
                what: format!("line {}: {error}", history.lines.len().saturating_add(1)),
            })?;
            history.lines.push(line);
            history.end = history.end.saturating_add(piece.len() as u64);
        }
        Ok(history)
    }

    fn of(files: &dyn NativeFiles) -> Result<Self, HistoryError> {
        Self::read(&files.bytes(STREAM).unwrap_or_default())
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Takes a line and answers its bytes, for the file.
    pub(super) fn push(&mut self, line: Line) -> Result<Vec<u8>, HistoryError> {
        let bytes = line_bytes(&line)?;
        self.end = self.end.saturating_add(bytes.len() as u64);
        self.lines.push(line);
        Ok(bytes)
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| match line {
            Line::Session { id } => Some(id.as_str()),
            _ => None,
        })
    }

    pub(super) fn taken(&self) -> impl Iterator<Item = &MessageId> {
        self.lines.iter().filter_map(|line| match line {
            Line::Prompt { id, .. } => Some(id),
            _ => None,
        })
    }

    pub(super) fn responses(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Response { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    pub(super) fn answered(&self) -> impl Iterator<Item = &CallId> {
        self.lines.iter().filter_map(|line| match line {
            Line::Result { call, .. } => Some(call),
            _ => None,
        })
    }

    /// How many results there are for a call's id: scripted ids may come again.
    pub(super) fn results_of(&self, id: &CallId) -> u32 {
        u32::try_from(self.answered().filter(|answered| *answered == id).count()).unwrap_or(u32::MAX)
    }

    /// Calls without a result, in order.
    pub(super) fn open_calls(&self) -> Vec<Call> {
        let mut open: Vec<Call> = Vec::new();
        for line in &self.lines {
            match line {
                Line::Response { calls, .. } => open.extend(calls.iter().cloned()),
                Line::Result { call, .. } => {
                    if let Some(place) = open.iter().position(|opened| opened.id == *call) {
                        open.remove(place);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Whether the newest turn is over: the model's last words call nothing, or a line says so.
    pub(super) fn ended(&self) -> bool {
        match self.lines.last() {
            Some(Line::Ended) => true,
            Some(Line::Response { calls, .. }) => calls.is_empty(),
            _ => false,
        }
    }

    pub(super) fn next_move(&self) -> Move {
        let open = self.open_calls();
        match self.lines.last() {
            _ if !open.is_empty() => Move::Call(open),
            None | Some(Line::Session { .. }) => Move::Rest,
            Some(_) if self.ended() => Move::Rest,
            Some(_) => Move::Ask,
        }
    }

    /// What a model is shown of `lines`.
    pub(super) fn conversation(lines: &[Line], tools: &[String]) -> Conversation {
        let messages = lines.iter().filter_map(|line| {
            let mut message = Message::new(Side::User);
            match line {
                Line::Session { .. } | Line::Ended => return None,
                Line::Prompt { text, .. } => message.say(text),
                Line::Note { text } => message.say(text),
                Line::Result { text, .. } => {
                    message.results = 1;
                    message.say(text);
                }
                Line::Response { text, calls, .. } => {
                    message.side = Side::Assistant;
                    message.say(text.as_deref().unwrap_or_default());
                    for call in calls {
                        message.say(&call.name);
                        message.say(&Value::Object(call.input.clone()).to_string());
                    }
                }
            }
            Some(message)
        });
        Conversation { messages: messages.collect(), tools: tools.to_vec() }
    }
}

/// The bytes of one line, its newline included.
pub(super) fn line_bytes(line: &Line) -> Result<Vec<u8>, HistoryError> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| HistoryError::Unrepairable(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The history as records keep it. Works with no adapter open.
#[derive(Clone, Copy, Debug, Default)]
pub struct FauxHistory;

impl NativeHistory for FauxHistory {
    fn survey(&self, files: &dyn NativeFiles) -> Result<Survey, HistoryError> {
        let history = History::of(files)?;
        let open = history.open_calls().into_iter().map(|call| NativeCall {
            call: call.id,
            tool: call.name,
            arguments: Value::Object(call.input),
        });
        Ok(Survey {
            native_session: history.session().map(str::to_owned),
            resumable: history.taken().next().is_some(),
            taken: history.taken().cloned().collect(),
            open_calls: open.collect(),
            answered: history.answered().cloned().collect(),
            responses: history.responses().map(str::to_owned).collect(),
            ended: history.ended(),
        })
    }

    fn repair(
        &self,
        files: &dyn NativeFiles,
        want: &[Repair],
        response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Vec<NativeWrite>, HistoryError> {
        let mut history = History::of(files)?;
        let (offset, torn) = (history.end(), history.torn);
        let mut bytes = Vec::new();
        for wanted in want {
            for line in missing(&history, wanted, response)? {
                bytes.extend(history.push(line)?);
            }
        }
        if bytes.is_empty() && !torn {
            return Ok(Vec::new());
        }
        Ok(vec![NativeWrite { stream: STREAM.to_owned(), offset, bytes: Arc::from(bytes) }])
    }

    fn last_words(&self, files: &dyn NativeFiles) -> Result<Option<String>, HistoryError> {
        Ok(match History::of(files)?.lines().last() {
            Some(Line::Response { text, .. }) => text.clone(),
            _ => None,
        })
    }
}

/// The lines that `history` lacks for what is wanted; none when it says so already.
fn missing(
    history: &History,
    wanted: &Repair,
    response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
) -> Result<Vec<Line>, HistoryError> {
    let result =
        |call: &CallId, text: &Arc<str>, is_error| Line::Result { call: call.clone(), text: text.clone(), is_error };
    match wanted {
        Repair::Answer { call, text, is_error } => {
            let open = history.open_calls().iter().any(|open| open.id == *call);
            Ok(open.then(|| result(call, text, *is_error)).into_iter().collect())
        }
        Repair::Response { id, .. } if history.responses().any(|held| held == id) => Ok(Vec::new()),
        Repair::Response { id, .. } => {
            let unrepairable = |what: &str| HistoryError::Unrepairable(format!("the response `{id}`: {what}"));
            let bytes = response(id).ok_or_else(|| unrepairable("the records do not hold it"))?;
            match serde_json::from_slice(&bytes) {
                Ok(line @ Line::Response { .. }) => Ok(vec![line]),
                Ok(_) => Err(unrepairable("the recorded bytes are no answer of a model")),
                Err(error) => Err(unrepairable(&error.to_string())),
            }
        }
        // A turn nobody took has nothing to end.
        Repair::EndTurn if history.ended() || history.taken().next().is_none() => Ok(Vec::new()),
        Repair::EndTurn => {
            let not_run: Arc<str> = Arc::from(NOT_RUN);
            let open = history.open_calls();
            Ok(open.iter().map(|call| result(&call.id, &not_run, true)).chain([Line::Ended]).collect())
        }
    }
}
