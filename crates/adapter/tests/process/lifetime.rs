//! Whatever way a session goes, nothing it started stays.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use agentrun_adapter::process::{Exit, Spawn, SpawnError, StdinClosed};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::support::{
    TREE, again, children, descriptors, line, marker, parent_of, plays, running, shell, start, status, tree, until,
    word,
};

fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// A process that must not outlive a failed test.
struct KilledAtLast(std::process::Child);

impl Drop for KilledAtLast {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn dropping_a_child_ends_all_it_started() {
    let word = word();
    let (child, mut frames) = start(&tree(&word));
    assert_eq!(line(&mut frames).await, "ready");
    until("the tree", || running(&word).len() == TREE).await;
    drop(child);
    until("the end of the tree", || running(&word).is_empty()).await;
}

#[tokio::test]
async fn f26_killing_us_ends_all_we_started() {
    if plays("owner") {
        let (_child, mut frames) = start(&tree(&std::env::var("WORD").unwrap()));
        println!("\n{}", line(&mut frames).await);
        std::future::pending::<()>().await;
    }
    for with_its_group in [false, true] {
        let word = word();
        let mut owner = again("lifetime::f26_killing_us_ends_all_we_started", "owner");
        let owner = owner.env("WORD", &word).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut owner = KilledAtLast(owner);
        let owner = &mut owner.0;
        let said = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.into_iter().any(|line| line == "ready"));
        until("the tree", || running(&word).len() == TREE).await;
        if with_its_group {
            kill_process_group(pid(owner.id()), Signal::KILL).unwrap();
        } else {
            kill_process(pid(owner.id()), Signal::KILL).unwrap();
        }
        owner.wait().unwrap();
        until("the end of the tree", || running(&word).is_empty()).await;
    }
}

#[tokio::test]
async fn when_the_program_ends_what_it_left_is_gone_before_we_are_told() {
    let word = word();
    let script = format!("setsid nohup env -i sleep {word} >/dev/null 2>&1 & read -r line; exit 3");
    let (mut child, _frames) = start(&script);
    until("the sleep and its shell", || running(&word).len() == 2).await;
    child.close_stdin();
    assert_eq!(child.wait().await, Exit::Code(1 + 2));
    assert!(running(&word).is_empty());
    assert_eq!(child.wait().await, Exit::Code(3), "may be asked again");
}

#[tokio::test]
async fn an_exit_is_told_as_it_was() {
    for (script, exit, code) in [
        ("exit 0", Exit::Code(0), 0),
        ("exit 7", Exit::Code(7), 7),
        ("exit 255", Exit::Code(255), 255),
        ("kill -TERM $$", Exit::Signal(15), 143),
        ("kill -KILL $$", Exit::Signal(9), 137),
        ("exit 137", Exit::Code(137), 137),
    ] {
        let (mut child, _frames) = start(script);
        let told = child.wait().await;
        assert_eq!((told, told.code()), (exit, Some(code)), "{script}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_start_is_an_error_of_the_spawn() {
    let here = |program: &str| Spawn::new(program, "/", marker("s", 1)).spawn();
    let Err(SpawnError::System { source, .. }) = here("/no/such/program") else { panic!("it started") };
    assert_eq!(source.kind(), ErrorKind::NotFound);
    let Err(SpawnError::System { source, .. }) = here("/etc/passwd") else { panic!("it started") };
    assert_eq!(source.kind(), ErrorKind::PermissionDenied);
    assert!(matches!(here("sh"), Err(SpawnError::Relative { .. })));
    let elsewhere = Spawn::new("/bin/sh", "/no/such/folder", marker("s", 1)).spawn();
    assert!(matches!(elsewhere, Err(SpawnError::NoFolder { .. })));
}

#[tokio::test]
async fn end_asks_first_and_kills_then() {
    let (mut polite, _frames) = start("cat");
    assert_eq!(polite.end(Duration::from_secs(60)).await.unwrap(), Exit::Code(0));

    let word = word();
    let (mut deaf, mut frames) = start(&format!("trap '' TERM HUP INT; echo up; sleep {word}"));
    assert_eq!(line(&mut frames).await, "up");
    assert_eq!(deaf.end(Duration::from_millis(50)).await.unwrap(), Exit::Signal(9));
    assert!(running(&word).is_empty());
}

#[tokio::test]
async fn end_does_not_wait_for_a_program_that_does_not_read() {
    let (mut child, _frames) = start("sleep 1000");
    let stdin = child.stdin();
    let write = tokio::spawn(async move { stdin.send(vec![b'x'; 1 << 20]).await });
    assert_eq!(child.end(Duration::ZERO).await.unwrap(), Exit::Signal(9));
    assert!(matches!(write.await.unwrap(), Err(StdinClosed)));
    assert!(matches!(child.stdin().send("more").await, Err(StdinClosed)));
}

#[tokio::test]
async fn a_stopped_program_is_ended_too() {
    let (mut child, mut frames) = start("echo up; kill -STOP $$; echo never");
    assert_eq!(line(&mut frames).await, "up");
    let program = child.program_pid();
    until("the stop", || status(program, "State:").starts_with('T')).await;
    child.kill();
    assert_eq!(child.wait().await, Exit::Signal(9));
}

#[tokio::test]
async fn losing_the_guard_is_told_and_what_has_our_mark_is_ended() {
    let word = word();
    let (mut child, mut frames) = start(&format!("setsid nohup sleep {word} >/dev/null 2>&1 & echo up; sleep {word}"));
    let (mut sibling, mut sibling_says) = start("echo up; read -r line; exit 4");
    assert_eq!(line(&mut frames).await, "up");
    assert_eq!(line(&mut sibling_says).await, "up");
    until("both sleeps and the shell", || running(&word).len() == 3).await;
    kill_process(pid(parent_of(child.program_pid())), Signal::KILL).unwrap();
    assert_eq!(child.wait().await, Exit::Lost);
    assert!(running(&word).is_empty());
    assert_eq!(
        sibling.end(Duration::from_secs(60)).await.unwrap(),
        Exit::Code(4),
        "of the same session, under its own guard"
    );
}

#[tokio::test]
async fn a_program_without_its_mark_still_dies_with_its_guard() {
    let word = word();
    let (mut child, _frames) = start(&format!("exec env -i sleep {word}"));
    until("the sleep", || running(&word).len() == 1 && status(child.program_pid(), "Name:") == "sleep").await;
    kill_process(pid(parent_of(child.program_pid())), Signal::KILL).unwrap();
    assert_eq!(child.wait().await, Exit::Lost);
    until("the program's death", || running(&word).is_empty()).await;
}

#[tokio::test]
async fn orphans_are_reaped_as_they_die() {
    let (child, mut frames) = start("for i in 1 2 3 4 5 6 7 8; do (sh -c : &); done; echo up; read -r line");
    assert_eq!(line(&mut frames).await, "up");
    let guard = parent_of(child.program_pid());
    let below = format!("/proc/{guard}/task/{guard}/children");
    until("the program alone below its guard", || {
        std::fs::read_to_string(&below).unwrap().trim() == child.program_pid().to_string()
    })
    .await;
}

#[tokio::test]
async fn a_program_outlives_the_thread_that_started_it() {
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::spawn(move || {
        let _inside = runtime.enter();
        start("while read -r line; do echo \"$line\"; done")
    });
    let (child, mut frames) = thread.join().unwrap();
    child.stdin().send("still here\n").await.unwrap();
    assert_eq!(line(&mut frames).await, "still here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sessions_at_once_do_not_hold_each_others_pipes() {
    let started: Vec<_> = (0..24).map(|_| tokio::spawn(async { start("cat; exit 6") })).collect();
    let mut sessions = Vec::new();
    for session in started {
        sessions.push(session.await.unwrap());
    }
    for (child, _) in &sessions {
        let held = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        // The loader has a library open for a moment.
        until("a program with its three pipes only", || held(child.program_pid()) == 3).await;
        assert!(held(parent_of(child.program_pid())) <= 3, "the guard has its two pipes and a signal descriptor");
    }
    // Each sees the end of its own input while all later ones live, and the last one goes by being let go.
    let (last, _frames) = sessions.pop().unwrap();
    for (mut child, _) in sessions {
        assert_eq!(child.end(Duration::from_secs(60)).await.unwrap(), Exit::Code(6));
    }
    let program = last.program_pid();
    drop(last);
    until("the last program's end", || !std::path::Path::new(&format!("/proc/{program}")).exists()).await;
}

#[tokio::test]
async fn a_program_gets_the_environment_it_was_given_and_our_mark() {
    let mut child =
        Spawn::new("/usr/bin/env", "/", marker("s:1", 5)).env("A", "first").env("A", "second").spawn().unwrap();
    let mut frames = child.take_frames().unwrap();
    let mut said = vec![line(&mut frames).await, line(&mut frames).await];
    said.sort();
    assert_eq!(said[0], "A=second");
    assert!(said[1].starts_with("AGENTRUN_MARK=store-1:s%3A1:5:"), "{said:?}");
    assert_eq!(frames.recv().await, None);
}

#[tokio::test]
async fn a_program_does_not_inherit_a_hosts_signals_and_descriptors() {
    if plays("host") {
        let (mut child, mut frames) = start("grep -E '^Sig(Ign|Blk)' /proc/self/status; ls -x /proc/self/fd; exit 3");
        for name in ["SigBlk", "SigIgn"] {
            assert_eq!(line(&mut frames).await, format!("{name}:\t0000000000000000"));
        }
        // The fourth is ls's own.
        assert_eq!(line(&mut frames).await.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
        assert_eq!(child.wait().await, Exit::Code(3));
        return;
    }
    let ourselves = again("lifetime::a_program_does_not_inherit_a_hosts_signals_and_descriptors", "host");
    // Not sh, which may refuse to ignore CHLD.
    let mut host = std::process::Command::new("/bin/bash");
    host.args(["-c", "trap '' HUP USR1 CHLD; exec 7</dev/null; exec \"$0\" \"$@\""]);
    host.arg(ourselves.get_program()).args(ourselves.get_args());
    host.envs(ourselves.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(host.status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sessions_leave_no_zombie_and_no_descriptor() {
    let name = "lifetime::a_hundred_sessions_leave_no_zombie_and_no_descriptor";
    // In a process of its own, since other tests start processes as well.
    if !plays("counter") {
        assert!(again(name, "counter").status().unwrap().success());
        return;
    }
    // The first session makes what the runtime keeps.
    for (round, script) in [(1, "exit 0"), (34, "exit 0"), (33, "read -r line"), (33, "sleep 1000")] {
        let before = descriptors();
        for _ in 0..round {
            let (mut child, _frames) = start(script);
            match script {
                "sleep 1000" => drop(child),
                "read -r line" => drop(child.end(Duration::from_secs(60)).await),
                _ => drop(child.wait().await),
            }
        }
        if round > 1 {
            until("no descriptor more", || descriptors() <= before).await;
        }
        until("no child left", || children() == 0).await;
    }
    // A spawn that fails leaves nothing either.
    let before = descriptors();
    for _ in 0..10 {
        assert!(Spawn::new("/no/such/program", "/", marker("s", 1)).spawn().is_err());
    }
    assert_eq!(descriptors(), before);
    assert_eq!(children(), 0);
    assert!(shell("exit 0").spawn().is_ok());
}
