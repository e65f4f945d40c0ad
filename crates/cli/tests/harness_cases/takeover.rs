//! Case 9: the same command from a second process takes the session over, and the first one can do nothing more in it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Harness, cases, results};
use crate::processes::{Process, below};
use crate::world::{Running, World, asked, model, outcomes_of, prompt_stands_once, submits_after, until, within};

cases! {
    claude: c09_a_later_process_takes_over_while_the_earlier_ones_tool_runs_b43_b46_b53,
        c09_a_later_process_takes_over_while_the_earlier_ones_request_waits_b43_b44_b46,
        c09_a_later_process_takes_over_while_the_earlier_one_only_waits_for_its_harness_b14_b43_b46;
    codex: c09_a_later_process_takes_over_while_the_earlier_ones_tool_runs_b43_b46_b53,
        c09_a_later_process_takes_over_while_the_earlier_ones_request_waits_b43_b44_b46,
        c09_a_later_process_takes_over_while_the_earlier_one_only_waits_for_its_harness_b14_b43_b46;
    opencode: c09_a_later_process_takes_over_while_the_earlier_ones_tool_runs_b43_b46_b53,
        c09_a_later_process_takes_over_while_the_earlier_ones_request_waits_b43_b44_b46,
        c09_a_later_process_takes_over_while_the_earlier_one_only_waits_for_its_harness_b14_b43_b46;
    opencode_messages: c09_a_later_process_takes_over_while_the_earlier_ones_tool_runs_b43_b46_b53;
}

/// From the takeover until the earlier process has ended and its harness is gone: a second or two, and far more where the machine has no time
/// to give.
const YIELDS: Duration = Duration::from_secs(60);

/// Waits until the later process says that it has the session, and gives the moment that was seen.
fn took_over(later: &Running) -> Instant {
    let opened = || later.events().iter().any(|it| it["type"] == "opened" && it["epoch"] == 2).then(Instant::now);
    until("the later process opens the session", opened)
}

/// The earlier process ends fenced in time, and everything below it is gone.
fn yields(earlier: Running, mut processes: Vec<Process>, taken: Instant) {
    assert!(!processes.is_empty());
    let ended = earlier.wait_within(YIELDS, taken);
    let result = ended.result();
    assert_eq!((ended.code, &result["word"]), (Some(5), &json!("fenced")), "{ended:?}");
    within("what ran below it is gone", YIELDS, taken, || {
        processes.retain(Process::alive);
        processes.is_empty().then_some(())
    });
}

fn c09_a_later_process_takes_over_while_the_earlier_ones_tool_runs_b43_b46_b53(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}], "times": "always"},
        submits_after(1),
    ]));
    work.hold();
    let earlier = Running::start(world.run(&model.base_url()));
    let mut processes = work.held();
    processes.extend(below(earlier.process().pid));

    let later = Running::start(world.run(&model.base_url()));
    let taken = took_over(&later);
    yields(earlier, processes, taken);
    work.release();
    later.wait().delivered(17);
    assert_eq!(work.runs().len(), 1, "neither process ran it again");
    assert_eq!(outcomes_of(&world.records(), "work")[0]["end"], "interrupted");
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "one by each process");
    prompt_stands_once(&requests);
    world.check();
}

fn c09_a_later_process_takes_over_while_the_earlier_ones_request_waits_b43_b44_b46(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", None);
    // The first asker never gets an answer; what it would have been is no business of the later one.
    let model = model(json!([
        {"tools": [{"name": "work", "input": {}}], "stall_ms": 3_600_000},
        submits_after(0),
    ]));
    let earlier = Running::start(world.run(&model.base_url()));
    asked(&model, 1);
    let processes = below(earlier.process().pid);

    let later = Running::start(world.run(&model.base_url()));
    let taken = took_over(&later);
    yields(earlier, processes, taken);
    let result = later.wait().delivered(17);
    assert_eq!(work.runs().len(), 0);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    assert_ne!(result["unknown_usd"], "0", "what the cut request costs is not known");
    world.check();
}

fn c09_a_later_process_takes_over_while_the_earlier_one_only_waits_for_its_harness_b14_b43_b46(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        submits_after(1),
    ]));
    work.hold();
    let earlier = Running::start(world.run(&model.base_url()));
    work.held();
    // Nothing is open then: the first that the earlier process sees of its loss is the death of its harness.
    let harness = world.harness_below(&earlier);
    harness.signal(Signal::STOP);
    work.release();
    until("the outcome is recorded", || (outcomes_of(&world.records(), "work").len() == 1).then_some(()));

    let later = Running::start(world.run(&model.base_url()));
    let taken = took_over(&later);
    yields(earlier, vec![harness], taken);
    let result = later.wait().delivered(17);
    assert_eq!(work.runs().len(), 1);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    prompt_stands_once(&requests);
    assert!(results(&requests[1]).contains("work counted 17 herons"), "{}", results(&requests[1]));
    assert_eq!(result["unknown_usd"], "0");
    world.check();
}
