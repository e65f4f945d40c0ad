//! The program's transcript (`projects/<folder>/<session>.jsonl`) as bytes: what it holds, and the lines that mend it. Nothing here
//! touches a file. A torn last line and bytes of zero are what a dying machine leaves; they hold nothing and are cut off by a repair.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The fields every line of one session shares; a line we add carries them over from the line before it.
const SHARED_FIELDS: [&str; 7] = ["isSidechain", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch"];

/// What the model wrote, or an answer to it, as one line of the chain.
#[derive(Debug)]
struct Link {
    /// Where its line begins.
    at: u64,
    uuid: String,
    prompt_id: Option<String>,
    shared: Map<String, Value>,
    timestamp: Value,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    /// A message of ours (or the program's own note on a resume, which is `meta`).
    Message {
        meta: bool,
    },
    Results(Vec<String>),
    /// The program's answer to a call that an interrupt cut: that a person rejected it, which nobody did.
    Rejected(Vec<String>),
    /// The program's note on an interrupt, at the end of what it cut.
    Interrupted,
    Assistant {
        message: String,
        calls: Vec<Call>,
        /// Its message stopped for calls. Each line is one block with the whole message's stop reason, so a text before a call says so too.
        calling: bool,
        /// Words for a reader, with nothing asked for behind them.
        last_words: bool,
    },
    /// The program's words on a failed request. They are not part of what the model sees.
    ApiError,
    /// A message of ours folded into a running turn.
    Queued(String),
    /// Our hook ended the turn.
    HookStopped,
    Other,
}

/// A tool call in the history.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// One transcript, read.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    links: Vec<Link>,
    /// Where the next line belongs: behind the last whole line.
    end: u64,
    /// Something that is not to stay stands behind `end`: it is torn, or the program's word that the turn was interrupted.
    torn: bool,
    /// The last whole line lacks its newline.
    open_line: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    uuid: String,
    is_sidechain: bool,
    is_meta: bool,
    is_api_error_message: bool,
    row_source: String,
    tool_denial_kind: String,
    prompt_id: Option<String>,
    message: RawMessage,
    attachment: RawAttachment,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawMessage {
    id: String,
    content: Value,
    stop_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAttachment {
    #[serde(rename = "type")]
    kind: String,
    source_uuid: String,
}

impl Transcript {
    /// Reads what is there. Lines that are no JSON object are passed over, as the program does.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut it = Self::default();
        let mut at = 0_u64;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let next = at + piece.len() as u64;
            let (text, whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let value = serde_json::from_slice::<Map<String, Value>>(text);
            it.torn |= !whole && value.is_err();
            if whole || value.is_ok() {
                it.end = next;
                it.open_line = !whole;
            }
            if let Ok(value) = value {
                it.links.extend(link(value).map(|link| Link { at, ..link }));
            }
            at = next;
        }
        it.leave_out_the_interrupt();
        it
    }

    /// A turn that was interrupted is not over: its calls have what the records say, and a next owner takes it up. The program wrote down that
    /// a person ended it, and would take up nothing: so that end is read as a torn line is, as nothing.
    fn leave_out_the_interrupt(&mut self) {
        let mut from = None;
        for (place, link) in self.links.iter().enumerate().rev() {
            match &link.what {
                What::Interrupted => from = Some(place),
                What::Rejected(_) if from.is_some() => from = Some(place),
                What::Other => {}
                _ => break,
            }
        }
        let Some(first) = from.and_then(|place| self.links.get(place)).map(|link| link.at) else { return };
        self.links.retain(|link| link.at < first);
        (self.end, self.torn, self.open_line) = (first, true, false);
    }

    /// Ids of every message of ours that the program took, also those it folded into a running turn, in order.
    pub(super) fn taken(&self) -> Vec<&str> {
        let ours = self.links.iter().filter_map(|link| match &link.what {
            What::Message { meta: false } => Some(link.uuid.as_str()),
            What::Queued(id) => Some(id.as_str()),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        ours.filter(|id| seen.insert(*id)).collect()
    }

    /// How many results each call id has. One id may be used again by a provider that counts from zero in every response.
    pub(super) fn results(&self) -> BTreeMap<&str, u32> {
        let mut results = BTreeMap::new();
        for link in &self.links {
            if let What::Results(ids) | What::Rejected(ids) = &link.what {
                for id in ids {
                    *results.entry(id.as_str()).or_insert(0) += 1;
                }
            }
        }
        results
    }

    /// Calls that have no result yet, in order, with the chain line each stands in.
    fn open(&self) -> Vec<(&Link, &Call)> {
        let mut open: Vec<(&Link, &Call)> = Vec::new();
        for link in &self.links {
            match &link.what {
                What::Assistant { calls, .. } => open.extend(calls.iter().map(|call| (link, call))),
                What::Results(ids) | What::Rejected(ids) => {
                    for id in ids {
                        if let Some(at) = open.iter().position(|(_, call)| call.id == *id) {
                            open.remove(at);
                        }
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Calls that have no result yet, in order.
    pub(super) fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.open().into_iter().map(|(_, call)| call)
    }

    /// Whether there is anything a resume can stand on.
    pub(super) fn resumable(&self) -> bool {
        self.links.iter().any(|link| matches!(link.what, What::Message { .. } | What::Assistant { .. }))
    }

    /// Whether the last turn is over: the model's last words ask for nothing more, or our hook ended it. A failed request ends no turn.
    pub(super) fn ended(&self) -> bool {
        let last = self.links.iter().rev().find(|link| !matches!(link.what, What::Other | What::ApiError));
        match last.map(|link| &link.what) {
            Some(What::HookStopped) => true,
            Some(What::Assistant { last_words, .. }) => *last_words,
            _ => false,
        }
    }

    /// Where an end begins from which the program takes up nothing, so that it must be cut off first: its word that the turn was interrupted, or
    /// a take-up that failed, which is its own note on it with nothing behind it but the words on a failed request. It takes up a cut turn only
    /// from a history that shows it cut, and such an end it calls done: asked again it goes idle and asks nobody.
    pub(super) fn not_taken_up(&self) -> Option<u64> {
        let mut failed = false;
        for link in self.links.iter().rev() {
            match &link.what {
                What::ApiError => failed = true,
                What::Other => {}
                What::Message { meta: true } if failed => return Some(link.at),
                _ => break,
            }
        }
        self.torn.then_some(self.end)
    }

    /// Ids of the responses that are here. One whose calls never arrived does not count: it can still be written whole.
    pub(super) fn responses(&self) -> Vec<String> {
        let mut whole: BTreeMap<&str, bool> = BTreeMap::new();
        for link in &self.links {
            if let What::Assistant { message, calls, calling, .. } = &link.what {
                *whole.entry(message).or_default() |= !calling || !calls.is_empty();
            }
        }
        whole.into_iter().filter(|(_, whole)| *whole).map(|(id, _)| id.to_owned()).collect()
    }

    /// How many blocks of the response `message` are here.
    fn blocks_of(&self, id: &str) -> usize {
        self.links.iter().filter(|link| matches!(&link.what, What::Assistant { message, .. } if message == id)).count()
    }
}

fn link(value: Map<String, Value>) -> Option<Link> {
    let shared =
        SHARED_FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), value.get(*name)?.clone()))).collect();
    let timestamp = value.get("timestamp").cloned().unwrap_or(Value::Null);
    let raw = Raw::deserialize(Value::Object(value)).ok()?;
    if raw.uuid.is_empty() || raw.is_sidechain {
        return None;
    }
    let blocks = |kind: &'static str| {
        let all = raw.message.content.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(move |block| block.get("type").and_then(Value::as_str) == Some(kind))
    };
    let text = |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let what = match (raw.kind.as_str(), raw.attachment.kind.as_str()) {
        ("user", _) => {
            let results: Vec<String> = blocks("tool_result").map(|block| text(block, "tool_use_id")).collect();
            match (results.is_empty(), raw.is_meta) {
                // A message of ours comes from outside.
                (true, false) if raw.row_source == "harness" => What::Interrupted,
                (true, meta) => What::Message { meta },
                (false, _) if raw.tool_denial_kind == "user-rejected" => What::Rejected(results),
                (false, _) => What::Results(results),
            }
        }
        ("assistant", _) if raw.is_api_error_message => What::ApiError,
        ("assistant", _) => {
            let calls = blocks("tool_use").map(|block| Call {
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block.get("input").cloned().unwrap_or(Value::Null),
            });
            let stopped_for = raw.message.stop_reason.as_deref();
            What::Assistant {
                calls: calls.collect(),
                calling: stopped_for == Some("tool_use"),
                last_words: !matches!(stopped_for, Some("tool_use" | "pause_turn" | "max_tokens"))
                    && blocks("text").next().is_some(),
                message: raw.message.id.clone(),
            }
        }
        ("attachment", "queued_command") => What::Queued(raw.attachment.source_uuid),
        ("attachment", "hook_stopped_continuation") => What::HookStopped,
        _ => What::Other,
    };
    Some(Link { at: 0, uuid: raw.uuid, prompt_id: raw.prompt_id, shared, timestamp, what })
}

/// Lines to add to a transcript. Each call looks at what is there already, so that a repair cut in the middle and begun again adds
/// nothing twice.
pub(super) struct Mend {
    transcript: Transcript,
    bytes: Vec<u8>,
}

impl Mend {
    pub(super) fn new(transcript: Transcript) -> Self {
        let bytes = if transcript.open_line { b"\n".to_vec() } else { Vec::new() };
        Self { transcript, bytes }
    }

    /// Where the write begins (what stood behind it was torn) and its bytes; `None` if the transcript is whole and nothing was added.
    pub(super) fn into_write(self) -> Option<(u64, Vec<u8>)> {
        (self.transcript.torn || !self.bytes.is_empty()).then_some((self.transcript.end, self.bytes))
    }

    /// Answers an open call. `false`: the history has no such call open.
    pub(super) fn answer(&mut self, call: &str, text: &str, is_error: bool) -> bool {
        let Some(parent) =
            self.transcript.open().iter().find(|(_, open)| open.id == call).map(|(link, _)| link.uuid.clone())
        else {
            return false;
        };
        let content = json!([{ "type": "text", "text": text }]);
        let block = json!({ "type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error });
        let message = json!({ "role": "user", "content": [block] });
        self.push(&parent, "user", message, &[("sourceToolAssistantUUID", json!(parent))]);
        true
    }

    /// Writes a recorded response the program had not written yet, from the first block it lacks. `false`: nothing lacked.
    pub(super) fn response(&mut self, response: &Value) -> bool {
        let id = response.get("id").and_then(Value::as_str).unwrap_or_default();
        let content = response.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let here = self.transcript.blocks_of(id);
        let mut added = false;
        for block in content.iter().skip(here) {
            let Some(parent) = self.transcript.links.last().map(|link| link.uuid.clone()) else { return added };
            let mut message = response.clone();
            if let Some(fields) = message.as_object_mut() {
                fields.insert("content".to_owned(), json!([block]));
            }
            self.push(&parent, "assistant", message, &[]);
            added = true;
        }
        added
    }

    /// Ends the turn: every call without a result gets `unanswered`, then the turn gets `words` as its last.
    pub(super) fn end_turn(&mut self, unanswered: &str, words: &str) -> bool {
        let open: Vec<String> = self.transcript.open_calls().map(|call| call.id.clone()).collect();
        for call in &open {
            self.answer(call, unanswered, true);
        }
        if self.transcript.ended() || !self.transcript.resumable() {
            return !open.is_empty();
        }
        let Some(parent) = self.transcript.links.last().map(|link| link.uuid.clone()) else { return false };
        let message = json!({
            "id": uuid::Uuid::new_v4().to_string(),
            "type": "message",
            "role": "assistant",
            // The program's own mark for words that no model said.
            "model": "<synthetic>",
            "content": [{ "type": "text", "text": words }],
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        });
        self.push(&parent, "assistant", message, &[]);
        true
    }

    fn push(&mut self, parent: &str, kind: &str, message: Value, more: &[(&str, Value)]) {
        let links = &self.transcript.links;
        let mut fields = links.last().map(|link| link.shared.clone()).unwrap_or_default();
        // No clock: a repair says nothing about when.
        let timestamp = links.last().map(|link| link.timestamp.clone()).unwrap_or_default();
        let prompt_id = links.iter().rev().find_map(|link| link.prompt_id.clone());
        fields.insert("type".to_owned(), json!(kind));
        fields.insert("uuid".to_owned(), json!(uuid::Uuid::new_v4()));
        fields.insert("parentUuid".to_owned(), json!(parent));
        fields.insert("timestamp".to_owned(), timestamp);
        fields.insert("message".to_owned(), message);
        if let Some(prompt_id) = prompt_id.filter(|_| kind == "user") {
            fields.insert("promptId".to_owned(), json!(prompt_id));
        }
        for (name, value) in more {
            fields.insert((*name).to_owned(), value.clone());
        }
        self.bytes.extend(Value::Object(fields.clone()).to_string().into_bytes());
        self.bytes.push(b'\n');
        self.transcript.links.extend(link(fields));
    }
}

/// Whether the bytes hold the call `id` as the model made it.
pub(super) fn holds_call(bytes: &[u8], id: &str) -> bool {
    lines_naming(bytes, id).any(|link| match link.what {
        What::Assistant { calls, .. } => calls.iter().any(|call| call.id == id),
        _ => false,
    })
}

/// Whether the bytes hold a result of every call in `ids`.
pub(super) fn holds_results(bytes: &[u8], ids: &[String]) -> bool {
    ids.iter().all(|id| {
        lines_naming(bytes, id)
            .any(|link| matches!(link.what, What::Results(held) | What::Rejected(held) if held.contains(id)))
    })
}

/// Whether the bytes hold our message `id`.
pub(super) fn holds_message(bytes: &[u8], id: &str) -> bool {
    lines_naming(bytes, id).any(|link| match link.what {
        What::Message { meta: false } => link.uuid == id,
        What::Queued(queued) => queued == id,
        _ => false,
    })
}

/// The lines in which `needle` stands somewhere; only those are parsed, so that a barrier over a long history stays cheap.
fn lines_naming<'a>(bytes: &'a [u8], needle: &str) -> impl Iterator<Item = Link> + use<'a> {
    let needle = needle.as_bytes().to_vec();
    bytes
        .split(|byte| *byte == b'\n')
        .filter(move |line| !needle.is_empty() && line.windows(needle.len()).any(|window| window == needle))
        .filter_map(|line| link(serde_json::from_slice(line).ok()?))
}

/// The words with which the model ended the newest turn. `None`: it ended in a call, by our hook, or with words no model said.
pub(super) fn last_words(bytes: &[u8]) -> Option<String> {
    let (mut message, mut words) = (None, Vec::new());
    for line in bytes.rsplit(|byte| *byte == b'\n') {
        let Ok(value) = serde_json::from_slice::<Map<String, Value>>(line) else { continue };
        let said = value.get("message").cloned().unwrap_or(Value::Null);
        match link(value).map(|link| link.what) {
            // Each line is one block of its message.
            Some(What::Assistant { message: of, last_words: true, .. })
                if message.as_ref().is_none_or(|it| *it == of) =>
            {
                if said.get("model").and_then(Value::as_str) == Some("<synthetic>") {
                    return None;
                }
                let blocks = said.get("content").and_then(Value::as_array).into_iter().flatten();
                let texts = blocks.filter_map(|block| block.get("text").and_then(Value::as_str)).map(str::to_owned);
                words.splice(0..0, texts);
                message = Some(of);
            }
            // A block without words of the same answer (what it thought).
            Some(What::Assistant { message: of, calling: false, calls, .. })
                if calls.is_empty() && message.as_ref().is_none_or(|it| *it == of) => {}
            Some(What::Other) | None => {}
            Some(_) => break,
        }
    }
    (!words.is_empty()).then(|| words.join("\n"))
}

/// How many results the bytes hold for `id`.
pub(super) fn results_of(bytes: &[u8], id: &str) -> u32 {
    let results = lines_naming(bytes, id).filter_map(|link| match link.what {
        What::Results(held) | What::Rejected(held) => Some(held.iter().filter(|result| *result == id).count()),
        _ => None,
    });
    u32::try_from(results.sum::<usize>()).unwrap_or(u32::MAX)
}

/// Call ids answered in the last messages of a model request's body: what the history must hold before the request may be paid. A
/// body that is no Messages request answers nothing.
pub(super) fn results_sent(body: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Body {
        messages: Vec<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        role: String,
        content: Content,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Blocks(Vec<Block>),
        Text(serde::de::IgnoredAny),
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(default)]
        tool_use_id: Option<String>,
    }
    let Ok(body) = serde_json::from_slice::<Body>(body) else { return Vec::new() };
    let since_model = body.messages.iter().rev().take_while(|message| message.role != "assistant");
    let blocks = since_model.flat_map(|message| match &message.content {
        Content::Blocks(blocks) => blocks.as_slice(),
        Content::Text(_) => &[],
    });
    blocks.filter_map(|block| block.tool_use_id.clone()).collect()
}
