//! Case 8: no key, no upstream, an upstream that refuses. Each says what to do, costs no more than one request, and the same command
//! delivers once the fault is gone.

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::marked;
use crate::world::{KEY, Running, World, model, model_on, prompt_stands_once, submits_after};

cases! {
    claude: c08_without_a_key_nothing_is_started_or_written,
        c08_an_upstream_that_is_down_gets_no_request_and_the_same_command_delivers_when_it_is_up,
        c08_an_upstream_401_is_one_request_and_names_the_key,
        c08_an_upstream_429_is_one_request_and_says_to_wait,
        c08_an_upstream_529_is_one_request_and_says_to_wait;
    codex: c08_without_a_key_nothing_is_started_or_written,
        c08_an_upstream_that_is_down_gets_no_request_and_the_same_command_delivers_when_it_is_up,
        c08_an_upstream_401_is_one_request_and_names_the_key,
        c08_an_upstream_429_is_one_request_and_says_to_wait,
        c08_an_upstream_529_is_one_request_and_says_to_wait;
    opencode: c08_without_a_key_nothing_is_started_or_written,
        c08_an_upstream_that_is_down_gets_no_request_and_the_same_command_delivers_when_it_is_up,
        c08_an_upstream_401_429_and_529_are_one_request_each_and_say_what_to_do;
    opencode_messages: c08_without_a_key_nothing_is_started_or_written,
        c08_an_upstream_that_is_down_gets_no_request_and_the_same_command_delivers_when_it_is_up,
        c08_an_upstream_401_429_and_529_are_one_request_each_and_say_what_to_do;
}

fn c08_without_a_key_nothing_is_started_or_written(on: Harness) {
    let mut world = World::new(on);
    world.tool("work", "never", None);
    let real = world.harness.clone();
    let (program, noted) = world.noting_program();
    world.harness = program;
    world.key = None;
    let model = model(json!([submits_after(0)]));
    let ended = Running::to_end(world.run(&model.base_url()));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains(on.key) && ended.stderr.contains("--credential-file"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    assert!(!noted.exists());
    assert_eq!(model.all_requests().len(), 0);
    for folder in ["store", "home", "tmp", "workspace"] {
        let left: Vec<_> = std::fs::read_dir(world.path(folder)).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    world.harness = real;
    world.key = Some(KEY.to_owned());
    Running::to_end(world.run(&model.base_url())).delivered(17);
    world.check();
}

fn c08_an_upstream_that_is_down_gets_no_request_and_the_same_command_delivers_when_it_is_up(on: Harness) {
    let world = World::new(on);
    let model = model(json!([submits_after(0)]));
    let url = model.base_url();
    let port = url.rsplit_once(':').unwrap().1.parse().unwrap();
    drop(model);
    let ended = Running::to_end(world.run(&url));
    let result = ended.result();
    assert_eq!(
        (ended.code, &result["word"], &result["final"]),
        (Some(4), &json!("upstream"), &json!(false)),
        "{ended:?}"
    );
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("cannot be reached") && message.contains("run the same command"), "{message}");
    assert!(ended.stderr.contains(&format!("agentrun resume {}", world.session)), "{}", ended.stderr);
    assert_eq!(marked(&world.session), []);

    let model = model_on(port, json!([submits_after(0)]));
    let result = Running::to_end(world.run(&url)).delivered(17);
    assert_eq!(result["unknown_usd"], "0", "what was never sent is known to cost nothing");
    let requests = model.requests();
    assert_eq!(requests.len(), 1);
    prompt_stands_once(&requests);
    world.check();
}

/// What is said of a status.
type Says = (u16, &'static [&'static str]);

const UNAUTHORIZED: Says = (401, &["401", "key"]);
const TOO_MANY: Says = (429, &["429", "wait"]);
const OVERLOADED: Says = (529, &["529", "wait"]);

/// The same command is refused with each status in turn, then delivers.
fn refused(on: Harness, statuses: &[Says]) {
    let world = World::new(on);
    let mut steps: Vec<_> = statuses.iter().map(|(status, _)| json!({"status": status})).collect();
    steps.push(submits_after(0));
    let model = model(steps.into());
    for (number, (status, says)) in statuses.iter().enumerate() {
        let ended = Running::to_end(world.run(&model.base_url()));
        let result = ended.result();
        assert_eq!(
            (ended.code, &result["word"], &result["final"]),
            (Some(4), &json!("upstream"), &json!(false)),
            "{ended:?}"
        );
        assert_eq!(model.all_requests().len(), number + 1, "{status}: one request, whatever the harness would retry");
        let message = result["message"].as_str().unwrap();
        for part in *says {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        assert!(ended.stderr.contains(&format!("agentrun resume {}", world.session)), "{}", ended.stderr);
        assert_eq!(marked(&world.session), []);
    }
    Running::to_end(world.run(&model.base_url())).delivered(17);
    let requests = model.requests();
    assert_eq!(requests.len(), statuses.len() + 1);
    prompt_stands_once(&requests);
    world.check();
}

fn c08_an_upstream_401_is_one_request_and_names_the_key(on: Harness) {
    refused(on, &[UNAUTHORIZED]);
}

fn c08_an_upstream_429_is_one_request_and_says_to_wait(on: Harness) {
    refused(on, &[TOO_MANY]);
}

fn c08_an_upstream_529_is_one_request_and_says_to_wait(on: Harness) {
    refused(on, &[OVERLOADED]);
}

/// For a harness whose start takes seconds.
fn c08_an_upstream_401_429_and_529_are_one_request_each_and_say_what_to_do(on: Harness) {
    refused(on, &[UNAUTHORIZED, TOO_MANY, OVERLOADED]);
}
