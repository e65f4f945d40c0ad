//! A session talks to the model endpoint on loopback and to nobody else.

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::Step;
use serde_json::json;

use crate::rig::{Rig, Work, calls};

#[tokio::test(flavor = "multi_thread")]
async fn only_loopback_is_touched_from_start_to_end() {
    let traced =
        "exec strace -f -qq -e trace=connect,sendto,sendmsg,sendmmsg -o \"$(dirname \"$0\")/calls\" CODEX \"$@\"";
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]).with_program(traced);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let calls = std::fs::read_to_string(rig.scratch("calls")).unwrap();
    let internet: Vec<_> = calls.lines().filter(|line| line.contains("sa_family=AF_INET")).collect();
    assert!(!internet.is_empty(), "the model's requests must show, or nothing was traced:\n{calls}");
    for line in internet {
        assert!(line.contains("inet_addr(\"127.0.0.1\")"), "{line}");
    }
}
