//! One cut: the processes of a case, one after the other or beside each other, and what the store holds in the end.

use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use agentrun_kernel::{Body, LedgerBody, LogKey, Record, SharedLog, open_url, read_all};

use super::Fault;
use super::child::{BEFORE, SECOND};
use super::scenario::Scenario;
use super::tally::Tally;
use super::verdict::{self, Evidence};

/// The longest a process of a case may take: a bound, never met.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(2);
const SIGKILL: i32 = 9;
/// The name of the owner that brings the session to its end, before it is opened once more.
pub(super) const LAST: &str = "last";

/// A store that cases run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// One SQLite file: a second owner is a second process.
    Sqlite,
    /// sled: one process has it, so a second owner is a second runner in it.
    Sled,
}

/// How a session is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// The process kills itself.
    Kill,
    /// The same, and the process that goes on kills itself at its own Nth crossing, of any kind.
    Twice(u32),
    /// The process stands still while a second owner takes the session and brings it to its end; then it goes on.
    Owner,
}

/// A crossing of a run: a point, the nth time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The point.
    pub point: String,
    /// The nth time it is crossed, from 1.
    pub nth: u32,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is run.
    pub scenario: Scenario,
    /// On which store.
    pub backend: Backend,
    /// Where it is cut.
    pub site: Site,
    /// How.
    pub cut: Cut,
}

impl Backend {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Sqlite, Self::Sled];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Sled => "sled",
        }
    }

    fn url(self, folder: &Path) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", folder.join("store.db").display()),
            Self::Sled => format!("sled:{}", folder.join("store").display()),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.point, self.nth)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, backend, site, cut } = self;
        write!(f, "{} on {}, ", scenario.name(), backend.name())?;
        match cut {
            Cut::Kill => write!(f, "killed at {site}"),
            Cut::Twice(nth) => write!(f, "killed at {site}, then at its crossing {nth}"),
            Cut::Owner => write!(f, "taken over at {site}"),
        }
    }
}

/// What a case is run with.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    /// The sweep's own program.
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) planted: &'a str,
}

struct Process {
    child: Child,
    said: PathBuf,
}

/// How a process is armed.
#[derive(Clone, Copy)]
enum Arm<'a> {
    Nothing,
    Kill(&'a str, u32),
    Wait(&'a str, u32),
}

impl Stage<'_> {
    /// The crossings of an uncut run, in their order.
    pub(super) fn census(self, scenario: Scenario, backend: Backend) -> Result<Vec<Site>, Fault> {
        let (tally, begun) = (Tally::listen()?, Tally::listen()?);
        self.prelude(scenario, backend, &begun)?;
        let mut process = self.start(scenario, backend, &tally, Arm::Nothing, "census", false)?;
        let status = process.wait(Instant::now() + PATIENCE)?;
        if !status.success() {
            return Err(Fault(format!(
                "the census of {} on {} failed: {}",
                scenario.name(),
                backend.name(),
                process.said()
            )));
        }
        heard(&tally)?;
        Ok(tally.counts().hits.into_iter().map(|(point, nth)| Site { point, nth }).collect())
    }

    /// Brings the session to where the scenario begins. Answers how many owners died on the way.
    fn prelude(self, scenario: Scenario, backend: Backend, tally: &Tally) -> Result<u32, Fault> {
        let Some((point, nth)) = scenario.prelude() else { return Ok(0) };
        let mut process = self.start(scenario, backend, tally, Arm::Kill(point, nth), BEFORE, false)?;
        match how(process.wait(Instant::now() + PATIENCE)?) {
            Ended::Killed => heard(tally).map(|()| 1),
            _ => Err(Fault(format!("the owner before was not killed at {point}#{nth}: {}", process.said()))),
        }
    }

    fn start(
        self,
        scenario: Scenario,
        backend: Backend,
        tally: &Tally,
        arm: Arm<'_>,
        owner: &str,
        beside: bool,
    ) -> Result<Process, Fault> {
        let said = self.folder.join("said");
        let log = File::options().create(true).append(true).open(&said).map_err(Fault::of)?;
        let mut command = Command::new(self.program);
        command
            .args(["child", scenario.name()])
            .arg(backend.url(self.folder))
            .arg(self.folder)
            .args([tally.address(), owner])
            .env("AGENTRUN_CROSSING_DOOR", tally.address())
            .env("AGENTRUN_PLANTED", self.planted)
            .env_remove("AGENTRUN_CROSSING")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(Fault::of)?)
            .stderr(log);
        if beside {
            command.arg("beside");
        }
        match arm {
            Arm::Nothing => {}
            Arm::Kill(point, nth) => {
                command.env("AGENTRUN_CROSSING", format!("{point}#{nth}=kill"));
            }
            Arm::Wait(point, nth) => {
                command.env("AGENTRUN_CROSSING", format!("{point}#{nth}=wait"));
            }
        }
        Ok(Process { child: command.spawn().map_err(Fault::of)?, said })
    }
}

impl Process {
    fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn wait(&mut self, until: Instant) -> Result<ExitStatus, Fault> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(Fault::of)? {
                return Ok(status);
            }
            if Instant::now() >= until {
                return Err(Fault(format!("a process did not end: {}", self.said())));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The end of what it said, for a person.
    fn said(&self) -> String {
        const TAIL: usize = 2_000;
        let said = std::fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(said.get(said.len().saturating_sub(TAIL)..).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a process of a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Killed,
    Well,
    Badly,
}

fn how(status: ExitStatus) -> Ended {
    match (status.signal(), status.success()) {
        (Some(SIGKILL), _) => Ended::Killed,
        (None, true) => Ended::Well,
        _ => Ended::Badly,
    }
}

fn heard(tally: &Tally) -> Result<(), Fault> {
    if !tally.silence(Instant::now() + PATIENCE) {
        return Err(Fault("somebody still has the parent's line open after all processes have ended".to_owned()));
    }
    tally.fault().map_or(Ok(()), |fault| Err(Fault(fault)))
}

impl Case {
    /// Runs the case in an empty folder. The answer is what it broke; none is a pass.
    pub(super) fn run(&self, stage: Stage<'_>) -> Result<Vec<String>, Fault> {
        let tally = Tally::listen()?;
        let before = stage.prelude(self.scenario, self.backend, &tally)?;
        let mut evidence = match self.cut {
            Cut::Kill => self.kill(stage, &tally, None)?,
            Cut::Twice(nth) => self.kill(stage, &tally, Some(nth))?,
            Cut::Owner => self.take_over(stage, &tally)?,
        };
        evidence.cuts = evidence.cuts.saturating_add(before);
        heard(&tally)?;
        evidence.before_third = tally.counts();
        let mut third = self.process(stage, &tally, Arm::Nothing, "third", false)?;
        evidence.ended.push(how(third.wait(Instant::now() + PATIENCE)?));
        heard(&tally)?;
        evidence.after_third = tally.counts();
        evidence.said = third.said();
        self.read(stage, &mut evidence)?;
        let mut broken = verdict::of(self, &evidence);
        broken.extend(verdict::strays(self, &evidence));
        if !broken.is_empty() {
            broken.push(format!("said: {}", evidence.said.trim()));
        }
        Ok(broken)
    }

    fn process(
        &self,
        stage: Stage<'_>,
        tally: &Tally,
        arm: Arm<'_>,
        owner: &str,
        beside: bool,
    ) -> Result<Process, Fault> {
        stage.start(self.scenario, self.backend, tally, arm, owner, beside)
    }

    fn kill(&self, stage: Stage<'_>, tally: &Tally, again: Option<u32>) -> Result<Evidence, Fault> {
        let until = Instant::now() + PATIENCE;
        let mut ended = Vec::new();
        let mut cuts = 0_u32;
        let arms = [Some(Arm::Kill(&self.site.point, self.site.nth)), again.map(|nth| Arm::Kill("*", nth))];
        for arm in arms.into_iter().flatten().chain([Arm::Nothing]) {
            let owner = if matches!(arm, Arm::Nothing) { LAST } else { "first" };
            let mut process = self.process(stage, tally, arm, owner, false)?;
            let how = how(process.wait(until)?);
            cuts = cuts.saturating_add(u32::from(how == Ended::Killed));
            ended.push(how);
        }
        Ok(Evidence { ended, cuts, ..Evidence::default() })
    }

    fn take_over(&self, stage: Stage<'_>, tally: &Tally) -> Result<Evidence, Fault> {
        let until = Instant::now() + PATIENCE;
        let alone = self.backend == Backend::Sled;
        let mut first = self.process(stage, tally, Arm::Wait(&self.site.point, self.site.nth), "first", alone)?;
        let mut ended = Vec::new();
        if !tally.stands(until, &mut || first.ended()) {
            return Err(Fault(format!("nobody came to {}: {}", self.site, first.said())));
        }
        let first_hits = tally.counts().hits.len();
        let second = if alone {
            tally.play_second(until, &mut || first.ended())
        } else {
            let mut second = self.process(stage, tally, Arm::Nothing, SECOND, false)?;
            how(second.wait(until)?) == Ended::Well
        };
        ended.push(if second { Ended::Well } else { Ended::Badly });
        let taken = tally.counts();
        tally.release();
        ended.push(how(first.wait(until)?));
        heard(tally)?;
        let mut last = self.process(stage, tally, Arm::Nothing, LAST, false)?;
        ended.push(how(last.wait(until)?));
        Ok(Evidence { ended, cuts: 1, taken: Some((first_hits, taken)), ..Evidence::default() })
    }

    fn read(&self, stage: Stage<'_>, evidence: &mut Evidence) -> Result<(), Fault> {
        let step = self.scenario.step()?;
        let store = open_url(&self.backend.url(stage.folder)).map_err(Fault::of)?;
        evidence.store = store.id().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::of)?;
        let (session, ledger) = (LogKey::from(&step.session), LogKey::Shared(SharedLog::Ledger(step.run)));
        let logs: Result<(Vec<Record>, Vec<Record<LedgerBody>>), _> = runtime.block_on(async {
            Ok((read_all::<Body>(&*store, &session).await?, read_all::<LedgerBody>(&*store, &ledger).await?))
        });
        let (records, ledger) = logs.map_err(|error: agentrun_kernel::StoreError| Fault::of(error))?;
        evidence.records = records;
        evidence.ledger = ledger;
        Ok(())
    }
}
