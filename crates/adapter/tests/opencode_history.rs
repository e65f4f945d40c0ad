//! What the records ask of an OpenCode event log, on logs recorded from the real program (1.18.33) and scrubbed: which messages were taken,
//! which calls are open, and repairs that add nothing twice and leave a log that can be replayed.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use agentrun_adapter::opencode::OpenCodeHistory;
use agentrun_adapter::{HistoryError, NativeFiles as _, NativeHistory as _, RecordedFiles};
use agentrun_kernel::{CallId, EffectKey, NativeWrite, Repair, Survey};
use serde_json::{Value, json};

const STREAM: &str = "opencode/session.jsonl";
const ALL: [&str; 7] = [
    "ended",
    "delivered",
    "refused",
    "killed_in_call",
    "killed_in_parallel_calls",
    "killed_in_request",
    "aborted_in_call",
];

fn recorded(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/opencode/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(bytes: &[u8]) -> RecordedFiles {
    let mut files = RecordedFiles::default();
    files.apply(&NativeWrite { stream: STREAM.to_owned(), offset: 0, bytes: Arc::from(bytes) });
    files
}

fn of(name: &str) -> RecordedFiles {
    files(&recorded(name))
}

fn survey(files: &RecordedFiles) -> Survey {
    OpenCodeHistory.survey(files).unwrap()
}

/// Repairs, applies, and holds that a second repair finds nothing to do. The new lines.
fn repair(files: &mut RecordedFiles, want: &[Repair], response: &dyn Fn(&str) -> Option<Arc<[u8]>>) -> Vec<Value> {
    let writes = OpenCodeHistory.repair(files, want, response).unwrap();
    let mut lines = Vec::new();
    for write in &writes {
        files.apply(write);
        lines.extend(
            write
                .bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice::<Value>(line).unwrap()),
        );
    }
    assert_eq!(OpenCodeHistory.repair(files, want, response).unwrap(), [], "asked again on the repaired files");
    assert_replayable(files);
    lines
}

/// What the program's replay asks: numbers without a gap, ids that stand once, times that do not run back.
fn assert_replayable(files: &RecordedFiles) {
    let bytes = files.bytes(STREAM).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events: Vec<Value> =
        lines.map(|line| serde_json::from_slice(line).unwrap()).filter(|it: &Value| it["seq"].is_u64()).collect();
    let mut ids: Vec<_> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| id.starts_with("evt_") && id.len() == 30));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), events.len());
    assert!(events.iter().enumerate().all(|(at, event)| event["seq"] == at));
}

/// What the log says in the end: the kind of each part, its words, and how its call stands.
fn said(files: &RecordedFiles) -> Vec<String> {
    let bytes = files.bytes(STREAM).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut parts = BTreeMap::new();
    for line in lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()) {
        let part = &line["data"]["part"];
        if let Some(id) = part["id"].as_str() {
            let told = format!("{} {} {} {}", part["type"], part["text"], part["callID"], part["state"]["output"]);
            parts.insert(id.to_owned(), told);
        }
    }
    parts.into_values().collect()
}

fn none(_: &str) -> Option<Arc<[u8]>> {
    None
}

fn answer(call: &str, text: &str, is_error: bool) -> Repair {
    Repair::Answer { call: CallId(call.to_owned()), text: Arc::from(text), is_error }
}

fn paid(id: &str) -> Repair {
    Repair::Response { key: EffectKey("k".to_owned()), id: id.to_owned() }
}

fn says(text: &str) -> Value {
    json!({"id": "r", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]})
}

fn calls_work(text: Value) -> Value {
    json!({"id": "r", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
        "content": text, "tool_calls": [{"id": "call_work_0", "type": "function",
            "function": {"name": "work", "arguments": "{\"a\":1}"}}]}}]})
}

#[test]
fn b35_what_was_taken_and_what_is_open_is_read_from_every_recorded_log() {
    for (name, open, answered, ended) in [
        ("ended", 0, 1, true),
        ("delivered", 0, 1, true),
        ("refused", 0, 0, false),
        ("killed_in_call", 1, 0, false),
        ("killed_in_parallel_calls", 2, 0, false),
        ("killed_in_request", 0, 0, false),
        // The program's own word on an aborted call is not its outcome.
        ("aborted_in_call", 1, 0, false),
    ] {
        let survey = survey(&of(name));
        assert_eq!(survey.taken.len(), 1, "{name}");
        assert_eq!((survey.open_calls.len(), survey.answered.len(), survey.ended), (open, answered, ended), "{name}");
        assert!(survey.resumable && survey.native_session.is_some_and(|id| id.starts_with("ses_")), "{name}");
    }
    let open = survey(&of("killed_in_call")).open_calls;
    assert_eq!(
        (open[0].call.as_str(), open[0].tool.as_str(), &open[0].arguments),
        ("call_work_0", "work", &json!({"a": 1}))
    );
}

#[test]
fn f31_a_message_without_its_words_is_not_taken() {
    let bytes = recorded("killed_in_call");
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let words = lines.iter().position(|line| line.windows(10).any(|at| at == b"\"metadata\"")).unwrap();
    let row_alone = survey(&files(&lines[..words].concat()));
    assert_eq!(row_alone.taken, []);
    assert!(row_alone.resumable, "the row is there");
    assert_eq!(survey(&files(&lines[..=words].concat())).taken.len(), 1);
}

#[test]
fn every_prefix_is_read_and_a_torn_line_holds_nothing() {
    for name in ALL {
        let bytes = recorded(name);
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        for length in ends.flat_map(|at| [at, at + 1, (at + 40).min(bytes.len()), (at + 150).min(bytes.len())]) {
            let whole = bytes[..length].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            assert_eq!(survey(&files(&bytes[..length])), survey(&files(&bytes[..whole])), "{name} at {length}");
        }
    }
}

#[test]
fn a_log_with_a_gap_or_with_something_else_is_refused_and_not_guessed_at() {
    let bytes = recorded("ended");
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    lines.remove(3);
    let refused = |bytes: &[u8]| matches!(OpenCodeHistory.survey(&files(bytes)), Err(HistoryError::Unreadable { .. }));
    assert!(refused(&lines.concat()));
    assert!(refused(b"no json\n"));
    let mut other = RecordedFiles::default();
    other.apply(&NativeWrite { stream: "claude/x.jsonl".to_owned(), offset: 0, bytes: Arc::from(&b"{}\n"[..]) });
    assert!(OpenCodeHistory.survey(&other).is_err());
}

#[test]
fn b24_recorded_outcomes_become_the_results_of_open_calls_word_for_word() {
    for (name, is_error) in [("killed_in_call", false), ("killed_in_call", true), ("aborted_in_call", false)] {
        let mut files = of(name);
        let lines = repair(&mut files, &[answer("call_work_0", "the recorded\ntext", is_error)], &none);
        assert_eq!(lines.len(), 1, "{name}");
        let state = &lines[0]["data"]["part"]["state"];
        let (status, member) = if is_error { ("error", "error") } else { ("completed", "output") };
        assert_eq!((&state["status"], &state[member]), (&json!(status), &json!("the recorded\ntext")), "{name}");
        assert_eq!(state["input"], json!({"a": 1}), "what was called stands");
        let after = survey(&files);
        assert!(after.open_calls.is_empty() && after.answered.len() == 1 && !after.ended, "{name}");
    }
    let mut files = of("killed_in_parallel_calls");
    repair(&mut files, &[answer("call_work_0", "one", false), answer("call_work_1", "two", false)], &none);
    assert_eq!(survey(&files).answered.len(), 2);
}

#[test]
fn b29_a_settled_turn_is_over_with_its_calls_answered_and_a_last_word() {
    for name in ["killed_in_call", "killed_in_parallel_calls", "killed_in_request", "refused", "aborted_in_call"] {
        let mut files = of(name);
        repair(&mut files, &[Repair::EndTurn], &none);
        let after = survey(&files);
        assert!(after.ended && after.open_calls.is_empty(), "{name}: {after:?}");
    }
    for name in ["ended", "delivered"] {
        assert_eq!(repair(&mut of(name), &[Repair::EndTurn], &none), Vec::<Value>::new(), "{name}: it is over");
    }
}

#[test]
fn b29_a_log_nobody_took_anything_into_has_nothing_to_repair() {
    let mut empty = RecordedFiles::default();
    let all = [answer("x", "y", false), Repair::EndTurn];
    assert_eq!(OpenCodeHistory.repair(&empty, &all, &none).unwrap(), []);
    let bytes = recorded("ended");
    let first = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap();
    empty.apply(&NativeWrite { stream: STREAM.to_owned(), offset: 0, bytes: Arc::from(first) });
    assert_eq!(OpenCodeHistory.repair(&empty, &all, &none).unwrap(), []);
}

#[test]
fn f08_a_response_the_log_lacks_is_written_into_the_answer_that_waited_for_it() {
    let mut files = of("killed_in_request");
    let bytes: Arc<[u8]> = Arc::from(calls_work(json!("Working.")).to_string().into_bytes());
    let lines = repair(&mut files, &[paid("r1")], &|_| Some(bytes.clone()));
    let after = survey(&files);
    assert_eq!((after.responses, after.open_calls.len(), after.ended), (vec!["r1".to_owned()], 1, false));
    assert_eq!(after.open_calls[0].arguments, json!({"a": 1}));
    let made = lines.iter().filter(|line| line["type"] == "message.updated.1").count();
    assert_eq!(made, 0, "it is no second answer");
    // A last word ends the turn.
    let mut files = of("killed_in_request");
    let bytes: Arc<[u8]> = Arc::from(says("All done.").to_string().into_bytes());
    repair(&mut files, &[paid("r1")], &|_| Some(bytes.clone()));
    assert!(survey(&files).ended);
}

#[test]
fn f08_responses_the_log_has_are_recognised_and_nothing_but_that_is_written() {
    for (name, responses) in [
        ("ended", vec![("r1", calls_work(Value::Null)), ("r2", says("done"))]),
        ("killed_in_call", vec![("r1", calls_work(Value::Null))]),
    ] {
        let mut files = of(name);
        let before = survey(&files);
        let want: Vec<_> = responses.iter().map(|(id, _)| paid(id)).collect();
        let body = |id: &str| {
            let found = responses.iter().find(|(it, _)| *it == id)?;
            Some(Arc::from(found.1.to_string().into_bytes()))
        };
        let lines = repair(&mut files, &want, &body);
        assert!(lines.iter().all(|line| line.get("seq").is_none()), "{name}: {lines:?}");
        let after = survey(&files);
        assert_eq!(after.responses.len(), responses.len());
        assert_eq!((after.open_calls, after.ended), (before.open_calls, before.ended), "{name}");
    }
}

#[test]
fn f08_a_response_behind_a_refused_request_becomes_an_answer_of_its_own() {
    let mut files = of("refused");
    let bytes: Arc<[u8]> = Arc::from(says("All done.").to_string().into_bytes());
    let lines = repair(&mut files, &[paid("r1")], &|_| Some(bytes.clone()));
    let answer = lines.iter().find(|line| line["type"] == "message.updated.1").unwrap();
    assert_eq!(answer["data"]["info"]["role"], "assistant");
    assert!(survey(&files).ended);
}

#[test]
fn f33_a_recovery_that_is_cut_after_any_line_of_its_repair_comes_to_the_same_end() {
    let bytes: Arc<[u8]> = Arc::from(calls_work(json!("Working.")).to_string().into_bytes());
    let response = |_: &str| Some(bytes.clone());
    let want = [paid("r1"), answer("call_work_0", "recorded", false)];
    let mut whole = of("killed_in_request");
    repair(&mut whole, &want, &response);
    let (from, all) = (recorded("killed_in_request").len(), whole.bytes(STREAM).unwrap());
    for (at, _) in all.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'\n') {
        let mut cut = files(&all[..=at]);
        repair(&mut cut, &want, &response);
        assert_eq!(survey(&cut), survey(&whole), "cut at {at}");
        assert_eq!(said(&cut), said(&whole), "cut at {at}");
    }
}

#[test]
fn b56_the_models_last_words_are_those_it_ended_the_turn_with_and_none_that_no_model_said() {
    let words = |files: &RecordedFiles| OpenCodeHistory.last_words(files).unwrap();
    assert_eq!(words(&of("ended")).as_deref(), Some("done"));
    for name in ["killed_in_call", "killed_in_request"] {
        let mut files = of(name);
        assert_eq!(words(&files), None, "{name}");
        repair(&mut files, &[Repair::EndTurn], &none);
        assert_eq!(words(&files), None, "{name}: the words that end it are ours");
    }
    assert_eq!(words(&RecordedFiles::default()), None);
}
