//! The suite proven: a store that keeps every promise passes every case, and each store that breaks one is caught by the case that says so.

use agentrun_testing::suites::store::{Options, conform_with};

use crate::toy::{Flaw, toy};

const RACE: &str = "b43_b44_racing_opens_and_appends_are_linearizable";

/// Each mutant and the case that must be among those that catch it.
const MUTANTS: &[(Flaw, &str)] = &[
    (Flaw::CheckThenWrite, RACE),
    (Flaw::PlaceThenWrite, "many_tasks_append_to_one_shared_log_and_none_is_lost"),
    (Flaw::FenceByClock, "b43_of_three_opens_only_the_last_writes"),
    (Flaw::FenceAllKeys, "b43_an_open_fences_no_writer_of_another_key"),
    (Flaw::FenceForgottenOnReopen, "b43_epochs_grow_over_reopen"),
    (Flaw::HalfABatch, "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch"),
    (Flaw::HalfOnConflict, "a_batch_whose_shared_part_conflicts_lands_in_neither_log"),
    (Flaw::AckBeforeSync, "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch"),
    (Flaw::SyncForgotten, "f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut"),
    (Flaw::RefusedBeforeSync, "f17_a_refusal_rests_on_a_durable_epoch"),
    (Flaw::NoNonce, "f16_the_writer_of_a_rewound_epoch_is_refused_by_its_nonce"),
    (Flaw::FailedSyncRefused, "f17_a_failed_sync_is_unknown_and_poisons_the_store"),
    (Flaw::PoisonForgotten, "f17_a_failed_sync_is_unknown_and_poisons_the_store"),
    (Flaw::ShownBeforeSync, "f18_readers_stop_before_records_that_are_not_synced"),
    (Flaw::ConflictFirst, "f02_the_fence_is_told_before_the_conflict"),
    (Flaw::HeadIgnored, "an_open_at_another_head_takes_nothing"),
    (Flaw::SealForgotten, "f22_a_sealed_session_is_not_opened_and_says_where_it_went"),
    (Flaw::DropCancels, "a_dropped_append_is_still_in_the_log"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_written_outside_the_kernel_conforms() {
    crate::conforms("a toy", crate::schedules(2_000), crate::leaving::CASES, || toy(Flaw::None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mutant_is_caught_by_the_case_that_names_its_fault() {
    let mut missed = Vec::new();
    println!("mutant                  caught by");
    // One after the other: a crowded machine has fewer of the meetings that races need.
    for (flaw, due) in MUTANTS {
        let options = Options { schedules: 1_000, ..Options::default() };
        let report = conform_with(options, &format!("{flaw:?}"), || toy(*flaw)).await;
        println!("{:<23} {}", report.subject, report.failed().join(", "));
        if !report.failed().contains(due) {
            missed.push(format!("{due} did not catch {flaw:?}:\n{report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
