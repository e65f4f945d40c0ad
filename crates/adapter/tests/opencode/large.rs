//! A session of twenty megabytes: mirrored in records of bounded size, and restored whole.

use std::time::Instant;

use agentrun_adapter::TurnEnd;
use agentrun_kernel::Body;
use agentrun_testing::script::Step;
use serde_json::{Value, json};

use crate::harness::{result_sent, times_sent};
use crate::rig::{Rig, Work, calls};

/// Results of this many characters each.
const CHARACTERS: usize = 480_000;
const RESULTS: usize = 42;
/// Most bytes of one record of the history.
const BOUND: usize = 4 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn b17_b66_a_session_of_twenty_megabytes_is_mirrored_in_bounded_records_and_restored_whole() {
    let long = vec![("work", json!({"characters": CHARACTERS})); RESULTS];
    let rig = Rig::new(vec![calls(&long), Step::says("done"), Step::says("more")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let databases = ["", "-wal"].map(|end| owner.home().join(format!("data/opencode/opencode.db{end}")));
    let database: u64 = databases.iter().filter_map(|it| std::fs::metadata(it).ok()).map(|it| it.len()).sum();
    owner.close().await;
    let mut log = 0;
    for record in rig.records().await {
        if let Body::Native(write) = record.body {
            assert!(write.bytes.len() <= BOUND, "a record of {} bytes", write.bytes.len());
            log += write.bytes.len();
        }
    }
    assert!(log > CHARACTERS * RESULTS);

    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.ended && owner.survey.open_calls.is_empty());
    let turn = owner.place("and now?").await;
    let begun = Instant::now();
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    // Said, not judged: a machine that others use too gives any figure.
    eprintln!("log {log} bytes, database {database} bytes, started and restored and asked in {:?}", begun.elapsed());
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!((times_sent(&requests[2], "do it"), times_sent(&requests[2], "and now?")), (1, 1));
    // B17: whole as they are given, and whole from the records.
    for request in &requests[1..] {
        for at in 0..RESULTS {
            let result = result_sent(request, &format!("call_work_{at}"));
            assert_eq!(result.as_str().map(str::len), Some(CHARACTERS), "result {at}");
            assert_eq!(result, Value::String("x".repeat(CHARACTERS)));
        }
    }
}
