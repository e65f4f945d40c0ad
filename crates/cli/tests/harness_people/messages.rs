//! A person's words reach the model exactly once: sent while a tool runs, sent and cut, sent and taken back.

use agentrun_testing::scripted::ScriptedModel;
use serde_json::{Value, json};

use crate::harness::{Harness, cases, seen};
use crate::world::{Running, Tool, World, model, of_kind, prompt_stands_once, until};

cases! {
    claude: b71_words_sent_while_a_tool_runs_are_seen_once_and_heeded,
        b71_kill_9_between_the_sending_and_the_taking_loses_no_words_and_says_none_twice,
        b71_b38_kill_9_as_they_are_taken_loses_no_words_and_says_none_twice,
        m33_words_taken_back_in_time_are_never_seen;
    codex: b71_words_sent_while_a_tool_runs_are_seen_once_and_heeded,
        b71_kill_9_between_the_sending_and_the_taking_loses_no_words_and_says_none_twice,
        b71_b38_kill_9_as_they_are_taken_loses_no_words_and_says_none_twice,
        m33_words_taken_back_in_time_are_never_seen;
    opencode: b71_words_sent_while_a_tool_runs_are_seen_once_and_heeded,
        b71_kill_9_between_the_sending_and_the_taking_loses_no_words_and_says_none_twice,
        b71_b38_kill_9_as_they_are_taken_loses_no_words_and_says_none_twice,
        m33_words_taken_back_in_time_are_never_seen;
}

/// Occurs nowhere else.
const WORDS: &str = "Add the four herons of the southern weir.";

/// A model that counts, says what it found, and submits 21 once it has read the words, or 17 when it is reminded.
fn counting() -> ScriptedModel {
    let submits = |herons: u32| json!([{"name": "submit", "input": {"value": {"herons": herons}}}]);
    model(json!([
        {"when": {"contains": WORDS}, "tools": submits(21), "times": "always"},
        {"when": {"contains": "`submit` tool"}, "tools": submits(17), "times": "always"},
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}], "times": "always"},
        {"text": "I counted 17 herons.", "times": "always"},
    ]))
}

fn person(world: &World, args: &[&str]) -> Value {
    let mut command = world.agentrun();
    command.args(args).args(["--json", "--store", &world.store()]);
    let ended = Running::to_end(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.result()
}

fn send(world: &World, id: &str, words: &str) -> Value {
    person(world, &["send", &world.session, words, "--id", id])
}

/// A node whose tool runs until it is let go.
fn in_a_call(world: &World, model: &ScriptedModel) -> (Tool, Running) {
    let work = world.tool("work", "safe", None);
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    work.held();
    (work, running)
}

/// The words stand once in what the model is shown from some request on, and in none before it; the prompt in each.
fn words_stand_once(model: &ScriptedModel, words: &str) {
    let requests = model.requests();
    prompt_stands_once(&requests);
    let times: Vec<usize> = requests.iter().map(|request| seen(request).matches(words).count()).collect();
    assert_eq!(times.iter().max(), Some(&1), "{times:?}");
    assert!(times.is_sorted(), "shown, and then no more: {times:?}");
}

fn b71_words_sent_while_a_tool_runs_are_seen_once_and_heeded(on: Harness) {
    let world = World::new(on);
    let model = counting();
    let (work, running) = in_a_call(&world, &model);
    let sent = send(&world, "one", WORDS);
    assert_eq!((&sent["state"], &sent["again"]), (&json!("waiting"), &json!(false)), "{sent}");
    assert_eq!(send(&world, "one", WORDS)["again"], true);
    work.release();
    running.wait().delivered(21);
    words_stand_once(&model, WORDS);
    assert_eq!(work.runs().len(), 1);
    assert_eq!(send(&world, "one", WORDS)["state"], "taken");
    let persons = of_kind(&world.records(), "submission").into_iter().filter(|it| it["source"] == "person").count();
    assert_eq!(persons, 1);
    world.check();
}

fn b71_kill_9_between_the_sending_and_the_taking_loses_no_words_and_says_none_twice(on: Harness) {
    let world = World::new(on);
    let model = counting();
    let (work, running) = in_a_call(&world, &model);
    send(&world, "one", WORDS);
    running.kill_9();
    assert_eq!(send(&world, "one", WORDS)["again"], true, "it waits for the next owner");
    work.release();
    Running::to_end(world.run(&model.base_url())).delivered(21);
    words_stand_once(&model, WORDS);
    world.check();
}

/// Wherever the kill lands behind the taking: before the message is placed, on its way to the program, in the request it is part of.
fn b71_b38_kill_9_as_they_are_taken_loses_no_words_and_says_none_twice(on: Harness) {
    let world = World::new(on);
    let model = counting();
    let (work, running) = in_a_call(&world, &model);
    send(&world, "one", WORDS);
    work.release();
    until("the words are taken", || {
        running.events().iter().any(|event| event["type"] == "message" && event["id"] == "one").then_some(())
    });
    running.kill_9();
    Running::to_end(world.run(&model.base_url())).delivered(21);
    words_stand_once(&model, WORDS);
    let persons = of_kind(&world.records(), "submission").into_iter().filter(|it| it["source"] == "person").count();
    assert_eq!(persons, 1);
    world.check();
}

fn m33_words_taken_back_in_time_are_never_seen(on: Harness) {
    let world = World::new(on);
    let model = counting();
    let (work, running) = in_a_call(&world, &model);
    // Nobody owns the session: a turn that takes words would have them at once.
    running.kill_9();
    send(&world, "wrong", "Forget the herons.");
    let retracted = person(&world, &["retract", &world.session, "wrong"]);
    assert_eq!((&retracted["state"], &retracted["again"]), (&json!("retracted"), &json!(false)), "{retracted}");
    work.release();
    Running::to_end(world.run(&model.base_url())).delivered(17);
    for request in model.requests() {
        assert!(!seen(&request).contains("Forget the herons."));
    }
    world.check();
}
