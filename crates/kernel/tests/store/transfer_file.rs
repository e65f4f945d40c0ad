//! What an export file is, and what is told of one that is damaged, cut, foreign or put together anew.

use std::io::Cursor;
use std::sync::Arc;

use agentrun_kernel::*;
use serde_json::{Value, json};

use crate::backends;
use crate::suite::{data, key, numbers};
use crate::transfer::{begun, books, post, read, sealed};

/// A file of a session of three records, with a message.
async fn a_file() -> Vec<u8> {
    let (_, both) = backends::memory();
    drop(begun(&both.store, "a", [data(1)]).await);
    both.store.append_at(&SharedLog::Inbox(key("a")), Seq(0), post("words")).await.unwrap();
    sealed(&both.store, "a").await
}

#[tokio::test]
async fn every_changed_byte_of_a_file_is_found_and_its_line_named() {
    let file = a_file().await;
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 7);
    for place in 0..file.len() {
        for changed in [file[place] ^ 1, b' ', b'\n', 0xFF] {
            if changed == file[place] {
                continue;
            }
            let mut broken = file.clone();
            broken[place] = changed;
            let Err(error) = Import::read(Cursor::new(&broken)) else { panic!("byte {place} as {changed:#x} passed") };
            let line = 1 + file[..place].iter().filter(|byte| **byte == b'\n').count() as u64;
            // Named where it is, or at the end line whose checksum it breaks; never before it. A line break of its own makes it the next.
            assert!(error.line >= line && error.line <= 8, "byte {place} of line {line} as {changed:#x}: {error}");
            assert!(error.offset <= broken.len() as u64);
        }
    }
}

#[tokio::test]
async fn a_file_cut_anywhere_is_told_as_cut() {
    let file = a_file().await;
    for length in 0..file.len() {
        let error = Import::read(Cursor::new(&file[..length])).unwrap_err();
        let first = length <= file.iter().position(|byte| *byte == b'\n').unwrap();
        match error.fault {
            FileFault::Foreign if first => {}
            FileFault::Cut if !first => {}
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[tokio::test]
async fn what_is_no_export_or_a_newer_one_is_told_so() {
    for foreign in [
        &b""[..],
        b"\n",
        b"text\n",
        b"{}\n",
        b"[1]\n",
        b"{\"type\":\"event\",\"version\":1}\n",
        b"SQLite format 3\0",
        &[0xFF; 200],
    ] {
        let error = Import::read(Cursor::new(foreign)).unwrap_err();
        assert!(matches!((error.line, &error.fault), (1, FileFault::Foreign)), "{foreign:?}: {error}");
    }
    let file = String::from_utf8(a_file().await).unwrap();
    let newer = file.replacen("\"version\":1", "\"version\":2", 1);
    let error = Import::read(Cursor::new(newer)).unwrap_err();
    assert!(matches!(error.fault, FileFault::Version { found: 2 }), "{error}");
    let newer = file.replacen("\"format\":1", "\"format\":9", 1);
    let error = Import::read(Cursor::new(newer)).unwrap_err();
    assert!(matches!(error.fault, FileFault::Format { found: 9 }), "{error}");
    let twice = format!("{file}{file}");
    let error = Import::read(Cursor::new(twice)).unwrap_err();
    assert!(matches!((error.line, &error.fault), (8, FileFault::Damaged(_))), "{error}");
    let more = format!("{file}x");
    assert!(matches!(Import::read(Cursor::new(more)).unwrap_err().fault, FileFault::Damaged(_)));
}

/// Lines taken out, put in twice or in another order, with a checksum of the file that fits: what they say still has to.
#[tokio::test]
async fn a_file_put_together_anew_is_held_against_its_own_records() {
    let file = String::from_utf8(a_file().await).unwrap();
    let lines: Vec<&str> = file.lines().collect();
    let signed = |lines: &[&str]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let end = json!({"type": "end", "sha256": Digest::of(text.as_bytes()).as_str()});
        Import::read(Cursor::new(format!("{text}{end}\n")))
    };
    assert!(signed(&lines[..6]).is_ok(), "the test's own checksum is right");
    for (what, order, at) in [
        ("a record left out", &[0, 1, 3, 4, 5][..], 3),
        ("the last record left out", &[0, 1, 2, 3, 5], 6),
        ("the message left out", &[0, 1, 2, 3, 4], 6),
        ("a record twice", &[0, 1, 2, 2, 3, 4, 5], 4),
        ("two swapped", &[0, 1, 3, 2, 4, 5], 3),
        ("a message before the records", &[0, 5, 1, 2, 3, 4], 3),
        ("two first lines", &[0, 0, 1, 2, 3, 4, 5], 2),
        ("no first line", &[1, 2, 3, 4, 5], 1),
        ("no records", &[0], 2),
    ] {
        let error = signed(&order.iter().map(|place| lines[*place]).collect::<Vec<_>>()).unwrap_err();
        assert_eq!(error.line, at, "{what}: {error}");
    }
    let earlier = r#"{"type":"earlier","key":"first"}"#;
    assert!(signed(&[&lines[..6], &[earlier]].concat()).is_ok());
    let error = signed(&[&lines[..2], &[earlier], &lines[2..6]].concat()).unwrap_err();
    assert_eq!(error.line, 4, "an earlier attempt before the records: {error}");
    // A record of another session, or of another place, fits neither name nor place.
    let moved = lines[3].replacen("\"seq\":3", "\"seq\":2", 1);
    let error = signed(&[lines[0], lines[1], &moved]).unwrap_err();
    assert!(matches!(error.fault, FileFault::Record { seq: Seq(2), error: DecodeError::Damaged }), "{error}");
    let other = lines[0].replacen("\"key\":\"a\"", "\"key\":\"b\"", 1);
    let error = signed(&[&[other.as_str()], &lines[1..6]].concat()).unwrap_err();
    assert!(matches!(error.fault, FileFault::Record { seq: Seq(1), error: DecodeError::Damaged }), "{error}");
}

#[tokio::test]
async fn a_line_without_an_end_does_not_fill_the_memory() {
    let file = a_file().await;
    let first = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let endless = std::io::Read::chain(Cursor::new(file[..first].to_vec()), std::io::repeat(b' '));
    let error = Import::read(std::io::BufReader::new(endless)).unwrap_err();
    assert!(matches!((error.line, &error.fault), (2, FileFault::Damaged(_))), "{error}");
}

/// SQLite says no in the middle of an import, then no more: nothing was there, and the same import lands.
#[tokio::test]
async fn f17_an_import_that_was_cut_left_nothing_and_is_done_again() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("sessions.db");
    let store: Store = Arc::new(SqliteStore::open(&path).unwrap());
    let planted = rusqlite::Connection::open(&path).unwrap();
    planted
        .execute_batch(
            "CREATE TRIGGER planted BEFORE INSERT ON record WHEN new.seq = 3 BEGIN SELECT raise(ABORT, 'planted'); END",
        )
        .unwrap();
    let import = read(&a_file().await);
    let refused = import.land(store.as_ref(), None).await;
    assert!(matches!(&refused, Err(LandError::Refused(ImportError::Refused(Refused::Busy(_))))), "{refused:?}");
    assert!(store.heads(None, 5).await.unwrap().is_empty());
    assert!(books(&store).await.is_empty());
    let rows = |table: &str| -> i64 {
        planted.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("record"), rows("log"), rows("head")), (0, 0, 0));
    planted.execute_batch("DROP TRIGGER planted").unwrap();
    import.land(store.as_ref(), None).await.unwrap();
    assert_eq!(numbers(&store, "a").await, [1]);
}

/// A file is text that a person's tools can look into, and holds the records' words as they are.
#[tokio::test]
async fn a_file_is_lines_of_json_with_the_records_texts_in_them() {
    let file = String::from_utf8(a_file().await).unwrap();
    let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["export", "record", "record", "record", "record", "post", "end"]);
    let top = lines[0].as_object().unwrap();
    assert_eq!(
        top.keys().collect::<Vec<_>>(),
        ["type", "version", "format", "by", "key", "records", "inbox", "cap"]
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    let body: Value = serde_json::from_str(lines[3]["text"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"kind": "data", "name": "n", "value": 1}));
}
