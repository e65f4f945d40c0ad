//! The child process: its death, what it leaves behind, and what it is given.

use std::path::Path;

use agentrun_adapter::AdapterErrorKind;

use super::host::Work;
use super::model::Model;
use super::rig::{Bench, ENDS, times_shown};
use crate::script::Step;
use crate::suites::failure::{Answer, Failure, ensure, same};

pub(super) async fn b37_a_program_killed_in_a_turn_is_an_error_and_the_turn_is_taken_up(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?;
    let rig = rig.with_program("echo $$ > SCRATCH/pid; exec HARNESS \"$@\"").await?;
    let mut owner = rig.own(Work::Waits).await?;
    let turn = owner.place("do it").await?;
    let (host, pid) = (owner.host.clone(), rig.scratch("pid"));
    let kill = async {
        host.begun().await?;
        kill(&pid)
    };
    let (end, killed) = tokio::join!(owner.session.run_turn(turn), kill);
    killed?;
    match end {
        Err(error) if matches!(error.kind, AdapterErrorKind::Exited { .. }) => {}
        other => return Err(Failure(format!("the turn of a killed program ended {other:?}"))),
    }
    rig.assert_gone(&owner.marker).await?;
    drop(host);
    owner.crash().await?;
    let rig = rig.with_the_real_program();
    let mut owner = rig.own_with(Work::Answers, &rig.answers().await?).await?;
    owner.goes_on().await?;
    same(owner.asked().len(), 0, "calls that were made a second time")?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

fn kill(pid: &Path) -> Result<(), Failure> {
    let pid = std::fs::read_to_string(pid)?;
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status()?;
    ensure!(killed.success(), "the program could not be killed: {killed}");
    Ok(())
}

/// A program with descendants that hold its pipes, have a session of their own, or have cleared their environment.
fn with_descendants(word: &str) -> String {
    format!("sleep {word} & setsid env -i sleep {word} >/dev/null 2>&1 & exec HARNESS \"$@\"")
}

pub(super) async fn f26_what_the_program_leaves_behind_is_gone_after_a_close(bench: Bench) -> Answer {
    let word = word();
    let rig = bench.rig(vec![Step::says("done")])?.with_program(&with_descendants(&word)).await?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    descendants(&word).await?;
    owner.close().await?;
    same(running(&word)?, 0, "descendants left")?;
    Ok(String::new())
}

pub(super) async fn f26_what_the_program_leaves_behind_is_gone_after_a_crash(bench: Bench) -> Answer {
    let word = word();
    let rig = bench.rig(vec![bench.works()])?.with_program(&with_descendants(&word)).await?;
    let mut owner = rig.own(Work::Waits).await?;
    let turn = owner.place("do it").await?;
    let host = owner.host.clone();
    // Looked for while the turn runs: with it the program may go.
    let running_all = async {
        host.begun().await?;
        descendants(&word).await
    };
    tokio::select! {
        end = owner.session.run_turn(turn) => return Err(Failure(format!("the turn ended: {end:?}"))),
        all = running_all => all?,
    }
    drop(host);
    owner.crash().await?;
    same(running(&word)?, 0, "descendants left when the next owner may start")?;
    Ok(String::new())
}

pub(super) async fn a_program_that_ends_before_it_is_ready_is_an_error_with_its_last_words_and_nothing_is_left(
    bench: Bench,
) -> Answer {
    let word = word();
    let script = format!("setsid env -i sleep {word} >/dev/null 2>&1 & echo its-last-words >&2; exit 3");
    let rig = bench.rig(vec![Step::says("done")])?.with_program(&script).await?;
    let mut owner = rig.own(Work::Answers).await?;
    let turn = owner.place("do it").await?;
    let Err(error) = owner.session.run_turn(turn).await else {
        return Err(Failure("a turn ran on a program that had ended".to_owned()));
    };
    ensure!(error.stderr_tail.contains("its-last-words"), "the error has no last words: {error:?}");
    rig.assert_gone(&owner.marker).await?;
    gone(&word).await?;
    owner.crash().await?;
    // Whether it was placed is the adapter's; the message reaches the model once all the same.
    let rig = rig.with_the_real_program();
    let placed = rig.state().await?.open_turn.is_some();
    let mut owner = rig.own(Work::Answers).await?;
    if placed {
        owner.goes_on().await?;
    } else {
        owner.runs("do it").await?;
    }
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 1, "model requests")?;
    same(requests.last().map(|it| times_shown(it, "do it")), Some(1), "times the prompt was shown")?;
    Ok(format!("{:?}", error.kind))
}

/// What a program may have of ours.
const INHERITED: [&str; 12] =
    ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "OLDPWD", "SHLVL"];

pub(super) async fn a_program_gets_no_environment_that_was_not_meant_for_it(bench: Bench) -> Answer {
    let script = "env -0 > SCRATCH/env; printf '%s\\0' \"$@\" > SCRATCH/args; exec HARNESS \"$@\"";
    let rig = bench.rig(vec![Step::says("done")])?.with_program(script).await?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    owner.close().await?;
    let given = std::fs::read_to_string(rig.scratch("env"))?;
    let mut names = Vec::new();
    for (name, value) in given.split('\0').filter_map(|entry| entry.split_once('=')) {
        let ours = std::env::var(name).is_ok_and(|ours| ours == value && !value.is_empty());
        if ours && !INHERITED.contains(&name) && name != "_" {
            names.push(name.to_owned());
        }
    }
    same(names, Vec::new(), "variables of the host that the program has")?;
    let arguments = std::fs::read_to_string(rig.scratch("args"))?;
    ensure!(!arguments.contains(Model::key()), "the model's key stands in the arguments, which all can read");
    ensure!(!arguments.contains("do it"), "the prompt stands in the arguments, which all can read");
    Ok(format!("{} variables", given.split('\0').filter(|entry| !entry.is_empty()).count()))
}

/// A number of seconds that no other process sleeps.
fn word() -> String {
    format!("9{}", uuid::Uuid::new_v4().as_u128() % 1_000_000_000_000)
}

/// How many processes have this word in their command line.
fn running(word: &str) -> Result<usize, Failure> {
    let mut found = 0_usize;
    for entry in std::fs::read_dir("/proc")? {
        let Ok(line) = std::fs::read(entry?.path().join("cmdline")) else { continue };
        if String::from_utf8_lossy(&line).split(['\0', ' ']).any(|part| part == word) {
            found = found.saturating_add(1);
        }
    }
    Ok(found)
}

/// Waits for both of [`with_descendants`]: a shell's child has its own command line only once it has begun.
async fn descendants(word: &str) -> Result<(), Failure> {
    let late = std::time::Instant::now().checked_add(ENDS);
    while running(word)? < 2 {
        ensure!(late.is_some_and(|late| std::time::Instant::now() < late), "the rig's own descendants never ran");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn gone(word: &str) -> Result<(), Failure> {
    let late = std::time::Instant::now().checked_add(ENDS);
    while running(word)? > 0 {
        ensure!(late.is_some_and(|late| std::time::Instant::now() < late), "descendants are left");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(())
}
