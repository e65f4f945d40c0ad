//! Command tools: one process a call, arguments as JSON on stdin, the result on stdout. What the model is told is what can be known:
//! an exit code other than 0 is an error of the tool, a cut (time-out, signal, lost guard) is an interruption, since it may have done it.

use std::time::Duration;

use agentrun_adapter::process::{Exit, Finished, Marker, RunError, run_to_end};
use agentrun_runner::{Reconciled, ToolEnd, ToolInvocation, ToolRun};
use async_trait::async_trait;
use serde_json::json;

use crate::command::{CommandLine, output, tail};

/// How long a reconcile command may take.
const RECONCILE: Duration = Duration::from_secs(60);

/// Runs a node file's tool.
#[derive(Debug)]
pub(crate) struct CommandTool {
    command: CommandLine,
    reconcile: Option<CommandLine>,
}

impl CommandTool {
    /// A tool of checked commands.
    pub(crate) fn new(command: &[String], reconcile: Option<&[String]>) -> Self {
        Self { command: CommandLine::new(command), reconcile: reconcile.map(CommandLine::new) }
    }
}

async fn run(
    command: &CommandLine,
    call: &ToolInvocation,
    input: &serde_json::Value,
    within: Duration,
) -> Result<Finished, RunError> {
    let marker = Marker { store: call.store.clone(), session: call.session.to_string(), epoch: call.epoch };
    let extra = [("AGENTRUN_CALL_KEY", call.key.as_str()), ("AGENTRUN_SESSION", call.session.as_str())];
    let spawn = command.spawn(&call.workspace, marker, &extra);
    run_to_end(&spawn, input.to_string().as_bytes(), within).await
}

#[async_trait]
impl ToolRun for CommandTool {
    async fn run(&self, call: ToolInvocation) -> ToolEnd {
        match run(&self.command, &call, &call.arguments, call.timeout).await {
            Ok(finished) => end_of(&finished, call.timeout),
            Err(RunError::Spawn(error)) => ToolEnd::Refused(format!("the tool's command was not started: {error}")),
            Err(RunError::Lingering(error)) => ToolEnd::Interrupted(error.to_string()),
        }
    }

    async fn reconcile(&self, call: ToolInvocation) -> Reconciled {
        let Some(command) = &self.reconcile else { return Reconciled::Unknown };
        let question = json!({"call_key": call.key, "arguments": call.arguments});
        match run(command, &call, &question, RECONCILE).await {
            Ok(Finished { exit: Exit::Code(0), stdout, stdout_lost, timed_out: false, .. }) => {
                Reconciled::Happened(output(&stdout, stdout_lost))
            }
            // 1 is also how a script's own crash ends, with words on stderr; taken for "it did not happen", it would run the tool twice.
            Ok(Finished { exit: Exit::Code(1), timed_out: false, stderr_tail, .. }) if stderr_tail.is_empty() => {
                Reconciled::DidNot
            }
            Ok(_) | Err(_) => Reconciled::Unknown,
        }
    }
}

fn end_of(finished: &Finished, timeout: Duration) -> ToolEnd {
    let tail = tail(&finished.stderr_tail);
    if finished.timed_out {
        return ToolEnd::Interrupted(format!("it did not end within {} s and was cut{tail}", timeout.as_secs()));
    }
    match finished.exit {
        Exit::Code(0) => ToolEnd::Ok(output(&finished.stdout, finished.stdout_lost)),
        Exit::Code(code) => ToolEnd::Error(format!("the tool exited with code {code}{tail}")),
        Exit::Signal(signal) => ToolEnd::Interrupted(format!("it was ended by signal {signal}{tail}")),
        Exit::Lost => ToolEnd::Interrupted(format!("its supervising process was killed{tail}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::{EffectKey, SessionKey};

    fn call(arguments: serde_json::Value) -> ToolInvocation {
        ToolInvocation {
            key: EffectKey("call-1".to_owned()),
            session: SessionKey::new("s1").unwrap(),
            epoch: 1,
            store: format!("test-{}", uuid::Uuid::new_v4()),
            workspace: std::env::temp_dir(),
            arguments,
            timeout: Duration::from_secs(60),
        }
    }

    fn sh(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn a_tool_gets_its_arguments_its_call_key_and_its_session_and_stdout_is_the_result() {
        let tool = CommandTool::new(&sh("cat; printf ' %s %s' \"$AGENTRUN_CALL_KEY\" \"$AGENTRUN_SESSION\""), None);
        assert_eq!(tool.run(call(json!({"q": 1}))).await, ToolEnd::Ok("{\"q\":1} call-1 s1".to_owned()));
    }

    #[tokio::test]
    async fn a_tool_inherits_nothing_that_is_not_named() {
        // Cargo sets CARGO_MANIFEST_DIR for a test: it stands for any variable nobody named.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let ToolEnd::Ok(environment) = CommandTool::new(&sh("env"), None).run(call(json!({}))).await else { panic!() };
        assert!(!environment.contains("CARGO_MANIFEST_DIR"), "{environment}");
        assert!(environment.contains("PATH="));
    }

    #[tokio::test]
    async fn a_non_zero_exit_is_an_error_result_with_the_end_of_stderr() {
        let end = CommandTool::new(&sh("echo gone >&2; exit 3"), None).run(call(json!({}))).await;
        assert_eq!(end, ToolEnd::Error("the tool exited with code 3\nThe end of its stderr:\ngone".to_owned()));
    }

    #[tokio::test]
    async fn b53_a_cut_call_is_interrupted_and_never_an_error() {
        let ended = CommandTool::new(&sh("kill -9 $$"), None).run(call(json!({}))).await;
        assert!(matches!(ended, ToolEnd::Interrupted(_)), "{ended:?}");
        let late = ToolInvocation { timeout: Duration::from_millis(50), ..call(json!({})) };
        let ended = CommandTool::new(&sh("sleep 60"), None).run(late).await;
        assert!(matches!(ended, ToolEnd::Interrupted(_)), "{ended:?}");
    }

    #[tokio::test]
    async fn a_command_that_cannot_be_started_never_began() {
        let gone = vec!["/no/such/program".to_owned()];
        assert!(matches!(CommandTool::new(&gone, None).run(call(json!({}))).await, ToolEnd::Refused(_)));
    }

    #[tokio::test]
    async fn reconcile_is_asked_by_call_key_and_answers_by_exit_code() {
        let asked = |script: &str| {
            let tool = CommandTool::new(&sh("exit 9"), Some(&sh(script)));
            async move { tool.reconcile(call(json!({"a": 1}))).await }
        };
        assert_eq!(
            asked("cat").await,
            Reconciled::Happened("{\"arguments\":{\"a\":1},\"call_key\":\"call-1\"}".to_owned())
        );
        assert_eq!(asked("exit 1").await, Reconciled::DidNot);
        assert_eq!(asked("echo KeyError >&2; exit 1").await, Reconciled::Unknown, "a crash is no answer");
        assert_eq!(asked("exit 2").await, Reconciled::Unknown);
        assert_eq!(asked("kill -9 $$").await, Reconciled::Unknown);
        assert_eq!(CommandTool::new(&sh("true"), None).reconcile(call(json!({}))).await, Reconciled::Unknown);
    }
}
