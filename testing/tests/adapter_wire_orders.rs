//! The Claude adapter on a program that speaks Claude Code's wire with chosen orders and faults: the conformance suite whole, then the cases
//! that an order could break under each order, and what is said of faults that must end a turn.
// A failed test is the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use agentrun_adapter::AgentAdapter;
use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_testing::script::Script;
use agentrun_testing::suites::Verdict;
use agentrun_testing::suites::adapter::{Options, Subject, conform_only};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The adapter on the fake, under these orders.
struct Fake(&'static str);

impl Fake {
    /// A script that starts the fake under its orders.
    fn program(&self) -> PathBuf {
        static FOLDER: OnceLock<TempDir> = OnceLock::new();
        let path = FOLDER.get_or_init(|| TempDir::new().unwrap()).path().join(format!("fake-{}", self.0));
        if !path.exists() {
            let made = path.with_extension("new");
            let fake = env!("CARGO_BIN_EXE_agentrun-fake-claude");
            std::fs::write(&made, format!("#!/bin/sh\nexec '{fake}' '{}' \"$@\"\n", self.0)).unwrap();
            std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(made, &path).unwrap();
        }
        path
    }
}

impl Subject for Fake {
    fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(ClaudeAdapter::over(self.program()))
    }

    fn model(&self) -> &str {
        "claude-sonnet-4-5"
    }

    fn call_prefix(&self) -> &str {
        "toolu"
    }

    fn command(&self, line: &str) -> Option<(String, Map<String, Value>)> {
        let arguments = json!({ "command": line });
        Some(("Bash".to_owned(), arguments.as_object().cloned().unwrap()))
    }

    fn over(&self, program: &Path) -> Option<Arc<dyn AgentAdapter>> {
        Some(Arc::new(ClaudeAdapter::over(program)))
    }
}

fn options() -> Options {
    Options { between: Some(PathBuf::from(env!("CARGO_BIN_EXE_agentrun-faulty-stdio"))), ..Options::default() }
}

mod in_order {
    use std::sync::Arc;

    use super::{Fake, options};

    agentrun_testing::adapter_conformance!(Arc::new(Fake("-")), options());
}

/// The cases that hang on what comes when.
const CASES: &[&str] = &[
    "a_prompt_runs_to_idle_and_is_asked_about_once",
    "b69_a_call_is_in_the_native_history_no_later_than_its_intent_and_the_model_gets_its_text",
    "calls_of_one_answer_are_each_run_once_and_all_seen",
    "an_accepted_submit_ends_the_turn_with_no_further_call_or_request",
    "two_messages_are_two_turns",
    "b70_a_denied_built_in_never_runs_and_the_model_is_told",
    "b24_a_recorded_outcome_is_answered_from_the_record_and_the_call_is_not_made_again",
    "a_refused_request_fails_the_turn_and_the_same_turn_can_go_on",
    "m33_words_sent_while_a_call_runs_are_taken_in_that_turn_and_shown_once",
];

macro_rules! orders {
    ($($name:ident: $order:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let report = conform_only($order, Arc::new(Fake($order)), options(), |name| CASES.contains(&name)).await;
                println!("{report}");
                assert_eq!(report.cases.len(), CASES.len());
                assert!(report.passed(), "{report}");
            }
        )*
    };
}

orders! {
    a_late_started_loses_nothing: "late-started";
    a_missing_started_loses_nothing: "no-started";
    a_result_behind_the_turns_end_is_heard: "completed-first";
    a_permission_that_is_asked_is_answered: "asks-permission";
    questions_asked_all_at_once_are_all_answered: "asks-all-at-once";
    a_result_before_its_call_is_no_outcome_of_ours: "results-first";
    lines_of_unknown_kinds_are_passed_over: "unknown-lines";
    orders_that_come_together_lose_nothing: "late-started,unknown-lines,asks-permission";
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_64_mib_is_a_line() {
    let report = conform_only("long-line", Arc::new(Fake("long-line")), options(), |name| name == CASES[0]).await;
    assert!(report.passed(), "{report}");
}

/// A fault, a case that meets it, and what is said of it.
const FAULTS: &[(&str, &str, &str)] = &[
    // A call that nobody could recognise after a crash does not run.
    ("no-call-id", CASES[1], "calls the host was asked for: seen []"),
    ("too-long-line", CASES[0], "a line of 67108865 bytes"),
    ("dies-at-start", CASES[0], "ended before it was ready\nits last words on stderr:\nits last words"),
    (
        "dies-in-turn",
        CASES[0],
        "ended in the middle of a turn; the session can be resumed\nits last words on stderr:\nits last words",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_no_success_and_what_is_said_names_it() {
    for (order, case, says) in FAULTS {
        let report = conform_only(order, Arc::new(Fake(order)), options(), |name| name == *case).await;
        let Verdict::Failed(why) = &report.cases[0].verdict else { panic!("{order} went unseen:\n{report}") };
        assert!(why.contains(says), "{order}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_of_an_adapter_leave_no_zombie_and_no_descriptor() {
    let one = async || {
        let report = conform_only("one of many", Arc::new(Fake("-")), options(), |name| name == CASES[0]).await;
        assert!(report.passed(), "{report}");
    };
    // The first makes what the runtime keeps.
    one().await;
    let before = descriptors();
    for _ in 0..100 {
        one().await;
    }
    let late = Instant::now() + Duration::from_secs(60);
    while descriptors() > before || children() > 0 {
        assert!(Instant::now() < late, "{} descriptors where {before} were, {} children", descriptors(), children());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of this process, zombies too.
fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    lists.map(|list| list.split_whitespace().count()).sum()
}
