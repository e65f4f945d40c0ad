//! The `AgentAdapter` trait and the adapters for real harness programs.
//!
//! Start at [`AgentAdapter`]; [`Seat`] is what a session is given, [`Journal`] the barrier behind which effects begin, [`NativeHistory`]
//! how a harness's own files are read and repaired. `process` is the child-process layer all harnesses share; one folder a harness.

mod adapter;
mod calls;
pub mod claude;
pub mod codex;
mod error;
mod journal;
mod messages;
mod native;
pub mod opencode;
pub mod process;
mod seat;
mod session;
mod tools;

pub use adapter::{AdapterProfile, Admission, AgentAdapter, Capabilities, Checked, SessionPlan, admit};
pub use error::{Ability, AdapterError, AdapterErrorKind, Refusal, RefusalKind};
pub use journal::{Journal, JournalError, Tail};
pub use native::{HistoryError, NativeFiles, NativeHistory, RecordedFiles};
pub use seat::{
    Deltas, Dirs, ModelApi, ModelEndpoint, ModelPort, PaidCall, PaidStep, PortRefused, RequestBarrier, Seat,
};
pub use session::{AdapterSession, CloseReport, NativeIdentity, Start, Turn, TurnEnd, Words};
pub use tools::{Answer, Observed, ToolCall, ToolHost, ToolSpec};
