//! A harness's calls on their way to the host: first the harness's own history holds the call, then it is recorded, then it runs. What
//! differs from one harness to the next is how its history shows a call: [`CallBarrier`].

use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{CallId, DriveError, OpenEffect, Outcome, Restart, StopLevel};
use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;

use crate::error::AdapterErrorKind;
use crate::journal::{JournalError, Tail};
use crate::tools::{Answer, Observed, ToolCall, ToolHost};

/// Nothing said for this long, with no call of ours running, is no work but a stall. A model may think for minutes.
pub(crate) const STALL: Duration = Duration::from_secs(600);

/// Holds a call back until the harness's own history has it.
#[async_trait]
pub(crate) trait CallBarrier: Send + Sync {
    /// Waits, bounded, until the history holds the call; answers what explains it and how many results its id already has.
    async fn before_call(&self, call: &str) -> Result<(Tail, u32), JournalError>;
}

/// The host behind the barrier.
pub(crate) struct Calls {
    host: Arc<dyn ToolHost>,
    barrier: Arc<dyn CallBarrier>,
}

impl Calls {
    pub(crate) fn new(host: Arc<dyn ToolHost>, barrier: Arc<dyn CallBarrier>) -> Self {
        Self { host, barrier }
    }

    /// A host tool's call, as a recorded effect.
    pub(crate) async fn call(&self, call: &str, tool: &str, arguments: Value) -> Result<Answer, Restart> {
        match self.barrier.before_call(call).await {
            Ok((tail, ordinal)) => self.host.call(tool_call(call, tool, arguments, ordinal, tail)).await,
            Err(error) => not_begun(error).map(|text| Answer::Text { text, is_error: true, end_turn: false }),
        }
    }

    /// A built-in's call: recorded before it runs, or denied.
    pub(crate) async fn observe(&self, call: &str, tool: &str, arguments: Value) -> Result<Observed, Restart> {
        match self.barrier.before_call(call).await {
            Ok((tail, ordinal)) => self.host.observe(tool_call(call, tool, arguments, ordinal, tail)).await,
            Err(error) => not_begun(error).map(Observed::Deny),
        }
    }
}

/// A tool nobody offered: the host is told, which ends the node. There is nothing to answer: the program has done that.
pub(crate) async fn unknown(host: &dyn ToolHost, call: &str, tool: &str, arguments: Value) -> Result<Answer, Restart> {
    host.call(tool_call(call, tool, arguments, 0, Tail::none())).await
}

fn tool_call(call: &str, tool: &str, arguments: Value, ordinal: u32, tail: Tail) -> ToolCall {
    ToolCall { call: CallId(call.to_owned()), tool: tool.to_owned(), arguments, ordinal, tail }
}

/// What the model is told of a call whose barrier failed.
fn not_begun(error: JournalError) -> Result<Arc<str>, Restart> {
    match error {
        JournalError::Drive(DriveError::Restart(restart)) => Err(restart),
        error => Ok(Arc::from(format!("This call was not run, because it could not be recorded first: {error}"))),
    }
}

/// Why a turn failed.
pub(crate) type Failure = (AdapterErrorKind, String);

/// Records how a built-in ended.
pub(crate) async fn finish(effect: OpenEffect, outcome: Outcome) -> Result<(), Failure> {
    match effect.finish(outcome, Vec::new(), None).await {
        Ok(_) => Ok(()),
        Err(unfinished) => Err(match unfinished.error {
            DriveError::Restart(restart) => unwind(restart),
            error => (AdapterErrorKind::History, format!("the outcome of a built-in was not recorded: {error}")),
        }),
    }
}

pub(crate) fn unwind(restart: Restart) -> Failure {
    let message = restart.to_string();
    (AdapterErrorKind::Restart(restart), message)
}

/// The next level a stop can rise to.
pub(crate) const fn above(level: StopLevel) -> StopLevel {
    match level {
        StopLevel::Run => StopLevel::Drain,
        StopLevel::Drain => StopLevel::Interrupt,
        StopLevel::Interrupt | StopLevel::Kill => StopLevel::Kill,
    }
}

/// Returns at `at`; never for `None`.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
