//! The program's own history of a thread: JSON lines, the model's items and the events of turns side by side. Read into what we rest on,
//! and mended by lines of the same kind. The program takes a thread up from these lines alone.
//!
//! ```text
//!  session_meta · task_started · [user item · user_message] · model items · token_usage_record · outputs · … · task_complete
//! ```

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A thread's history.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollout {
    lines: Vec<Line>,
    /// Where the next line belongs, in bytes: behind it stands nothing that counts.
    end: u64,
    /// Something stands behind the end: half a line, or what the program wrote when it was ended in the middle.
    excess: bool,
    /// The time of the last line. A repair knows no clock.
    timestamp: Value,
}

#[derive(Clone, Debug)]
struct Line {
    /// Where it begins.
    at: u64,
    what: What,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Meta {
        thread: String,
    },
    TurnBegan {
        turn: String,
    },
    TurnOver {
        failed: bool,
    },
    /// The program was ended in the middle of a turn and said so.
    Aborted,
    /// A message that was taken, by our id.
    Taken {
        message: Option<String>,
    },
    /// A message as the model sees it, of a person or of ours.
    UserItem,
    /// An item of the model's; a call among them.
    ModelItem {
        id: Option<String>,
        call: Option<Call>,
        /// What it says, if it is a message.
        words: Option<String>,
    },
    /// The result of a call.
    Output {
        call: String,
    },
    /// A response of the model came whole.
    Response {
        id: String,
    },
    /// What stood before was summed up, by a response of its own; the turn goes on.
    Compacted,
    Other,
}

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
    /// Called with text in place of arguments; its output is of another type.
    custom: bool,
}

/// A line as it stands.
#[derive(Deserialize)]
pub(super) struct Raw {
    #[serde(default)]
    timestamp: Value,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) payload: Map<String, Value>,
}

impl Rollout {
    /// Reads what is there. Lines that are no message are passed over, as the program does.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut it = Self::default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(text) = piece.strip_suffix(b"\n") else {
                it.excess = true;
                break;
            };
            if let Some(raw) = raw(text) {
                it.timestamp = raw.timestamp;
                it.lines.push(Line { at: it.end, what: what(&raw.kind, &raw.payload) });
            }
            it.end = it.end.saturating_add(piece.len() as u64);
        }
        it.cut();
        it
    }

    /// Puts the end before what must not count: an end in the middle that the program tells the model of, and a message without the line
    /// that says whose it is, which would be placed a second time.
    fn cut(&mut self) {
        let significant = |line: &&Line| line.what != What::Other;
        let aborted = self.lines.iter().rev().find(significant).is_some_and(|line| line.what == What::Aborted);
        let counts = |what: &What| match what {
            What::Other | What::UserItem | What::Aborted => false,
            // Those it made up for the calls it cut. A true one among them is in the records.
            What::Output { .. } => !aborted,
            _ => true,
        };
        let keep = self.lines.iter().rposition(|line| counts(&line.what)).map_or(0, |last| last.saturating_add(1));
        let behind = self.lines.get(keep..).unwrap_or_default();
        let cuts = |line: &&Line| matches!(line.what, What::UserItem | What::Aborted | What::Output { .. });
        let Some(first) = behind.iter().position(|line| cuts(&line)) else { return };
        let keep = keep.saturating_add(first);
        if let Some(line) = self.lines.get(keep) {
            self.end = line.at;
        }
        self.lines.truncate(keep);
        self.excess = true;
    }

    /// Where the next line belongs, when something stands behind it that has to go first.
    pub(super) fn excess_from(&self) -> Option<u64> {
        self.excess.then_some(self.end)
    }

    /// The thread's id.
    pub(super) fn thread(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| match &line.what {
            What::Meta { thread } => Some(thread.as_str()),
            _ => None,
        })
    }

    /// Our ids of the messages it took, in order.
    pub(super) fn taken(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.what {
            What::Taken { message } => message.as_deref(),
            _ => None,
        })
    }

    /// Whether anybody spoke in it. A thread nobody spoke in is begun anew: taken up, it would bring tools nobody asked for.
    pub(super) fn spoken(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.what, What::Taken { .. }))
    }

    /// Calls that have a result, once for each.
    pub(super) fn answered(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.what {
            What::Output { call } => Some(call.as_str()),
            _ => None,
        })
    }

    /// Calls without a result, in order.
    pub(super) fn open_calls(&self) -> Vec<&Call> {
        let mut open: Vec<&Call> = Vec::new();
        for line in &self.lines {
            match &line.what {
                What::ModelItem { call: Some(call), .. } => open.push(call),
                What::Output { call } => {
                    if let Some(place) = open.iter().position(|opened| opened.id == *call) {
                        open.remove(place);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Where the first result stands of a call in `unanswered`, behind the newest call of its id.
    pub(super) fn made_up(&self, unanswered: &HashSet<String>) -> Option<u64> {
        let mut asked = HashSet::new();
        let mut first = None;
        for line in &self.lines {
            match &line.what {
                What::ModelItem { call: Some(call), .. } if unanswered.contains(&call.id) => {
                    asked.insert(&call.id);
                    first = None;
                }
                What::Output { call } if asked.remove(call) => first = first.or(Some(line.at)),
                _ => {}
            }
        }
        first
    }

    /// The provider's ids of the responses it holds whole.
    pub(super) fn responses(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.what {
            What::Response { id } => Some(id.as_str()),
            _ => None,
        })
    }

    /// Whether the newest turn is over: it says so, or the model's last response came whole and calls nothing. A failed one is not over, nor
    /// one that took words at its end on which the model was not asked: it goes on.
    pub(super) fn ended(&self) -> bool {
        let mut over = false;
        let mut calling = false;
        let mut heard = true;
        for line in &self.lines {
            match &line.what {
                What::TurnOver { failed } => over = !failed && heard,
                What::TurnBegan { .. } | What::Taken { .. } | What::Output { .. } | What::Compacted => {
                    over = false;
                    calling = false;
                    heard &= !matches!(line.what, What::Taken { .. });
                }
                What::ModelItem { call, .. } => {
                    over = false;
                    calling |= call.is_some();
                    heard = true;
                }
                What::Response { .. } => {
                    over = !calling;
                    calling = false;
                    heard = true;
                }
                What::Meta { .. } | What::UserItem | What::Aborted | What::Other => {}
            }
        }
        over
    }

    /// What the model said last in the newest turn, when nothing it did stands behind it.
    pub(super) fn last_words(&self) -> Option<&str> {
        let behind = self.lines.iter().rev().take_while(|line| !matches!(line.what, What::Taken { .. }));
        let mut items = behind.filter_map(|line| match &line.what {
            What::ModelItem { call, words, .. } => Some((call.is_some(), words.as_deref())),
            What::Output { .. } => Some((true, None)),
            _ => None,
        });
        items.find_map(|(calls, words)| (calls || words.is_some()).then_some(words)).flatten()
    }

    fn turn(&self) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| match &line.what {
            What::TurnBegan { turn } => Some(turn.as_str()),
            _ => None,
        })
    }

    fn holds_item(&self, item: &Value) -> bool {
        let (id, call) = (text(item, "id"), text(item, "call_id"));
        self.lines.iter().any(|line| match &line.what {
            What::ModelItem { id: held, .. } if id.is_some() => held.as_deref() == id,
            What::ModelItem { call: Some(held), .. } => Some(held.id.as_str()) == call,
            _ => false,
        })
    }
}

pub(super) fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

pub(super) fn what(kind: &str, payload: &Map<String, Value>) -> What {
    let part = |name: &str| payload.get(name).and_then(Value::as_str);
    let own = |name: &str| part(name).map(str::to_owned);
    match (kind, part("type").unwrap_or_default()) {
        ("session_meta", _) => own("id").map_or(What::Other, |thread| What::Meta { thread }),
        ("compacted", _) => What::Compacted,
        ("token_usage_record", _) => own("response_id").map_or(What::Other, |id| What::Response { id }),
        ("event_msg", "task_started") => What::TurnBegan { turn: own("turn_id").unwrap_or_default() },
        ("event_msg", "task_complete") => {
            What::TurnOver { failed: payload.get("error").is_some_and(|error| !error.is_null()) }
        }
        ("event_msg", "turn_aborted") => What::Aborted,
        ("event_msg", "user_message") => What::Taken { message: own("client_id") },
        ("response_item", "message") if part("role") == Some("user") => What::UserItem,
        ("response_item", "message") if part("role") != Some("assistant") => What::Other,
        ("response_item", "function_call" | "custom_tool_call") => {
            let Some(id) = own("call_id") else { return What::Other };
            let custom = part("type") == Some("custom_tool_call");
            let arguments = if custom {
                json!({ "input": part("input").unwrap_or_default() })
            } else {
                let said = part("arguments").unwrap_or_default();
                serde_json::from_str(said).unwrap_or_else(|_| Value::from(said))
            };
            let call = Call { id, name: own("name").unwrap_or_default(), arguments, custom };
            What::ModelItem { id: own("id"), call: Some(call), words: None }
        }
        ("response_item", "function_call_output" | "custom_tool_call_output") => {
            own("call_id").map_or(What::Other, |call| What::Output { call })
        }
        ("response_item", "message") => What::ModelItem { id: own("id"), call: None, words: Some(words(payload)) },
        ("response_item", _) => What::ModelItem { id: own("id"), call: None, words: None },
        _ => What::Other,
    }
}

/// What a message says, its parts together.
fn words(message: &Map<String, Value>) -> String {
    let parts = message.get("content").and_then(Value::as_array).into_iter().flatten();
    parts.filter_map(|part| text(part, "text")).collect()
}

/// Lines to add to a rollout. Each call looks at what is there already, so that a repair cut in the middle and begun again adds nothing
/// twice.
pub(super) struct Mend {
    rollout: Rollout,
    bytes: Vec<u8>,
}

impl Mend {
    pub(super) fn new(rollout: Rollout) -> Self {
        Self { rollout, bytes: Vec::new() }
    }

    /// Where the write begins (what stood behind it goes) and its bytes; `None` if nothing is to be changed.
    pub(super) fn into_write(self) -> Option<(u64, Vec<u8>)> {
        (self.rollout.excess || !self.bytes.is_empty()).then_some((self.rollout.end, self.bytes))
    }

    /// Answers an open call. `false`: there is none of this id.
    pub(super) fn answer(&mut self, call: &str, text: &str) -> bool {
        let Some(open) = self.rollout.open_calls().into_iter().find(|open| open.id == call).cloned() else {
            return false;
        };
        let kind = if open.custom { "custom_tool_call_output" } else { "function_call_output" };
        self.push("response_item", json!({ "type": kind, "call_id": call, "output": text }));
        true
    }

    /// Writes the items of a recorded response that are not there, and that it came whole.
    pub(super) fn response(&mut self, id: &str, items: Vec<Value>) {
        if self.rollout.responses().any(|held| held == id) {
            return;
        }
        for item in items {
            if !self.rollout.holds_item(&item) {
                self.push("response_item", item);
            }
        }
        let turn = self.rollout.turn().map(str::to_owned);
        self.push("token_usage_record", json!({ "response_id": id, "turn_id": turn }));
    }

    /// Ends the newest turn: every open call gets `unanswered`, and where nothing had ended it the turn gets `words` as its last.
    pub(super) fn end_turn(&mut self, unanswered: &str, words: Option<&str>) {
        let open: Vec<String> = self.rollout.open_calls().into_iter().map(|call| call.id.clone()).collect();
        for call in open {
            self.answer(&call, unanswered);
        }
        if self.rollout.ended() || !self.rollout.spoken() {
            return;
        }
        if let Some(words) = words {
            let content = json!([{ "type": "output_text", "text": words }]);
            self.push("response_item", json!({ "type": "message", "role": "assistant", "content": content }));
        }
        let turn = self.rollout.turn().unwrap_or_default().to_owned();
        self.push("event_msg", json!({ "type": "task_complete", "turn_id": turn, "last_agent_message": words }));
    }

    fn push(&mut self, kind: &str, payload: Value) {
        if let Some(payload) = payload.as_object() {
            let at = self.rollout.end.saturating_add(self.bytes.len() as u64);
            self.rollout.lines.push(Line { at, what: what(kind, payload) });
        }
        let line = json!({ "timestamp": self.rollout.timestamp, "type": kind, "payload": payload });
        self.bytes.extend(line.to_string().into_bytes());
        self.bytes.push(b'\n');
    }
}

/// A line's parts, if it is a message.
pub(super) fn raw(line: &[u8]) -> Option<Raw> {
    serde_json::from_slice(line).ok()
}

/// What a model request says of the history: it may be paid only once the history says it too.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sent {
    /// Calls answered since the model's last words.
    pub(super) results: Vec<String>,
    /// The calls the model made last: id, name and arguments.
    pub(super) calls: Vec<(String, String, Value)>,
    /// What each message says that is not the model's.
    pub(super) said: Vec<String>,
}

impl Sent {
    /// Reads a request's body. One that is no Responses request says nothing.
    pub(super) fn read(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            input: Vec<Map<String, Value>>,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else { return Self::default() };
        let said = body.input.iter().filter(|item| what("response_item", item) == What::UserItem).map(words).collect();
        let mut sent = Self { said, ..Self::default() };
        let mut behind = true;
        for item in body.input.iter().rev() {
            match what("response_item", item) {
                What::Output { call } if behind => sent.results.push(call),
                What::ModelItem { call, .. } => {
                    behind = false;
                    sent.calls.extend(call.map(|call| (call.id, call.name, call.arguments)));
                }
                // The model's newest items stand together.
                _ if !behind => break,
                _ => {}
            }
        }
        sent
    }
}
