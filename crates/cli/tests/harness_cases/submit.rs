//! Case 7: a submission that breaks the schema is corrected in the same session.

use std::collections::HashSet;

use serde_json::json;

use crate::harness::{Harness, cases, own_session, seen};
use crate::world::{Running, World, model, of_kind, prompt_stands_once, submits_after};

cases! {
    claude: c07_a_submit_that_breaks_the_schema_is_told_its_problems_and_corrected_in_one_session_b4_b5;
    codex: c07_a_submit_that_breaks_the_schema_is_told_its_problems_and_corrected_in_one_session_b4_b5;
    opencode: c07_a_submit_that_breaks_the_schema_is_told_its_problems_and_corrected_in_one_session_b4_b5;
    opencode_messages: c07_a_submit_that_breaks_the_schema_is_told_its_problems_and_corrected_in_one_session_b4_b5;
}

fn c07_a_submit_that_breaks_the_schema_is_told_its_problems_and_corrected_in_one_session_b4_b5(on: Harness) {
    let world = World::new(on);
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "submit", "input": {"value": {"herons": "seventeen", "gulls": 3}}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ]));
    Running::to_end(world.run(&model.base_url())).delivered(17);
    let requests = model.requests();
    assert!((2..=3).contains(&requests.len()));
    prompt_stands_once(&requests);
    let told = seen(&requests[1]);
    for problem in ["herons", "integer", "gulls"] {
        assert!(told.contains(problem), "{problem} is not named:\n{told}");
    }
    let records = world.records();
    assert_eq!((of_kind(&records, "bound").len(), of_kind(&records, "opened").len()), (1, 1));
    let verdicts: Vec<_> = of_kind(&records, "verdict").iter().map(|it| it["accepted"].clone()).collect();
    assert_eq!(verdicts, [json!(false), json!(true)]);
    // The harness's own session is one too.
    let sessions: HashSet<_> = requests.iter().map(|it| own_session(on, it)).collect();
    assert_eq!(sessions.len(), 1);
    world.check();
}
