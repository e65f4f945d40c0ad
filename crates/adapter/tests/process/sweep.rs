//! Strays are found by their mark and ended; nobody else is.

use std::process::{Command, Stdio};
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Exit, MARK_VARIABLE, Marker, Spawn, SweepError, run_to_end, sweep};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{TREE, again, line, marker, parent_of, plays, running, shell, tree, until, word};

const LONG: Duration = Duration::from_secs(60);

/// The mark as a process of this marker carries it.
async fn mark(marker: &Marker) -> String {
    let ask = Spawn::new("/usr/bin/printenv", "/", marker.clone()).arg(MARK_VARIABLE);
    let told = run_to_end(&ask, b"", LONG).await.unwrap();
    String::from_utf8(told.stdout).unwrap().trim().to_owned()
}

/// A marked process that no guard watches.
async fn stray(marker: &Marker) -> std::process::Child {
    let mark = mark(marker).await;
    let mut command = Command::new("/usr/bin/setsid");
    let child =
        command.args(["sleep", "1000"]).env_clear().env(MARK_VARIABLE, mark).stdin(Stdio::null()).spawn().unwrap();
    // Until it has exec'd, its environment is ours.
    let environ = format!("/proc/{}/environ", child.id());
    let name = MARK_VARIABLE.as_bytes();
    until("the stray", || std::fs::read(&environ).is_ok_and(|it| it.starts_with(name))).await;
    child
}

fn lives(child: &mut std::process::Child) -> bool {
    child.try_wait().unwrap().is_none()
}

#[tokio::test]
async fn f26_strays_of_older_owners_are_ended_and_nobody_else() {
    let session = format!("run/{}:1", word());
    let mut older = [stray(&marker(&session, 3)).await, stray(&marker(&session, 4)).await];
    let elsewhere = Marker { store: "store-2".into(), session: session.clone(), epoch: 3 };
    let mut others = [
        stray(&marker(&session, 5)).await,
        stray(&marker(&session, 6)).await,
        stray(&marker(&format!("{session}:3"), 3)).await,
        stray(&elsewhere).await,
        Command::new("/bin/sleep").arg("1000").spawn().unwrap(),
    ];

    let ended = sweep(&marker(&session, 5), Epochs::Before, LONG).await.unwrap();
    let found: Vec<_> = ended.iter().map(|it| (it.pid, it.epoch)).collect();
    assert_eq!(found, [(older[0].id(), Some(3)), (older[1].id(), Some(4))]);
    assert!(older.iter_mut().all(|it| !lives(it)));
    assert!(others.iter_mut().all(lives));

    let ended = sweep(&marker(&session, 5), Epochs::UpTo, LONG).await.unwrap();
    assert_eq!(ended.iter().map(|it| it.pid).collect::<Vec<_>>(), [others[0].id()]);
    assert!(others[1..].iter_mut().all(lives));

    assert_eq!(sweep(&marker(&session, 5), Epochs::UpTo, LONG).await.unwrap(), []);
    for mut child in others {
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn b46_the_harness_of_an_owner_that_still_lives_is_gone_with_all_below_it() {
    let (session, word) = (word(), word());
    let mut spawn = shell(&tree(&word));
    spawn.marker = marker(&session, 1);
    let mut old = spawn.spawn().unwrap();
    let mut frames = old.take_frames().unwrap();
    assert_eq!(line(&mut frames).await, "ready");
    until("the tree", || running(&word).len() == TREE).await;

    let ended = sweep(&marker(&session, 2), Epochs::Before, LONG).await.unwrap();
    assert!(ended.iter().any(|it| it.pid == old.program_pid()));
    assert!(ended.iter().all(|it| it.epoch == Some(1)), "the guard ends by itself");
    // Those with a cleared environment too: the sweep waited for the guard.
    assert!(running(&word).is_empty());
    assert_eq!(old.wait().await, Exit::Signal(9));
}

#[tokio::test]
async fn f26_a_guard_that_was_stopped_is_woken_and_waited_for() {
    let (session, word) = (word(), word());
    let mut spawn = shell(&tree(&word));
    spawn.marker = marker(&session, 1);
    let mut old = spawn.spawn().unwrap();
    until("the tree", || running(&word).len() == TREE).await;
    let guard = parent_of(old.program_pid());
    kill_process(Pid::from_raw(guard.try_into().unwrap()).unwrap(), Signal::STOP).unwrap();

    // Stopped, it would end nothing: what cleared its environment would live, and no takeover could go on.
    sweep(&marker(&session, 2), Epochs::Before, LONG).await.unwrap();
    assert!(running(&word).is_empty());
    assert_eq!(old.wait().await, Exit::Signal(9));
}

#[tokio::test]
async fn the_guard_of_a_process_that_may_stay_is_not_waited_for() {
    let session = word();
    let mut spawn = shell("read -r line; exit 5");
    spawn.marker = marker(&session, 2);
    let mut ours = spawn.spawn().unwrap();
    assert_eq!(sweep(&marker(&session, 2), Epochs::Before, LONG).await.unwrap(), []);
    assert_eq!(ours.end(LONG).await.unwrap(), Exit::Code(5));
}

#[tokio::test]
async fn a_sweep_never_ends_the_process_it_runs_in() {
    let name = "sweep::a_sweep_never_ends_the_process_it_runs_in";
    if plays("marked") {
        let told = sweep(&marker("nested", 2), Epochs::Before, LONG).await;
        let Err(SweepError::Ancestors(found)) = told else { panic!("{told:?}") };
        assert_eq!(found.iter().map(|it| it.pid).collect::<Vec<_>>(), [std::process::id()]);
        return;
    }
    let marked = mark(&marker("nested", 1)).await;
    assert!(again(name, "marked").env(MARK_VARIABLE, marked).status().unwrap().success());
}

#[tokio::test]
async fn f26_a_shell_whose_child_is_ended_first_does_not_go_on_to_its_next_line() {
    let session = word();
    let folder = tempfile::tempdir().unwrap();
    let next = folder.path().join("next");
    let mark = mark(&marker(&session, 3)).await;
    let line = format!("sleep 1000; echo on >>'{}'; sleep 1000", next.display());
    let mut shells: Vec<_> = (0..40)
        .map(|_| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &line]).env_clear().env("PATH", "/usr/bin:/bin").env(MARK_VARIABLE, &mark);
            command.stdin(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for shell in &shells {
        let children = format!("/proc/{0}/task/{0}/children", shell.id());
        until("the shell's child", || std::fs::read_to_string(&children).is_ok_and(|it| !it.trim().is_empty())).await;
    }
    sweep(&marker(&session, 5), Epochs::Before, LONG).await.unwrap();
    assert!(shells.iter_mut().all(|it| !lives(it)));
    assert!(!next.exists(), "{:?}", std::fs::read_to_string(&next));
}
