//! Processes as `/proc` shows them. One is named by its pid and start time together, so that a pid used again is nobody we looked for.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

/// A process that was seen alive.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
    #[allow(dead_code, reason = "for messages; exec changes it")]
    name: String,
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

struct Stat {
    process: Process,
    parent: u32,
}

impl Process {
    /// The living process of this pid.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| stat.process)
    }

    pub(crate) fn alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    pub(crate) fn environment(&self) -> Vec<u8> {
        fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default()
    }

    pub(crate) fn arguments(&self) -> Vec<u8> {
        fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default()
    }

    /// The program it runs.
    pub(crate) fn executable(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// Sends a signal. For processes below a program this test started.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        assert!(self.try_signal(signal), "{self:?} is gone");
    }

    /// The same for one that may have ended meanwhile: whether it was there.
    pub(crate) fn try_signal(&self, signal: rustix::process::Signal) -> bool {
        let pid = rustix::process::Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        self.alive() && rustix::process::kill_process(pid, signal).is_ok()
    }
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (front, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    if matches!(fields[0], "Z" | "X") {
        return None;
    }
    let name = front.split_once(" (")?.1.to_owned();
    Some(Stat { process: Process { pid, started: fields[19].parse().ok()?, name }, parent: fields[1].parse().ok()? })
}

fn all() -> Vec<Stat> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(stat).collect()
}

/// Every living process that carries the mark of this session in its environment.
pub(crate) fn marked(session: &str) -> Vec<Process> {
    let part = format!(":{session}:");
    let carries = |process: &Process| {
        let environment = process.environment();
        environment.split(|byte| *byte == 0).any(|entry| {
            entry.strip_prefix(b"AGENTRUN_MARK=").is_some_and(|mark| String::from_utf8_lossy(mark).contains(&part))
        })
    };
    all().into_iter().map(|stat| stat.process).filter(carries).collect()
}

/// Every living process below this one.
pub(crate) fn below(pid: u32) -> Vec<Process> {
    let all = all();
    let mut known = HashSet::from([pid]);
    loop {
        let before = known.len();
        known.extend(all.iter().filter(|it| known.contains(&it.parent)).map(|it| it.process.pid).collect::<Vec<_>>());
        if known.len() == before {
            break;
        }
    }
    all.into_iter().map(|it| it.process).filter(|it| it.pid != pid && known.contains(&it.pid)).collect()
}
