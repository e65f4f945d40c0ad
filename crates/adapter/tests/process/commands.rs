//! A command run to its end.

use std::time::Duration;

use agentrun_adapter::process::{Exit, RunError, STDOUT_LIMIT, Spawn, SpawnError, run_to_end};

use super::support::{TREE, marker, running, shell, tree, until, word};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_command_gets_its_input_and_gives_its_output() {
    let finished = run_to_end(&shell("cat; echo oops >&2; exit 9"), b"in\xff\n", LONG).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(9));
    assert_eq!(finished.stdout, b"in\xff\n");
    assert_eq!(finished.stderr_tail, "oops\n");
    assert!(!finished.timed_out);
}

#[tokio::test]
async fn a_command_may_ignore_much_input_and_write_much_output() {
    let script = format!("head -c {} /dev/zero", STDOUT_LIMIT + 5);
    let finished = run_to_end(&shell(&script), &vec![b'x'; 1 << 22], LONG).await.unwrap();
    assert_eq!((finished.exit, finished.stdout.len(), finished.stdout_lost), (Exit::Code(0), STDOUT_LIMIT, 5));
}

#[tokio::test]
async fn a_command_out_of_time_is_ended_with_all_it_started() {
    let word = word();
    let finished =
        run_to_end(&shell(&format!("echo begun; {}", tree(&word))), b"", Duration::from_secs(2)).await.unwrap();
    assert_eq!((finished.exit, finished.timed_out), (Exit::Signal(9), true));
    assert!(finished.stdout.starts_with(b"begun\n"));
    assert!(running(&word).is_empty());
}

#[tokio::test]
async fn a_background_process_does_not_hold_the_command_up() {
    let word = word();
    let finished = run_to_end(&shell(&format!("setsid sleep {word} & echo done")), b"", LONG).await.unwrap();
    assert_eq!((finished.exit, finished.stdout.as_slice()), (Exit::Code(0), b"done\n".as_slice()));
    assert!(running(&word).is_empty());
}

#[tokio::test]
async fn a_cancelled_command_is_ended_with_all_it_started() {
    let word = word();
    let script = shell(&tree(&word));
    let run = tokio::spawn(async move { run_to_end(&script, b"", LONG).await });
    until("the tree", || running(&word).len() >= TREE).await;
    run.abort();
    until("the end of the tree", || running(&word).is_empty()).await;
}

#[tokio::test]
async fn a_missing_command_is_told() {
    let missing = Spawn::new("/no/such/program", "/", marker("s", 1));
    let told = run_to_end(&missing, b"", LONG).await;
    assert!(matches!(told, Err(RunError::Spawn(SpawnError::System { .. }))));
}

/// With a real harness program, where one is named.
#[tokio::test]
async fn claude_says_its_version_under_the_guard() {
    let Some(program) = std::env::var_os("AGENTRUN_CLAUDE") else { return };
    let home = tempfile::tempdir().unwrap();
    let asked = Spawn::new(program, home.path(), marker("s", 1)).arg("--version").env("HOME", home.path());
    let finished = run_to_end(&asked, b"", LONG).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(0), "{}", finished.stderr_tail);
    assert!(String::from_utf8_lossy(&finished.stdout).contains("Claude Code"), "{finished:?}");
}
