//! Scripts, and looks at the process table. A look is by a word of a command line, since some of these processes clear their
//! environment.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use agentrun_adapter::process::{Child, Frame, Frames, Marker, Spawn};

/// Bound on anything that should happen soon; only a failure waits for it.
const SOON: Duration = Duration::from_secs(20);

/// Names the part of a test that this binary plays when a test runs it again.
const ROLE: &str = "AGENTRUN_TEST_ROLE";

pub(crate) fn marker(session: &str, epoch: u64) -> Marker {
    Marker { store: "store-1".into(), session: session.into(), epoch }
}

/// A shell script as a program.
pub(crate) fn shell(script: &str) -> Spawn {
    Spawn::new("/bin/sh", "/", marker("a session", 1)).args(["-c", script]).env("PATH", "/usr/bin:/bin")
}

pub(crate) fn start(script: &str) -> (Child, Frames) {
    let mut child = shell(script).spawn().unwrap();
    let frames = child.take_frames().unwrap();
    (child, frames)
}

/// The next frame, which must be a JSON object or noise, as text.
pub(crate) async fn line(frames: &mut Frames) -> String {
    match frames.recv().await.unwrap().unwrap() {
        Frame::Json(line) | Frame::Noise(line) => String::from_utf8_lossy(&line).into_owned(),
    }
}

/// A number of seconds that no other process sleeps.
pub(crate) fn word() -> String {
    format!("9{}", uuid::Uuid::new_v4().as_u128() % 1_000_000_000_000)
}

/// The living processes with this word in their command line.
pub(crate) fn running(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let Ok(pid) = entry.unwrap().file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        if String::from_utf8_lossy(&line).split(['\0', ' ']).any(|part| part == word) {
            found.push(pid);
        }
    }
    found
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let late = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < late, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A program with descendants of every kind: plain, in sessions of their own, two levels of it, and with a cleared environment. Each
/// has the word in its command line; with the program there are `TREE`.
pub(crate) fn tree(word: &str) -> String {
    format!(
        "sleep {word} &
         setsid nohup env -i sleep {word} >/dev/null 2>&1 &
         setsid nohup sh -c 'setsid nohup env -i sleep {word} & wait' >/dev/null 2>&1 &
         echo ready; while read -r line; do echo \"$line\"; done; sleep {word}"
    )
}

pub(crate) const TREE: usize = 5;

/// The parent of a process.
pub(crate) fn parent_of(pid: u32) -> u32 {
    status(pid, "PPid:").parse().unwrap()
}

/// A line of `/proc/PID/status`.
pub(crate) fn status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

/// This test binary once more, to play `role` in the test of that name; the test asks with [`plays`].
pub(crate) fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(own_path());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

pub(crate) fn own_path() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub(crate) fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|it| it == role)
}

/// Children of this process, zombies too.
pub(crate) fn children() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default())
        .map(|list| list.split_whitespace().count())
        .sum()
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
