//! The store in a sled folder: one process, so a second handle is the first one again.

use std::sync::Arc;

use agentrun_kernel::SledStore;
use agentrun_testing::suites::store::Data;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sled_store_conforms() {
    let skipped = [
        "f16_the_writer_of_a_rewound_epoch_is_refused_by_its_nonce",
        "f17_a_failed_sync_is_unknown_and_poisons_the_store",
        "f17_no_fence_is_told_that_was_not_synced",
        "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch",
        "f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut",
        "f17_a_refusal_rests_on_a_durable_epoch",
        "f17_a_conflict_rests_on_a_durable_record",
    ];
    crate::conforms("SledStore", crate::schedules(3_000), &skipped, || {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store");
        Data::new(move || Ok(Arc::new(SledStore::open(&path)?))).leaving().keep(folder)
    })
    .await;
}
