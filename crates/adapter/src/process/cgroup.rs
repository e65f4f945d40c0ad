//! A cgroup of its own for each program, where this process may make one (root, or a subtree that was handed to it; cgroup v2, kernel
//! 5.14). What the guard cannot promise alone holds in it: whatever a program started is found without a mark and without the guard, since
//! nothing leaves its cgroup by clearing its environment or by its parents' deaths, and all of it dies in one write, also what forks faster
//! than it is killed one by one.
//!
//! It comes on top. Where none can be had the guard and the sweep work as they do with it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agentrun_kernel::Digest;

use super::marker::{Mark, Marker};
use super::sweep::Epochs;

/// Written to, it kills everything in the cgroup and below.
pub(super) const KILL: &str = "cgroup.kill";
/// The processes in a cgroup; a 0 written to it moves the writer in.
pub(super) const PROCS: &str = "cgroup.procs";
/// Characters of a session's name in those of its cgroups.
const NAME: usize = 32;
/// Between two looks at a cgroup that was killed.
const LOOK: Duration = Duration::from_millis(5);

/// One program's cgroup.
#[derive(Debug)]
pub(super) struct Leaf {
    path: PathBuf,
}

impl Leaf {
    /// A new one for the program that will carry `mark`. `None`: there is none to be had here.
    pub(super) fn make(mark: &Mark) -> Option<Self> {
        Self::below(&ours()?, mark)
    }

    fn below(parent: &Path, mark: &Mark) -> Option<Self> {
        let marker = &mark.marker;
        let leaf = Self { path: parent.join(format!("{}.{}.{}", prefix(marker), marker.epoch, mark.spawn)) };
        fs::create_dir(&leaf.path).ok()?;
        // Kernels before 5.14, and folders that are no cgroups: nothing could be ended there. Who may not write to ours may not move from it.
        if leaf.path.join(KILL).exists() && File::options().write(true).open(parent.join(PROCS)).is_ok() {
            return Some(leaf);
        }
        leaf.remove();
        None
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its folder, by which a program is started in it.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Kills everything in it and waits, at most `within`, until it is empty; then it is gone. Blocks. Answers the pids of what is left.
    pub(super) fn end(&self, within: Duration) -> Vec<u32> {
        let until = Instant::now() + within;
        loop {
            // Each time: what was moved in meanwhile dies too.
            let _ = fs::write(self.path.join(KILL), "1");
            if !self.populated() {
                self.remove();
                return Vec::new();
            }
            if Instant::now() >= until {
                let procs = fs::read_to_string(self.path.join(PROCS)).unwrap_or_default();
                return procs.lines().filter_map(|pid| pid.parse().ok()).collect();
            }
            std::thread::sleep(LOOK);
        }
    }

    fn populated(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|it| it == "populated 1"))
    }

    /// Removes it if nothing is in it.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// Whether programs get a cgroup of their own here.
#[must_use]
pub fn has_cgroups() -> bool {
    let marker = Marker { store: "a look".to_owned(), session: "a look".to_owned(), epoch: 0 };
    let leaf = Leaf::make(&Mark::new(marker));
    leaf.inspect(Leaf::remove).is_some()
}

/// The cgroups of a session's older owners, wherever in the tree those ran. Never one that we are in.
pub(super) fn of_session(marker: &Marker, epochs: Epochs) -> Vec<Leaf> {
    let Some(mount) = mountinfo().as_deref().and_then(mounted) else { return Vec::new() };
    let (ours, prefix) = (ours(), prefix(marker));
    let mut found = Vec::new();
    let mut folders = vec![mount];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            let epoch = entry.file_name().to_str().and_then(|name| epoch_in(name, &prefix));
            let older = epoch.is_some_and(|epoch| epochs.take(epoch, marker.epoch));
            if older && !ours.as_ref().is_some_and(|ours| ours.starts_with(&path)) {
                found.push(Leaf { path });
            } else {
                folders.push(path);
            }
        }
    }
    found
}

/// What the names of a session's cgroups begin with. A digest that no other session's meets: what is found by it is killed.
fn prefix(marker: &Marker) -> String {
    let of = Digest::of(format!("{}\n{}", marker.store, marker.session).as_bytes());
    format!("agrun-{}", of.as_str().chars().take(NAME).collect::<String>())
}

fn epoch_in(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.strip_prefix('.')?.split('.').next()?.parse().ok()
}

/// The cgroup this process is in, as a folder.
fn ours() -> Option<PathBuf> {
    let mount = mounted(&mountinfo()?)?;
    let inside = inside(&fs::read_to_string("/proc/self/cgroup").ok()?)?;
    Some(mount.join(inside))
}

fn mountinfo() -> Option<String> {
    fs::read_to_string("/proc/self/mountinfo").ok()
}

/// Where cgroup v2 is mounted, by `/proc/self/mountinfo`: `ID PARENT DEV ROOT MOUNT_POINT OPTIONS … - TYPE SOURCE …`. A mount of a part of
/// the tree is left alone: paths do not fit it.
fn mounted(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        (root == "/" && kind.split(' ').next() == Some("cgroup2")).then(|| PathBuf::from(point))
    })
}

/// The path in the v2 tree, by `/proc/self/cgroup`: the line `0::/PATH`. One outside the namespace's own tree cannot be reached.
fn inside(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let outside = path.split('/').any(|part| part == "..") || path.ends_with(" (deleted)");
    (!outside).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(session: &str, epoch: u64) -> Mark {
        Mark::new(Marker { store: "s".to_owned(), session: session.to_owned(), epoch })
    }

    #[test]
    fn the_tree_is_found_where_it_is_mounted_whole() {
        let hybrid = "\
25 20 0:22 / /sys/fs/cgroup rw,relatime shared:9 - tmpfs cgroup rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
30 25 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 master:2 - cgroup2 cgroup2 rw";
        assert_eq!(mounted(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(
            mounted("30 25 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw"),
            Some(PathBuf::from("/sys/fs/cgroup"))
        );
        assert_eq!(mounted("30 25 0:27 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw"), None);
        assert_eq!(mounted("30 25 0:27 / /mnt rw - ext4 /dev/sda cgroup2"), None);
        assert_eq!(mounted("what\n - cgroup2\n"), None);
    }

    #[test]
    fn the_place_in_the_tree_is_the_line_without_a_controller() {
        let of = |text| inside(text).map(|path| path.display().to_string());
        assert_eq!(
            of("4:memory:/a\n1:name=systemd:/b\n0::/user.slice/x.scope\n"),
            Some("user.slice/x.scope".to_owned())
        );
        assert_eq!(of("0::/\n"), Some(String::new()));
        for none in ["4:memory:/a\n", "", "0::/../other\n", "0::/gone (deleted)\n"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_end_what_is_in_it_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Leaf::below(folder.path(), &mark("a", 1)).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "and nothing is left there");
        assert!(Leaf::below(&folder.path().join("missing"), &mark("a", 1)).is_none());
    }

    #[test]
    fn a_name_tells_its_session_and_its_epoch_to_nobody_else() {
        let (ours, theirs) = (mark("a", 12), mark("b", 12));
        let name = format!("{}.{}.{}", prefix(&ours.marker), 12, ours.spawn);
        assert_eq!(epoch_in(&name, &prefix(&ours.marker)), Some(12));
        assert_eq!(epoch_in(&name, &prefix(&theirs.marker)), None);
        assert_eq!(epoch_in("user.slice", &prefix(&ours.marker)), None);
        assert!(name.len() < 128);
    }
}
