//! Starting a program under its guard: what it is given (nothing that is not named here) and what is checked before.

use std::ffi::{CString, OsString};
use std::io::{self, PipeWriter};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::timeout;

use super::cgroup::Leaf;
use super::child::{Child, Exit, Lingering};
use super::guard::{self, Report};
use super::marker::{MARK_VARIABLE, Mark, Marker, guard_name};
use super::sweep;

/// How long ending everything below a guard may take before the caller is told. Only what the kernel will not kill takes longer: a
/// process in an uninterruptible wait, or one of another user.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A program to be started. Its environment starts empty: what is not put in here, the program does not have.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The program, as an absolute path.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<OsString>,
    /// Its whole environment but for the mark. Of a name given twice the last value counts.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it starts in.
    pub cwd: PathBuf,
    /// Whose process it is.
    pub marker: Marker,
}

/// A program that could not be started. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is not named by an absolute path, so what runs would depend on where.
    #[error("{} is not an absolute path; look the program up first", program.display())]
    Relative {
        /// The program.
        program: PathBuf,
    },
    /// The folder to start in is not there.
    #[error("{} is not a folder, so {} was not started in it", cwd.display(), program.display())]
    NoFolder {
        /// The program.
        program: PathBuf,
        /// The folder.
        cwd: PathBuf,
    },
    /// This system does not show a process's children, without which a guard could not find what it must end.
    #[error("{} cannot be read, so no program is started that could not be ended; mount /proc", guard::CHILDREN)]
    Unsupervised {
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused: no such program, not executable, no process or descriptor left.
    #[error("{} could not be started: {source}", program.display())]
    System {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl Spawn {
    /// A program without arguments and with an empty environment.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>, marker: Marker) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), cwd: cwd.into(), marker }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the program under a guard of its own. Needs a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`SpawnError`]: nothing runs.
    pub fn spawn(&self) -> Result<Child, SpawnError> {
        let (guarded, pipes) = self.start()?;
        Ok(Child::new(guarded, pipes))
    }

    /// The part that harnesses and commands share.
    pub(super) fn start(&self) -> Result<(Guarded, Pipes), SpawnError> {
        if !self.program.is_absolute() {
            return Err(SpawnError::Relative { program: self.program.clone() });
        }
        // The system's own answer for a missing folder reads like a missing program.
        if !self.cwd.is_dir() {
            return Err(SpawnError::NoFolder { program: self.program.clone(), cwd: self.cwd.clone() });
        }
        std::fs::read(guard::CHILDREN).map_err(|source| SpawnError::Unsupervised { source })?;
        self.start_under_guard().map_err(|source| SpawnError::System { program: self.program.clone(), source })
    }

    fn start_under_guard(&self) -> io::Result<(Guarded, Pipes)> {
        let mark = Mark::new(self.marker.clone());
        let mut command = std::process::Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(MARK_VARIABLE, mark.value())
            .current_dir(&self.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Without one the guard does what it does, so nothing that goes wrong here keeps a program from its start.
        let leaf = Leaf::make(&mark);
        let armed = guard::arm(&mut command, CString::new(guard_name(&self.marker))?, leaf.as_ref());
        let (life, mut report) = armed.inspect_err(|_| remove(leaf.as_ref()))?;
        let mut command = tokio::process::Command::from(command);
        let mut guard = command.spawn().inspect_err(|_| remove(leaf.as_ref()))?;
        // The command holds our copies of the guard's ends.
        drop(command);
        let program = report.program()?;
        let missing = || io::Error::other("a pipe of the program is missing");
        let pipes = Pipes {
            stdin: guard.stdin.take().ok_or_else(missing)?,
            stdout: guard.stdout.take().ok_or_else(missing)?,
            stderr: guard.stderr.take().ok_or_else(missing)?,
        };
        let guard_pid = guard.id().ok_or_else(|| io::Error::other("the guard has no pid"))?;
        let (told, exit) = watch::channel(None);
        tokio::spawn(wait_for_guard(guard, report, mark, leaf, told));
        Ok((Guarded { program, guard: guard_pid, life: Mutex::new(Some(life)), exit }, pipes))
    }
}

/// Nothing is in its cgroup, or nothing was started.
fn remove(leaf: Option<&Leaf>) {
    if let Some(leaf) = leaf {
        leaf.remove();
    }
}

/// A program's own three pipes.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A program under its guard. Dropping it ends the program and everything below it, without waiting.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) program: u32,
    guard: u32,
    life: Mutex<Option<PipeWriter>>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Guarded {
    /// Tells when the guard is gone, and with it everything below it.
    pub(super) fn exit(&self) -> watch::Receiver<Option<Exit>> {
        self.exit.clone()
    }

    /// Has the guard kill everything. Returns at once.
    pub(super) fn cut(&self) {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Waits until the guard is gone. Cancel safe.
    pub(super) async fn wait(&self) -> Exit {
        match self.exit().wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit::Lost),
            // The runtime is shutting down and took the waiting task with it.
            Err(_) => Exit::Lost,
        }
    }

    /// Kills everything and waits for it.
    pub(super) async fn kill(&self) -> Result<Exit, Lingering> {
        self.cut();
        timeout(KILL_LIMIT, self.wait()).await.map_err(|_| Lingering { program: self.program, guard: self.guard })
    }
}

/// Reaps the guard, even when the child was dropped, and says how the program ended.
async fn wait_for_guard(
    mut guard: tokio::process::Child,
    mut report: Report,
    mark: Mark,
    leaf: Option<Leaf>,
    told: watch::Sender<Option<Exit>>,
) {
    // An error (a host that ignores SIGCHLD has no children to wait for) says that it is gone, and the report says how.
    let killed = guard.wait().await.is_ok_and(|status| status.code().is_none());
    let exit = match (!killed).then(|| report.status()) {
        Some(Ok(status)) => {
            // The guard's to do; one that had no descriptor left for it did not.
            remove(leaf.as_ref());
            Exit::from_status(status)
        }
        // The guard was killed. Its death killed the program, but not what that started: those are found by their mark, and in the cgroup.
        _ => {
            let _ = sweep::sweep_spawn(mark, leaf, KILL_LIMIT).await;
            Exit::Lost
        }
    };
    told.send_replace(Some(exit));
}
