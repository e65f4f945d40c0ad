//! The program `agentrun-scripted-model`, from outside: its first line, its log, its two ends, and bad input.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun-scripted-model"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The URL in the program's first line.
fn url(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["type"], "scripted");
    line["url"].as_str().unwrap().to_owned()
}

fn ask(url: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let length = body.len();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("script.json");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn it_serves_and_logs_until_its_stdin_ends() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), r#"{"steps":[{"text":"hello"}]}"#);
    let log = folder.path().join("log");
    fs::write(&log, "kept\n").unwrap();
    let mut child = program(&["--script", &script, "--log", log.to_str().unwrap()]).spawn().unwrap();
    let url = url(&mut child);
    assert!(url.starts_with("http://127.0.0.1:"));
    assert!(ask(&url).contains("hello"));
    let lines = fs::read_to_string(&log).unwrap();
    let (kept, line) = lines.split_once('\n').unwrap();
    assert_eq!(kept, "kept", "the log is appended to");
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["step"], 0);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_script_from_stdin_is_served_until_sigterm() {
    let mut child = program(&["--script", "-"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"steps":[{"text":"hello"}]}"#).unwrap();
    let url = url(&mut child);
    assert!(ask(&url).contains("hello"), "the end of the script is not the end of the program");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn bad_input_is_exit_2_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], says: &str| {
        let Output { status, stdout, stderr } = program(arguments).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{stderr}");
        assert!(stdout.is_empty());
        assert!(stderr.contains(says), "{stderr}");
    };
    let bad = script(folder.path(), r#"{"steps":[{"text":"a"},{"tools":[{"name":"t","arguments":{}}]}]}"#);
    refused(&["--script", &bad], "steps[1].tools[0].arguments");
    refused(&["--script", "/nowhere/script.json"], "/nowhere/script.json");
    refused(&[], "--script is missing");
    refused(&["--script"], "--script needs a value");
    refused(&["--script", &bad, "--port", "http"], "--port http");
    refused(&["--verbose"], "--verbose");
    let good = script(folder.path(), r#"{"steps":[]}"#);
    refused(&["--script", &good, "--log", "/nowhere/log"], "--log /nowhere/log");
}
