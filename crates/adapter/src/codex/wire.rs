//! What is said on the wire: JSON-RPC lines without the `jsonrpc` member, typed where we rest on it and lenient elsewhere. Both sides count
//! their own request ids, so an id alone says nothing; what has a method is theirs.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A line the program says.
#[derive(Debug)]
pub(super) enum Line {
    /// The answer to a request of ours.
    Answers { id: u64, answer: Result<Value, Fault> },
    /// It asks, and waits for our answer without a time-out of its own.
    Asks { id: Value, request: Asked },
    /// A turn began.
    TurnStarted { turn: String },
    /// A turn ended; how is in its status.
    TurnCompleted(TurnEnded),
    /// The program wrote down a message of a person's, under this id of ours.
    Took { message: String },
    /// Text as the model says it.
    Delta(String),
    /// Something on which nothing rests.
    Other,
    /// A line we rest on and cannot read.
    Odd { method: String, why: String },
}

/// An answer that is an error. Its code says little and its words are the program's.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Fault {
    #[serde(default)]
    pub(super) message: String,
}

/// What the program asks.
#[derive(Debug)]
pub(super) enum Asked {
    /// A host tool is called.
    Tool(ToolCalled),
    /// A command or a patch wants to run.
    Approval(Approval),
    /// Something else, by its method; it is declined, never left open.
    Other(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCalled {
    pub(super) call_id: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Approval {
    /// The call's id.
    pub(super) item_id: String,
}

/// A turn that ended.
#[derive(Debug, Deserialize)]
pub(super) struct TurnEnded {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) error: Option<TurnError>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnError {
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    codex_error_info: Value,
}

impl TurnError {
    /// The provider's status, where the error names one or is of a kind that has one.
    pub(super) fn status(&self) -> Option<u16> {
        match &self.codex_error_info {
            Value::Object(kinds) => {
                let status = kinds.values().find_map(|kind| kind.get("httpStatusCode"))?;
                u16::try_from(status.as_u64()?).ok()
            }
            Value::String(kind) => match kind.as_str() {
                "unauthorized" => Some(401),
                "modelNotFound" => Some(404),
                "usageLimitExceeded" | "rateLimitExceeded" => Some(429),
                "badRequest" | "contextWindowExceeded" => Some(400),
                "internalServerError" => Some(500),
                "serverOverloaded" => Some(503),
                _ => None,
            },
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    method: Option<String>,
    id: Option<Value>,
    #[serde(default)]
    params: Value,
    result: Option<Value>,
    error: Option<Fault>,
}

/// Reads a line; `None` for one that is no message.
pub(super) fn read(line: &[u8]) -> Option<Line> {
    let Raw { method, id, params, result, error } = serde_json::from_slice(line).ok()?;
    match (method, id) {
        (Some(method), Some(id)) => Some(Line::Asks { id, request: asked(method, params) }),
        (Some(method), None) => Some(told(method, params)),
        (None, Some(id)) => {
            let answer = error.map_or_else(|| Ok(result.unwrap_or_default()), Err);
            Some(Line::Answers { id: id.as_u64()?, answer })
        }
        (None, None) => None,
    }
}

fn asked(method: String, params: Value) -> Asked {
    let known = match method.as_str() {
        "item/tool/call" => ToolCalled::deserialize(params).map(Asked::Tool),
        "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
            Approval::deserialize(params).map(Asked::Approval)
        }
        _ => return Asked::Other(method),
    };
    // A request without its call id cannot be recorded, so it is not run.
    known.unwrap_or(Asked::Other(method))
}

fn told(method: String, mut params: Value) -> Line {
    fn part<T: DeserializeOwned>(params: &mut Value, name: &str) -> serde_json::Result<T> {
        T::deserialize(params.get_mut(name).map(Value::take).unwrap_or_default())
    }
    #[derive(Deserialize)]
    struct Begun {
        id: String,
    }
    // Which item it is; the rest of it may be long.
    fn took(params: &Value) -> Option<String> {
        let item = params.get("item").filter(|item| item.get("type").is_some_and(|kind| kind == "userMessage"))?;
        item.get("clientId")?.as_str().map(str::to_owned)
    }
    let line = match method.as_str() {
        "turn/started" => part::<Begun>(&mut params, "turn").map(|turn| Line::TurnStarted { turn: turn.id }),
        "turn/completed" => part(&mut params, "turn").map(Line::TurnCompleted),
        "item/completed" => Ok(took(&params).map_or(Line::Other, |message| Line::Took { message })),
        "item/agentMessage/delta" => Ok(part(&mut params, "delta").map_or(Line::Other, Line::Delta)),
        _ => Ok(Line::Other),
    };
    line.unwrap_or_else(|why| Line::Odd { method, why: why.to_string() })
}

/// A request of ours.
pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "id": id, "method": method, "params": params })
}

/// An answer to a request of the program's.
pub(super) fn answer(id: &Value, result: Value) -> Value {
    json!({ "id": id, "result": result })
}

/// The answer to a request that the host does not take: the program's own word for no where the request has one, so that it goes on as
/// from any no; an error for the rest, what a newer version may ask among it. Nothing is left unanswered: the program would wait for ever.
pub(super) fn decline(id: &Value, method: &str) -> Value {
    let no = match method {
        "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => decision(false),
        "mcpServer/elicitation/request" => json!({ "action": "decline" }),
        "item/permissions/requestApproval" => json!({ "permissions": {} }),
        "item/tool/requestUserInput" => json!({ "answers": {} }),
        "execCommandApproval" | "applyPatchApproval" => json!({ "decision": "denied" }),
        _ => {
            let why = format!("the host does not answer `{method}`");
            return json!({ "id": id, "error": { "code": -32601, "message": why } });
        }
    };
    answer(id, no)
}

/// The result of a host tool.
pub(super) fn tool_result(text: &str, is_error: bool) -> Value {
    json!({ "contentItems": [{ "type": "inputText", "text": text }], "success": !is_error })
}

/// The decision on a built-in.
pub(super) fn decision(allow: bool) -> Value {
    json!({ "decision": if allow { "accept" } else { "decline" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: Value) -> Line {
        read(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_id_with_a_method_is_the_programs_own_and_zero_is_one() {
        let call = json!({"threadId": "t", "turnId": "u", "callId": "c", "namespace": null, "tool": "work", "arguments": {"a": 1}});
        let asks = line(json!({"id": 0, "method": "item/tool/call", "params": call}));
        assert!(matches!(asks, Line::Asks { id, request: Asked::Tool(call) } if id == 0 && call.call_id == "c"));
        assert!(matches!(line(json!({"id": 0, "result": {}})), Line::Answers { id: 0, answer: Ok(_) }));
        let refused = line(json!({"id": 7, "error": {"code": -32600, "message": "no"}}));
        assert!(matches!(refused, Line::Answers { id: 7, answer: Err(fault) } if fault.message == "no"));
    }

    #[test]
    fn b69_a_call_without_its_id_is_not_a_call_and_is_refused() {
        let asks = line(json!({"id": 1, "method": "item/tool/call", "params": {"tool": "work"}}));
        assert!(matches!(asks, Line::Asks { request: Asked::Other(method), .. } if method == "item/tool/call"));
    }

    #[test]
    fn m33_a_message_that_was_written_down_is_told_by_our_id_of_it() {
        let item = |item: Value| line(json!({"method": "item/completed", "params": {"item": item, "turnId": "t"}}));
        let took = item(json!({"type": "userMessage", "id": "i", "clientId": "m", "content": []}));
        assert!(matches!(took, Line::Took { message } if message == "m"));
        for other in
            [json!({"type": "userMessage", "clientId": null}), json!({"type": "agentMessage", "clientId": "m"})]
        {
            assert!(matches!(item(other), Line::Other));
        }
    }

    #[test]
    fn what_is_not_known_passes() {
        assert!(matches!(line(json!({"method": "thread/readState/changed", "params": {}})), Line::Other));
        assert!(matches!(
            line(json!({"method": "item/completed", "params": {"item": {"type": "newThing"}}})),
            Line::Other
        ));
        assert!(read(b"{}").is_none());
        assert!(matches!(line(json!({"method": "turn/completed", "params": {}})), Line::Odd { .. }));
    }

    #[test]
    fn a_failed_turn_tells_its_status_by_number_or_by_kind() {
        let status = |info: Value| {
            serde_json::from_value::<TurnError>(json!({"message": "m", "codexErrorInfo": info})).unwrap().status()
        };
        assert_eq!(status(json!({"httpConnectionFailed": {"httpStatusCode": 503}})), Some(503));
        assert_eq!(status(json!({"httpConnectionFailed": {"httpStatusCode": null}})), None);
        assert_eq!(
            (status(json!("unauthorized")), status(json!("other")), status(Value::Null)),
            (Some(401), None, None)
        );
    }
}
