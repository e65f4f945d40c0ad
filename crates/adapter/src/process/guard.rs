//! The guard: a small process between us and each program, and the only unsafe code of the crate. Its promise: when the program
//! ends, when we close the pipe, and when we die by whatever signal, everything the program started is killed and reaped.
//!
//! ```text
//! we ──spawn──► guard (own session, subreaper) ──clone──► program (own group, dies with the guard) ──► tools ──► …
//!  └─ life pipe ──►│ end of file: kill all                   any orphan below comes back to the guard ◄──────┘
//!  ◄─ report pipe ─┘ the program's pid, later its wait status
//! ```
//!
//! Why not less: a parent-death signal alone is not inherited, so commands went on changing the workspace; killing the process
//! group reaches none of a harness's commands, since each has its own session; a helper that is not the parent never gets orphans
//! back. Killing the guard itself would lose the tools, so nobody does: to stop is to close the life pipe.
//!
//! The guard is forked and never execs: no helper binary has to be found. So close-on-exec does not clear its descriptors and it must
//! close them itself, or it would hold other sessions' pipes open. Everything after the fork is raw system calls on the stack:
//! another thread may have held the allocator's lock when the process was copied.
#![allow(unsafe_code)] // fork, prctl, signals and raw reads between fork and exec have no safe form

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use libc::{c_int, c_long, c_uint, pid_t};

use super::cgroup::{self, Leaf};

#[cfg(not(target_os = "linux"))]
compile_error!(
    "agentrun supervises harnesses with Linux subreapers and parent-death signals; there is no guard for this system yet"
);

/// The list of a thread's children. The guard has one thread, so for it this is all there is below it.
pub(super) const CHILDREN: &str = "/proc/thread-self/children";
const CHILDREN_C: &CStr = c"/proc/thread-self/children";

/// Between two rounds of killing, in milliseconds, when no child's death comes first.
const ROUND_MS: c_int = 20;

/// The size of the kernel's signal set.
const KERNEL_SIGSET_BYTES: usize = 8;

/// The flag of `clone3`; libc's own constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Our end of the pipe by which a guard tells us things.
#[derive(Debug)]
pub(super) struct Report(PipeReader);

/// Puts a guard between us and what `command` will run. The child `command` gives is the guard. Dropping the writer, the life pipe,
/// ends the program and everything below it. `name` is what process lists show; the kernel takes 15 bytes of it.
/// In `leaf`, where there is one, the program is started.
pub(super) fn arm(command: &mut Command, name: CString, leaf: Option<&Leaf>) -> io::Result<(PipeWriter, Report)> {
    // Both pipes are close-on-exec: the program has neither.
    let (life_read, life) = io::pipe()?;
    let (report, report_write) = io::pipe()?;
    let cgroup = leaf.and_then(|leaf| Cgroup::new(leaf).ok());
    let split = move || split(life_read.as_raw_fd(), report_write.as_raw_fd(), &name, cgroup.as_ref());
    // SAFETY: `split` and all it calls make only async-signal-safe calls, allocate nothing and take no lock.
    unsafe { command.pre_exec(split) };
    Ok((life, Report(report)))
}

/// A program's cgroup as the guard needs it: made before the fork, since nothing may be allocated after it.
struct Cgroup {
    folder: File,
    path: CString,
    procs: CString,
    kill: CString,
}

impl Cgroup {
    fn new(leaf: &Leaf) -> io::Result<Self> {
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let within = |name| text(&leaf.path().join(name));
        let (procs, kill) = (within(cgroup::PROCS)?, within(cgroup::KILL)?);
        Ok(Self { folder: leaf.open()?, path: text(leaf.path())?, procs, kill })
    }
}

impl Report {
    /// The program's pid. The guard reports it before it lets the spawn return, so after a good spawn this does not block.
    pub(super) fn program(&mut self) -> io::Result<u32> {
        u32::try_from(self.word()?).map_err(io::Error::other)
    }

    /// The program's wait status. To be asked after the guard exited by itself; it has written the status then.
    pub(super) fn status(&mut self) -> io::Result<i32> {
        self.word()
    }

    fn word(&mut self) -> io::Result<i32> {
        let mut word = [0; size_of::<i32>()];
        self.0.read_exact(&mut word)?;
        Ok(i32::from_ne_bytes(word))
    }
}

/// Runs in the forked child: becomes the guard and never returns, but for the program, which returns to be exec'd.
fn split(life: c_int, report: c_int, name: &CStr, cgroup: Option<&Cgroup>) -> io::Result<()> {
    // SAFETY: plain system calls on values of our own; the signal sets are initialised by sigfillset before they are read. Bare
    // `clone` without flags is a fork that runs no at-fork handlers, which could take locks another thread held.
    unsafe {
        if libc::setsid() == -1 || libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
        // Handlers of ours must not run in the guard, and no terminal or polite signal may end it. An ignored SIGCHLD would let
        // children vanish without a status.
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let guard = libc::getpid();
        let (mut forked, mut outside) = (-1, cgroup);
        if let Some(cgroup) = cgroup {
            forked = clone_into(cgroup.folder.as_raw_fd());
        }
        if forked == -1 {
            forked = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        } else {
            outside = None;
        }
        match forked {
            -1 => Err(io::Error::last_os_error()),
            0 => become_program(guard, outside),
            program => stand_guard(program as pid_t, life, report, name, cgroup),
        }
    }
}

/// The same fork with the child in this cgroup from its first instruction. (Moving it there later waits for all processors of the
/// machine: 14 ms, measured, for the first in a while.) -1 where the kernel (before 5.7), a filter or the cgroup's own rules refuse it.
unsafe fn clone_into(folder: c_int) -> c_long {
    // SAFETY: all of the structure is plain numbers, for which zero is a value; the call reads it and nothing else of ours.
    unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.flags = CLONE_INTO_CGROUP;
        args.exit_signal = libc::SIGCHLD as u64;
        args.cgroup = folder as u64;
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    }
}

/// The program's last steps before exec. `outside` is its cgroup, if it is not in it yet.
fn become_program(guard: pid_t, outside: Option<&Cgroup>) -> io::Result<()> {
    // SAFETY: plain system calls on values of our own; `none` is initialised by sigemptyset before it is read.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == -1 || libc::setpgid(0, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
        // The guard died before the death signal was set: nothing would ever end us.
        if libc::getppid() != guard {
            libc::_exit(128 + libc::SIGKILL);
        }
        if let Some(cgroup) = outside {
            // One that cannot be moved is the guard's to end, as it is where there are no cgroups.
            tell_file(&cgroup.procs, c"0");
        }
        // Exec keeps ignored signals ignored (we may run under nohup) and the mask; a program expects neither. The kernel's own call,
        // since libc hides the signals it keeps for itself; a zeroed action is the default one on every architecture.
        let default = [0_u64; 8];
        for signal in 1..=libc::SIGRTMAX() {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                KERNEL_SIGSET_BYTES,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        // What a host left open without close-on-exec is none of the program's business. Best effort: kernels before 5.11 refuse.
        libc::syscall(libc::SYS_close_range, 3 as c_uint, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    Ok(())
}

/// The guard's life: wait for the program's end or ours, end everything below, say how the program ended.
fn stand_guard(program: pid_t, life: c_int, report: c_int, name: &CStr, cgroup: Option<&Cgroup>) -> ! {
    let mut status = None;
    // SAFETY: plain system calls on our own descriptors and stack; `signals` is initialised by sigemptyset before it is read; the
    // process is single-threaded and shares no memory.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
        tell(report, program);
        close_all_but(life, report);
        libc::chdir(c"/".as_ptr());
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGCHLD);
        // Without one (descriptors at their limit) poll skips the entry, and the time-out does the work.
        let deaths = libc::signalfd(-1, &signals, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        let timeout = if deaths == -1 { ROUND_MS } else { -1 };

        // Orphans come to us all the time; they are reaped as they die, or a long session would fill the process table.
        while reap(program, &mut status) && status.is_none() {
            if life_is_over(life, deaths, timeout) {
                break;
            }
        }
        if let Some(cgroup) = cgroup {
            tell_file(&cgroup.kill, c"1");
        }
        while reap(program, &mut status) {
            kill_children();
            let mut polled = libc::pollfd { fd: deaths, events: libc::POLLIN, revents: 0 };
            libc::poll(&mut polled, 1, ROUND_MS);
            drain(deaths);
        }
        if let Some(cgroup) = cgroup {
            // Everything that was in it is reaped.
            libc::rmdir(cgroup.path.as_ptr());
        }
        let status = status.unwrap_or(libc::SIGKILL);
        tell(report, status);
        libc::_exit(if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) })
    }
}

/// Waits for a child's death or the end of the life pipe; true for the latter.
unsafe fn life_is_over(life: c_int, deaths: c_int, timeout: c_int) -> bool {
    let mut polled = [
        libc::pollfd { fd: life, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: deaths, events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: the pointer and the length are of the same local array.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
    // SAFETY: `drain` reads into its own buffer.
    unsafe { drain(deaths) };
    // Nothing is ever written to the pipe: readable means that its other end is gone.
    let [life, _] = polled;
    life.revents != 0
}

/// Takes what the signal descriptor holds, so that poll waits for the next death.
unsafe fn drain(deaths: c_int) {
    let mut buffer = [0_u8; 1024];
    // SAFETY: reads at most the buffer's length into the buffer; the descriptor does not block.
    while unsafe { libc::read(deaths, buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

/// Reaps every child that is dead; false when there is none left, dead or alive.
unsafe fn reap(program: pid_t, status: &mut Option<c_int>) -> bool {
    loop {
        let mut found = 0;
        // SAFETY: `found` is a local the call may write to.
        match unsafe { libc::waitpid(-1, &mut found, libc::WNOHANG) } {
            0 => return true,
            -1 => return false,
            pid if pid == program => *status = Some(found),
            _ => {}
        }
    }
}

/// Writes to one of a cgroup's files.
unsafe fn tell_file(path: &CStr, word: &CStr) {
    // SAFETY: the path is NUL-terminated; the call reads the word's own bytes; the descriptor is our own.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(file, word.as_ptr().cast(), word.count_bytes());
        libc::close(file);
    }
}

/// Kills each child there is now. Their own children come to us as they die: the next round's work. Only we reap, so none of these
/// pids can belong to a stranger.
unsafe fn kill_children() {
    // SAFETY: the path is NUL-terminated; reads stay within the local buffer; the descriptor is our own.
    unsafe {
        let list = libc::open(CHILDREN_C.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut buffer = [0_u8; 4096];
        let mut pid: pid_t = 0;
        loop {
            let length = libc::read(list, buffer.as_mut_ptr().cast(), buffer.len());
            if length <= 0 {
                break;
            }
            for byte in buffer.iter().take(length.cast_unsigned()) {
                if byte.is_ascii_digit() {
                    pid = pid.wrapping_mul(10).wrapping_add(pid_t::from(*byte - b'0'));
                } else {
                    // A pid of 0 would mean our own group.
                    if pid > 0 {
                        libc::kill(pid, libc::SIGKILL);
                    }
                    pid = 0;
                }
            }
        }
        libc::close(list);
    }
}

/// Closes every descriptor but these two. It releases the pipe by which std learns of a failed exec, so a spawn returns only after it,
/// and our copy of the life pipe's other end.
unsafe fn close_all_but(life: c_int, report: c_int) {
    let (low, high) = if life < report { (life, report) } else { (report, life) };
    // SAFETY: the guard uses no descriptor but the two kept.
    unsafe {
        close_range(0, low - 1);
        close_range(low + 1, high - 1);
        close_range(high + 1, c_int::MAX);
    }
}

unsafe fn close_range(first: c_int, last: c_int) {
    if first > last {
        return;
    }
    // SAFETY: as for `close_all_but`; `limit` is a local the call may write to.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first as c_uint, last as c_uint, 0) == 0 {
            return;
        }
        // Kernels before 5.9 and old sandboxes do not know the call.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let end = last.min(c_int::try_from(limit.rlim_cur).unwrap_or(1 << 20));
        for descriptor in first..=end {
            libc::close(descriptor);
        }
    }
}

/// Four bytes to the report pipe, which are never split. Nobody there to read is no error: it is why we end.
unsafe fn tell(report: c_int, word: c_int) {
    let bytes = word.to_ne_bytes();
    // SAFETY: writes the local array's bytes.
    unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
}
