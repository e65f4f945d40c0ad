//! A cgroup of its own for each program. Where this machine lets us make none (no root, no subtree of our own, a read-only mount) each test
//! holds that the rest works without: its first line says which it was.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Exit, has_cgroups, sweep};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{again, line, marker, parent_of, plays, running, shell, start, status, until, word};

const LONG: Duration = Duration::from_secs(60);

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Whether there are cgroups, said for who reads the test's output.
#[allow(clippy::print_stdout, reason = "which of the two was held is part of the report")]
fn cgroups() -> bool {
    let has = has_cgroups();
    println!("cgroups of our own can {}be made here", if has { "" } else { "not " });
    has
}

/// The folder of a process's cgroup.
fn folder(pid: u32) -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount =
        mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap().split(' ').nth(1).unwrap();
    let of = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = of.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    PathBuf::from(mount).join(path)
}

/// A program, and what it started that nobody finds by a mark or by its parents.
fn hides(word: &str) -> String {
    format!("setsid nohup env -i sleep {word} >/dev/null 2>&1 & echo up; read -r line")
}

fn asleep(word: &str) -> Vec<u32> {
    running(word).into_iter().filter(|pid| status(*pid, "Name:") == "sleep").collect()
}

#[tokio::test]
async fn a_program_and_all_it_starts_are_in_a_cgroup_that_goes_with_them() {
    let (has, word) = (cgroups(), word());
    let (mut child, mut frames) = start(&hides(&word));
    assert_eq!(line(&mut frames).await, "up");
    until("the sleep", || asleep(&word).len() == 1).await;
    if has {
        let own = folder(child.program_pid());
        assert_ne!(own, folder(std::process::id()));
        assert_eq!(own, folder(asleep(&word)[0]));
        assert_ne!(own, folder(parent_of(child.program_pid())), "its guard is not in it: it must see all of it die");
        assert!(own.exists());
        assert_eq!(child.end(LONG).await.unwrap(), Exit::Code(1));
        assert!(!own.exists());
    } else {
        assert_eq!(child.end(LONG).await.unwrap(), Exit::Code(1));
    }
    assert!(running(&word).is_empty());
}

#[tokio::test]
async fn f26_what_cleared_its_environment_goes_though_its_guard_was_killed() {
    let (has, word) = (cgroups(), word());
    let (mut child, mut frames) = start(&hides(&word));
    assert_eq!(line(&mut frames).await, "up");
    until("the sleep", || asleep(&word).len() == 1).await;
    let hidden = asleep(&word)[0];
    signal(parent_of(child.program_pid()), Signal::KILL);
    assert_eq!(child.wait().await, Exit::Lost);
    assert_eq!(asleep(&word).is_empty(), has);
    if !has {
        signal(hidden, Signal::KILL);
    }
}

#[tokio::test]
async fn f26_a_later_owner_ends_it_where_owner_and_guard_were_killed() {
    if plays("owner") {
        let mut spawn = shell(&hides(&std::env::var("WORD").unwrap()));
        spawn.marker = marker(&std::env::var("WORD").unwrap(), 1);
        let mut child = spawn.spawn().unwrap();
        let mut frames = child.take_frames().unwrap();
        assert_eq!(line(&mut frames).await, "up");
        println!("\nguard {}", parent_of(child.program_pid()));
        std::future::pending::<()>().await;
    }
    let (has, word) = (cgroups(), word());
    let mut owner = again("cgroup::f26_a_later_owner_ends_it_where_owner_and_guard_were_killed", "owner");
    let mut owner = owner.env("WORD", &word).stdout(Stdio::piped()).spawn().unwrap();
    let said = std::io::BufRead::lines(std::io::BufReader::new(owner.stdout.take().unwrap())).map_while(Result::ok);
    let guard: u32 = said.into_iter().find_map(|line| line.strip_prefix("guard ")?.parse().ok()).unwrap();
    until("the sleep", || asleep(&word).len() == 1).await;
    let hidden = asleep(&word)[0];
    // So that it does not see its guard die, and acts.
    signal(owner.id(), Signal::STOP);
    signal(guard, Signal::KILL);
    signal(owner.id(), Signal::KILL);
    owner.wait().unwrap();
    assert_eq!(asleep(&word), [hidden], "nothing else ends it");

    sweep(&marker(&format!("{word}0"), 2), Epochs::Before, LONG).await.unwrap();
    sweep(&marker(&word, 1), Epochs::Before, LONG).await.unwrap();
    assert_eq!(asleep(&word), [hidden], "another session's, and its own epoch's");
    sweep(&marker(&word, 2), Epochs::Before, LONG).await.unwrap();
    assert_eq!(asleep(&word).is_empty(), has);
    if !has {
        signal(hidden, Signal::KILL);
    }
}
