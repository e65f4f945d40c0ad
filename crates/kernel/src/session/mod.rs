//! One session in memory: the fold of its records, the checks on them, the decisions over them, and the task that owns its writer.

mod check;
mod decide;
mod drive;
mod follow_up;
mod loop_guard;
mod manual;
mod settle;
mod state;
mod task;

pub use check::{Illegal, Invariant, validate};
pub use decide::{
    Carry, Decision, NOT_RUN, NativeCall, Repair, SAFE_OPENS, Survey, Today, decide, steered_in_vain, turn_end,
};
pub use drive::{
    Begun, Drive, DriveError, EffectSpec, Message, OnRepeat, OpenEffect, Outcomes, PlaceTicket, Restart, StopLevel,
    StopRaiser, StopSignal, Unfinished, Why,
};
pub use follow_up::{FollowUpNext, FollowUpState, NotAnswered, follow_up_next, follow_up_state};
pub use loop_guard::{Circle, LoopGuard, LoopVerdict};
pub use manual::{Manual, Paused, Step};
pub use settle::{UNDECIDED, is_quiet, settle};
pub use state::{Accepted, Effect, EndedTurn, OpenTurn, PlacedMessage, SessionState, Spent};
pub use task::{Owned, SessionTask};
