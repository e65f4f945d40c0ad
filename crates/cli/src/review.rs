//! Command reviews: the submitted value as `{"value": …}` on stdin; exit 0 accepts, exit 1 rejects with stdout as the message to the
//! model. Anything else is the review's own failure: the candidate stays undecided and is asked about again.

use std::path::PathBuf;
use std::time::Duration;

use agentrun_adapter::process::{Exit, Finished, Marker, run_to_end};
use agentrun_runner::{HostFault, Review, ReviewVerdict};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::command::{CommandLine, output, tail};

/// How long a review may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs a node file's review.
#[derive(Debug)]
pub(crate) struct CommandReview {
    command: CommandLine,
    store: String,
    session: String,
    workspace: PathBuf,
}

impl CommandReview {
    /// A review of a session's values.
    pub(crate) fn new(command: &[String], store: &str, session: &str, workspace: PathBuf) -> Self {
        Self { command: CommandLine::new(command), store: store.to_owned(), session: session.to_owned(), workspace }
    }
}

#[async_trait]
impl Review for CommandReview {
    async fn review(&self, key: &str, value: &Value) -> Result<ReviewVerdict, HostFault> {
        // Reviews are not told their owner's epoch; 0 is before every owner's, so any later one sweeps a review that was left behind.
        let marker = Marker { store: self.store.clone(), session: self.session.clone(), epoch: 0 };
        let extra = [("AGENTRUN_REVIEW_KEY", key), ("AGENTRUN_SESSION", self.session.as_str())];
        let spawn = self.command.spawn(&self.workspace, marker, &extra);
        let input = json!({"value": value}).to_string();
        let finished = run_to_end(&spawn, input.as_bytes(), TIMEOUT)
            .await
            .map_err(|error| HostFault(format!("the review command: {error}")))?;
        verdict(&finished)
    }
}

fn verdict(finished: &Finished) -> Result<ReviewVerdict, HostFault> {
    match finished {
        Finished { exit: Exit::Code(0), timed_out: false, .. } => Ok(ReviewVerdict::Accept),
        // A rejection says why. Without a word, exit 1 is how a script's own crash ends, and the model would pay for guesses.
        Finished { exit: Exit::Code(1), timed_out: false, stdout, stdout_lost, .. }
            if !stdout.trim_ascii().is_empty() =>
        {
            Ok(ReviewVerdict::Reject(output(stdout, *stdout_lost)))
        }
        Finished { timed_out: true, .. } => Err(HostFault(format!(
            "the review command did not end within {} s; the value is reviewed again when the session is resumed",
            TIMEOUT.as_secs()
        ))),
        Finished { exit, stderr_tail, .. } => {
            let how = match exit {
                Exit::Code(code) => format!("exited with code {code}"),
                Exit::Signal(signal) => format!("was ended by signal {signal}"),
                Exit::Lost => "lost its supervising process".to_owned(),
            };
            Err(HostFault(format!(
                "the review command {how}; 0 accepts, 1 with the reason on stdout rejects; the value is reviewed again when the session is resumed{}",
                tail(stderr_tail)
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reviewed(script: &str) -> Result<ReviewVerdict, HostFault> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let review =
            CommandReview::new(&command, &format!("test-{}", uuid::Uuid::new_v4()), "s1", std::env::temp_dir());
        review.review("s1/1", &json!({"a": 1})).await
    }

    #[tokio::test]
    async fn exit_0_accepts_exit_1_rejects_and_the_rest_is_the_hosts_own_failure() {
        assert_eq!(reviewed("exit 0").await, Ok(ReviewVerdict::Accept));
        let echoed = reviewed("cat; printf ' %s' \"$AGENTRUN_REVIEW_KEY\"; exit 1").await;
        assert_eq!(echoed, Ok(ReviewVerdict::Reject("{\"value\":{\"a\":1}} s1/1".to_owned())));
        for script in ["echo broken >&2; exit 2", "echo broken >&2; exit 1", "exit 1", "kill -9 $$"] {
            assert!(reviewed(script).await.is_err(), "{script}");
        }
        assert!(reviewed("echo broken >&2; exit 2").await.unwrap_err().0.contains("broken"));
    }
}
