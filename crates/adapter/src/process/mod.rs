//! The child-process layer every harness and every command tool shares. What stands here: a process we started, and all that it
//! started, ends when we say so, when we let go, and when we are killed; its output is read without losing alignment.
//!
//! Start at [`Spawn`]; [`Child`] is what it gives, [`run_to_end`] the short form for a command. [`HarnessProgram`] finds the
//! program of a harness, [`sweep`](sweep()) what an older owner left behind. `guard` has the mechanism and the picture.

mod cgroup;
mod child;
mod dialogue;
mod framing;
mod guard;
mod marker;
mod program;
mod run;
mod stall;
mod stdio;
mod supervisor;
mod sweep;

pub use cgroup::has_cgroups;
pub use child::{Child, Exit, Lingering};
pub(crate) use dialogue::Dialogue;
pub use framing::{Frame, FrameTooLong, Framer, Frames, LINE_LIMIT};
pub use marker::{MARK_VARIABLE, Marker};
pub use program::{HarnessProgram, Program, ProgramError, Version};
pub use run::{Finished, RunError, STDOUT_LIMIT, run_to_end};
pub use stall::StallClock;
pub use stdio::{STDERR_TAIL, Stdin, StdinClosed};
pub use supervisor::{Spawn, SpawnError};
pub use sweep::{Epochs, Stray, SweepError, sweep};
