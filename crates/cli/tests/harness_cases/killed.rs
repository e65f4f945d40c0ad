//! Cases 3 to 6: `kill -9` of the program at its worst moments. What runs below it must go, and a resume must neither do nor pay again
//! what was done or paid.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Harness, cases, results, seen};
use crate::processes::{Process, below, marked};
use crate::world::{
    PROMPT, Running, Tool, World, asked, copy_files, model, of_kind, outcomes_of, prompt_stands_once, submits_after,
    until, within,
};

cases! {
    claude: c03_kill_9_while_a_never_tool_sleeps_and_a_resume_does_not_run_it_again_b13_b14_b53_b68,
        c03_a_killed_run_resumes_from_a_copy_of_nothing_but_its_store_b2_b27,
        c04_kill_9_while_a_safe_tool_sleeps_and_a_resume_runs_it_with_the_stored_arguments_b13_b52,
        c05_kill_9_while_a_response_streams_asks_that_one_request_anew_and_tells_its_spend_as_unknown_b13_b14,
        c05_kill_9_while_a_response_streams_on_behind_a_whole_call_has_run_nothing_of_it_b13_b14_b50,
        c06_kill_9_between_a_tools_outcome_and_the_next_request_and_the_model_sees_the_recorded_text_b13_b14_b17,
        c06_kill_9_while_the_next_request_waits_asks_only_that_one_anew_b13_b14;
    codex: c03_kill_9_while_a_never_tool_sleeps_and_a_resume_does_not_run_it_again_b13_b14_b53_b68,
        c03_a_killed_run_resumes_from_a_copy_of_nothing_but_its_store_b2_b27,
        c04_kill_9_while_a_safe_tool_sleeps_and_a_resume_runs_it_with_the_stored_arguments_b13_b52,
        c05_kill_9_while_a_response_streams_asks_that_one_request_anew_and_tells_its_spend_as_unknown_b13_b14,
        c06_kill_9_between_a_tools_outcome_and_the_next_request_and_the_model_sees_the_recorded_text_b13_b14_b17,
        c06_kill_9_while_the_next_request_waits_asks_only_that_one_anew_b13_b14;
    opencode: c03_kill_9_while_a_never_tool_sleeps_and_a_resume_does_not_run_it_again_b13_b14_b53_b68,
        c03_a_killed_run_resumes_from_a_copy_of_nothing_but_its_store_b2_b27,
        c04_kill_9_while_a_safe_tool_sleeps_and_a_resume_runs_it_with_the_stored_arguments_b13_b52,
        c05_kill_9_while_a_response_streams_asks_that_one_request_anew_and_tells_its_spend_as_unknown_b13_b14,
        c06_kill_9_between_a_tools_outcome_and_the_next_request_and_the_model_sees_the_recorded_text_b13_b14_b17,
        c06_kill_9_while_the_next_request_waits_asks_only_that_one_anew_b13_b14;
    opencode_messages: c03_kill_9_while_a_never_tool_sleeps_and_a_resume_does_not_run_it_again_b13_b14_b53_b68,
        c04_kill_9_while_a_safe_tool_sleeps_and_a_resume_runs_it_with_the_stored_arguments_b13_b52,
        c05_kill_9_while_a_response_streams_asks_that_one_request_anew_and_tells_its_spend_as_unknown_b13_b14,
        c06_kill_9_between_a_tools_outcome_and_the_next_request_and_the_model_sees_the_recorded_text_b13_b14_b17;
}

/// From the kill until everything below the program is gone: two seconds, and far more where the machine has no time to give.
const GUARD: Duration = Duration::from_secs(60);

/// Events of a streamed answer up to the end of its first call, when its arguments are `{"weir":"north"}`: message_start, the block's
/// start, ping, an empty piece of arguments, two pieces, the block's stop.
const CALL: usize = 7;

/// Kills a program whose tool is held, and sees the harness, its children and the tool gone in time.
fn kill_in_the_tool(world: &World, running: Running, tool: &Tool) {
    let mut processes = tool.held();
    assert_eq!(processes.len(), 2, "the tool and what it started");
    let mine = below(running.process().pid);
    assert!(processes.iter().all(|it| mine.contains(it)), "{processes:?} are not all of {mine:?}");
    assert!(mine.contains(&world.harness_below(&running)));
    processes.extend(mine);
    let (killed, _) = running.kill_9();
    within("the harness, its children and the tool are gone", GUARD, killed, || {
        processes.retain(Process::alive);
        (processes.is_empty() && marked(&world.session).is_empty()).then_some(())
    });
}

fn resume(world: &World) -> std::process::Command {
    let mut command = world.agentrun();
    command.args(["resume", &world.session, "--json", "--store", &world.store()]);
    command
}

fn c03_kill_9_while_a_never_tool_sleeps_and_a_resume_does_not_run_it_again_b13_b14_b53_b68(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
    ]));
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    kill_in_the_tool(&world, running, &work);
    assert_eq!(model.all_requests().len(), 1);

    work.release();
    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!(work.runs().len(), 1, "a never tool ran again");
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    let records = world.records();
    let outcomes = outcomes_of(&records, "work");
    assert_eq!((outcomes.len(), &outcomes[0]["end"]), (1, &json!("interrupted")));
    let told = outcomes[0]["text"].as_str().unwrap();
    let seen = seen(&requests[1]);
    assert!(
        results(&requests[1]).contains(told) && told.contains("not run again"),
        "told {told:?}, the model saw:\n{seen}"
    );
    let note = "The session was interrupted and is resumed now. Everything recorded before is above.";
    assert!(seen.rfind(told) < seen.rfind(note), "B68: all that was recorded is above it:\n{seen}");
    assert_eq!(result["unknown_usd"], "0.01", "nobody knows whether the cut call was billed");
    world.check();
}

fn c03_a_killed_run_resumes_from_a_copy_of_nothing_but_its_store_b2_b27(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", None);
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        submits_after(1),
    ]));
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    kill_in_the_tool(&world, running, &work);
    work.release();

    // Another machine: the store's files and nothing else of what was written.
    copy_files(&world.path("store"), &world.path("elsewhere"));
    for gone in ["store", "home", "tmp"] {
        std::fs::remove_dir_all(world.path(gone)).unwrap();
    }
    std::fs::rename(world.path("elsewhere"), world.path("store")).unwrap();
    for new in ["home", "tmp"] {
        std::fs::create_dir(world.path(new)).unwrap();
    }
    Running::to_end(resume(&world)).delivered(17);
    assert_eq!(work.runs().len(), 1);
    prompt_stands_once(&model.requests());
    world.check();
}

fn c04_kill_9_while_a_safe_tool_sleeps_and_a_resume_runs_it_with_the_stored_arguments_b13_b52(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "safe", None);
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north", "since": [1, 2]}}]},
        submits_after(1),
    ]));
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    kill_in_the_tool(&world, running, &work);

    work.release();
    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!(work.runs(), [json!({"weir": "north", "since": [1, 2]}), json!({"weir": "north", "since": [1, 2]})]);
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "the answer that asked for the tool is not paid again");
    prompt_stands_once(&requests);
    let records = world.records();
    let outcomes = outcomes_of(&records, "work");
    assert_eq!((outcomes.len(), &outcomes[0]["end"]), (1, &json!("ok")));
    let seen = seen(&requests[1]);
    assert!(results(&requests[1]).contains("work counted 17 herons"), "{seen}");
    assert!(!results(&requests[1]).contains("interrupted"), "{seen}");
    assert_eq!(result["unknown_usd"], "0");
    world.check();
}

/// The spend of the one request that was cut is told as unknown: in the result, and to a person.
fn one_request_is_unknown(world: &World, result: &Value) {
    let records = world.records();
    let cut: Vec<&Value> = of_kind(&records, "outcome").into_iter().filter(|it| it["end"] == "interrupted").collect();
    assert_eq!(cut.len(), 1, "{cut:?}");
    let intent = of_kind(&records, "intent").into_iter().find(|it| it["key"] == cut[0]["key"]).unwrap();
    assert_eq!(intent["effect"], "request");
    assert_eq!(result["unknown_usd"], intent["quote"], "it counts in full: {result}");
    assert!(world.shown().contains("unknown"), "{}", world.shown());
}

fn c05_kill_9_while_a_response_streams_asks_that_one_request_anew_and_tells_its_spend_as_unknown_b13_b14(on: Harness) {
    let world = World::new(on);
    let model = model(json!([
        {"text": "I begin to say", "stall_after_events": 3},
        submits_after(0),
    ]));
    let running = Running::start(world.run(&model.base_url()));
    asked(&model, 1);
    let (_, _) = running.kill_9();
    until("the processes are gone", || marked(&world.session).is_empty().then_some(()));
    assert_eq!(model.all_requests().len(), 1);

    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    one_request_is_unknown(&world, &result);
    world.check();
}

fn c05_kill_9_while_a_response_streams_on_behind_a_whole_call_has_run_nothing_of_it_b13_b14_b50(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let weir = |name| json!({"name": "work", "input": {"weir": name}});
    let model = model(json!([
        {"tools": [weir("north"), weir("south")], "stall_after_events": CALL},
        submits_after(0),
    ]));
    let running = Running::start(world.run(&model.base_url()));
    // The harness starts a call before its response is whole, and before the call is in its history. Its own log says when.
    until("the harness asks for the tool", || exists_below(&world.path("store"), "mcp-logs-host").then_some(()));
    running.kill_9();
    until("the processes are gone", || marked(&world.session).is_empty().then_some(()));
    assert_eq!(model.all_requests().len(), 1);
    assert_eq!(work.runs().len(), 0, "a call ran that a restored history would not hold");

    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!(work.runs().len(), 0);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    one_request_is_unknown(&world, &result);
    world.check();
}

fn exists_below(folder: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|it| it.file_name() == name || exists_below(&it.path(), name))
}

fn c06_kill_9_between_a_tools_outcome_and_the_next_request_and_the_model_sees_the_recorded_text_b13_b14_b17(
    on: Harness,
) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        submits_after(1),
    ]));
    work.hold();
    let running = Running::start(world.run(&model.base_url()));
    work.held();
    // A harness that stands still neither writes the result into its history nor asks the model.
    let harness = world.harness_below(&running);
    harness.signal(Signal::STOP);
    work.release();
    until("the outcome is recorded", || (outcomes_of(&world.records(), "work").len() == 1).then_some(()));
    running.kill_9();
    until("the processes are gone", || (!harness.alive() && marked(&world.session).is_empty()).then_some(()));
    assert_eq!(model.all_requests().len(), 1);
    let recorded = world.records();

    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!(work.runs().len(), 1);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    let text = outcomes_of(&recorded, "work")[0]["text"].as_str().unwrap();
    let seen = seen(&requests[1]);
    assert!(
        results(&requests[1]).contains(text.trim_end()) && text.contains("17 herons"),
        "recorded {text:?}, the model saw:\n{seen}"
    );
    assert!(!results(&requests[1]).contains("interrupted"), "{seen}");
    assert_eq!(result["unknown_usd"], "0");
    world.check();
}

fn c06_kill_9_while_the_next_request_waits_asks_only_that_one_anew_b13_b14(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        {"when": {"results": 1}, "text": "never said", "stall_ms": 3_600_000},
        submits_after(1),
    ]));
    let running = Running::start(world.run(&model.base_url()));
    asked(&model, 2);
    running.kill_9();
    until("the processes are gone", || marked(&world.session).is_empty().then_some(()));

    let result = Running::to_end(resume(&world)).delivered(17);
    assert_eq!(work.runs().len(), 1);
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    prompt_stands_once(&requests);
    let seen = seen(&requests[2]);
    assert!(seen.contains("work counted 17 herons") && seen.contains(PROMPT), "{seen}");
    one_request_is_unknown(&world, &result);
    world.check();
}
