//! What the fuzz harnesses share: a corpus of files, bytes made of it by changes that shrink, and how long to go on. A normal run tries a few
//! thousand; `AGENTRUN_FULL=1` goes on for ten minutes a harness, `AGENTRUN_FUZZ_SECONDS` for as long as it says.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseError, TestRunner};

/// Cases between two looks at the clock.
const CASES: u32 = 2_000;

/// The files of a folder of the corpus, by name.
pub(crate) fn corpus(folder: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(folder);
    let mut all: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
        })
        .collect();
    all.sort();
    assert!(all.len() >= 5, "the corpus of {folder} was not found");
    all
}

/// One change: where, how, with which byte or word.
pub(crate) type Change = (Index, u8, u8);

/// Bytes of the corpus with changes; words are what the format itself is made of.
pub(crate) fn changed(corpus: &[(String, Vec<u8>)], words: &[&[u8]], which: &Index, changes: &[Change]) -> Vec<u8> {
    let mut bytes = corpus[which.index(corpus.len())].1.clone();
    for (place, how, byte) in changes {
        let at = place.index(bytes.len() + 1);
        let word = words[usize::from(*byte) % words.len()];
        match how % 8 {
            0 if at < bytes.len() => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            // A piece of itself again, somewhere else or in the same place.
            4 => {
                let end = (at + usize::from(*byte)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let end = (at + usize::from(*byte)).min(bytes.len());
                bytes.drain(at..end);
            }
            // Over what stands there, or between.
            6 => {
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word.iter().copied());
            }
            _ => drop(bytes.splice(at..at, word.iter().copied())),
        }
    }
    bytes
}

pub(crate) fn changes() -> impl Strategy<Value = (Index, Vec<Change>)> {
    (any::<Index>(), vec((any::<Index>(), any::<u8>(), any::<u8>()), 0..6))
}

/// Pieces of the bytes as they may come.
pub(crate) fn split<'b>(bytes: &'b [u8], cuts: &[Index]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// Tries until the time is over, and tells how many cases and how many of them were `good`: a harness that only ever sees rubbish shows here.
pub(crate) fn fuzz<S: Strategy>(name: &str, strategy: &S, test: impl Fn(S::Value) -> Result<bool, TestCaseError>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let full = number("AGENTRUN_FULL") == Some(1);
    let time = Duration::from_secs(number("AGENTRUN_FUZZ_SECONDS").unwrap_or(if full { 600 } else { 0 }));
    let (start, cases, good) = (Instant::now(), std::cell::Cell::new(0_u64), std::cell::Cell::new(0_u64));
    loop {
        // Failures are minimised in the report; what they find goes into the corpus by hand.
        let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
        let ran = TestRunner::new(config).run(strategy, |value| {
            let is_good = test(value)?;
            cases.set(cases.get() + 1);
            good.set(good.get() + u64::from(is_good));
            Ok(())
        });
        if let Err(failed) = ran {
            panic!("{name}: {failed}");
        }
        if start.elapsed() >= time {
            break;
        }
    }
    println!("{name}: {} cases in {:?}, {} of them well formed", cases.get(), start.elapsed(), good.get());
    assert!(good.get() > 0 && good.get() < cases.get(), "{name} saw only one kind of input");
}
