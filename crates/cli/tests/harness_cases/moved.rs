//! A killed session leaves its store as a file and goes on from it, on the real program: moved to another store, and as a copy.

use std::process::Command;

use serde_json::json;

use crate::harness::{Harness, cases, results};
use crate::processes::marked;
use crate::world::{Running, World, model, prompt_stands_once, submits_after, until};

cases! {
    claude: f22_a_killed_session_moves_to_another_store_and_goes_on_without_running_or_sending_twice,
        f22_a_copy_of_a_killed_session_goes_on_by_itself_beside_the_original;
    codex: f22_a_killed_session_moves_to_another_store_and_goes_on_without_running_or_sending_twice,
        f22_a_copy_of_a_killed_session_goes_on_by_itself_beside_the_original;
}

fn at(world: &World, store: &str, args: &[&str]) -> Command {
    let mut command = world.agentrun();
    command.args(args).args(["--store", &format!("sqlite:{}", world.path(store).join("agentrun.db").display())]);
    command
}

fn ends_well(command: Command) {
    let mut command = command;
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Kills the run in its `never` tool, and lets the tool go from then on.
fn killed_in_the_tool(world: &World, base_url: &str) -> crate::world::Tool {
    let work = world.tool("work", "never", Some("0.01"));
    work.hold();
    let running = Running::start(world.run(base_url));
    work.held();
    running.kill_9();
    until("all of it is gone", || marked(&world.session).is_empty().then_some(()));
    work.release();
    work
}

fn f22_a_killed_session_moves_to_another_store_and_goes_on_without_running_or_sending_twice(on: Harness) {
    let world = World::new(on);
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
    ]));
    let work = killed_in_the_tool(&world, &model.base_url());
    ends_well(at(&world, "store", &["export", &world.session, "moved.jsonl", "--seal-to", "another machine"]));
    // Nothing of the first machine but the file.
    for gone in ["store", "home", "tmp"] {
        std::fs::remove_dir_all(world.path(gone)).unwrap();
    }
    for new in ["home", "tmp"] {
        std::fs::create_dir(world.path(new)).unwrap();
    }
    ends_well(at(&world, "elsewhere", &["import", "moved.jsonl"]));
    Running::to_end(at(&world, "elsewhere", &["resume", &world.session, "--json"])).delivered(17);
    assert_eq!(work.runs().len(), 1, "a never tool ran again");
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "one answer before the move, one after it");
    prompt_stands_once(&requests);
    assert!(results(&requests[1]).contains("not run again"), "the model is told that its call was cut");
    ends_well(at(&world, "elsewhere", &["show", &world.session, "--check"]));
}

fn f22_a_copy_of_a_killed_session_goes_on_by_itself_beside_the_original(on: Harness) {
    let world = World::new(on);
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
        submits_after(1),
    ]));
    let work = killed_in_the_tool(&world, &model.base_url());
    ends_well(at(&world, "store", &["export", &world.session, "copy.jsonl"]));
    let copy = format!("{}-copy", world.session);
    ends_well(at(&world, "store", &["import", "copy.jsonl", "--as", &copy]));
    for session in [&copy, &world.session] {
        Running::to_end(at(&world, "store", &["resume", session, "--json"])).delivered(17);
        ends_well(at(&world, "store", &["show", session, "--check"]));
    }
    assert_eq!(work.runs().len(), 1, "neither ran the tool again");
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[1..].iter().all(|request| results(request).contains("not run again")));
}
