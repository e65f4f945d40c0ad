//! What the records ask of a Claude Code transcript, on transcripts recorded from the real program (2.1.332) and scrubbed: which messages
//! were taken, which calls are open, and repairs that add nothing twice.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;

use agentrun_adapter::claude::ClaudeHistory;
use agentrun_adapter::{NativeFiles as _, NativeHistory as _, RecordedFiles};
use agentrun_kernel::{CallId, EffectKey, MessageId, NativeWrite, Repair, Survey};
use serde_json::Value;

const STREAM: &str = "claude/projects/-workspace/00000000-0000-4000-8000-0000000000aa.jsonl";
const PROMPT: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn recorded(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/claude/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(bytes: &[u8]) -> RecordedFiles {
    let mut files = RecordedFiles::default();
    files.apply(&NativeWrite { stream: STREAM.to_owned(), offset: 0, bytes: Arc::from(bytes) });
    files
}

fn survey(files: &RecordedFiles) -> Survey {
    ClaudeHistory.survey(files).unwrap()
}

/// Repairs, applies, and holds that a second repair finds nothing to do.
fn repair(files: &mut RecordedFiles, want: &[Repair], response: &dyn Fn(&str) -> Option<Arc<[u8]>>) {
    for write in ClaudeHistory.repair(files, want, response).unwrap() {
        files.apply(&write);
    }
    assert_eq!(ClaudeHistory.repair(files, want, response).unwrap(), [], "asked again on the repaired files");
}

fn no_response(_: &str) -> Option<Arc<[u8]>> {
    None
}

fn answer(call: &str, text: &str) -> Repair {
    Repair::Answer { call: CallId(call.to_owned()), text: Arc::from(text), is_error: false }
}

fn lines(files: &RecordedFiles) -> Vec<Value> {
    let bytes = files.bytes(STREAM).unwrap();
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn taken(files: &RecordedFiles) -> Vec<MessageId> {
    survey(files).taken
}

#[test]
fn b35_no_transcript_means_nothing_was_taken() {
    assert_eq!(survey(&RecordedFiles::default()), Survey::default());
}

#[test]
fn b35_a_prompt_is_taken_when_the_transcript_holds_it() {
    for name in ["delivered", "ended", "killed_in_call", "killed_in_request", "refused"] {
        assert_eq!(taken(&files(&recorded(name))), [MessageId(PROMPT.to_owned())], "{name}");
    }
}

#[test]
fn f31_a_message_folded_into_a_running_turn_is_taken_though_it_stands_only_as_an_attachment() {
    let folded = MessageId("aaaaaaaa-0000-4000-8000-000000000002".to_owned());
    assert!(taken(&files(&recorded("queued_in_turn"))).contains(&folded));
}

#[test]
fn b36_words_are_taken_from_the_line_that_folds_them_in_and_a_turn_cut_there_is_not_over() {
    let whole = recorded("queued_in_turn");
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let words = lines.iter().position(|line| contains(line, b"queued_command")).unwrap();
    let (prompt, folded) = (MessageId(PROMPT.to_owned()), MessageId("aaaaaaaa-0000-4000-8000-000000000002".to_owned()));
    // That it was queued stands there already.
    assert!(lines[..words].concat().windows(14).any(|it| it == b"while you work"));
    assert_eq!(taken(&files(&lines[..words].concat())), std::slice::from_ref(&prompt));
    let mut cut = files(&lines[..=words].concat());
    assert_eq!(taken(&cut), [prompt, folded]);
    assert!(!survey(&cut).ended && survey(&cut).open_calls.is_empty());
    repair(&mut cut, &[Repair::EndTurn], &no_response);
    assert!(survey(&cut).ended);
}

#[test]
fn a_turn_is_over_when_the_model_ended_it_or_our_hook_did_and_not_when_it_was_cut() {
    for (name, ended) in [
        ("ended", true),
        ("delivered", true),
        ("parallel_ended", true),
        ("killed_in_call", false),
        ("killed_in_request", false),
        // The program's own words on a refused request are no answer.
        ("refused", false),
    ] {
        assert_eq!(survey(&files(&recorded(name))).ended, ended, "{name}");
    }
}

#[test]
fn calls_without_a_result_are_open_in_the_order_they_were_made() {
    let survey = survey(&files(&recorded("killed_in_parallel_calls")));
    let open: Vec<_> = survey.open_calls.iter().map(|call| (call.call.as_str(), call.tool.as_str())).collect();
    assert_eq!(open, [("toolu_1", "work"), ("toolu_2", "work")]);
    assert_eq!(survey.open_calls[1].arguments, serde_json::json!({"a": 2}));
    assert!(survey.answered.is_empty());
}

#[test]
fn b24_a_recorded_outcome_the_transcript_lacks_is_written_behind_its_call() {
    let mut files = files(&recorded("killed_in_call"));
    repair(&mut files, &[answer("toolu_w", "the recorded text")], &no_response);
    let survey = survey(&files);
    assert!(survey.open_calls.is_empty());
    assert_eq!(survey.answered, [CallId("toolu_w".to_owned())]);
    assert!(!survey.ended, "the model has not seen the result");
    let lines = lines(&files);
    let (result, call) = (&lines[lines.len() - 1], &lines[lines.len() - 2]);
    assert_eq!(result["parentUuid"], call["uuid"]);
    assert_eq!(result["sourceToolAssistantUUID"], call["uuid"]);
    assert_eq!(result["promptId"], lines.iter().find(|line| line["uuid"] == PROMPT).unwrap()["promptId"]);
    assert_eq!(result["message"]["content"][0]["content"][0]["text"], "the recorded text");
}

#[test]
fn parallel_calls_are_each_answered_behind_their_own_call() {
    let mut files = files(&recorded("killed_in_parallel_calls"));
    repair(&mut files, &[answer("toolu_2", "two")], &no_response);
    assert_eq!(survey(&files).open_calls[0].call.as_str(), "toolu_1");
    repair(&mut files, &[answer("toolu_2", "two"), answer("toolu_1", "one")], &no_response);
    assert!(survey(&files).open_calls.is_empty());
}

#[test]
fn f08_a_paid_response_the_transcript_lacks_is_written_back_once() {
    let response = r#"{"id":"msg_paid","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2},
        "content":[{"type":"text","text":"Paid."},{"type":"tool_use","id":"toolu_p","name":"mcp__host__work","input":{"a":1}}]}"#;
    let give = |id: &str| (id == "msg_paid").then(|| Arc::from(response.as_bytes()));
    let mut files = files(&recorded("killed_in_request"));
    assert!(survey(&files).responses.is_empty());
    let want = [Repair::Response { key: EffectKey("k".to_owned()), id: "msg_paid".to_owned() }];
    repair(&mut files, &want, &give);
    let survey = survey(&files);
    assert_eq!(survey.responses, ["msg_paid"]);
    assert_eq!(survey.open_calls[0].call.as_str(), "toolu_p");
    assert!(!survey.ended);
}

#[test]
fn f08_a_response_of_which_only_the_text_arrived_does_not_count_as_held() {
    let whole = recorded("killed_in_call");
    let text_only: Vec<u8> = whole
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !contains(line, b"toolu_w"))
        .flatten()
        .copied()
        .collect();
    assert!(survey(&files(&text_only)).responses.is_empty());
    assert_eq!(survey(&files(&whole)).responses.len(), 1);
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

#[test]
fn f08_a_response_whose_bytes_are_cut_is_refused_and_nothing_is_written() {
    let give = |_: &str| Some(Arc::from(&b"data: {\"type\":\"message_start\",\"message\":{}}\n"[..]));
    let want = [Repair::Response { key: EffectKey("k".to_owned()), id: "msg_paid".to_owned() }];
    assert!(ClaudeHistory.repair(&files(&recorded("killed_in_request")), &want, &give).is_err());
}

#[test]
fn b73_a_settled_turn_gets_an_end_that_leaves_no_call_open() {
    for name in ["killed_in_call", "killed_in_parallel_calls", "killed_in_request", "refused"] {
        let mut files = files(&recorded(name));
        repair(&mut files, &[Repair::EndTurn], &no_response);
        let survey = survey(&files);
        assert!(survey.ended && survey.open_calls.is_empty(), "{name}");
    }
}

#[test]
fn b73_a_turn_that_is_over_and_a_history_nobody_began_need_no_end() {
    for name in ["ended", "delivered"] {
        assert_eq!(
            ClaudeHistory.repair(&files(&recorded(name)), &[Repair::EndTurn], &no_response).unwrap(),
            [],
            "{name}"
        );
    }
    assert_eq!(ClaudeHistory.repair(&RecordedFiles::default(), &[Repair::EndTurn], &no_response).unwrap(), []);
}

#[test]
fn a_torn_tail_holds_nothing_and_is_cut_off_by_the_repair() {
    let whole = recorded("killed_in_call");
    let call = whole.windows(8).rposition(|window| window == b"\"type\":\"").unwrap();
    for tail in [&b"{\"type\":\"user\",\"uuid\":\"x\""[..], b"\0\0\0\0\0\0", b"{"] {
        let mut files = files(&[&whole[..], tail].concat());
        assert_eq!(survey(&files).open_calls.len(), 1);
        repair(&mut files, &[answer("toolu_w", "ok")], &no_response);
        assert!(files.bytes(STREAM).unwrap().starts_with(&whole));
        assert!(survey(&files).open_calls.is_empty());
    }
    // The call itself torn: it is forgotten, as the program forgets it.
    assert!(survey(&files(&whole[..call])).open_calls.is_empty());
}

#[test]
fn a_last_line_that_only_lacks_its_newline_is_kept() {
    let whole = recorded("killed_in_call");
    let mut files = files(&whole[..whole.len() - 1]);
    repair(&mut files, &[answer("toolu_w", "ok")], &no_response);
    assert!(files.bytes(STREAM).unwrap().starts_with(&whole));
    assert!(survey(&files).open_calls.is_empty());
}

#[test]
fn every_prefix_of_a_transcript_can_be_surveyed_and_ended() {
    let whole = recorded("parallel_ended");
    for length in (0..whole.len()).step_by(37) {
        let mut files = files(&whole[..length]);
        repair(&mut files, &[Repair::EndTurn], &no_response);
        let survey = survey(&files);
        assert!(survey.open_calls.is_empty(), "at {length}");
        assert_eq!(survey.ended, survey.resumable, "at {length}");
    }
}

#[test]
fn a_stream_that_is_no_transcript_is_named_and_not_guessed_about() {
    let mut files = files(&recorded("ended"));
    files.apply(&NativeWrite { stream: "codex/rollout.jsonl".to_owned(), offset: 0, bytes: Arc::from(&b"{}\n"[..]) });
    assert!(ClaudeHistory.survey(&files).unwrap_err().to_string().contains("codex/rollout.jsonl"));
}

#[test]
fn b56_the_models_last_words_are_those_it_ended_the_turn_with_and_none_that_no_model_said() {
    let words = |files: &RecordedFiles| ClaudeHistory.last_words(files).unwrap();
    for name in ["ended", "parallel_ended"] {
        assert_eq!(words(&files(&recorded(name))).as_deref(), Some("bye"), "{name}");
    }
    for name in ["delivered", "killed_in_call", "killed_in_request", "refused"] {
        let mut files = files(&recorded(name));
        assert_eq!(words(&files), None, "{name}");
        repair(&mut files, &[Repair::EndTurn], &no_response);
        assert_eq!(words(&files), None, "{name}: the words of a settle are ours");
    }
    assert_eq!(words(&RecordedFiles::default()), None);
    // An answer of two texts stands as two lines of one message.
    let whole = recorded("ended");
    let bye = whole.split_inclusive(|byte| *byte == b'\n').find(|line| contains(line, b"\"text\":\"bye\"")).unwrap();
    let first = String::from_utf8(bye.to_vec()).unwrap().replace("\"text\":\"bye\"", "\"text\":\"well,\"");
    let place = whole.windows(bye.len()).position(|window| window == bye).unwrap();
    let two = [&whole[..place], first.as_bytes(), &whole[place..]].concat();
    assert_eq!(words(&files(&two)).as_deref(), Some("well,\nbye"));
}

/// What the program writes when it is told to interrupt: the running call was rejected, and the turn was interrupted. Nobody rejected anything.
fn interrupted(name: &str, call: Option<&str>) -> Vec<u8> {
    let mut bytes = recorded(name);
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    bytes.truncate(whole);
    if let Some(call) = call {
        bytes.extend(format!(r#"{{"type":"user","uuid":"r","toolDenialKind":"user-rejected","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{call}","content":"rejected","is_error":true}}]}}}}"#).into_bytes());
        bytes.push(b'\n');
    }
    bytes.extend(br#"{"type":"user","uuid":"n","rowSource":"harness","message":{"role":"user","content":[{"type":"text","text":"in whatever words"}]}}"#);
    bytes.push(b'\n');
    bytes
}

#[test]
fn b22_the_programs_own_word_on_an_interrupt_is_no_part_of_the_history_and_is_cut_off_by_a_repair() {
    for (name, call) in [("killed_in_call", Some("toolu_w")), ("killed_in_request", None)] {
        let (cut, mut files) = (files(&recorded(name)), files(&interrupted(name, call)));
        assert_eq!(survey(&files), survey(&cut), "{name}");
        let want: Vec<_> = call.map(|call| answer(call, "the recorded text")).into_iter().collect();
        repair(&mut files, &want, &no_response);
        assert!(lines(&files).iter().all(|line| line["rowSource"] != "harness" && line["toolDenialKind"].is_null()));
        assert_eq!(taken(&files), [MessageId(PROMPT.to_owned())]);
    }
}

#[test]
fn a_call_a_person_rejected_in_a_turn_that_went_on_stays_rejected() {
    let mut bytes = interrupted("killed_in_call", Some("toolu_w"));
    bytes.extend(br#"{"type":"assistant","uuid":"a","message":{"id":"m","role":"assistant","stop_reason":"end_turn","content":[{"type":"text","text":"so be it"}]}}"#);
    bytes.push(b'\n');
    let survey = survey(&files(&bytes));
    assert_eq!(survey.answered, [CallId("toolu_w".to_owned())]);
    assert!(survey.ended && survey.open_calls.is_empty());
}
