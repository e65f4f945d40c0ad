//! Cases 1 and 2: a node delivers on the real program, and once delivered is answered from its records.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::marked;
use crate::world::{Running, World, model, outcomes_of, prompt_stands_once, submits_after};

cases! {
    claude: c01_a_node_with_a_paid_tool_delivers_and_leaves_no_process_b2_b3_b50,
        c02_the_same_command_again_gives_the_same_value_and_starts_and_pays_nothing_b12;
    codex: c01_a_node_with_a_paid_tool_delivers_and_leaves_no_process_b2_b3_b50,
        c02_the_same_command_again_gives_the_same_value_and_starts_and_pays_nothing_b12;
    opencode: c01_a_node_with_a_paid_tool_delivers_and_leaves_no_process_b2_b3_b50,
        c02_the_same_command_again_gives_the_same_value_and_starts_and_pays_nothing_b12;
    opencode_messages: c01_a_node_with_a_paid_tool_delivers_and_leaves_no_process_b2_b3_b50,
        c02_the_same_command_again_gives_the_same_value_and_starts_and_pays_nothing_b12;
}

fn c01_a_node_with_a_paid_tool_delivers_and_leaves_no_process_b2_b3_b50(on: Harness) {
    let world = World::plain(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "text": "I count.", "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ]));
    let ended = Running::to_end(world.run(&model.base_url()));
    let result = ended.delivered(17);
    assert_eq!(marked(&world.session), []);
    // OpenCode leaves a library of 6 MB at each start; what a harness leaves goes with its folders.
    assert_eq!(libraries_below(&world.path("")), Vec::<PathBuf>::new());
    assert_eq!(work.runs(), [json!({"weir": "north"})]);
    let requests = model.requests();
    assert!((2..=3).contains(&requests.len()), "{} paid requests", requests.len());
    prompt_stands_once(&requests);
    assert_eq!(result["unknown_usd"], "0");
    assert_eq!(outcomes_of(&world.records(), "work")[0]["text"], "work counted 17 herons\n");
    world.check();
}

fn c02_the_same_command_again_gives_the_same_value_and_starts_and_pays_nothing_b12(on: Harness) {
    let mut world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ]));
    let first = Running::to_end(world.run(&model.base_url())).delivered(17);
    let (records, requests) = (world.records(), model.all_requests().len());

    let (program, noted) = world.noting_program();
    world.harness = program.clone();
    world.key = None;
    let mut again = world.run(&model.base_url());
    again.env("PATH", format!("{}:/usr/bin:/bin", program.parent().unwrap().display()));
    let again = Running::to_end(again);
    assert_eq!(again.delivered(17), first);
    assert!(!noted.exists(), "{}", std::fs::read_to_string(noted).unwrap());
    assert_eq!(model.all_requests().len(), requests);
    assert_eq!(work.runs().len(), 1);
    assert_eq!(world.records(), records, "an answer from the records writes nothing");

    // The same with nothing left of the provider and the harness, from the key alone.
    drop(model);
    let mut resume = world.agentrun();
    resume.args(["resume", &world.session, "--json", "--store", &world.store()]);
    assert_eq!(Running::to_end(resume).delivered(17), first);
    assert!(!noted.exists());
    world.check();
}

fn libraries_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { libraries_below(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|it| it == "so")).collect()
}
