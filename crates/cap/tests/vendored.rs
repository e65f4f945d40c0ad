//! What is copied from elsewhere is listed in UPSTREAM.json and credited in NOTICE, and nothing else is (B97).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Upstream {
    sources: Vec<Source>,
    vendored: Vec<Vendored>,
    ours: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    name: String,
    version: String,
    licence: String,
    registry: String,
    file: String,
    sha256: String,
    used_for: String,
    refresh: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vendored {
    path: String,
    from: Vec<String>,
    sha256: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn upstream() -> Upstream {
    serde_json::from_slice(&fs::read(root().join("UPSTREAM.json")).unwrap()).unwrap()
}

fn files_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.insert(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn b97_every_file_under_vendor_and_of_the_oracles_is_listed_with_its_checksum_and_nothing_else_is() {
    let upstream = upstream();
    let mut found = BTreeSet::new();
    for folder in ["vendor", "testing/oracles"] {
        files_below(&root().join(folder), &mut found);
    }
    found.retain(|path| !path.contains("__pycache__"));
    let listed: BTreeSet<String> =
        upstream.vendored.iter().map(|file| file.path.clone()).chain(upstream.ours.iter().cloned()).collect();
    assert_eq!(found, listed);
    for file in &upstream.vendored {
        let digest: String = Sha256::digest(fs::read(root().join(&file.path)).unwrap())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(digest, file.sha256, "{} was edited by hand; change the refresh script instead", file.path);
        for source in &file.from {
            assert!(
                upstream.sources.iter().any(|known| known.name == *source),
                "{} comes from {source}, which is not listed",
                file.path
            );
        }
    }
}

#[test]
fn b97_every_source_is_pinned_licensed_used_and_refreshable() {
    let upstream = upstream();
    for source in &upstream.sources {
        for (what, text) in [
            ("version", &source.version),
            ("licence", &source.licence),
            ("registry", &source.registry),
            ("file", &source.file),
            ("use", &source.used_for),
        ] {
            assert!(!text.is_empty(), "{}: no {what}", source.name);
        }
        assert!(source.sha256.len() == 64 && source.sha256.bytes().all(|b| b.is_ascii_hexdigit()), "{}", source.name);
        assert!(
            source.file.contains(&source.version),
            "{}: {} is not version {}",
            source.name,
            source.file,
            source.version
        );
        assert!(upstream.vendored.iter().any(|file| file.from.contains(&source.name)), "{} gives nothing", source.name);
        let script = source.refresh.split_whitespace().next().unwrap();
        assert!(root().join(script).is_file(), "{}: no script {script}", source.name);
    }
}

#[test]
fn b97_notice_credits_exactly_the_sources_with_copyright_licence_and_files() {
    let upstream = upstream();
    let notice = fs::read_to_string(root().join("NOTICE")).unwrap();
    // A credit is a paragraph whose first line is `NAME (REGISTRY)`.
    let credits: Vec<&str> =
        notice.split("\n\n").filter(|part| part.lines().next().is_some_and(|line| line.ends_with(')'))).collect();
    let credited: BTreeSet<String> = credits.iter().map(|part| part.lines().next().unwrap().to_owned()).collect();
    let sources: BTreeSet<String> =
        upstream.sources.iter().map(|source| format!("{} ({})", source.name, source.registry)).collect();
    assert_eq!(credited, sources);
    for source in &upstream.sources {
        let credit = credits.iter().find(|part| part.starts_with(&format!("{} (", source.name))).unwrap();
        assert!(credit.contains(&format!("{} License", source.licence)), "{}: licence", source.name);
        for file in upstream.vendored.iter().filter(|file| file.from.contains(&source.name)) {
            assert!(credit.contains(&file.path), "{}: {} is not named", source.name, file.path);
        }
        let licence = upstream
            .vendored
            .iter()
            .find(|file| file.path.contains("licences/") && file.from == [source.name.clone()])
            .unwrap();
        let text = fs::read_to_string(root().join(&licence.path)).unwrap();
        let copyright = text.lines().find(|line| line.starts_with("Copyright")).unwrap();
        assert!(credit.contains(copyright), "{}: `{copyright}` is not in NOTICE", source.name);
    }
}

#[test]
fn b97_the_catalog_names_the_versions_it_was_made_from() {
    let catalog = agentrun_cap::Catalog::bundled().unwrap();
    let expected: Vec<String> =
        upstream().sources.iter().map(|source| format!("{}-{}", source.name, source.version)).collect();
    assert_eq!(catalog.id(), expected.join("+"));
}
