//! Case 14: the run's cap. One rule and the same words whatever the node runs on: what does not fit is not sent, the run parks, and a raise
//! lets it go on with nothing paid twice.

use serde_json::{Value, json};

use crate::harness::{Harness, cases};
use crate::processes::marked;
use crate::world::{Ended, Running, World, model, of_kind, prompt_stands_once, submits_after};

cases! {
    claude: c17_a_step_over_the_cap_parks_in_the_same_words_and_goes_on_after_a_raise_b74_b78_b81;
    codex: c17_a_step_over_the_cap_parks_in_the_same_words_and_goes_on_after_a_raise_b74_b78_b81;
    opencode: c17_a_step_over_the_cap_parks_in_the_same_words_and_goes_on_after_a_raise_b74_b78_b81;
}

const CAP: &str = "0.000001";

fn c17_a_step_over_the_cap_parks_in_the_same_words_and_goes_on_after_a_raise_b74_b78_b81(on: Harness) {
    let world = World::new(on);
    let work = world.tool("work", "never", Some("0.25"));
    let model = model(json!([
        {"when": {"results": 0}, "tools": [{"name": "work", "input": {}}]},
        submits_after(1),
        {"text": "Done.", "times": "always"},
    ]));
    let run = || {
        let mut command = world.run(&model.base_url());
        command.args(["--cap", CAP]);
        Running::to_end(command)
    };
    let first = parked(&run());
    assert_eq!((&first["cap"], &first["spent"]), (&json!(CAP), &json!("0")));
    assert_eq!((model.requests().len(), work.runs().len()), (0, 0), "nothing was sent");
    assert_eq!(marked(&world.session), []);

    let raised = |cap: &str, id: &str| {
        let mut raise = world.agentrun();
        raise.args(["cap", &world.session, "--raise", cap, "--id", id, "--store", &world.store()]);
        let raised = Running::to_end(raise);
        assert_eq!(raised.code, Some(0), "{raised:?}");
        run()
    };
    // A raise to exactly what is named lets the step go on that waits; a later one may wait again.
    let least = first["needed"].as_str().unwrap().to_owned();
    let mut ended = raised(&least, "r1");
    assert!(!model.requests().is_empty(), "{ended:?}");
    if ended.code != Some(0) {
        assert_eq!(parked(&ended)["cap"], json!(least));
        ended = raised("5", "r2");
    }
    let result = ended.delivered(17);
    assert_eq!((work.runs().len(), &result["unknown_usd"]), (1, &json!("0")));

    // Each request that the provider saw is one effect, none was begun that it did not see, and the tool was paid for once.
    let records = world.records();
    let begun = of_kind(&records, "intent").into_iter().filter(|it| it["effect"] == "request").count();
    assert_eq!(begun, model.requests().len());
    prompt_stands_once(&model.requests());
    assert_eq!(of_kind(&records, "delivered").len(), 1);
    world.check();
}

/// What a parked run says: exit 6, and the same object and sentence on every harness.
fn parked(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(6), "{ended:?}");
    let result = ended.result();
    assert_eq!((&result["word"], &result["final"]), (&json!("over_cap"), &json!(false)), "{ended:?}");
    let park = result["park"].clone();
    let mut members: Vec<&str> = park.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["cap", "needed", "spent"]);
    let message = result["message"].as_str().unwrap();
    let (cap, said) = (park["cap"].as_str().unwrap(), message.split_once("the step may cost up to $"));
    let (_, sentence) = said.unwrap_or_else(|| panic!("{message}"));
    assert!(
        sentence.contains(" but the run has $") && sentence.contains(&format!(" left of its cap of ${cap}")),
        "{message}"
    );
    assert!(message.contains("raise the cap and resume"), "{message}");
    park
}
