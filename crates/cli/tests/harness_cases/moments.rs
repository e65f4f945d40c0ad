//! `kill -9` of the program at moments spread over the whole of a run, from before the harness starts to after the delivery. Nothing is
//! aimed at: whatever was going on, the resume delivers, and neither does nor pays again what was done or paid.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::{Process, below, marked};
use crate::world::{Running, World, model, prompt_stands_once, submits_after, within};

cases! {
    codex: c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53;
}

/// Moments of a run; the whole sweep's under `--full`.
const MOMENTS: u32 = 6;
const MOMENTS_FULL: u32 = 40;

/// From the kill until everything below the program is gone.
const GUARD: Duration = Duration::from_secs(2);

fn c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53(on: Harness) {
    let moments = if std::env::var_os("AGENTRUN_FULL").is_some() { MOMENTS_FULL } else { MOMENTS };
    let begun = Instant::now();
    run_killed_after(on, None);
    let whole = begun.elapsed();
    let mut cut = 0;
    for moment in 0..moments {
        cut += u32::from(run_killed_after(on, Some(whole * moment / moments)));
    }
    assert!(cut * 2 > moments, "only {cut} of {moments} kills met a running program");
}

/// Runs a node, kills it after a while, resumes it, and holds all that must hold. Whether the kill met it running.
fn run_killed_after(on: Harness, kill: Option<Duration>) -> bool {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let mut submits = submits_after(1);
    submits["event_delay_ms"] = json!(10);
    let model = model(json!([
        {"when": {"results": 0}, "text": "I look.", "tools": [{"name": "work", "input": {"weir": "north"}}],
            "event_delay_ms": 10, "times": 2},
        submits,
    ]));
    let mut met = false;
    if let Some(after) = kill {
        let running = Running::start(world.run(&model.base_url()));
        std::thread::sleep(after);
        // It may have ended by itself already.
        let mut processes = running.process_now().map(|it| below(it.pid)).unwrap_or_default();
        let (killed, ended) = running.kill_9();
        met = ended.code.is_none();
        within("the harness and its children are gone", GUARD, killed, || {
            processes.retain(Process::alive);
            (processes.is_empty() && marked(&world.session).is_empty()).then_some(())
        });
    }
    let at = format!("killed after {kill:?}");
    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert!(work.runs().len() <= 1, "{at}: a never tool ran {} times", work.runs().len());
    let requests = model.requests();
    assert!(requests.len() <= 3, "{at}: {} requests, of which one can have been cut", requests.len());
    prompt_stands_once(&requests);
    let again = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!((again["usd"].clone(), model.requests().len()), (result["usd"].clone(), requests.len()), "{at}");
    world.check();
    met
}
