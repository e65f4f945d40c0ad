//! vendor/prices/refresh.py on made-up packages, without a network: the difference is told line by line, and what could let a run
//! overspend (a lowered price, a dropped model) changes nothing until a person accepts it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agentrun_cap::Catalog;
use serde_json::{Value, json};
use tempfile::TempDir;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A checkout with nothing but the script, the list of sources and the catalog it makes.
struct Checkout(TempDir);

struct Ran {
    done: bool,
    stdout: String,
    stderr: String,
}

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(checkout.at("vendor/prices/licences")).unwrap();
        fs::copy(here("../../vendor/prices/refresh.py"), checkout.at("vendor/prices/refresh.py")).unwrap();
        let upstream = json!({"sources": [{"name": "genai-prices"}, {"name": "litellm"}],
            "vendored": [{"path": "vendor/prices/catalog.json", "sha256": ""}]});
        fs::write(checkout.at("UPSTREAM.json"), upstream.to_string()).unwrap();
        checkout
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn catalog(&self) -> Catalog {
        Catalog::from_json(&fs::read(self.at("vendor/prices/catalog.json")).unwrap()).unwrap()
    }

    fn input(&self, model: &str) -> i64 {
        let day = "2026-11-30".parse().unwrap();
        self.catalog().model(model).unwrap().rates(None, day).unwrap().rates.input.pico()
    }

    /// Refreshes from packages of this version with these prices a million tokens.
    fn refresh(&self, version: &str, models: &[(&str, &str, &str)], more: &[&str]) -> Ran {
        self.refresh_with(version, models, json!({}), |_| {}, more)
    }

    fn refresh_with(
        &self,
        version: &str,
        models: &[(&str, &str, &str)],
        limits: Value,
        tamper: impl FnOnce(&mut Value),
        more: &[&str],
    ) -> Ran {
        let mut known: serde_json::Map<String, Value> =
            models.iter().map(|row| (row.0.to_owned(), json!({}))).collect();
        known.extend(limits.as_object().unwrap().clone());
        let asked = json!({"models": models, "limits": known, "version": version});
        let made = python(
            Command::new("python3").arg(here("tests/refresh/wheels.py")).arg(self.0.path()).arg(asked.to_string()),
        );
        assert!(made.done, "{}", made.stderr);
        let mut wheels: Value = serde_json::from_str(&made.stdout).unwrap();
        tamper(&mut wheels);
        let text = |package: usize, part: usize| wheels[package][part].as_str().unwrap().to_owned();
        let mut command = Command::new("python3");
        command.arg(self.at("vendor/prices/refresh.py")).args(["--date", "2026-11-30"]);
        command.args(["--genai", &text(0, 0), &text(0, 1), "--litellm", &text(1, 0), &text(1, 1)]).args(more);
        python(&mut command)
    }
}

fn python(command: &mut Command) -> Ran {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("these tests need python3");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { done: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

const FIRST: [(&str, &str, &str); 2] = [("m-1", "1.25", "10"), ("m-2", "2", "8")];

fn made() -> Checkout {
    let checkout = Checkout::new();
    let ran = checkout.refresh("1.0.0", &FIRST, &[]);
    assert!(ran.done, "{}", ran.stderr);
    assert_eq!((checkout.input("m-1"), checkout.input("m-2")), (1_250_000, 2_000_000));
    checkout
}

#[test]
fn b76_a_raised_price_and_a_new_model_are_told_and_taken() {
    let checkout = made();
    let ran = checkout.refresh("1.1.0", &[("m-1", "1.5", "10"), ("m-2", "2", "8"), ("m-3", "3", "3")], &[]);
    assert!(ran.done, "{}", ran.stderr);
    let told: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(told[0], "  m-1 prices.[start].rates.input: 1250000 -> 1500000");
    assert_eq!(told[1], "+ m-3");
    assert_eq!(checkout.input("m-1"), 1_500_000);
    assert_eq!(checkout.catalog().stamp(), "genai-prices-1.1.0+litellm-1.1.0 2026-11-30");
    let upstream: Value = serde_json::from_slice(&fs::read(checkout.at("UPSTREAM.json")).unwrap()).unwrap();
    assert_eq!(upstream["sources"][0]["version"], "1.1.0", "the list of sources goes with it");
}

#[test]
fn b76_a_lowered_price_needs_accept_and_until_then_nothing_is_written() {
    let checkout = made();
    let before = fs::read(checkout.at("vendor/prices/catalog.json")).unwrap();
    let lowered = [("m-1", "1.25", "9.5"), ("m-2", "2", "8")];
    let ran = checkout.refresh("1.1.0", &lowered, &[]);
    assert!(!ran.done);
    assert!(
        ran.stderr.contains("--accept") && ran.stderr.contains("m-1 prices.[start].rates.output: 10000000 -> 9500000"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read(checkout.at("vendor/prices/catalog.json")).unwrap(), before);
    let ran = checkout.refresh("1.1.0", &lowered, &["--accept"]);
    assert!(ran.done, "{}", ran.stderr);
    assert_ne!(fs::read(checkout.at("vendor/prices/catalog.json")).unwrap(), before);
}

#[test]
fn b76_a_dropped_model_needs_accept() {
    let checkout = made();
    let ran = checkout.refresh("1.1.0", &FIRST[..1], &[]);
    assert!(!ran.done && ran.stdout.contains("- m-2") && ran.stderr.contains("dropped model m-2"), "{}", ran.stderr);
    assert!(checkout.catalog().model("m-2").is_some());
    assert!(checkout.refresh("1.1.0", &FIRST[..1], &["--accept"]).done);
    assert!(checkout.catalog().model("m-2").is_none());
}

#[test]
fn b76_a_price_is_rounded_up_to_whole_picos_and_one_of_zero_is_no_price() {
    let checkout = Checkout::new();
    assert!(checkout.refresh("1.0.0", &[("m-1", "0.0000011", "10")], &[]).done);
    assert_eq!(checkout.input("m-1"), 2, "a hair too high, never too low");
    let ran = checkout.refresh("1.0.0", &[("m-1", "0", "10")], &["--accept"]);
    assert!(!ran.done && ran.stderr.contains("is no price"), "{}", ran.stderr);
}

#[test]
fn b76_a_model_that_the_second_source_has_dearer_is_left_out_and_named() {
    let checkout = Checkout::new();
    let limits = json!({"m-1": {"input_cost_per_token": 0.000002}});
    let ran = checkout.refresh_with("1.0.0", &FIRST, limits, |_| {}, &[]);
    assert!(ran.done && ran.stdout.contains("left out: m-1"), "{} {}", ran.stdout, ran.stderr);
    assert!(checkout.catalog().model("m-1").is_none() && checkout.catalog().model("m-2").is_some());
}

#[test]
fn b97_a_package_that_is_not_the_pinned_one_is_not_read() {
    let checkout = made();
    let ran =
        checkout.refresh_with("1.0.0", &FIRST, json!({}), |wheels| wheels[0][1] = json!("0".repeat(64)), &["--accept"]);
    assert!(!ran.done && ran.stderr.contains("not the pinned"), "{}", ran.stderr);
    let ran = checkout.refresh_with("1.0.0", &FIRST, json!({}), |wheels| wheels[0] = wheels[1].clone(), &["--accept"]);
    assert!(!ran.done && ran.stderr.contains("not genai-prices"), "{}", ran.stderr);
}

#[test]
fn b76_without_a_change_it_writes_the_same_bytes() {
    let checkout = made();
    let before = fs::read(checkout.at("vendor/prices/catalog.json")).unwrap();
    let ran = checkout.refresh("1.0.0", &FIRST, &[]);
    assert!(ran.done && ran.stdout.lines().count() == 1, "{}", ran.stdout);
    assert_eq!(fs::read(checkout.at("vendor/prices/catalog.json")).unwrap(), before);
}
