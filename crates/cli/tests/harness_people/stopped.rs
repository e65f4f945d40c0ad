//! `agentrun run` stopped with Ctrl-C in the middle of a tool, and resumed: what a person sees, and what the records hold.

use std::fs::{self, File};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Harness, cases, results};
use crate::world::{Running, World, model, of_kind, outcomes_of, prompt_stands_once, submits_after, until};

cases! {
    claude: a_provider_that_does_not_answer_is_named_in_what_is_to_be_checked,
        b19_b20_b22_b24_ctrl_c_in_a_tool_lets_it_end_and_the_resume_answers_it_from_its_record;
    codex: b19_b20_b22_b24_ctrl_c_in_a_tool_lets_it_end_and_the_resume_answers_it_from_its_record;
    opencode: b19_b20_b22_b24_ctrl_c_in_a_tool_lets_it_end_and_the_resume_answers_it_from_its_record;
}

/// A test that fails in the middle leaves nothing behind.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn b19_b20_b22_b24_ctrl_c_in_a_tool_lets_it_end_and_the_resume_answers_it_from_its_record(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.01"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {"weir": "north"}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ]));
    work.hold();
    let mut command = world.run(&model.base_url());
    // Its stderr as it comes: the stop must be heard before the tool may end.
    let (out, err) = (world.path("stdout"), world.path("stderr"));
    command.args(["--drain", "170"]).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut running = Ends(command.spawn().unwrap());
    work.held();
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    until("the stop is heard", || fs::read_to_string(&err).unwrap().contains("stopping:").then_some(()));
    work.release();
    let status = until("the program ends", || running.0.try_wait().unwrap());
    let (out, err) = (fs::read_to_string(&out).unwrap(), fs::read_to_string(&err).unwrap());
    let result: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(status.code(), Some(4), "{out}{err}");
    assert_eq!((&result["word"], &result["final"]), (&json!("aborted"), &json!(false)), "{out}{err}");
    assert!(err.contains("to go on: agentrun resume"), "{err}");
    assert_eq!(model.requests().len(), 1, "B19: nothing new began");
    let records = world.records();
    assert_eq!(outcomes_of(&records, "work")[0]["end"], "ok", "B20: it ran on until its outcome was recorded");
    world.check();

    let mut resume = world.agentrun();
    resume.args(["resume", &world.session, "--json", "--store", &world.store()]);
    let resumed = Running::to_end(resume);
    let delivered = resumed.delivered(17);
    assert_eq!(work.runs().len(), 1, "B24: run once");
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "B24: each request was paid once");
    prompt_stands_once(&requests);
    assert_eq!(results(&requests[1]).matches("work counted 17 herons").count(), 1, "answered from its record");
    assert_eq!(delivered["unknown_usd"], "0");
    assert_eq!(of_kind(&world.records(), "placed").len(), 1, "the same turn went on");
    world.check();
}

fn a_provider_that_does_not_answer_is_named_in_what_is_to_be_checked(on: Harness) {
    let world = World::new(on);
    // A port that was free a moment ago, and that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let origin = format!("http://127.0.0.1:{port}");
    let ended = Running::to_end(world.run(&origin));
    assert_eq!((ended.code, &ended.result()["word"]), (Some(4), &json!("upstream")), "{ended:?}");
    let told = format!("check the provider's address ({origin})");
    assert!(ended.result()["message"].as_str().unwrap().contains(&told), "{ended:?}");
    world.check();
}
