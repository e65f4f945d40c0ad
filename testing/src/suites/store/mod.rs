//! The store conformance suite: every MUST of [`SessionStore`](agentrun_kernel::SessionStore) as a case. Prove a store of your own:
//!
//! ```
//! use std::sync::Arc;
//! use agentrun_testing::suites::store::{Data, conform};
//!
//! # #[tokio::main(flavor = "multi_thread", worker_threads = 2)]
//! # async fn main() {
//! let factory = || {
//!     let mine = agentrun_kernel::MemoryStore::new().expect("a fresh, empty store");
//!     Data::new(move || Ok(Arc::new(mine.again()?))).beside()
//! };
//! # let conform = |name, factory| agentrun_testing::suites::store::conform_with(
//! #     agentrun_testing::suites::store::Options { schedules: 100, ..Default::default() }, name, factory);
//! let report = conform("mine", factory).await;
//! println!("{report}"); // a table; `report.to_json()` for a machine
//! assert!(report.passed());
//! # assert!(report.to_json().contains("\"subject\":\"mine\""));
//! # }
//! ```
//!
//! The factory makes fresh data, the closure in it opens handles on that data. What else can be done to it is said with
//! [`Data::beside`], [`Data::leaving`], [`Data::copies`], [`Data::sync_faults`] and [`Data::power_cuts`]; a case whose ability is missing is in the report as
//! skipped. What a suite in one process cannot show (SIGKILL, takeovers by real processes, syncs counted at the disk) is for the
//! store's own tests. Needs tokio's time; more than one worker thread makes the races real.

mod data;
mod durable;
mod fencing;
mod leaving;
mod order;
mod race;
mod shared;
mod views;
mod words;

use std::pin::Pin;
use std::time::{Duration, Instant};

pub use data::{Ability, Data};

use self::data::Rig;
use self::words::{Answer, Failure};
use super::{CaseReport, Report, Verdict};

/// Random schedules the contract asks for.
pub const SCHEDULES: usize = 10_000;
/// A case that takes longer hangs.
const CASE_TIME: Duration = Duration::from_secs(300);

/// How much of the suite's random part runs, and from which seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Random schedules of opens, appends and reads.
    pub schedules: usize,
    /// What they are drawn from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { schedules: SCHEDULES, seed: 0x5EED }
    }
}

struct Case {
    name: &'static str,
    needs: Option<Ability>,
    run: fn(Rig) -> Pin<Box<dyn Future<Output = Answer> + Send>>,
}

macro_rules! cases {
    ($($module:ident::$name:ident $(needs $ability:ident)?;)*) => {
        &[$(Case {
            name: stringify!($name),
            needs: cases!(@needs $($ability)?),
            run: |rig| Box::pin($module::$name(rig)),
        }),*]
    };
    (@needs) => { None };
    (@needs $ability:ident) => { Some(Ability::$ability) };
}

const CASES: &[Case] = cases! {
    order::b42_records_come_back_in_order_and_whole;
    order::b42_what_resolved_is_there_for_the_next_handle;
    order::a_dropped_append_is_still_in_the_log;
    order::a_dropped_open_fences_or_does_not_but_nothing_between;
    order::a_long_log_reads_back_from_any_place;
    order::an_unknown_log_is_an_empty_one;
    fencing::b43_of_three_opens_only_the_last_writes;
    fencing::b43_of_many_opens_at_once_the_last_alone_writes;
    fencing::b46_nothing_of_an_old_owner_follows_a_takeover;
    fencing::b43_an_open_fences_no_writer_of_another_key;
    fencing::b43_epochs_grow_over_reopen;
    fencing::b44_a_refused_append_leaves_every_byte_as_it_was;
    fencing::b44_a_fenced_writer_stays_fenced;
    fencing::an_open_at_another_head_takes_nothing;
    fencing::f14_two_openers_that_saw_one_head_are_not_both_let_in;
    fencing::f16_the_writer_of_a_rewound_epoch_is_refused_by_its_nonce needs Copies;
    fencing::f22_a_sealed_session_is_not_opened_and_says_where_it_went;
    leaving::f21_a_removed_session_leaves_its_tombstone_and_its_key_is_used_by_nobody needs Leaving;
    leaving::f21_an_old_writer_of_a_removed_session_is_fenced needs Leaving;
    leaving::f21_a_removal_decided_on_an_older_head_removes_nothing needs Leaving;
    leaving::f21_a_removal_touches_no_other_log needs Leaving;
    leaving::f22_a_session_that_left_takes_no_post needs Leaving;
    leaving::f22_an_arrival_lands_whole_or_not_at_all_and_once needs Leaving;
    shared::a_shared_log_takes_one_of_two_that_saw_the_same_place;
    shared::many_tasks_append_to_one_shared_log_and_none_is_lost;
    shared::a_batch_over_two_logs_lands_whole;
    shared::a_batch_whose_shared_part_conflicts_lands_in_neither_log;
    shared::a_fenced_batch_touches_no_shared_log;
    shared::f02_the_fence_is_told_before_the_conflict;
    durable::f18_buffered_batches_keep_their_order_before_a_synced_one;
    durable::f18_readers_stop_before_records_that_are_not_synced;
    durable::f18_a_dead_owners_buffered_records_are_shown_to_the_next_before_it_takes;
    durable::f18_a_buffered_batch_of_a_fenced_writer_fails_its_next_synced_one;
    durable::f17_a_failed_sync_is_unknown_and_poisons_the_store needs SyncFaults;
    durable::f17_no_fence_is_told_that_was_not_synced needs SyncFaults;
    durable::f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch needs PowerCuts;
    durable::f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut needs PowerCuts;
    durable::f17_a_refusal_rests_on_a_durable_epoch needs PowerCuts;
    durable::f17_a_conflict_rests_on_a_durable_record needs PowerCuts;
    views::what_cannot_be_stored_is_refused_and_writes_nothing;
    views::b42_a_record_as_large_as_the_bound_allows_is_kept_whole;
    views::the_list_shows_each_session_with_its_run_and_end_in_key_order;
    views::a_watch_shows_every_handles_commits;
    race::b43_b44_racing_opens_and_appends_are_linearizable;
};

/// Runs every case on fresh data of `factory`, [`SCHEDULES`] random schedules among them. `subject` names the store in the report.
///
/// Never panics and never stops early: what a store does wrong, hangs and panics included, is in the report.
pub async fn conform(subject: &str, factory: impl Fn() -> Data) -> Report {
    conform_with(Options::default(), subject, factory).await
}

/// [`conform`] with another number of schedules or another seed.
pub async fn conform_with(options: Options, subject: &str, factory: impl Fn() -> Data) -> Report {
    let mut report = Report { suite: "store", subject: subject.to_owned(), abilities: Vec::new(), cases: Vec::new() };
    let able = factory();
    report.abilities = Ability::ALL.into_iter().filter(|ability| able.is_able(*ability)).map(Ability::as_str).collect();
    for case in CASES {
        let began = Instant::now();
        let (verdict, note) = match case.needs.filter(|ability| !able.is_able(*ability)) {
            Some(lacking) => (Verdict::Skipped(lacking.as_str()), String::new()),
            None => run(case, factory(), options).await,
        };
        report.cases.push(CaseReport::new(case.name, verdict, began.elapsed(), note));
    }
    report
}

async fn run(case: &Case, data: Data, options: Options) -> (Verdict, String) {
    let rig = match Rig::new(data, options) {
        Ok(rig) => rig,
        Err(error) => return (Verdict::Failed(format!("fresh data could not be opened: {error}")), String::new()),
    };
    // In a task of its own, so that a store that panics fails its case alone.
    let mut running = tokio::spawn((case.run)(rig));
    match tokio::time::timeout(CASE_TIME, &mut running).await {
        Ok(Ok(Ok(note))) => (Verdict::Passed, note),
        Ok(Ok(Err(Failure(why)))) => (Verdict::Failed(why), String::new()),
        Ok(Err(broken)) => (Verdict::Failed(format!("broke: {broken}")), String::new()),
        Err(_) => {
            running.abort();
            (Verdict::Failed(format!("hung for {} s", CASE_TIME.as_secs())), String::new())
        }
    }
}
