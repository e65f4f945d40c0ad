//! What the records ask of a Codex rollout, on rollouts recorded from the real program (0.171.0) and scrubbed: which messages were taken,
//! which calls are open, and repairs that add nothing twice.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;

use agentrun_adapter::codex::CodexHistory;
use agentrun_adapter::{NativeFiles as _, NativeHistory as _, RecordedFiles};
use agentrun_kernel::{CallId, EffectKey, MessageId, NativeWrite, Repair, Survey};
use serde_json::{Value, json};

const STREAM: &str = "codex/sessions/2026/11/30/rollout-2026-11-30T09-00-00-00000000-0000-7000-8000-0000000000aa.jsonl";
const PROMPT: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const ALL: [&str; 11] = [
    "ended",
    "parallel_ended",
    "killed_in_call",
    "killed_in_parallel_calls",
    "one_of_two_answered",
    "killed_in_request",
    "killed_in_response",
    "killed_behind_a_compaction",
    "terminated_in_call",
    "terminated_in_request",
    "refused",
];

fn recorded(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/codex/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(bytes: &[u8]) -> RecordedFiles {
    let mut files = RecordedFiles::default();
    files.apply(&NativeWrite { stream: STREAM.to_owned(), offset: 0, bytes: Arc::from(bytes) });
    files
}

fn survey(files: &RecordedFiles) -> Survey {
    CodexHistory.survey(files).unwrap()
}

/// Repairs, applies, and holds that a second repair finds nothing to do.
fn repair(files: &mut RecordedFiles, want: &[Repair], response: &dyn Fn(&str) -> Option<Arc<[u8]>>) {
    for write in CodexHistory.repair(files, want, response).unwrap() {
        files.apply(&write);
    }
    assert_eq!(CodexHistory.repair(files, want, response).unwrap(), [], "asked again on the repaired files");
}

fn no_response(_: &str) -> Option<Arc<[u8]>> {
    None
}

fn answer(call: &str, text: &str) -> Repair {
    Repair::Answer { call: CallId(call.to_owned()), text: Arc::from(text), is_error: false }
}

fn paid(id: &str) -> Repair {
    Repair::Response { key: EffectKey("k".to_owned()), id: id.to_owned() }
}

fn open(files: &RecordedFiles) -> Vec<String> {
    survey(files).open_calls.iter().map(|call| call.call.to_string()).collect()
}

/// The items the model would be shown: kind, and what tells one from another.
fn items(files: &RecordedFiles) -> Vec<(String, String)> {
    let bytes = files.bytes(STREAM).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let items = lines.filter(|line| line["type"] == "response_item").map(|line| line["payload"].clone());
    let told = |item: Value| {
        let telling = [&item["output"], &item["call_id"], &item["content"][0]["text"]];
        let told = telling.iter().find_map(|it| it.as_str()).unwrap_or_default().to_owned();
        (item["type"].as_str().unwrap().to_owned(), told)
    };
    items.map(told).collect()
}

fn said(kind: &str, told: &str) -> (String, String) {
    (kind.to_owned(), told.to_owned())
}

#[test]
fn b35_no_rollout_means_nothing_was_taken() {
    assert_eq!(survey(&RecordedFiles::default()), Survey::default());
    assert_eq!(survey(&files(b"")), Survey::default(), "one that was emptied is none");
}

#[test]
fn b35_a_prompt_is_taken_when_the_rollout_holds_it_under_our_id() {
    for name in ALL {
        assert_eq!(survey(&files(&recorded(name))).taken, [MessageId(PROMPT.to_owned())], "{name}");
    }
}

#[test]
fn b37_a_prompt_that_was_acknowledged_and_not_written_is_not_taken_at_any_cut() {
    let whole = recorded("killed_in_request");
    let taken = whole.windows(12).position(|window| window == b"user_message").unwrap();
    let line = taken + whole[taken..].iter().position(|byte| *byte == b'\n').unwrap();
    for length in 0..=whole.len() {
        let files = files(&whole[..length]);
        assert_eq!(survey(&files).taken.len(), usize::from(length > line), "at {length}");
    }
}

#[test]
fn b38_words_that_were_steered_into_a_turn_are_taken_once_their_line_is_whole_and_cut_they_stand_nowhere() {
    let words = "aaaaaaaa-0000-4000-8000-000000000002";
    let whole = recorded("steered");
    let place = |what: &str| whole.windows(what.len()).position(|window| window == what.as_bytes()).unwrap();
    let end_of = |at: usize| at + whole[at..].iter().position(|byte| *byte == b'\n').unwrap();
    let line = end_of(place(&format!("\"client_id\":\"{words}\"")));
    let output = end_of(place("function_call_output"));
    for length in (output + 1..=whole.len()).step_by(97).chain(line - 1..=line + 2) {
        let mut files = files(&whole[..length]);
        let taken = length > line;
        assert_eq!(survey(&files).taken.len(), 1 + usize::from(taken), "at {length}");
        repair(&mut files, &[], &no_response);
        let shown = items(&files).iter().filter(|(_, told)| told == "look at the other one too").count();
        assert_eq!(shown, usize::from(taken), "at {length}");
        assert!(survey(&files).open_calls.is_empty(), "at {length}: the result before it stands");
    }
    let files = files(&whole);
    assert_eq!(survey(&files).taken, [MessageId(PROMPT.to_owned()), MessageId(words.to_owned())]);
    assert!(survey(&files).ended);
}

#[test]
fn m33_a_turn_that_took_words_at_its_end_and_asked_the_model_no_more_is_not_over() {
    let taken = json!({"type": "event_msg", "payload": {"type": "user_message", "client_id": "s", "message": "more"}});
    let over = json!({"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t"}});
    let mut whole = recorded("ended");
    assert!(survey(&files(&whole)).ended);
    whole.extend(format!("{taken}\n{over}\n").into_bytes());
    assert!(!survey(&files(&whole)).ended);
}

#[test]
fn b36_the_prompts_item_without_the_line_that_says_whose_it_is_is_cut_so_it_cannot_stand_twice() {
    let whole = recorded("killed_in_request");
    let line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let mut files = files(&whole[..line]);
    assert_eq!(items(&files), [said("message", "do it")]);
    for write in CodexHistory.repair(&files, &[], &no_response).unwrap() {
        files.apply(&write);
    }
    assert_eq!(items(&files), []);
    assert!(survey(&files).native_session.is_some(), "the thread stands");
}

#[test]
fn a_turn_is_over_when_the_model_ended_it_and_not_when_it_was_cut_or_refused() {
    for name in ALL {
        assert_eq!(survey(&files(&recorded(name))).ended, name.ends_with("ended"), "{name}");
    }
}

#[test]
fn a_turn_whose_last_response_came_whole_and_calls_nothing_is_over_without_the_programs_word() {
    let whole = recorded("ended");
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    assert!(String::from_utf8_lossy(&whole[last..]).contains("task_complete"));
    assert!(survey(&files(&whole[..last])).ended, "asking the model again would pay for an answer it gave");
    assert!(!survey(&files(&recorded("killed_in_response"))).ended, "half a response is no answer");
}

#[test]
fn calls_without_a_result_are_open_in_the_order_they_were_made() {
    let files = files(&recorded("killed_in_parallel_calls"));
    let survey = survey(&files);
    let open: Vec<_> = survey.open_calls.iter().map(|call| (call.call.as_str(), call.tool.as_str())).collect();
    assert_eq!(open, [("call_0_0", "work"), ("call_0_1", "work")]);
    assert_eq!(survey.open_calls[1].arguments, json!({"a": 2}));
    assert!(survey.answered.is_empty());
}

#[test]
fn b24_a_recorded_outcome_the_rollout_lacks_is_written_as_the_result_of_its_call() {
    let mut files = files(&recorded("killed_in_call"));
    repair(&mut files, &[answer("call_0_0", "the recorded text")], &no_response);
    let survey = survey(&files);
    assert!(survey.open_calls.is_empty() && !survey.ended, "the model has not seen the result");
    assert_eq!(survey.answered, [CallId("call_0_0".to_owned())]);
    assert_eq!(items(&files).last(), Some(&said("function_call_output", "the recorded text")));
}

#[test]
fn f06_an_id_that_is_used_again_is_answered_once_for_each_call() {
    let once = recorded("killed_in_call");
    let mut files = files(&once);
    repair(&mut files, &[answer("call_0_0", "one")], &no_response);
    let held = files.bytes(STREAM).unwrap();
    let call = once.split_inclusive(|byte| *byte == b'\n').find(|line| line.windows(8).any(|it| it == b"call_0_0"));
    files.apply(&NativeWrite { stream: STREAM.to_owned(), offset: held.len() as u64, bytes: Arc::from(call.unwrap()) });
    assert_eq!(open(&files), ["call_0_0"]);
    for write in CodexHistory.repair(&files, &[answer("call_0_0", "two")], &no_response).unwrap() {
        files.apply(&write);
    }
    assert_eq!(open(&files), Vec::<String>::new());
    assert_eq!(survey(&files).answered.len(), 2);
}

#[test]
fn what_the_program_wrote_when_it_was_ended_in_a_call_does_not_count_and_goes() {
    let clean = files(&recorded("one_of_two_answered"));
    let mut polluted = files(&recorded("terminated_in_call"));
    assert_eq!(items(&polluted).len(), items(&clean).len() + 2, "a result made up, and a word to the model");
    // A true result among them is in the records, and written back from there.
    assert_eq!(open(&polluted), ["call_0_0", "call_0_1"]);
    repair(&mut polluted, &[answer("call_0_0", "worked"), answer("call_0_1", "recorded")], &no_response);
    let mut wanted = items(&clean);
    wanted.push(said("function_call_output", "recorded"));
    assert_eq!(items(&polluted), wanted);
    assert!(!survey(&polluted).ended);
}

#[test]
fn what_the_program_wrote_when_it_was_ended_in_a_request_does_not_count_and_goes() {
    let mut polluted = files(&recorded("terminated_in_request"));
    assert!(!survey(&polluted).ended);
    for write in CodexHistory.repair(&polluted, &[], &no_response).unwrap() {
        polluted.apply(&write);
    }
    assert_eq!(items(&polluted), [said("message", "do it")]);
}

/// A response that says something and calls a tool, as its events came.
fn stream(id: &str) -> Arc<[u8]> {
    let items = [
        json!({"type": "message", "id": "msg_0", "role": "assistant", "content": [{"type": "output_text", "text": "Working."}]}),
        json!({"type": "function_call", "id": "fc_0_0", "call_id": "call_0_0", "name": "work", "arguments": "{\"a\":1}"}),
    ];
    let done = items.map(|item| format!("data: {}\n\n", json!({"type": "response.output_item.done", "item": item})));
    let end = format!("data: {}\n\n", json!({"type": "response.completed", "response": {"id": id}}));
    Arc::from((done.concat() + &end).into_bytes())
}

#[test]
fn f08_a_paid_response_the_rollout_lacks_is_written_back_once_whatever_part_of_it_is_there() {
    let whole = recorded("killed_in_call");
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let give = |id: &str| (id == "resp_0").then(|| stream(id));
    // From the prompt alone, over its text, to its call: only the mark that it came whole is missing then.
    for held in 7..lines.len() {
        let mut files = files(&lines[..held].concat());
        assert!(survey(&files).responses.is_empty(), "after {held} lines");
        repair(&mut files, &[paid("resp_0")], &give);
        assert_eq!(survey(&files).responses, ["resp_0"]);
        assert_eq!(open(&files), ["call_0_0"]);
        let wanted = [said("message", "do it"), said("message", "Working."), said("function_call", "call_0_0")];
        assert_eq!(items(&files), wanted, "after {held} lines");
    }
}

#[test]
fn f08_a_response_whose_bytes_are_cut_is_refused_and_nothing_is_written() {
    let give = |_: &str| Some(Arc::from(&b"data: {\"type\":\"response.created\",\"response\":{}}\n"[..]));
    assert!(CodexHistory.repair(&files(&recorded("killed_in_request")), &[paid("resp_0")], &give).is_err());
}

#[test]
fn b73_a_settled_turn_gets_an_end_that_leaves_no_call_open() {
    for name in ALL {
        let mut files = files(&recorded(name));
        repair(&mut files, &[Repair::EndTurn], &no_response);
        let survey = survey(&files);
        assert!(survey.ended && survey.open_calls.is_empty(), "{name}");
    }
}

#[test]
fn b73_a_turn_that_is_over_and_a_history_nobody_began_need_no_end() {
    for name in ["ended", "parallel_ended"] {
        let repaired = CodexHistory.repair(&files(&recorded(name)), &[Repair::EndTurn], &no_response).unwrap();
        assert_eq!(repaired, [], "{name}");
    }
    assert_eq!(CodexHistory.repair(&RecordedFiles::default(), &[Repair::EndTurn], &no_response).unwrap(), []);
}

#[test]
fn a_torn_tail_holds_nothing_and_is_cut_off_by_the_repair() {
    let whole = recorded("killed_in_call");
    for tail in [&b"{\"type\":\"response_item\",\"payload\""[..], b"\0\0\0\0\0\0", b"{"] {
        let mut files = files(&[&whole[..], tail].concat());
        assert_eq!(survey(&files).open_calls.len(), 1);
        repair(&mut files, &[answer("call_0_0", "ok")], &no_response);
        assert!(files.bytes(STREAM).unwrap().starts_with(&whole));
        assert!(survey(&files).open_calls.is_empty());
    }
}

#[test]
fn every_prefix_of_a_rollout_can_be_surveyed_and_ended() {
    for name in ALL {
        let whole = recorded(name);
        for length in (0..whole.len()).step_by(101) {
            let mut files = files(&whole[..length]);
            repair(&mut files, &[Repair::EndTurn], &no_response);
            let survey = survey(&files);
            assert!(survey.open_calls.is_empty(), "{name} at {length}");
            assert_eq!(survey.ended, survey.resumable, "{name} at {length}");
        }
    }
}

#[test]
fn a_stream_that_is_no_rollout_and_a_second_rollout_are_named_and_not_guessed_about() {
    for (second, bytes) in [("claude/x.jsonl", &b"{}\n"[..]), ("codex/sessions/2026/12/01/rollout-b.jsonl", b"{}\n")] {
        let mut files = files(&recorded("ended"));
        files.apply(&NativeWrite { stream: second.to_owned(), offset: 0, bytes: Arc::from(bytes) });
        assert!(CodexHistory.survey(&files).is_err(), "{second}");
    }
}

#[test]
fn b56_the_models_last_words_are_those_it_ended_the_turn_with_and_none_that_no_model_said() {
    let words = |files: &RecordedFiles| CodexHistory.last_words(files).unwrap();
    assert_eq!(words(&files(&recorded("ended"))).as_deref(), Some("done"));
    for name in ["killed_in_call", "killed_in_request"] {
        let mut files = files(&recorded(name));
        assert_eq!(words(&files), None, "{name}");
        repair(&mut files, &[Repair::EndTurn], &no_response);
        assert_eq!(words(&files), None, "{name}: the words that end it are ours");
    }
    assert_eq!(words(&RecordedFiles::default()), None);
}
