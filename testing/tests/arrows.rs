//! What holds of the workspace as a whole: imports point one way, no crate knows an application host, vendored data is listed and credited,
//! and the project speaks of itself alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn metadata() -> Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Members of the workspace and what each imports of the others; dev-dependencies apart.
fn arrows() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let members: BTreeSet<String> =
        packages.iter().map(|package| package["name"].as_str().unwrap().to_owned()).collect();
    let imports = |package: &Value, dev: bool| {
        let dependencies = package["dependencies"].as_array().unwrap();
        let of_kind = dependencies.iter().filter(|dependency| (dependency["kind"] == "dev") == dev);
        of_kind
            .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
            .filter(|name| members.contains(name))
            .collect()
    };
    packages
        .iter()
        .map(|package| {
            (package["name"].as_str().unwrap().to_owned(), (imports(package, false), imports(package, true)))
        })
        .collect()
}

const ALLOWED: &[(&str, &[&str])] = &[
    ("agentrun-kernel", &[]),
    ("agentrun-cap", &["agentrun-kernel"]),
    ("agentrun-adapter", &["agentrun-kernel"]),
    ("agentrun-host", &["agentrun-kernel", "agentrun-cap"]),
    ("agentrun-runner", &["agentrun-kernel", "agentrun-cap", "agentrun-adapter", "agentrun-host"]),
    (
        "agentrun",
        &[
            "agentrun-kernel",
            "agentrun-cap",
            "agentrun-adapter",
            "agentrun-host",
            "agentrun-runner",
            "agentrun-testing",
        ],
    ),
    ("agentrun-testing", &["agentrun-kernel", "agentrun-cap", "agentrun-adapter", "agentrun-host", "agentrun-runner"]),
    ("agentrun-model", &[]),
    ("agentrun-bench-proxy", &["agentrun-kernel", "agentrun-cap", "agentrun-host"]),
];

#[test]
fn imports_point_one_way() {
    let arrows = arrows();
    let known: BTreeSet<_> = ALLOWED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        arrows.keys().cloned().collect::<BTreeSet<_>>(),
        known,
        "a member was added or removed: draw its arrows here"
    );
    for (name, allowed) in ALLOWED {
        for import in &arrows[*name].0 {
            assert!(allowed.contains(&import.as_str()), "{name} must not import {import}");
        }
    }
}

#[test]
fn b96_no_crate_of_ours_imports_an_application_host() {
    let listed = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--all-features",
            "--offline",
            "--prefix",
            "none",
            "--edges",
            "normal",
            "--format",
            "{p}",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let tree = String::from_utf8(listed.stdout).unwrap();
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("agentrun-kernel"), "the tree was not read");
    for host in ["axum", "actix-web", "rocket", "warp", "tower-http", "tauri", "poem", "salvo", "tonic", "rmcp"] {
        assert!(!crates.contains(host), "{host} is an application's choice, not ours");
    }
}

/// A process that kills itself at a named point is for the sweep's own build alone.
#[test]
fn only_the_sweep_turns_crossings_on() {
    let mut on = Vec::new();
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        for (feature, enables) in package["features"].as_object().unwrap() {
            for enabled in enables.as_array().unwrap().iter().map(|it| it.as_str().unwrap()) {
                if enabled.ends_with("crossings") || enabled == "sweep" || enabled.ends_with("/sweep") {
                    on.push(format!("{name}/{feature} by {enabled}"));
                }
            }
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let features = dependency["features"].as_array().unwrap();
            if features.iter().any(|feature| feature == "crossings" || feature == "sweep") {
                on.push(format!("{name} by its dependency {}", dependency["name"]));
            }
        }
    }
    assert_eq!(on, ["agentrun-testing/sweep by agentrun-kernel/crossings"]);
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    for package in metadata()["packages"].as_array().unwrap() {
        let manifest = std::fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package["manifest_path"]);
    }
}

/// Files git tracks, and those it would.
fn files() -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let names = String::from_utf8(out.stdout).unwrap();
    names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| root().join(name))
        .filter(|path| path.is_file())
        .collect()
}

#[test]
fn the_project_speaks_of_itself_alone() {
    // Put together here, so that this file does not hold what it looks for.
    let never = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["registry.", "npmjs"],
        ["static.cr", "ates.io"],
        ["index.cr", "ates.io"],
        ["pythonhost", "ed.org"],
        ["deb.deb", "ian.org"],
    ]
    .map(|parts| parts.concat());
    for path in files() {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for word in &never {
            assert!(!text.contains(word.as_str()), "{} holds `{word}`", path.display());
        }
    }
}
