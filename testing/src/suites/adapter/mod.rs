//! The adapter conformance suite: what an adapter owes at the seam, as cases. An author says how the adapter is reached ([`Subject`]), its
//! profile says which cases apply, and a case that does not apply is in the report with what it needs.
//!
//! ```
//! use std::sync::Arc;
//! use agentrun_adapter::AgentAdapter;
//! use agentrun_adapter::claude::ClaudeAdapter;
//! use agentrun_testing::script::Script;
//! use agentrun_testing::suites::adapter::{Options, Subject, conform};
//!
//! struct ClaudeCode;
//!
//! impl Subject for ClaudeCode {
//!     fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
//!         Arc::new(ClaudeAdapter::new())
//!     }
//!     fn model(&self) -> &str {
//!         "claude-sonnet-4-5"
//!     }
//!     fn call_prefix(&self) -> &str {
//!         "toolu"
//!     }
//! }
//!
//! # async fn prove() {
//! let report = conform("claude", Arc::new(ClaudeCode), Options::default()).await;
//! println!("{report}"); // a table; `report.to_json()` for a machine
//! assert!(report.passed());
//! # }
//! ```
//!
//! Better to read when it fails, and faster: [`adapter_conformance!`](crate::adapter_conformance) makes a test of each case.
//!
//! The rig is a session over a store in memory, over several owners with a fresh home each; a model on loopback that plays a script behind
//! a gate (no request passes that the harness's own history does not explain); the host's tools as recorded effects. What is the host's,
//! and so in no case here: budgets and turn limits, the check of a submitted value and its review, follow-ups, prices, and the resume of
//! whole steps after a host's death: the crash sweep has those.

mod builtins;
mod host;
mod model;
mod opening;
mod program;
mod recovery;
mod rig;
mod steering;
mod stops;
mod subject;
mod turns;
mod wire;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use subject::{Ability, Subject};

use self::rig::Bench;
use super::failure::{Answer, Failure};
use super::{CaseReport, Report, Verdict};

/// How the suite runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A case that takes longer hangs. Far above what a slow machine needs for a harness that starts ten times.
    pub patience: Duration,
    /// The program `agentrun-faulty-stdio`, which stands between an adapter and its program and makes bytes arrive badly.
    pub between: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { patience: Duration::from_secs(280), between: None }
    }
}

struct Case {
    name: &'static str,
    needs: &'static [Ability],
    run: fn(Bench) -> Pin<Box<dyn Future<Output = Answer> + Send>>,
}

/// Every case, for whoever wants a table of them. Not for direct use.
#[doc(hidden)]
#[macro_export]
macro_rules! adapter_cases {
    ([$($then:tt)+] $($given:tt)*) => {
        $($then)+ ! { [$($given)*]
            opening::b25_check_spends_nothing_and_may_be_asked_again [];
            opening::b25_a_program_that_is_not_there_is_refused_with_what_to_install [Over];
            opening::b25_a_version_outside_the_range_is_refused_and_both_are_named [Over];
            opening::b25_an_endpoint_it_does_not_speak_to_is_refused [];
            opening::b25_built_ins_it_cannot_record_are_refused [Unrecorded];
            opening::b26_a_fork_it_cannot_do_is_refused [NoFork];
            opening::b27_an_open_places_and_asks_nothing [];
            opening::b27_an_open_of_a_finished_session_asks_nothing_and_its_history_says_so [];
            opening::what_a_session_can_do_is_never_wider_than_its_profile [];
            turns::a_prompt_runs_to_idle_and_is_asked_about_once [];
            turns::b38_a_message_is_in_the_records_before_anything_is_sent [];
            turns::b69_a_call_is_in_the_native_history_no_later_than_its_intent_and_the_model_gets_its_text [];
            turns::calls_of_one_answer_are_each_run_once_and_all_seen [];
            turns::b72_a_nested_schema_reaches_the_model_as_it_is [Http];
            turns::an_accepted_submit_ends_the_turn_with_no_further_call_or_request [];
            turns::a_next_message_follows_an_accepted_submit [];
            turns::two_messages_are_two_turns [];
            turns::b92_a_tool_nobody_offered_is_told_to_the_host_and_nothing_more_is_paid [];
            turns::a_refused_request_fails_the_turn_and_the_same_turn_can_go_on [];
            turns::a_response_that_is_cut_fails_the_turn_and_is_not_asked_for_again [];
            builtins::b70_a_built_in_has_its_intent_before_it_runs_and_the_text_the_model_gets_for_an_outcome [Gated];
            builtins::b70_a_denied_built_in_never_runs_and_the_model_is_told [Gated];
            stops::b21_a_kill_ends_it_with_all_it_started [];
            stops::b21_an_interrupt_ends_a_turn_that_waits_for_its_model [];
            stops::b22_a_turn_interrupted_before_any_answer_is_taken_up_by_the_next_owner [];
            stops::b22_a_turn_interrupted_in_a_call_is_taken_up_by_the_next_owner [];
            stops::b19_a_withheld_call_is_not_answered_and_no_request_follows [];
            stops::b19_a_drain_lets_a_running_call_record_its_outcome_and_begins_nothing [Drain];
            stops::b30_a_stop_that_stands_before_the_turn_pays_nothing [];
            stops::b19_a_stop_while_the_program_starts_is_not_kept_waiting [Program];
            recovery::b24_a_recorded_outcome_is_answered_from_the_record_and_the_call_is_not_made_again [];
            recovery::f10_a_call_is_in_the_records_before_it_runs [];
            recovery::b36_a_message_that_was_taken_reaches_the_model_once [];
            recovery::b38_a_message_that_was_placed_and_not_taken_is_placed_again_under_its_own_id [OwnIds];
            recovery::b28_a_settle_is_pure_says_the_turn_is_over_and_writes_nothing_twice [];
            recovery::b29_a_settled_turn_is_not_taken_up_and_the_next_message_follows_its_end [];
            recovery::b27_a_restored_history_is_not_mirrored_a_second_time [];
            recovery::b43_a_fenced_session_unwinds_and_runs_nothing_more [];
            recovery::f32_an_owner_that_dies_before_it_placed_repeats_nothing [];
            recovery::f32_an_owner_that_dies_before_a_calls_intent_repeats_nothing [];
            recovery::f32_an_owner_that_dies_before_a_calls_outcome_repeats_nothing [];
            recovery::f32_an_owner_that_dies_before_the_turns_end_repeats_nothing [];
            steering::m33_words_sent_while_a_call_runs_are_taken_in_that_turn_and_shown_once [Steer];
            steering::m33_messages_are_steered_one_after_the_other_and_in_their_order [Steer];
            steering::b38_words_that_were_placed_and_not_taken_are_placed_again_behind_what_the_turn_did [Steer];
            program::b37_a_program_killed_in_a_turn_is_an_error_and_the_turn_is_taken_up [Program];
            program::f26_what_the_program_leaves_behind_is_gone_after_a_close [Program];
            program::f26_what_the_program_leaves_behind_is_gone_after_a_crash [Program];
            program::a_program_that_ends_before_it_is_ready_is_an_error_with_its_last_words_and_nothing_is_left [Program];
            program::a_program_gets_no_environment_that_was_not_meant_for_it [Program];
            wire::banners_and_bytes_that_are_no_text_cost_nothing [Between];
            wire::lines_that_end_in_crlf_are_lines [Between];
            wire::a_line_that_comes_byte_by_byte_is_one_line [Between];
            wire::a_flood_on_stderr_holds_nothing_up [Between];
            wire::a_program_that_reads_slowly_gets_everything [Between];
            wire::output_that_closes_under_a_living_program_ends_the_turn [Between];
        }
    };
}

macro_rules! table {
    ([] $($module:ident::$name:ident [$($ability:ident),*];)*) => {
        &[$(Case {
            name: stringify!($name),
            needs: &[$(Ability::$ability),*],
            run: |bench| Box::pin($module::$name(bench)),
        }),*]
    };
}

const CASES: &[Case] = crate::adapter_cases!([table]);

/// A test of each case on one subject: `adapter_conformance!(Arc::new(MyAdapter), Options::default());` in a module of its own. Each prints its
/// report, and fails with it.
#[macro_export]
macro_rules! adapter_conformance {
    ($subject:expr, $options:expr) => {
        $crate::adapter_cases! { [$crate::adapter_conformance] $subject ; $options }
    };
    ([$subject:expr ; $options:expr] $($module:ident::$name:ident [$($ability:ident),*];)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let name = stringify!($name);
                let report = $crate::suites::adapter::conform_only(module_path!(), $subject, $options, |it| it == name).await;
                println!("{report}\n{}", report.to_json());
                assert!(report.passed(), "{report}");
            }
        )*
    };
}

/// Runs every case on `subject`, which the report calls `name`.
///
/// Never panics and never stops early: what an adapter does wrong, hangs and panics included, is in the report.
pub async fn conform(name: &str, subject: Arc<dyn Subject>, options: Options) -> Report {
    conform_only(name, subject, options, |_| true).await
}

/// [`conform`] with the cases whose name `wanted` says yes to.
pub async fn conform_only(
    name: &str,
    subject: Arc<dyn Subject>,
    options: Options,
    wanted: impl Fn(&str) -> bool,
) -> Report {
    let mut report = Report { suite: "adapter", subject: name.to_owned(), abilities: Vec::new(), cases: Vec::new() };
    let able = match crate::script::Script::new(Vec::new()) {
        Ok(script) => subject.adapter(&script),
        // A script of no steps is sound.
        Err(_) => return report,
    };
    let has = |ability: Ability| ability.is_of(&*subject, able.profile(), options.between.is_some());
    report.abilities = Ability::ALL.into_iter().filter(|ability| has(*ability)).map(Ability::as_str).collect();
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        let began = Instant::now();
        let lacking = case.needs.iter().copied().find(|ability| !has(*ability));
        let (verdict, note) = match lacking {
            Some(lacking) => (Verdict::Skipped(lacking.as_str()), String::new()),
            None => run(case, Bench { subject: subject.clone(), options: options.clone() }).await,
        };
        report.cases.push(CaseReport::new(case.name, verdict, began.elapsed(), note));
    }
    report
}

async fn run(case: &Case, bench: Bench) -> (Verdict, String) {
    let patience = bench.options.patience;
    // In a task of its own, so that an adapter that panics fails its case alone.
    let mut running = tokio::spawn((case.run)(bench));
    match tokio::time::timeout(patience, &mut running).await {
        Ok(Ok(Ok(note))) => (Verdict::Passed, note),
        Ok(Ok(Err(Failure(why)))) => (Verdict::Failed(why), String::new()),
        Ok(Err(broken)) => (Verdict::Failed(format!("broke: {broken}")), String::new()),
        Err(_) => {
            running.abort();
            (Verdict::Failed(format!("hung for {} s", patience.as_secs())), String::new())
        }
    }
}
