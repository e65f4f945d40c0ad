//! The processes under measure: started on a core of their own where there are two, read in `/proc`, ended with the bench.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running process. Ended when dropped.
pub(crate) struct Process(Child);

/// The core of what is measured; load and provider have the other.
const CORE: &str = "1";
const OTHER: &str = "0";

fn two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

/// A command bound to a core.
fn bound(program: &str, core: &str) -> Command {
    if !two_cores() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", core, program]);
    command
}

/// Moves this process to the load's core.
pub(crate) fn stay_off() {
    if two_cores() {
        let pid = std::process::id().to_string();
        let _ = Command::new("taskset").args(["-cp", OTHER, &pid]).stdout(Stdio::null()).status();
    }
}

impl Process {
    /// This program in a role; what it tells on its first line.
    pub(crate) fn role(arguments: &[&str], measured: bool) -> (Self, String, String) {
        let me = std::env::current_exe().unwrap();
        let mut child = bound(me.to_str().unwrap(), if measured { CORE } else { OTHER })
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (url, key) = line.trim().split_once(' ').expect("a role tells its url and key");
        (Self(child), url.to_owned(), key.to_owned())
    }

    /// Another program, measured.
    pub(crate) fn peer(program: &str, arguments: &[&str], said: &std::path::Path) -> Option<Self> {
        let said = fs::File::create(said).ok()?;
        let mut command = bound(program, CORE);
        command.args(arguments).stdout(said.try_clone().ok()?).stderr(said).stdin(Stdio::null());
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False");
        command.spawn().ok().map(Self)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Its processes: itself and its children.
    fn pids(&self) -> Vec<u32> {
        let mut all = vec![self.0.id()];
        let mut at = 0;
        while at < all.len() {
            let children = format!("/proc/{}/task/{}/children", all[at], all[at]);
            let children = fs::read_to_string(children).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    /// Processor time so far, user and system, of all its threads.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks = self.pids().into_iter().map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in brackets may hold blanks.
            let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
            let of = |place: usize| after.split(' ').nth(place).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            of(11) + of(12)
        });
        // A tick is 10 ms on every Linux that matters here; rounds are long enough for it.
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// Resident memory, in KiB.
    pub(crate) fn rss(&self) -> u64 {
        let of = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default().to_owned();
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
        };
        self.pids().into_iter().map(of).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // nginx's worker ends with its master only when the master is asked.
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        for _ in 0..50 {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
