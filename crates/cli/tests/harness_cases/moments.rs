//! Kills at moments spread over the whole of a run, from before the harness starts to after the delivery: `kill -9` of the program, and both
//! signals to the harness below it. Nothing is aimed at: whatever was going on, the resume delivers, and neither does nor pays again what
//! was done or paid.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Harness, cases, seen};
use crate::processes::{Process, below, marked};
use crate::world::{Running, World, model, outcomes_of, prompt_stands_once, submits_after, until, within};

cases! {
    claude: c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53,
        c03_a_harness_ended_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53;
    codex: c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53,
        c03_a_harness_ended_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53;
    opencode: c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53,
        c03_a_harness_ended_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53;
}

/// Moments of a run in each of the two tests; the whole sweep's under `--full`.
const MOMENTS: u32 = 5;
const MOMENTS_FULL: u32 = 40;

/// From the kill until everything below the program is gone: two seconds, and far more where the machine has no time to give.
const GUARD: Duration = Duration::from_secs(60);

/// Who is ended, and how.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// The program, with SIGKILL.
    Program,
    /// The harness, with this signal.
    Harness(Signal),
}

fn c03_kill_9_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53(on: Harness) {
    sweep(on, &[Victim::Program]);
}

fn c03_a_harness_ended_at_any_moment_and_the_resume_delivers_and_does_nothing_twice_b13_b14_b36_b53(on: Harness) {
    // Told to end it may still write: what it writes then must not count.
    sweep(on, &[Victim::Harness(Signal::TERM), Victim::Harness(Signal::KILL)]);
}

fn sweep(on: Harness, victims: &[Victim]) {
    let moments = if std::env::var_os("AGENTRUN_FULL").is_some() { MOMENTS_FULL } else { MOMENTS };
    let begun = Instant::now();
    run_cut(on, None);
    let whole = begun.elapsed();
    let mut met = 0;
    for (moment, victim) in (0..moments).zip(victims.iter().cycle()) {
        met += u32::from(run_cut(on, Some((*victim, whole * moment / moments))));
    }
    assert!(met * 3 > moments, "only {met} of {moments} kills met somebody alive");
}

/// Runs a node, ends the victim after a while, resumes, and holds all that must hold. Whether the victim was there.
fn run_cut(on: Harness, cut: Option<(Victim, Duration)>) -> bool {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let mut submits = submits_after(1);
    submits["event_delay_ms"] = json!(10);
    let model = model(json!([
        {"when": {"results": 0}, "text": "I look.", "tools": [{"name": "work", "input": {"weir": "north"}}],
            "event_delay_ms": 10, "times": 2},
        submits,
        submits_after(2),
    ]));
    let at = format!("cut {cut:?}");
    let met = cut.is_some_and(|(victim, after)| {
        let running = Running::start(world.run(&model.base_url()));
        // Marked: the same program is also asked for its version, before anything begins.
        let its = |it: &Process| world.is_harness(it) && marked(&world.session).contains(it);
        let after = match victim {
            Victim::Program => after,
            Victim::Harness(_) => {
                until("the harness runs", || below(running.process_now()?.pid).iter().any(its).then_some(()));
                // It lives for about half of the run.
                after / 2
            }
        };
        std::thread::sleep(after);
        // It may have ended by itself already.
        let mut processes = running.process_now().map(|it| below(it.pid)).unwrap_or_default();
        let harness = processes.iter().find(|it| its(it));
        let (from, met) = match (victim, harness) {
            (Victim::Program, _) => {
                let (killed, ended) = running.kill_9();
                (killed, ended.code.is_none())
            }
            (Victim::Harness(signal), Some(harness)) => {
                let met = harness.try_signal(signal);
                let ended = running.wait();
                assert!(matches!(ended.code, Some(0 | 4)), "{at}: {ended:?}");
                (Instant::now(), met)
            }
            (Victim::Harness(_), None) => {
                running.wait().delivered(17);
                (Instant::now(), false)
            }
        };
        within("the harness and its children are gone", GUARD, from, || {
            processes.retain(Process::alive);
            (processes.is_empty() && marked(&world.session).is_empty()).then_some(())
        });
        met
    });
    let result = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert!(work.runs().len() <= 1, "{at}: a never tool ran {} times", work.runs().len());
    let requests = model.requests();
    // A submit that was cut before its value was recorded is told as interrupted, and the model submits once more.
    let records = world.records();
    let again = outcomes_of(&records, "submit").iter().filter(|it| it["end"] == "interrupted").count();
    let most = 3 + again.min(1);
    assert!(requests.len() <= most, "{at}: {} requests, of which one can have been cut", requests.len());
    prompt_stands_once(&requests);
    for request in &requests {
        let aborted = seen(request).contains("turn_aborted");
        assert!(!aborted, "{at}: the model was told of an interruption by the harness:\n{}", seen(request));
    }
    let again = Running::to_end(world.run(&model.base_url())).delivered(17);
    assert_eq!((again["usd"].clone(), model.requests().len()), (result["usd"].clone(), requests.len()), "{at}");
    world.check();
    met
}
