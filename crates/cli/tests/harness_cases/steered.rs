//! A person's words sent while a turn runs, on the harnesses that take them there: in that turn, once, whatever is killed.

use std::fs;
use std::time::Instant;

use agentrun_testing::scripted::ScriptedModel;
use serde_json::{Value, json};

use crate::harness::{Harness, cases, seen};
use crate::later_turns::{follow_up, settle};
use crate::world::{Running, Tool, World, model, of_kind, outcomes_of, prompt_stands_once, until};

cases! {
    claude: c14_words_sent_while_a_tool_runs_are_in_that_turn_once_m33,
        c14_kill_9_at_any_moment_of_a_turn_that_words_were_sent_into_and_they_are_seen_once_b36_b38,
        c16_kill_9_and_a_settle_without_the_program_and_the_next_message_carries_the_words_b29_b37,
        c15_words_sent_as_the_answer_is_submitted_are_carried_by_the_next_follow_up_b37;
    codex: c14_words_sent_while_a_tool_runs_are_in_that_turn_once_m33,
        c14_kill_9_at_any_moment_of_a_turn_that_words_were_sent_into_and_they_are_seen_once_b36_b38,
        c16_kill_9_and_a_settle_without_the_program_and_the_next_message_carries_the_words_b29_b37,
        c15_words_sent_as_the_answer_is_submitted_are_carried_by_the_next_follow_up_b37;
}

/// Occurs nowhere else.
const WORDS: &str = "Add the four herons of the southern weir.";
const QUESTION: &str = "Which weirs were that?";

/// Moments between the placing of the words and the delivery; more of them under `--full`.
const MOMENTS: u32 = 8;
const MOMENTS_FULL: u32 = 24;

fn send(world: &World, words: &str) {
    let mut command = world.agentrun();
    command.args(["send", &world.session, words, "--id", "one", "--json", "--store", &world.store()]);
    let ended = Running::to_end(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn submits(herons: u32) -> Value {
    json!([{"name": "submit", "input": {"value": {"herons": herons}}}])
}

/// A model that counts, and submits 21 once it has read the words.
fn counting() -> ScriptedModel {
    model(json!([
        {"when": {"contains": WORDS}, "text": "So it is.", "tools": submits(21), "event_delay_ms": 10, "times": "always"},
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}], "times": "always"},
        {"tools": submits(17), "times": "always"},
    ]))
}

/// A node in whose tool the words were sent, and placed into its turn. The tool runs until it is let go.
fn told_in_a_call(world: &World, model: &ScriptedModel) -> (Tool, Running) {
    let work = world.tool("work", "never", Some("0.01"));
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    work.held();
    send(world, WORDS);
    steered(world);
    (work, running)
}

/// Waits until the words are placed into the turn that runs.
fn steered(world: &World) {
    until("the words are placed", || (of_kind(&world.records(), "placed").len() == 2).then_some(()));
    let records = world.records();
    let placed = of_kind(&records, "placed");
    assert_eq!(placed[0]["turn"], placed[1]["turn"], "into the turn that runs");
}

/// The words stand once in what the model is shown from some request on, and in none before it; the prompt in each.
fn words_stand_once(model: &ScriptedModel) {
    let requests = model.requests();
    prompt_stands_once(&requests);
    let times: Vec<usize> = requests.iter().map(|request| seen(request).matches(WORDS).count()).collect();
    assert!(times.iter().all(|times| *times <= 1) && times.is_sorted() && times.last() == Some(&1), "{times:?}");
}

fn c14_words_sent_while_a_tool_runs_are_in_that_turn_once_m33(on: Harness) {
    let world = World::new(on);
    let model = counting();
    let (work, running) = told_in_a_call(&world, &model);
    work.release();
    running.wait().delivered(21);
    words_stand_once(&model);
    assert_eq!((model.requests().len(), work.runs().len()), (2, 1), "the words cost no request of their own");
    let records = world.records();
    assert_eq!((of_kind(&records, "placed").len(), of_kind(&records, "turn_end").len()), (2, 1));
    world.check();
}

fn c14_kill_9_at_any_moment_of_a_turn_that_words_were_sent_into_and_they_are_seen_once_b36_b38(on: Harness) {
    let moments = if std::env::var_os("AGENTRUN_FULL").is_some() { MOMENTS_FULL } else { MOMENTS };
    let whole = {
        let world = World::new(on);
        let model = counting();
        let (work, running) = told_in_a_call(&world, &model);
        let begun = Instant::now();
        work.release();
        running.wait().delivered(21);
        begun.elapsed()
    };
    let mut met = 0;
    for moment in 0..moments {
        let world = World::new(on);
        let model = counting();
        let (work, running) = told_in_a_call(&world, &model);
        let after = whole * moment / moments;
        let at = format!("cut after {after:?}");
        work.release();
        std::thread::sleep(after);
        let (_, ended) = running.kill_9();
        met += u32::from(ended.code.is_none());
        let result = Running::to_end(world.run(&model.base_url())).delivered(21);
        assert_eq!(work.runs().len(), 1, "{at}: a never tool ran again");
        words_stand_once(&model);
        // A submit that was cut before its value was recorded is told as interrupted, and the model submits once more.
        let records = world.records();
        let again = outcomes_of(&records, "submit").iter().filter(|it| it["end"] == "interrupted").count();
        let requests = model.requests().len();
        assert!(requests <= 3 + again.min(1), "{at}: {requests} requests, of which one can have been cut");
        let once_more = Running::to_end(world.run(&model.base_url())).delivered(21);
        assert_eq!((once_more["usd"].clone(), model.requests().len()), (result["usd"].clone(), requests), "{at}");
        world.check();
    }
    assert!(met * 2 > moments, "only {met} of {moments} kills met somebody alive");
}

fn c15_words_sent_as_the_answer_is_submitted_are_carried_by_the_next_follow_up_b37(on: Harness) {
    let mut world = World::new(on);
    let (reviewing, hold) = (world.path("reviewing"), world.path("hold"));
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ntouch '{}'\nwhile [ -e '{}' ]; do sleep 0.05; done\n",
        reviewing.display(),
        hold.display()
    );
    world.program("tools/review.sh", &script);
    world.node = json!({"review": {"command": ["../tools/review.sh"]}});
    fs::write(&hold, "").unwrap();
    let model = model(json!([
        {"when": {"contains": QUESTION}, "text": "Both of them.", "times": "always"},
        {"tools": submits(17), "times": "always"},
    ]));
    let running = Running::start(world.run(&model.base_url()));
    until("the answer is reviewed", || reviewing.exists().then_some(()));
    send(&world, WORDS);
    steered(&world);
    fs::remove_file(&hold).unwrap();
    running.wait().delivered(17);
    assert_eq!(model.requests().len(), 1, "the answer stands");
    let records = world.records();
    let unsent = of_kind(&records, "settled");
    assert_eq!(unsent[0]["unsent"].as_array().map(Vec::len), Some(1), "{unsent:?}");

    let told = Running::to_end(follow_up(&world, "which", QUESTION));
    assert_eq!(told.result()["text"], "Both of them.", "{told:?}");
    assert_eq!(model.requests().len(), 2);
    words_stand_once(&model);
    world.check();
}

fn c16_kill_9_and_a_settle_without_the_program_and_the_next_message_carries_the_words_b29_b37(on: Harness) {
    let mut world = World::new(on);
    let model = counting();
    let (work, running) = told_in_a_call(&world, &model);
    running.kill_9();
    let harness = world.harness.clone();
    let (program, noted) = world.noting_program();
    world.harness = program;
    settle(&world);
    assert!(!noted.exists(), "no program was started");
    let records = world.records();
    let unsent = of_kind(&records, "settled");
    assert_eq!(unsent[0]["unsent"].as_array().map(Vec::len), Some(1), "{unsent:?}");

    work.release();
    world.harness = harness;
    Running::to_end(world.run(&model.base_url())).delivered(21);
    words_stand_once(&model);
    assert_eq!((model.requests().len(), work.runs().len()), (2, 1), "the settled turn goes no further");
    world.check();
}
