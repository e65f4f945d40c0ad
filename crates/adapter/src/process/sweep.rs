//! Finding and ending what an older owner of a session left behind, before anything is decided on a resume. Acts only on positive
//! evidence: the session's mark in a process's own environment, or its place in a cgroup of the session. A child that cleared its
//! environment where there are no cgroups is not found here; its guard ends it, and a guard that is still at work is waited for.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::{self, Leaf};
use super::marker::{Mark, Marker, guard_name};

/// Between two looks at processes that were killed.
const LOOK: Duration = Duration::from_millis(10);

/// Which of a session's processes are strays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epochs {
    /// Those of owners before the marker's epoch: what a resume must see gone.
    Before,
    /// Those of the marker's epoch too: for an owner that gives up.
    UpTo,
}

impl Epochs {
    /// Whether one of `epoch` is a stray to an owner at `ours`.
    pub(super) const fn take(self, epoch: u64, ours: u64) -> bool {
        match self {
            Self::Before => epoch < ours,
            Self::UpTo => epoch <= ours,
        }
    }
}

/// A process that carries a session's mark, or a guard of the session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stray {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since boot. Names it together with the pid, which is used again.
    pub started: u64,
    /// The epoch of the owner that started it; `None` for a guard and for what cleared its environment, which do not carry it.
    pub epoch: Option<u64>,
    /// Its name, as process lists show it.
    pub name: String,
}

/// Strays that could not be ended. The session must not go on: they may still act in its workspace.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// These were still there when the time was over.
    #[error("processes of an earlier owner of the session are still alive: {}; end them, then resume", list(.0))]
    Survivors(Vec<Stray>),
    /// We run below these ourselves, so ending them would end us.
    #[error("this process was itself started by an earlier owner of the session, below {}; resume from elsewhere", list(.0))]
    Ancestors(Vec<Stray>),
    /// The list of processes cannot be read.
    #[error("/proc cannot be read, so strays of the session cannot be found: {0}")]
    Proc(#[from] std::io::Error),
}

fn list(strays: &[Stray]) -> String {
    let names: Vec<_> = strays.iter().map(|stray| format!("{} ({})", stray.pid, stray.name)).collect();
    names.join(", ")
}

/// Kills every process that carries the mark of the marker's store and session and is of the given epochs, and waits until they and
/// the session's guards above them are gone, at most `within`. Returns what it ended; an empty list is the usual answer.
///
/// Never kills this process or one above it. Sees the processes of this user only, unless it runs as root. Dropping the future does not
/// stop a sweep that runs.
///
/// # Errors
/// [`SweepError`]: the session must not be resumed here.
pub async fn sweep(marker: &Marker, epochs: Epochs, within: Duration) -> Result<Vec<Stray>, SweepError> {
    let (marker, of) = (marker.clone(), marker.clone());
    let guards = Some(guard_name(&marker));
    let mark = move |mark: &Mark| {
        let theirs = &mark.marker;
        theirs.store == marker.store && theirs.session == marker.session && epochs.take(theirs.epoch, marker.epoch)
    };
    let cgroups = Box::new(move || cgroup::of_session(&of, epochs));
    in_background(Wanted { mark: Box::new(mark), guards, cgroups }, within).await
}

/// The same for what one guard left that was killed itself.
pub(super) async fn sweep_spawn(mark: Mark, leaf: Option<Leaf>, within: Duration) -> Result<Vec<Stray>, SweepError> {
    let mark = move |found: &Mark| *found == mark;
    let cgroups = Box::new(move || leaf.into_iter().collect());
    in_background(Wanted { mark: Box::new(mark), guards: None, cgroups }, within).await
}

/// What a sweep looks for: processes by their mark, guards by their name, and cgroups, asked for once the former are gone.
struct Wanted {
    mark: Box<dyn Fn(&Mark) -> bool + Send>,
    guards: Option<String>,
    cgroups: Box<dyn FnOnce() -> Vec<Leaf> + Send>,
}

async fn in_background(wanted: Wanted, within: Duration) -> Result<Vec<Stray>, SweepError> {
    match tokio::task::spawn_blocking(move || run(wanted, within)).await {
        Ok(swept) => swept,
        Err(lost) => Err(SweepError::Proc(std::io::Error::other(lost))),
    }
}

/// A process held by a descriptor: a signal sent through it reaches this process or nobody.
struct Held {
    stray: Stray,
    handle: OwnedFd,
    /// A guard ends by itself once all below it is gone; killed, it would lose what has no mark.
    guard: bool,
}

fn run(wanted: Wanted, within: Duration) -> Result<Vec<Stray>, SweepError> {
    let until = Instant::now() + within;
    let above = ourselves_and_above();
    let mut ended = HashSet::new();
    // A process may have started another between our look and its death, so it is over when a whole look finds nothing.
    loop {
        let mut held = find(&wanted)?;
        if held.is_empty() {
            // What had cleared its environment behind a guard that was killed.
            empty((wanted.cgroups)(), until)?;
            let mut ended: Vec<Stray> = ended.into_iter().collect();
            ended.sort_by_key(|stray: &Stray| (stray.started, stray.pid));
            return Ok(ended);
        }
        let ours: Vec<_> =
            held.values().filter(|it| above.contains(&it.stray.pid)).map(|it| it.stray.clone()).collect();
        if !ours.is_empty() {
            return Err(SweepError::Ancestors(ours));
        }
        // All are stopped before one is killed: a shell whose child dies first would go on to its next line, and do what nobody asked for.
        for it in held.values().filter(|it| !it.guard) {
            let _ = pidfd_send_signal(&it.handle, Signal::STOP);
        }
        for it in held.values() {
            // A guard that was stopped would never end by itself. A refusal shows as a survivor.
            let _ = pidfd_send_signal(&it.handle, if it.guard { Signal::CONT } else { Signal::KILL });
            if !it.guard {
                ended.insert(it.stray.clone());
            }
        }
        loop {
            held.retain(|_, it| alive(it));
            if held.is_empty() {
                break;
            }
            if Instant::now() >= until {
                return Err(SweepError::Survivors(held.into_values().map(|it| it.stray).collect()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Ends what is left in cgroups of the session, marked or not.
fn empty(leaves: Vec<Leaf>, until: Instant) -> Result<(), SweepError> {
    let left: Vec<u32> =
        leaves.iter().flat_map(|leaf| leaf.end(until.saturating_duration_since(Instant::now()))).collect();
    let named = |pid| {
        let Stat { name, started, .. } = Stat::read(pid)?;
        Some(Stray { pid, started, epoch: None, name })
    };
    let left: Vec<_> = left.into_iter().filter_map(named).collect();
    if left.is_empty() { Ok(()) } else { Err(SweepError::Survivors(left)) }
}

/// Every process that is wanted, with the guards that have to end by themselves.
fn find(wanted: &Wanted) -> Result<HashMap<u32, Held>, std::io::Error> {
    let (mut held, mut guards, mut kept) = (HashMap::new(), Vec::new(), HashSet::new());
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) else { continue };
        // The handle is taken before the look: what is read may then be of a later process with the same pid, but the signal goes
        // to the one that was there first, or to nobody.
        let Some((handle, stat)) = hold(pid).zip(Stat::read(pid)).filter(|(_, stat)| !stat.dead) else { continue };
        let Stat { name, parent, started, .. } = stat;
        if Some(&name) == wanted.guards.as_ref() {
            guards.push(Held { stray: Stray { pid, started, epoch: None, name }, handle, guard: true });
            continue;
        }
        // Unreadable means another user's, or gone.
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let Some(mark) = Mark::in_environ(&environ) else { continue };
        if (wanted.mark)(&mark) {
            let epoch = Some(mark.marker.epoch);
            held.insert(pid, Held { stray: Stray { pid, started, epoch, name }, handle, guard: false });
        } else {
            kept.insert(parent);
        }
    }
    // A guard above a process that may stay is that process's; one above nothing that is marked is still ending the rest.
    held.extend(guards.into_iter().map(|it| (it.stray.pid, it)).filter(|(pid, _)| !kept.contains(pid)));
    Ok(held)
}

fn hold(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()
}

/// Whether it still runs. A handle becomes readable when all of a process's threads are gone.
fn alive(it: &Held) -> bool {
    let mut polled = [PollFd::new(&it.handle, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0) | Err(_))
}

/// This process, its parent, and so on up.
fn ourselves_and_above() -> HashSet<u32> {
    let mut above = HashSet::new();
    let mut pid = std::process::id();
    while pid != 0 && above.insert(pid) {
        pid = Stat::read(pid).map_or(0, |stat| stat.parent);
    }
    above
}

/// What the kernel says of a process in `/proc/PID/stat`.
struct Stat {
    name: String,
    parent: u32,
    started: u64,
    dead: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state parent … start …`. The name may hold anything, brackets and spaces too, so it ends at the last bracket.
    fn parse(stat: &[u8]) -> Option<Self> {
        let stat = String::from_utf8_lossy(stat);
        let (front, rest) = stat.rsplit_once(") ")?;
        let (_, name) = front.split_once(" (")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 22 of the whole line; 3 and 4 are taken.
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { name: name.to_owned(), parent, started, dead: matches!(state, "Z" | "X" | "x") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 2\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.started, stat.dead), ("a) R 1 (b", 7, 98765, false));
        assert!(Stat::parse(b"42 (x) Z 7 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 2\n").unwrap().dead);
        assert!(Stat::parse(b"").is_none());
        assert!(Stat::parse(b"42 (x").is_none());
    }

    #[test]
    fn a_process_is_below_itself_and_its_parent() {
        let above = ourselves_and_above();
        assert!(above.contains(&std::process::id()));
        assert!(above.contains(&std::os::unix::process::parent_id()));
    }
}
