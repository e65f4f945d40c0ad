//! `--catalog FILE`: what it adds and overrides, and each way in which such a file can be wrong, refused with the place in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::fs;

use agentrun_cap::{Catalog, CatalogError, Date, price};
use agentrun_kernel::Usage;
use serde_json::{Value, json};

fn day() -> Date {
    "2026-11-30".parse().unwrap()
}

fn file() -> Value {
    json!({"format": 1, "id": "house", "date": "2026-12-01", "models": [{
        "id": "house-model", "provider": "openai", "context_window": 1000, "max_output": 100,
        "geo": [{"name": "us", "permille": 1100}],
        "prices": [{"from": null, "rates": {"input": 7, "output": 9, "cache_read": 3},
            "above": [{"prompt": 500, "rates": {"input": 8, "output": 10}}], "up_to": 900}],
        "modes": [{"name": "priority", "prices": [{"from": "2026-01-01", "rates": {"input": 14, "output": 18}}]}]}]})
}

fn opened(file: &Value) -> Result<Catalog, CatalogError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.json");
    fs::write(&path, file.to_string()).unwrap();
    Catalog::bundled().unwrap().with_file(&path)
}

fn cost(catalog: &Catalog, model: &str, usage: &Usage) -> (String, String) {
    let priced = price(catalog, model, usage, day()).unwrap();
    (priced.amount.to_string(), priced.catalog)
}

#[test]
fn b76_a_file_adds_a_model_and_each_price_names_both_catalogs_and_the_newer_date() {
    let (bundled, both) = (Catalog::bundled().unwrap(), opened(&file()).unwrap());
    let usage = Usage { input: 1, output: 1, ..Usage::default() };
    let (usd, stamp) = cost(&both, "house-model", &usage);
    assert_eq!(usd, "0.000000000016");
    assert_eq!(stamp, format!("{}+house 2026-12-01", bundled.id()));
    // What the file does not list costs what it did.
    assert_eq!(cost(&both, "gpt-5", &usage).0, cost(&bundled, "gpt-5", &usage).0);
    assert_eq!(cost(&bundled, "gpt-5", &usage).1, bundled.stamp());
}

#[test]
fn b76_a_row_of_a_file_stands_whole_in_place_of_the_bundled_one() {
    let mut over = file();
    over["models"][0]["id"] = json!("gpt-5");
    let both = opened(&over).unwrap();
    assert_eq!(cost(&both, "gpt-5", &Usage { input: 1, ..Usage::default() }).0, "0.000000000007");
    let flex = Usage { input: 1, tier: Some("flex".to_owned()), ..Usage::default() };
    assert!(price(&both, "gpt-5", &flex, day()).is_err(), "a mode of the bundled row is not mixed in");
}

#[test]
fn b76_whatever_is_wrong_in_a_file_is_a_typed_error_with_the_place_and_nothing_of_it_is_taken() {
    let prices = "models[0].prices[0]";
    type Change = (&'static str, Value);
    let cases: Vec<(Change, String, &str)> = vec![
        // Unknown members, at every level.
        (("/currency", json!("USD")), "currency".into(), "unknown field `currency`"),
        (("/models/0/contextWindow", json!(5)), "models[0].contextWindow".into(), "unknown field"),
        (("/models/0/prices/0/until", json!("2027-01-01")), format!("{prices}.until"), "unknown field"),
        (("/models/0/prices/0/rates/input_mtok", json!(1)), format!("{prices}.rates.input_mtok"), "unknown field"),
        (("/models/0/prices/0/above/0/edge", json!(1)), format!("{prices}.above[0].edge"), "unknown field"),
        (("/models/0/modes/0/when", json!(1)), "models[0].modes[0].when".into(), "unknown field"),
        (("/models/0/geo/0/factor", json!(1.1)), "models[0].geo[0].factor".into(), "unknown field"),
        // Prices that are none.
        (("/models/0/prices/0/rates/input", json!(0)), format!("{prices}.rates.input"), "above zero, not 0"),
        (("/models/0/prices/0/rates/cache_read", json!(0)), format!("{prices}.rates.cache_read"), "above zero, not 0"),
        (("/models/0/prices/0/rates/output", json!(-1)), format!("{prices}.rates.output"), "above zero, not -1"),
        (("/models/0/prices/0/above/0/rates/input", json!(0)), format!("{prices}.above[0].rates.input"), "above zero"),
        (
            ("/models/0/modes/0/prices/0/rates/input", json!(0)),
            "models[0].modes[0].prices[0].rates.input".into(),
            "above zero",
        ),
        // Decimals, texts, and numbers beyond any amount.
        (("/models/0/prices/0/rates/input", json!(0.5)), format!("{prices}.rates.input"), "floating point"),
        (("/models/0/prices/0/rates/input", json!(1e6)), format!("{prices}.rates.input"), "floating point"),
        (("/models/0/prices/0/rates/input", json!("0.5")), format!("{prices}.rates.input"), "string"),
        (("/models/0/prices/0/rates/input", json!(u64::MAX)), format!("{prices}.rates.input"), "18446744073709551615"),
        (("/models/0/prices/0/rates/web_search", json!(null)), format!("{prices}.rates.web_search"), "null"),
        (("/models/0/geo/0/permille", json!(1.1)), "models[0].geo[0].permille".into(), "floating point"),
        (("/models/0/geo/0/permille", json!(-1)), "models[0].geo[0].permille".into(), "-1"),
        (("/models/0/context_window", json!(-1)), "models[0].context_window".into(), "-1"),
        (("/models/0/provider", json!("acme")), "models[0].provider".into(), "unknown variant `acme`"),
        (("/models/0/prices/0/from", json!("2026-02-30")), format!("{prices}.from"), "not a day"),
        (("/date", json!("yesterday")), "date".into(), "not a day"),
        // Well formed, and wrong.
        (("/format", json!(2)), "format".into(), "format 1, not 2"),
        (("/id", json!("")), "id".into(), "bookings name it"),
        (("/id", json!("a\nb")), "id".into(), "bookings name it"),
        (("/models/0/id", json!("")), "models[0].id".into(), "not empty"),
        (("/models/0/max_output", json!(0)), "models[0]".into(), "no tokens"),
        (("/models/0/prices", json!([])), "models[0].prices".into(), "no price at all"),
        (("/models/0/geo/0/permille", json!(0)), "models[0].geo[0]".into(), "above zero"),
        (("/models/0/geo/0/name", json!("global")), "models[0].geo[0]".into(), "under its own name"),
        (("/models/0/modes/0/name", json!("default")), "models[0].modes[0].name".into(), "no mode of its own"),
        (("/models/0/modes/0/name", json!("auto")), "models[0].modes[0].name".into(), "no mode of its own"),
        (("/models/0/modes/0/prices", json!([])), "models[0].modes[0].prices".into(), "no price at all"),
        (("/models/0/prices/0/up_to", json!(500)), format!("{prices}.up_to"), "no prompt reaches"),
    ];
    for ((pointer, value), at, why) in cases {
        let mut wrong = file();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        wrong.pointer_mut(parent).unwrap()[member] = value.clone();
        let error = opened(&wrong).unwrap_err();
        let (CatalogError::Json { at: place, why: reason } | CatalogError::Invalid { at: place, why: reason }) = &error
        else {
            panic!("{pointer}: {error}")
        };
        assert!(*place == at && reason.contains(why), "{pointer} = {value}: {error}");
        assert!(error.to_string().contains(&format!("`{at}`")), "the place is in the sentence: {error}");
    }
}

#[test]
fn b76_two_rows_for_one_id_are_refused_wherever_the_second_stands() {
    let mut twice = file();
    let row = twice["models"][0].clone();
    twice["models"].as_array_mut().unwrap().extend([
        json!({"id": "between", "provider": "openai", "context_window": 1,
        "prices": [{"from": null, "rates": {"input": 1, "output": 1}}]}),
        row,
    ]);
    let error = opened(&twice).unwrap_err();
    assert!(matches!(&error, CatalogError::Invalid { at, .. } if at == "models[2].id"), "{error}");
    assert!(error.to_string().contains("two rows for `house-model`; keep one"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Catalog::bundled().unwrap().with_file(std::path::Path::new("gone/prices.json")).unwrap_err();
    assert!(matches!(error, CatalogError::Read { .. }) && error.to_string().contains("gone/prices.json"), "{error}");
}
