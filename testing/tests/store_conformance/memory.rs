//! B47: the store in memory. It has no disk to fail or to be restored.

use std::sync::Arc;

use agentrun_kernel::MemoryStore;
use agentrun_testing::suites::store::{Data, SCHEDULES};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b47_the_memory_store_conforms() {
    let skipped = [
        "f16_the_writer_of_a_rewound_epoch_is_refused_by_its_nonce",
        "f17_a_failed_sync_is_unknown_and_poisons_the_store",
        "f17_no_fence_is_told_that_was_not_synced",
        "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch",
        "f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut",
        "f17_a_refusal_rests_on_a_durable_epoch",
        "f17_a_conflict_rests_on_a_durable_record",
    ];
    crate::conforms("MemoryStore", SCHEDULES, &skipped, || {
        let first = MemoryStore::new().unwrap();
        Data::new(move || Ok(Arc::new(first.again()?))).beside().leaving()
    })
    .await;
}
