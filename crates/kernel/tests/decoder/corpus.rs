//! The corpus: `corpus/KIND.frame`, the bytes of one record of each kind as the first format wrote it. Run this test with
//! `AGENTRUN_WRITE_CORPUS=1` to add kinds that have none; files that are there are never changed.

use std::path::{Path, PathBuf};

use agentrun_kernel::Body;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::{bodies, harness};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decoder/corpus")
}

/// Kinds and bytes.
pub(crate) fn session() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn kinds_without_a_record_in_the_corpus_are_written_on_demand() {
    if std::env::var_os("AGENTRUN_WRITE_CORPUS").is_none() {
        return;
    }
    let (mut runner, session) = (TestRunner::deterministic(), bodies::session());
    for kind in Body::KINDS {
        let path = folder().join(format!("{kind}.frame"));
        while !path.exists() {
            let body = session.new_tree(&mut runner).unwrap().current();
            if body.kind() == *kind {
                std::fs::write(&path, &*harness::frame(&body).bytes).unwrap();
            }
        }
    }
}
