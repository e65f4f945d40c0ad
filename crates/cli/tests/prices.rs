//! `agentrun price` and `agentrun show --spend` for OpenAI's models, `--catalog FILE`, and budgets that are not read by mistake.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use agentrun_cap::Date;
use agentrun_kernel::{LedgerBody, LogKey, RunId, SharedLog, open_url, read_all};
use serde_json::{Value, json};
use support::{Ran, Stage, calls_search, says_done, searching, submits};

const DAY: &str = "2026-11-01";

fn priced(stage: &Stage, model: &str, usage: &Value, more: &[&str]) -> Ran {
    let usage = usage.to_string();
    let mut args = vec!["price", model, "--usage", &usage, "--at", DAY, "--json"];
    args.extend(more);
    stage.ends(stage.agentrun(&args))
}

/// The file that the help and examples/prices/README.md speak of.
#[test]
fn the_example_catalog_is_one_and_prices_as_its_page_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prices/catalog.json");
    let stage = Stage::new();
    for (usage, at, usd) in [
        (json!({"input": 2000, "cache_read": 8000, "output": 1000}), "2026-11-30", "0.0068"),
        (json!({"input": 2000, "cache_read": 8000, "output": 1000}), "2026-12-01", "0.00544"),
        (json!({"input": 64_000}), "2026-12-01", "0.0512"),
        (json!({"input": 64_001}), "2026-12-01", "0.1024016"),
        (json!({"input": 1000, "tier": "priority"}), "2026-12-01", "0.002"),
    ] {
        let usage = usage.to_string();
        let args = ["price", "my-model", "--usage", &usage, "--at", at, "--catalog", file, "--json"];
        let ran = stage.ends(stage.agentrun(&args));
        assert_eq!((ran.code, ran.last()["usd"].as_str()), (Some(0), Some(usd)), "{usage} {at}: {ran:?}");
        assert!(ran.last()["catalog"].as_str().unwrap().contains("my-prices"), "{ran:?}");
    }
    let listed = stage.ends(stage.agentrun(&["price", "--catalog", file]));
    assert!(listed.stdout.contains("my-model"), "{listed:?}");
    let help = stage.ends(stage.agentrun(&["price", "--help"]));
    let inner = help.stdout.split_once("  {\"format\"").unwrap().1.split_once("\n\n").unwrap().0;
    stage.write("shown.json", &format!("{{\"format\"{inner}"));
    let shown = stage.ends(stage.agentrun(&["price", "--catalog", "shown.json"]));
    assert!(shown.code == Some(0) && shown.stdout.contains("my-model"), "what the help shows is a catalog: {shown:?}");
}

fn delivers(stage: &Stage, steps: &Value, more: &[&str]) -> Ran {
    stage.write("s.json", &steps.to_string());
    let mut args =
        vec!["run", "node.json", "--harness", "faux", "--script", "s.json", "--workspace", "work", "--session"];
    args.extend([stage.session.as_str(), "--json"]);
    args.extend(more);
    stage.ends(stage.agentrun(&args))
}

fn spend(stage: &Stage) -> Vec<Vec<String>> {
    let told = stage.ends(stage.agentrun(&["show", &stage.session, "--spend", "--csv"]));
    assert_eq!(told.code, Some(0), "{told:?}");
    told.stdout.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn b76_openai_usage_is_priced_to_the_last_digit_tiers_and_edges_included() {
    let stage = Stage::new();
    for (model, usage, usd) in [
        ("gpt-5", json!({"input": 2000, "cache_read": 8000, "output": 2000}), "0.0235"),
        ("gpt-5", json!({"input": 2000, "cache_read": 8000, "output": 2000, "tier": "priority"}), "0.047"),
        ("gpt-5", json!({"input": 2000, "cache_read": 8000, "output": 2000, "tier": "flex"}), "0.01175"),
        ("gpt-5", json!({"input": 1000, "web_searches": 3}), "0.03125"),
        ("gpt-5.4", json!({"input": 272_000}), "0.68"),
        ("gpt-5.4", json!({"input": 272_001}), "1.360005"),
        ("gpt-5.6", json!({"input": 2000, "cache_read": 6000, "cache_write_5m": 2000, "output": 1000}), "0.0404"),
    ] {
        let ran = priced(&stage, model, &usage, &[]);
        assert_eq!((ran.code, ran.last()["usd"].as_str()), (Some(0), Some(usd)), "{model} {usage}: {ran:?}");
        assert_eq!(ran.last()["model"], model);
        let catalog = ran.last()["catalog"].as_str().unwrap().to_owned();
        let (id, date) = catalog.rsplit_once(' ').unwrap();
        assert!(id.starts_with("genai-prices-") && date.parse::<Date>().is_ok(), "{catalog}");
    }
    for (model, usage, word) in [
        ("gpt-5", json!({"input": 1, "cache_write_5m": 1}), "cache writes"),
        ("gpt-5", json!({"input": 1, "tier": "ultrafast"}), "mode `ultrafast`"),
        ("gpt-99", json!({"input": 1}), "no model `gpt-99`"),
    ] {
        let ran = priced(&stage, model, &usage, &[]);
        assert!(ran.code == Some(3) && ran.stderr.contains(word) && ran.stderr.contains("catalog"), "{ran:?}");
    }
    let listed = stage.ends(stage.agentrun(&["price", "--at", DAY]));
    assert!(listed.stdout.lines().any(|line| line.starts_with("gpt-5 ") && line.ends_with("10")), "{listed:?}");
}

#[test]
fn b81_the_spend_of_an_openai_model_is_told_by_model_by_tool_by_turn_and_in_all() {
    let stage = Stage::new();
    let mut node = searching(&stage, "never");
    node["model"] = json!("gpt-5");
    node["tools"][0]["price_usd"] = json!("0.25");
    stage.node(&node);
    std::fs::write(stage.work("go"), "").unwrap();
    let used = |mut step: Value| {
        step["usage"] = json!({"input": 2000, "cache_read": 8000, "output": 2000, "reasoning": 1500});
        step
    };
    let ran = delivers(&stage, &json!({"steps": [used(calls_search()), used(submits("low")), says_done()]}), &[]);
    ran.delivered();
    // Two requests of vector V6, and the tool.
    assert_eq!(ran.last()["usd"], "0.297");
    let rows = spend(&stage);
    assert_eq!(rows[0].join(","), "by,name,count,booked_usd,unknown_usd,held_usd");
    let told: Vec<String> = rows[1..].iter().map(|row| row.join(",")).collect();
    assert_eq!(told, ["model,gpt-5,2,0.047,0,0", "tool,search,1,0.25,0,0", "turn,1,3,0.297,0,0", "all,,3,0.297,0,0"]);
    let text = stage.ends(stage.agentrun(&["show", &stage.session, "--spend"]));
    let line = text.stdout.lines().find(|line| line.contains("gpt-5")).unwrap();
    assert!(line.starts_with("model") && line.contains("$0.047"), "{text:?}");
}

#[test]
fn b76_a_catalog_file_prices_a_house_model_and_a_wrong_one_stops_before_anything_is_written() {
    let stage = Stage::new();
    let file = |figure: &Value| {
        json!({"format": 1, "id": "house", "date": "2026-11-02", "models": [{"id": "house-gpt", "provider": "openai",
            "context_window": 100_000, "max_output": 1000,
            "prices": [{"from": null, "rates": {"input": figure, "output": 3_000_000}}]}]})
    };
    stage.write("house.json", &file(&json!(1_000_000)).to_string());
    let ran = priced(&stage, "house-gpt", &json!({"input": 10, "output": 1}), &["--catalog", "house.json"]);
    assert_eq!(ran.last()["usd"], "0.000013", "{ran:?}");
    assert!(ran.last()["catalog"].as_str().unwrap().contains("+house "), "{ran:?}");

    let mut node = searching(&stage, "never");
    node["model"] = json!("house-gpt");
    stage.node(&node);
    let steps = json!({"steps": [says_done()]});
    let mut unknown_member = file(&json!(1));
    unknown_member["models"][0]["currency"] = json!("EUR");
    let mut twice = file(&json!(1));
    let row = twice["models"][0].clone();
    twice["models"].as_array_mut().unwrap().push(row);
    for (wrong, at) in [
        (file(&json!(0)), "models[0].prices[0].rates.input"),
        (file(&json!(-1)), "models[0].prices[0].rates.input"),
        (file(&json!(0.5)), "models[0].prices[0].rates.input"),
        (file(&json!("1e6")), "models[0].prices[0].rates.input"),
        (unknown_member, "models[0].currency"),
        (twice, "models[1].id"),
    ] {
        stage.write("wrong.json", &wrong.to_string());
        let ran = delivers(&stage, &steps, &["--catalog", "wrong.json"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("wrong.json") && ran.stderr.contains(&format!("`{at}`")), "{at}: {ran:?}");
        assert!(!stage.stored(), "{at}: nothing is written");
    }
}

#[tokio::test]
async fn b80_each_booking_of_a_run_names_the_id_and_date_of_the_catalog_it_was_priced_with() {
    let stage = Stage::new();
    let mut node = searching(&stage, "never");
    node["model"] = json!("gpt-5");
    stage.node(&node);
    let submit = json!({"tools": [{"name": "submit", "input": {"value": {"severity": "low"}}}]});
    delivers(&stage, &json!({"steps": [submit, says_done()]}), &["--run", "night"]).delivered();
    let store = open_url(&stage.url()).unwrap();
    let log = LogKey::Shared(SharedLog::Ledger(RunId::new("night").unwrap()));
    let mut bookings = 0;
    for record in read_all::<LedgerBody>(&*store, &log).await.unwrap() {
        let (LedgerBody::Hold { catalog, .. } | LedgerBody::Booking { catalog, .. }) = &record.body else { continue };
        let (id, date) = catalog.rsplit_once(' ').unwrap();
        assert!(id.starts_with("genai-prices-") && date.parse::<Date>().is_ok(), "{catalog}");
        bookings += u32::from(matches!(record.body, LedgerBody::Booking { .. }));
    }
    assert!(bookings > 0);
}

#[test]
fn report_16_a_budget_under_an_old_name_was_not_read() {
    let stage = Stage::new();
    for old in ["budget", "max_budget", "budgetUsd", "cap"] {
        let mut node = searching(&stage, "never");
        node[old] = json!("0.5");
        stage.node(&node);
        let ran = delivers(&stage, &json!({"steps": [says_done()]}), &[]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(&format!("unknown field `{old}`")), "{ran:?}");
        assert!(!stage.stored());
    }
}
