//! The example of a workflow host is run as it stands: offline, and again from its records.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

#[allow(dead_code, reason = "its main is for a person")]
#[path = "../../../examples/embed.rs"]
mod embed;

use embed::{Reply, Triage, workflow};

#[tokio::test]
async fn b01_b05_b78_the_embed_example_brings_its_two_nodes_to_their_values_and_answers_them_again_from_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let (triage, reply) = workflow(folder.path()).await.unwrap();
    assert_eq!(triage.value, Triage { severity: "high".to_owned(), component: "login".to_owned() });
    assert_eq!(reply.value, Reply { text: "The login is down. We are on it.".to_owned() });
    assert_eq!(
        (triage.spent.unknown_count, reply.spent.unknown_count),
        (1, 0),
        "the request that failed counts in full"
    );
    assert!(!triage.from_records && !reply.from_records);

    let again = workflow(folder.path()).await.unwrap();
    assert!(again.0.from_records && again.1.from_records);
    assert_eq!((again.0.spent, again.1.spent), (triage.spent, reply.spent), "nothing is paid for it");
}

#[test]
fn the_readme_names_the_example() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    assert!(readme.contains("examples/embed.rs") && readme.contains("--example embed"));
}
