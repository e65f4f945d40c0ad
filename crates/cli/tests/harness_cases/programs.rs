//! Harness programs that are not what was asked for: refused before anything is opened, or an error that can be gone on from, each with what
//! to do next, and nothing left running.

use std::process::Command;

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::marked;
use crate::world::{Running, World, model};

cases! {
    claude: c08_a_program_that_is_not_the_supported_one_is_refused_and_nothing_is_opened_b25,
        c08_a_program_that_dies_before_it_is_ready_can_be_gone_on_from_b25;
    codex: c08_a_program_that_is_not_the_supported_one_is_refused_and_nothing_is_opened_b25,
        c08_a_program_that_dies_before_it_is_ready_can_be_gone_on_from_b25;
}

fn c08_a_program_that_is_not_the_supported_one_is_refused_and_nothing_is_opened_b25(on: Harness) {
    let mut world = World::new(on);
    let model = model(json!([{"text": "never asked"}]));
    let old = world.program("bin/old", "#!/bin/sh\necho 0.1.2\n");
    let silent = world.program("bin/silent", "#!/bin/sh\necho hello\n");
    for (program, said) in [(world.path("bin/nowhere"), "nowhere"), (old, "0.1.2"), (silent, "--version")] {
        world.harness = program;
        let ended = Running::to_end(world.run(&model.base_url()));
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stdout.contains(said) && ended.stdout.contains("npm install"), "{ended:?}");
        assert!(ended.stdout.contains(on.variable), "where to name it is said: {ended:?}");
    }
    assert!(world.records().is_empty(), "nothing was opened");
    assert_eq!(model.all_requests().len(), 0);
}

fn c08_a_program_that_dies_before_it_is_ready_can_be_gone_on_from_b25(on: Harness) {
    let mut world = World::new(on);
    let real = world.harness.clone();
    let version = Command::new(&real).arg("--version").env_clear().env("HOME", world.path("home")).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let model = model(json!([{"tools": [{"name": "submit", "input": {"value": {"herons": 17}}}]}, {"text": "Done."}]));
    let says =
        |then: &str| format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '{}'; exit 0; }}\n{then}\n", version.trim());
    let dies = world.program("bin/dies", &says("echo 'the config is broken' >&2; exit 7"));
    // Noise, and something below it that would stay.
    let noise = world.program("bin/noise", &says("printf 'banner\\n\\377{\\n'; sleep 300 & exit 0"));
    for (program, said) in [(dies, "the config is broken"), (noise, "ended before it was ready")] {
        world.harness = program;
        let ended = Running::to_end(world.run(&model.base_url()));
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.stdout.contains(said) && ended.stdout.contains("run the same command"), "{ended:?}");
        assert_eq!(marked(&world.session), []);
    }
    assert_eq!(model.all_requests().len(), 0);
    world.harness = real;
    Running::to_end(world.run(&model.base_url())).delivered(17);
    world.check();
}
