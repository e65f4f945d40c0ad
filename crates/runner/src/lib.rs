//! Runs a node on any adapter, durably, and gets its record through an injected submit tool.
//!
//! Start at [`HarnessRunner`]; [`Node`] is what a host asks for, [`NodeError`] how it ends without a value, [`Event`] what it is told.
//! Inside: `attempt` is the flow, `recover` what comes next, `gate` what a paid request passes, `bridge` what a tool call passes.

mod attempt;
mod binding;
mod books;
mod bridge;
mod carry;
mod circles;
mod envelope;
mod error;
mod events;
mod faults;
mod follow_up;
mod gate;
mod homes;
mod in_flight;
mod inbox;
mod leave;
mod live;
mod node;
mod presence;
mod recover;
pub mod recovery;
mod runaway;
mod runner;
mod settle;
mod steer;
mod subscribe;
mod typed;

pub use books::{Decide, LedgerError, PaidDecision, RunLedger, read_books};
pub use envelope::{SchemaError, compile, problems};
pub use error::{NodeError, NodeWord, ParkedAt};
pub use events::{Event, What};
pub use follow_up::{FollowUp, FollowUpError, FollowedUp};
pub use inbox::{InboxError, PostState, Posted, retract_message, send_message, waiting_messages};
pub use leave::{LeaveError, LeaveFrom, remove_session, seal_session};
pub use live::{Live, LiveText};
pub use node::{
    EMPTY_TURNS, HostFault, MAX_SENDS, Node, PROMPT_BYTES, REQUEST_LIMIT, RESERVED, Reconciled, Review, ReviewVerdict,
    SUBMIT, Step, Tool, ToolEnd, ToolInvocation, ToolRun,
};
pub use presence::{LiveOwner, live_owner};
pub use runner::{Booked, Delivered, HarnessRunner, HostCheck, ModelProvider, RunnerOptions};
pub use settle::{SettleError, SettleIn, Settlement, settle_open_turn};
pub use subscribe::{Following, Subscription, subscribe};
