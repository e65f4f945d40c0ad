//! Events of ours behind the program's own: the result of an open call, an answer that was paid for and never stored, the end of a turn.
//! They are numbered on, so the program takes them by its replay like its own. Asked again on the mended log, nothing is added.

use agentrun_kernel::MessageId;
use serde_json::{Map, Value, json};

use super::ids;
use super::json::{at, set};
use super::response::Said;
use super::timeline::{Call, Event, Line, Note, Timeline};

/// What an answer of the program's carries over into one that is written for it.
const CARRIED: [&str; 7] = ["mode", "agent", "path", "modelID", "providerID", "variant", "role"];

/// A log and the lines that are added to it.
pub(super) struct Mend {
    timeline: Timeline,
    lines: Vec<u8>,
    /// The moment of the next event. Every one is later than all before it.
    now: u64,
}

impl Mend {
    pub(super) fn new(timeline: Timeline) -> Self {
        let now = timeline.clock.saturating_add(1);
        Self { timeline, lines: Vec::new(), now }
    }

    /// The added bytes, behind the last whole line.
    pub(super) fn into_write(self) -> Option<(u64, Vec<u8>)> {
        (!self.lines.is_empty()).then_some((self.timeline.end, self.lines))
    }

    /// Answers the first open call of this id, if there is one.
    pub(super) fn answer(&mut self, call: &str, text: &str, is_error: bool) {
        let open = self.timeline.calls().find(|(_, it)| it.id == call && it.is_open());
        let Some((_, Call { part, .. })) = open else { return };
        let mut part = part.clone();
        let state = answered(at(&part, "/state"), text, is_error, self.now);
        set(&mut part, "state", state);
        self.part(part);
    }

    /// Has the newest turn hold a response, unless it does.
    pub(super) fn response(&mut self, id: &str, said: &Said) {
        let held = |timeline: &Timeline, message: &str| timeline.responses.iter().any(|(_, it)| it == message);
        if self.timeline.responses.iter().any(|(it, _)| it == id) {
            return;
        }
        let Some(user) = self.timeline.last_user().map(|row| row.id.clone()) else { return };
        let free = |row: &&super::timeline::Row| !held(&self.timeline, &row.id) && !at(&row.info, "/error").is_object();
        let whole = self.timeline.answers(&user, 0).filter(free).find(|row| said.is_whole_in(row));
        // Each request was let out only once everything before it was mirrored, so only the newest answer can be lacking.
        let newest = || self.timeline.answers(&user, 0).next_back().filter(free).filter(|row| said.may_fill(row));
        let message = match whole.or_else(newest).map(|row| row.id.clone()) {
            Some(message) => message,
            None => self.new_answer(&user, id),
        };
        self.fill(&message, said);
        self.note(Note::Response { id: id.to_owned(), message });
    }

    /// Ends the newest turn: what is open is answered, and the last word is `words`.
    pub(super) fn end_turn(&mut self, not_run: &str, words: &str) {
        if self.timeline.is_over() {
            return;
        }
        let Some(user) = self.timeline.last_user().map(|row| row.id.clone()) else { return };
        let open: Vec<String> = self
            .timeline
            .calls()
            .filter(|(_, call)| call.is_open() || call.status() == "pending")
            .filter_map(|(_, call)| at(call.part, "/id").as_str().map(str::to_owned))
            .collect();
        for id in open {
            let part =
                self.timeline.calls().find(|(_, call)| *at(call.part, "/id") == *id).map(|(_, call)| call.part.clone());
            let Some(mut part) = part else { continue };
            let state = answered(at(&part, "/state"), not_run, true, self.now);
            set(&mut part, "state", state);
            self.part(part);
        }
        let message = self.new_answer(&user, "the end of the turn");
        self.text(&message, words);
        self.finish(&message, "stop");
        self.note(Note::Ended(user));
    }

    /// Makes the answer hold what was said.
    fn fill(&mut self, message: &str, said: &Said) {
        let Some(row) = self.timeline.row(message) else { return };
        if said.is_whole_in(row) {
            return;
        }
        let has_text = !row.text().is_empty();
        if row.parts.is_empty() {
            let part = self.new_part(message, "step-start");
            self.part(part);
        }
        if !said.text.is_empty() && !has_text {
            self.text(message, &said.text);
        }
        for wanted in &said.calls {
            let there = self.timeline.row(message).and_then(|row| row.calls().find(|call| call.id == wanted.id));
            let part = match there.map(|call| (call.status(), call.part.clone())) {
                Some(("pending", part)) => part,
                Some(_) => continue,
                None => {
                    let mut part = self.new_part(message, "tool");
                    set(&mut part, "callID", json!(wanted.id));
                    set(&mut part, "tool", json!(wanted.name));
                    part
                }
            };
            let mut part = part;
            let input = if wanted.arguments.is_object() { wanted.arguments.clone() } else { json!({}) };
            set(&mut part, "state", json!({ "status": "running", "input": input, "time": { "start": self.now } }));
            self.part(part);
        }
        if said.calls.is_empty() {
            self.finish(message, "stop");
        }
    }

    /// An empty answer to `user`, made like the one before it.
    fn new_answer(&mut self, user: &str, seed: &str) -> String {
        let id = ids::made("msg", &format!("{user} {seed} {}", self.timeline.next), self.now, 1);
        let like = self.timeline.answers(user, 0).next_back().map(|row| row.info.clone());
        let asked = self.timeline.row(user).map(|row| row.info.clone()).unwrap_or_default();
        let mut info = Map::new();
        match like {
            Some(Value::Object(like)) => {
                info.extend(like.into_iter().filter(|(name, _)| CARRIED.contains(&name.as_str())));
            }
            _ => {
                let agent = at(&asked, "/agent");
                let fields = json!({
                    "role": "assistant", "mode": agent, "agent": agent, "path": { "cwd": "/", "root": "/" },
                    "modelID": at(&asked, "/model/modelID"), "providerID": at(&asked, "/model/providerID"),
                });
                info.extend(fields.as_object().cloned().unwrap_or_default());
            }
        }
        let fields = json!({
            "id": id, "sessionID": self.timeline.session, "parentID": user, "cost": 0,
            "tokens": { "input": 0, "output": 0, "reasoning": 0, "cache": { "read": 0, "write": 0 } },
            "time": { "created": self.now },
        });
        info.extend(fields.as_object().cloned().unwrap_or_default());
        self.event("message.updated.1", json!({ "sessionID": self.timeline.session, "info": info }));
        id
    }

    fn finish(&mut self, message: &str, reason: &str) {
        let Some(mut info) = self.timeline.row(message).map(|row| row.info.clone()) else { return };
        set(&mut info, "finish", json!(reason));
        if let Some(time) = info.get_mut("time") {
            set(time, "completed", json!(self.now));
        }
        self.event("message.updated.1", json!({ "sessionID": self.timeline.session, "info": info }));
    }

    fn text(&mut self, message: &str, text: &str) {
        let mut part = self.new_part(message, "text");
        set(&mut part, "text", json!(text));
        set(&mut part, "time", json!({ "start": self.now, "end": self.now }));
        self.part(part);
    }

    fn new_part(&self, message: &str, kind: &str) -> Value {
        let id = ids::made("prt", &format!("{message} {}", self.timeline.next), self.now, 1);
        json!({ "id": id, "sessionID": self.timeline.session, "messageID": message, "type": kind })
    }

    fn part(&mut self, part: Value) {
        let data = json!({ "sessionID": self.timeline.session, "part": part, "time": self.now });
        self.event("message.part.updated.1", data);
    }

    fn event(&mut self, kind: &str, data: Value) {
        let session = self.timeline.session.clone().unwrap_or_default();
        let seq = self.timeline.next;
        let id = ids::made("evt", &format!("{session} {seq}"), self.now, 1);
        self.line(Line::Event(Event { id, aggregate_id: session, seq, kind: kind.to_owned(), data }));
        self.now = self.now.saturating_add(1);
    }

    fn note(&mut self, note: Note) {
        self.line(Line::Note { agentrun: note });
    }

    fn line(&mut self, line: Line) {
        if let Ok(mut bytes) = serde_json::to_vec(&line) {
            bytes.push(b'\n');
            self.lines.extend_from_slice(&bytes);
        }
        // It is numbered by what was read, so it fits.
        let _ = self.timeline.take(line);
    }
}

/// The state of a call that was answered.
fn answered(before: &Value, text: &str, is_error: bool, now: u64) -> Value {
    let input = if at(before, "/input").is_object() { at(before, "/input").clone() } else { json!({}) };
    let time = json!({ "start": at(before, "/time/start").as_u64().unwrap_or(now), "end": now });
    if is_error {
        json!({ "status": "error", "input": input, "error": text, "time": time })
    } else {
        json!({ "status": "completed", "input": input, "output": text, "title": "", "metadata": {}, "time": time })
    }
}

/// The line that says a turn is over.
pub(super) fn ended(message: &MessageId) -> Line {
    Line::Note { agentrun: Note::Ended(ids::message(message)) }
}
