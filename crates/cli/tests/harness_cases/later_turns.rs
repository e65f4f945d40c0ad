//! Turns behind a settle and behind the answer, on the real program: its own history is made to show the end of what was cut, so that it
//! takes nothing up by itself.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Harness, cases, results, seen};
use crate::world::{Running, World, asked, model, of_kind, outcomes_of, prompt_stands_once, submits_after};

cases! {
    claude: c11_a_follow_up_asks_the_delivered_session_one_thing_more_and_once_b56_b57,
        c12_kill_9_in_a_tool_and_a_settle_without_the_program_then_a_turn_of_its_own_b28_b29,
        c13_kill_9_in_a_follow_up_stays_interrupted_and_the_next_one_asks_for_itself_alone_b58_b59;
    codex: c11_a_follow_up_asks_the_delivered_session_one_thing_more_and_once_b56_b57,
        c12_kill_9_in_a_tool_and_a_settle_without_the_program_then_a_turn_of_its_own_b28_b29,
        c13_kill_9_in_a_follow_up_stays_interrupted_and_the_next_one_asks_for_itself_alone_b58_b59;
    opencode: c11_a_follow_up_asks_the_delivered_session_one_thing_more_and_once_b56_b57,
        c12_kill_9_in_a_tool_and_a_settle_without_the_program_then_a_turn_of_its_own_b28_b29,
        c13_kill_9_in_a_follow_up_stays_interrupted_and_the_next_one_asks_for_itself_alone_b58_b59;
    opencode_messages: c11_a_follow_up_asks_the_delivered_session_one_thing_more_and_once_b56_b57,
        c12_kill_9_in_a_tool_and_a_settle_without_the_program_then_a_turn_of_its_own_b28_b29,
        c13_kill_9_in_a_follow_up_stays_interrupted_and_the_next_one_asks_for_itself_alone_b58_b59;
}

const QUESTION: &str = "Which weir was that?";

pub(crate) fn follow_up(world: &World, name: &str, prompt: &str) -> Command {
    let mut command = world.agentrun();
    command.args(["follow-up", &world.session, "--name", name, "--prompt", prompt, "--reserve", "3", "--json"]);
    command.args(["--store", &world.store()]);
    command
}

pub(crate) fn settle(world: &World) -> Value {
    let mut command = world.agentrun();
    command.args(["settle", &world.session, "--json", "--store", &world.store()]);
    let ended = Running::to_end(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.result()
}

/// A model that calls the tool, submits, and knows which weir it was.
fn steps() -> Value {
    json!([
        {"when": {"contains": QUESTION}, "text": "The northern one.", "times": "always"},
        {"when": {"contains": "Say no more."}, "stall_after_events": 1},
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ])
}

fn c11_a_follow_up_asks_the_delivered_session_one_thing_more_and_once_b56_b57(on: Harness) {
    let mut world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(steps());
    Running::to_end(world.run(&model.base_url())).delivered(17);
    let before = model.requests().len();

    let first = Running::to_end(follow_up(&world, "which", QUESTION));
    assert_eq!(first.code, Some(0), "{first:?}");
    let result = first.result();
    assert_eq!((&result["end"], &result["text"]), (&json!("ok"), &json!("The northern one.")), "{first:?}");
    let requests = model.requests();
    assert_eq!(requests.len(), before + 1, "one paid request");
    prompt_stands_once(&requests);
    let last = seen(requests.last().unwrap());
    assert_eq!(last.matches(QUESTION).count(), 1, "{last}");
    assert!(results(requests.last().unwrap()).contains("17 herons"), "the session's own history: {last}");

    let (program, noted) = world.noting_program();
    (world.harness, world.key) = (program, None);
    let records = world.records();
    let again = Running::to_end(follow_up(&world, "which", QUESTION)).result();
    assert_eq!((&again["text"], &again["from_records"]), (&json!("The northern one."), &json!(true)));
    assert!(!noted.exists(), "no program was started");
    assert_eq!((world.records(), model.requests().len(), work.runs().len()), (records, before + 1, 1));
    world.check();
}

fn c12_kill_9_in_a_tool_and_a_settle_without_the_program_then_a_turn_of_its_own_b28_b29(on: Harness) {
    let mut world = World::new(on);
    let work = world.tool("work", "safe", None);
    let model = model(steps());
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    work.held();
    running.kill_9();
    let real = world.harness.clone();
    let (program, noted) = world.noting_program();
    world.harness = program;
    let settled = settle(&world);
    assert_eq!((&settled["how"], &settled["interrupted"]), (&json!("interrupted"), &json!(["work"])));
    assert!(!noted.exists(), "no program was started");
    assert_eq!(model.requests().len(), 1);

    work.release();
    world.harness = real;
    Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!(work.runs().len(), 1, "a settled turn's call ran again");
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "the program took the settled turn up by itself");
    prompt_stands_once(&requests);
    let last = seen(&requests[1]);
    assert!(last.contains("`submit` tool"), "{last}");
    let records = world.records();
    let told = outcomes_of(&records, "work")[0]["text"].as_str().unwrap();
    assert!(results(&requests[1]).contains(told), "{last}");
    assert_eq!(of_kind(&records, "placed").len(), 2);
    world.check();
}

fn c13_kill_9_in_a_follow_up_stays_interrupted_and_the_next_one_asks_for_itself_alone_b58_b59(on: Harness) {
    let world = World::new(on);
    let _work = world.tool("work", "never", Some("0.01"));
    let model = model(steps());
    Running::to_end(world.run(&model.base_url())).delivered(17);
    let before = model.requests().len();
    let running = Running::start(follow_up(&world, "cut", "Say no more."));
    asked(&model, before + 1);
    running.kill_9();

    let again = Running::to_end(follow_up(&world, "cut", "Say no more."));
    assert_eq!((again.code, &again.result()["end"]), (Some(3), &json!("interrupted")), "{again:?}");
    assert_eq!(model.requests().len(), before + 1, "it was asked again");
    let other = Running::to_end(follow_up(&world, "which", QUESTION));
    assert_eq!(other.result()["text"], "The northern one.", "{other:?}");
    let requests = model.requests();
    assert_eq!(requests.len(), before + 2, "the program took the cut turn up by itself");
    prompt_stands_once(&requests);
    assert_eq!(of_kind(&world.records(), "withdrawn")[0]["ids"], json!(["follow-up:name:cut"]));
    world.check();
}
