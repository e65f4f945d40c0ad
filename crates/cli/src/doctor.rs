//! `agentrun doctor`: what is installed, what works here, and what to do about the rest. Starts nothing but `--version` of the harnesses,
//! makes no store and asks no model.

use agentrun_adapter::process::{HarnessProgram, has_cgroups};
use agentrun_adapter::{AdapterProfile, Capabilities};
use agentrun_kernel::Built;

use crate::exit::{Exit, Failure};
use crate::{harness, output, stores};

pub(crate) async fn doctor(url: &str, verbose: bool) -> Result<Exit, Failure> {
    output::text("harnesses");
    let adapters = harness::all()?;
    for adapter in &adapters {
        let profile = adapter.profile();
        match profile.program {
            Some(program) => installed(profile.name, program).await,
            None => output::text(&format!(
                "  {:<9} built in: the model is a script (--script), no program, no network",
                profile.name
            )),
        }
    }
    if verbose {
        output::text("what they can do");
        output::text(capabilities(adapters.iter().map(|adapter| adapter.profile())).trim_end());
    }
    output::text("store");
    output::text(&format!("  {url} · {}", store(url).await));
    output::text("supervision");
    output::text(&format!("  {}", supervision()));
    Ok(Exit::Done)
}

async fn installed(name: &str, program: &HarnessProgram) {
    match program.find().await {
        Ok(found) => output::text(&format!("  {name:<9} {} at {} · in range", found.version, found.path.display())),
        Err(error) => {
            output::text(&format!("  {name:<9} not usable: {error}"));
            output::text(&format!("            get it: {}, or name it in {}", program.how_to_get(), program.variable));
        }
    }
    output::text(&format!(
        "            supported: {} up to, but not including, {}; measured on {}",
        program.oldest, program.too_new, program.pinned
    ));
}

/// What each can do, as its profile says, in Markdown. The README has this table, and a test holds it there.
fn capabilities<'a>(profiles: impl Iterator<Item = &'a AdapterProfile>) -> String {
    let mut table = "\
| harness | versions | speaks | our message ids | drain | fork | words in a running turn | recorded responses put back | its own tools |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"
    .to_owned();
    for profile in profiles {
        let yes = |can: bool| if can { "yes" } else { "no" };
        let Capabilities { own_ids, drain, fork, steer, restores_responses, builtins } = profile.widest;
        let builtins = match builtins {
            Built::Gated => "by list, recorded before they run",
            Built::Observed => "by list, recorded, some after they ran",
            Built::Neither => "none",
        };
        let versions = profile.program.map_or_else(
            || "built in".to_owned(),
            |program| format!("{} up to, not including, {}", program.oldest, program.too_new),
        );
        let speaks: Vec<_> = profile.speaks.iter().map(|api| api.as_str()).collect();
        let speaks = if speaks.is_empty() { "in process".to_owned() } else { speaks.join(", ") };
        let can = [own_ids, drain, fork, steer, restores_responses].map(yes).join(" | ");
        table += &format!("| {} | {versions} | {speaks} | {can} | {builtins} |\n", profile.name);
    }
    table
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
        if has_cgroups() {
            "a guard process above each program, and a cgroup of its own: when agentrun dies, all that it started dies"
        } else {
            "a guard process above each program: when agentrun dies, all that it started dies (a cgroup for each comes on top where agentrun may \
             make one: as root, or in a subtree that was delegated to it)"
        }
    } else {
        "not available: /proc does not show a process's children, so no harness is started; mount /proc"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_says_of_each_harness_what_its_adapter_does() {
        let adapters = harness::all().unwrap();
        let table = capabilities(adapters.iter().map(|adapter| adapter.profile()));
        assert!(table.lines().count() > adapters.len());
        let readme = include_str!("../../../README.md");
        assert!(
            readme.contains(&table),
            "README.md must have this table, as `agentrun doctor --verbose` prints it:\n{table}"
        );
    }
}
