//! The faux adapter's own history: what a survey reads of it, and how a repair mends it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

use std::sync::Arc;

use agentrun_adapter::{HistoryError, NativeFiles as _, NativeHistory as _, RecordedFiles};
use agentrun_kernel::{CallId, EffectKey, MessageId, NOT_RUN, NativeCall, NativeWrite, Repair, Survey};
use agentrun_testing::faux::FauxHistory;
use serde_json::{Value, json};

const STREAM: &str = "faux/history.jsonl";

fn session() -> Value {
    json!({"type": "session", "id": "s"})
}

fn prompt(id: &str) -> Value {
    json!({"type": "prompt", "id": id, "text": "look"})
}

/// An answer that calls `search` under each of these ids.
fn calls(id: &str, calls: &[&str]) -> Value {
    let calls: Vec<_> = calls.iter().map(|call| json!({"id": call, "name": "search", "input": {"q": call}})).collect();
    json!({"type": "response", "id": id, "calls": calls})
}

fn says(id: &str) -> Value {
    json!({"type": "response", "id": id, "text": "done"})
}

fn result(call: &str) -> Value {
    json!({"type": "result", "call": call, "text": "found", "is_error": false})
}

fn files(lines: &[Value]) -> RecordedFiles {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    raw(text.as_bytes())
}

fn raw(bytes: &[u8]) -> RecordedFiles {
    let mut files = RecordedFiles::default();
    files.apply(&NativeWrite { stream: STREAM.to_owned(), offset: 0, bytes: Arc::from(bytes) });
    files
}

fn survey(lines: &[Value]) -> Survey {
    FauxHistory.survey(&files(lines)).unwrap()
}

fn call(id: &str) -> CallId {
    CallId(id.to_owned())
}

fn answer(id: &str) -> Repair {
    Repair::Answer { call: call(id), text: Arc::from("recorded"), is_error: true }
}

fn response(id: &str) -> Repair {
    Repair::Response { key: EffectKey("k".to_owned()), id: id.to_owned() }
}

/// The recorded responses: `r1` calls `a`, `bad` is not one of ours.
fn recorded(id: &str) -> Option<Arc<[u8]>> {
    match id {
        "r1" => Some(Arc::from(calls("r1", &["a"]).to_string().into_bytes())),
        "bad" => Some(Arc::from(&b"{\"type\":\"ended\"}"[..])),
        _ => None,
    }
}

/// Mends `files` and holds that a second repair finds nothing to do.
fn mended(mut files: RecordedFiles, want: &[Repair]) -> RecordedFiles {
    for write in FauxHistory.repair(&files, want, &recorded).unwrap() {
        files.apply(&write);
    }
    assert_eq!(
        FauxHistory.repair(&files, want, &recorded).unwrap(),
        [],
        "a repair of the repaired files writes nothing"
    );
    files
}

fn last_line(files: &RecordedFiles) -> Value {
    let bytes = files.bytes(STREAM).unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn b35_a_survey_tells_what_was_taken_called_and_answered() {
    assert_eq!(FauxHistory.survey(&RecordedFiles::default()).unwrap(), Survey::default());
    assert!(!survey(&[session()]).resumable, "nothing was taken yet");
    let found =
        survey(&[session(), prompt("m1"), calls("r1", &["a", "b"]), result("b"), result("a"), calls("r2", &["a"])]);
    let expected = Survey {
        native_session: Some("s".to_owned()),
        resumable: true,
        taken: vec![MessageId("m1".to_owned())],
        open_calls: vec![NativeCall { call: call("a"), tool: "search".to_owned(), arguments: json!({"q": "a"}) }],
        answered: vec![call("b"), call("a")],
        responses: vec!["r1".to_owned(), "r2".to_owned()],
        ended: false,
    };
    assert_eq!(found, expected, "an id that came again is open again");
}

#[test]
fn a_turn_has_ended_when_its_last_words_call_nothing() {
    let begun = [session(), prompt("m1")];
    let with = |more: &[Value]| survey(&[&begun[..], more].concat()).ended;
    assert!(!with(&[]));
    assert!(with(&[says("r1")]));
    assert!(!with(&[calls("r1", &["a"])]));
    assert!(!with(&[calls("r1", &["a"]), result("a")]));
    assert!(with(&[calls("r1", &["a"]), result("a"), json!({"type": "ended"})]));
    assert!(!with(&[says("r1"), prompt("m2")]), "a newer turn is open");
}

#[test]
fn b53_an_open_call_is_answered_from_the_records_and_only_once() {
    let open = files(&[session(), prompt("m1"), calls("r1", &["a", "b"])]);
    let mended = mended(open, &[answer("a"), answer("b"), answer("never-made")]);
    let found = FauxHistory.survey(&mended).unwrap();
    assert_eq!(found.open_calls, []);
    assert_eq!(found.answered, [call("a"), call("b")]);
    assert_eq!(last_line(&mended), json!({"type": "result", "call": "b", "text": "recorded", "is_error": true}));
}

#[test]
fn f08_a_paid_response_the_history_lacks_is_written_back_from_its_recorded_bytes() {
    let mended = mended(files(&[session(), prompt("m1")]), &[response("r1")]);
    let found = FauxHistory.survey(&mended).unwrap();
    assert_eq!(found.responses, ["r1"]);
    assert_eq!(found.open_calls.len(), 1, "the call in it is open, and decided next");
}

#[test]
fn a_response_that_cannot_be_written_back_is_an_error() {
    let files = files(&[session(), prompt("m1")]);
    for id in ["unrecorded", "bad"] {
        let refused = FauxHistory.repair(&files, &[response(id)], &recorded);
        assert!(matches!(refused, Err(HistoryError::Unrepairable(_))), "{id}: {refused:?}");
    }
}

#[test]
fn b28_an_ended_turn_answers_its_open_calls_and_says_that_it_is_over() {
    let mended = mended(files(&[session(), prompt("m1"), calls("r1", &["a"])]), &[Repair::EndTurn]);
    let found = FauxHistory.survey(&mended).unwrap();
    assert!(found.ended && found.open_calls.is_empty());
    assert_eq!(last_line(&mended), json!({"type": "ended"}));
    let text = String::from_utf8(mended.bytes(STREAM).unwrap().to_vec()).unwrap();
    assert!(text.contains(NOT_RUN), "{text}");
    assert_eq!(
        FauxHistory.repair(&RecordedFiles::default(), &[Repair::EndTurn], &recorded).unwrap(),
        [],
        "nothing was taken"
    );
}

#[test]
fn a_torn_last_line_holds_nothing_and_is_cut_by_a_repair() {
    let whole = format!("{}\n{}\n", session(), prompt("m1"));
    let torn = raw(format!("{whole}{{\"type\":\"resp").as_bytes());
    assert_eq!(FauxHistory.survey(&torn).unwrap().responses, Vec::<String>::new());
    let mended = mended(torn, &[response("r1")]);
    assert!(mended.bytes(STREAM).unwrap().starts_with(whole.as_bytes()));
    assert_eq!(last_line(&mended), calls("r1", &["a"]));
    assert_eq!(FauxHistory.survey(&mended).unwrap().responses, ["r1"]);
}

#[test]
fn a_whole_line_that_cannot_be_read_is_an_error_that_names_it() {
    for broken in ["nonsense", r#"{"type":"prompt"}"#, r#"{"type":"later_kind"}"#, ""] {
        let files = raw(format!("{}\n{broken}\n", session()).as_bytes());
        let error = FauxHistory.survey(&files).unwrap_err();
        assert!(
            matches!(&error, HistoryError::Unreadable { stream, what } if stream == STREAM && what.starts_with("line 2")),
            "{error}"
        );
    }
}
