//! What the program asks is answered, each of it: a request that nobody answers holds its turn for ever. The program here is a script that
//! asks all there is to ask, which the real one would only do with features that are off.

use std::collections::BTreeMap;
use std::time::Duration;

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::Step;
use serde_json::{Value, json};

use crate::protocol::ASKED;
use crate::rig::{Rig, Work};

/// Far above what a loaded machine needs; a hang is what fails it.
const BOUND: Duration = Duration::from_secs(60);

/// Starts as the real one does; a thread whose rollout holds what `lines` says.
fn ready(lines: &[Value]) -> String {
    let lines: String = lines.iter().map(|line| format!("echo '{line}' >> \"$file\"\n")).collect();
    format!(
        r#"
        read line; echo '{{"id":1,"result":{{}}}}'; read line; read line
        folder="$HOME/codex/sessions/2026/11/30"; file="$folder/rollout-2026-11-30T09-00-00-thread.jsonl"; mkdir -p "$folder"
        echo "{{\"id\":2,\"result\":{{\"thread\":{{\"id\":\"thread\",\"path\":\"$file\"}}}}}}"
        read placed; echo '{{"id":3,"result":{{"turn":{{"id":"t"}}}}}}'
        {lines}"#
    )
}

/// Asks and waits for the next line, which is kept.
fn ask(request: &Value) -> String {
    format!("echo '{request}'; read line; echo \"$line\" >> told\n")
}

const END: &str = r#"
    echo '{"method":"turn/completed","params":{"turn":{"id":"t","status":"completed","error":null}}}'
    read line
"#;

/// What the program was told, line by line, in a turn that this script plays.
async fn told(rig: &Rig) -> Vec<Value> {
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("it waits for an answer");
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.crash().await;
    let told = std::fs::read_to_string(rig.workspace.path().join("told")).unwrap();
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_but_a_call_is_declined_at_once_in_the_programs_own_words_or_as_an_error() {
    let calls = ["item/tool/call", "item/commandExecution/requestApproval", "item/fileChange/requestApproval"];
    let others = ASKED.iter().filter(|method| !calls.contains(method));
    let others: Vec<&str> = others.copied().chain(["something/new"]).collect();
    let asked = others.iter().enumerate();
    let script: String =
        asked.map(|(id, method)| ask(&json!({"id": id, "method": method, "params": {"threadId": "thread"}}))).collect();
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&(ready(&[]) + &script + END));
    let told = told(&rig).await;
    let answers: BTreeMap<&str, &Value> = others.iter().copied().zip(&told).collect();
    assert_eq!(told.len(), others.len(), "one answer each");
    for (id, answer) in told.iter().enumerate() {
        assert_eq!(answer["id"], id, "under its own id");
    }
    for (method, no) in [
        ("mcpServer/elicitation/request", json!({"action": "decline"})),
        ("item/permissions/requestApproval", json!({"permissions": {}})),
        ("item/tool/requestUserInput", json!({"answers": {}})),
        ("execCommandApproval", json!({"decision": "denied"})),
        ("applyPatchApproval", json!({"decision": "denied"})),
    ] {
        assert_eq!(answers[method]["result"], no, "{method}");
    }
    for method in ["account/chatgptAuthTokens/refresh", "attestation/generate", "something/new"] {
        assert!(answers[method]["error"]["message"].as_str().unwrap().contains(method), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_or_an_approval_that_does_not_say_which_is_declined_and_nobody_is_asked() {
    let script: String = ["item/tool/call", "item/commandExecution/requestApproval", "item/fileChange/requestApproval"]
        .iter()
        .enumerate()
        .map(|(id, method)| ask(&json!({"id": id, "method": method, "params": {"tool": "work"}})))
        .collect();
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&(ready(&[]) + &script + END));
    let told = told(&rig).await;
    assert!(told[0]["error"].is_object(), "{}", told[0]);
    assert_eq!(
        (&told[1]["result"], &told[2]["result"]),
        (&json!({"decision": "decline"}), &json!({"decision": "decline"}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_given_by_the_hosts_list_and_a_denied_one_is_told_why_before_it_is_declined() {
    let call = |id: &str, command: &str| {
        let arguments = json!({"cmd": command}).to_string();
        let made =
            json!({"type": "function_call", "id": id, "call_id": id, "name": "exec_command", "arguments": arguments});
        json!({"type": "response_item", "payload": made})
    };
    let lines =
        [json!({"type": "session_meta", "payload": {"id": "thread"}}), call("yes", "true"), call("no", "forbidden")];
    let approval = |id: u64, call: &str| json!({"id": id, "method": "item/commandExecution/requestApproval", "params": {"itemId": call, "kind": "command"}});
    let output = json!({"type": "response_item", "payload": {"type": "function_call_output", "call_id": "yes", "output": "ran"}});
    let script = ready(&lines)
        + &ask(&approval(0, "yes"))
        + &format!("echo '{output}' >> \"$file\"\n")
        + &ask(&approval(1, "no"))
        // Ours puts the reason into the history first. Its id is the next of ours.
        + "echo '{\"id\":4,\"result\":{}}'; read line; echo \"$line\" >> told\n"
        + END;
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&script).with_builtins(&["exec_command"]);
    let told = told(&rig).await;
    assert_eq!(told[0], json!({"id": 0, "result": {"decision": "accept"}}));
    assert_eq!((&told[1]["method"], &told[1]["id"]), (&json!("thread/inject_items"), &json!(4)));
    let item = &told[1]["params"]["items"][0];
    assert_eq!((&item["role"], &told[1]["params"]["threadId"]), (&json!("developer"), &json!("thread")));
    assert!(item["content"][0]["text"].as_str().unwrap().contains("not here"), "{item}");
    assert_eq!(told[2], json!({"id": 1, "result": {"decision": "decline"}}));
    assert_eq!(rig.outcomes().await.len(), 1, "only what ran is an effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_before_the_first_turn_is_declined_too() {
    let early = json!({"id": 0, "method": "mcpServer/elicitation/request", "params": {}});
    let script =
        format!("read line\n{}", ask(&early)) + "echo '{\"id\":1,\"result\":{}}'; read line; read line; exit 0";
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(&script);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("it waits for an answer").unwrap_err();
    owner.crash().await;
    let told: Value =
        serde_json::from_str(&std::fs::read_to_string(rig.workspace.path().join("told")).unwrap()).unwrap();
    assert_eq!(told, json!({"id": 0, "result": {"action": "decline"}}));
}
