//! `agentrun doctor`: what is installed, what works here, and what to do about the rest. Starts nothing but `--version` of the harnesses,
//! makes no store and asks no model.

use agentrun_adapter::claude::{self, ClaudeAdapter, OLDEST, PINNED, TOO_NEW};
use agentrun_adapter::{AgentAdapter as _, Capabilities};
use agentrun_kernel::Built;

use crate::exit::{Exit, Failure};
use crate::{output, stores};

pub(crate) async fn doctor(url: &str, verbose: bool) -> Result<Exit, Failure> {
    output::text("harnesses");
    match claude::program().await {
        Ok(program) => {
            output::text(&format!("  claude    {} at {} · in range", program.version, program.path.display()))
        }
        Err(error) => {
            output::text(&format!("  claude    not usable: {error}"));
            output::text(&format!("            get it: {}", ClaudeAdapter::new().profile().how_to_get));
        }
    }
    output::text(&format!("            supported: {OLDEST} up to, but not including, {TOO_NEW}; measured on {PINNED}"));
    output::text("  faux      built in: the model is a script (--script), no program, no network");
    if verbose {
        capabilities();
    }
    output::text("store");
    output::text(&format!("  {url} · {}", store(url).await));
    output::text("supervision");
    output::text(&format!("  {}", supervision()));
    Ok(Exit::Done)
}

fn capabilities() {
    output::text("what they can do");
    output::text(&format!(
        "  {:<9} {:>7} {:>6} {:>5} {:>6} {:>10}  BUILT-IN TOOLS",
        "", "OWN IDS", "DRAIN", "FORK", "STEER", "RESPONSES"
    ));
    for (name, can) in
        [("claude", ClaudeAdapter::new().profile().widest), ("faux", crate::harness::faux_capabilities())]
    {
        let yes = |can: bool| if can { "yes" } else { "no" };
        let Capabilities { own_ids, drain, fork, steer, restores_responses, builtins } = can;
        let builtins = match builtins {
            Built::Gated => "recorded before they run",
            Built::Observed => "recorded, some after they ran",
            Built::Neither => "none, or neither seen nor stopped",
        };
        output::text(&format!(
            "  {name:<9} {:>7} {:>6} {:>5} {:>6} {:>10}  {builtins}",
            yes(own_ids),
            yes(drain),
            yes(fork),
            yes(steer),
            yes(restores_responses),
        ));
    }
}

async fn store(url: &str) -> String {
    match stores::file_of(url) {
        Some(path) if !path.exists() => "not there yet; the first run makes it".to_owned(),
        _ => match stores::open(url).await {
            Ok(_) => "opens".to_owned(),
            Err(failure) => failure.message,
        },
    }
}

/// Whether a guard can find what it must end.
fn supervision() -> &'static str {
    if std::fs::read("/proc/thread-self/children").is_ok() {
        "a guard process above each harness: when agentrun dies, all that it started dies"
    } else {
        "not available: /proc does not show a process's children, so no harness is started; mount /proc"
    }
}
