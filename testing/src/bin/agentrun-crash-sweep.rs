//! `agentrun-crash-sweep`: runs the crash sweep and prints its census and its table; exit 1 when a case broke something. Started by itself,
//! as `child` and `tool`, for the processes of a case.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use agentrun_testing::sweep::{Backend, Fault, Plan, Scenario, child, run, tool};

const USAGE: &str = "usage: agentrun-crash-sweep [--backend sqlite|sled]… [--scenario NAME]… [--only CROSSING] [--twice] [--jobs N]
                            [--shard PART/OF] [--planted FAULT] [--folder DIR]

Cuts a node at every crossing it passes, by SIGKILL and by a second owner. --twice also kills the process that goes on.
--folder is where the stores of running cases are kept: a folder in memory makes it quick, and a process's death loses nothing of it.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((word, rest)) if word == "child" => return child(rest),
        Some((word, rest)) if word == "tool" => return tool(rest),
        Some((word, _)) if word == "--help" => return say(USAGE, 0),
        _ => {}
    }
    let plan = match plan(&arguments) {
        Ok(plan) => plan,
        Err(Fault(why)) => return say(&format!("{why}\n\n{USAGE}"), 2),
    };
    match run(&plan) {
        Ok(report) if report.passed() => say(&report.to_string(), 0),
        Ok(report) => say(&report.to_string(), 1),
        Err(fault) => say(&fault.to_string(), 1),
    }
}

fn say(text: &str, code: u8) -> ExitCode {
    // Nobody may be reading any more; the exit code still tells.
    let _ = writeln!(io::stdout(), "{text}");
    ExitCode::from(code)
}

fn plan(arguments: &[String]) -> Result<Plan, Fault> {
    let mut plan = Plan {
        program: std::env::current_exe().map_err(|error| Fault(error.to_string()))?,
        folder: std::env::temp_dir(),
        backends: Vec::new(),
        scenarios: Vec::new(),
        twice: false,
        only: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        shard: (1, 1),
        planted: String::new(),
        stop_at_first: false,
    };
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        if flag == "--twice" {
            plan.twice = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| Fault(format!("`{flag}` needs a value")))?;
        let bad = || Fault(format!("`{value}` is no value of `{flag}`"));
        match flag.as_str() {
            "--backend" => {
                plan.backends.push(*Backend::ALL.iter().find(|backend| backend.name() == value).ok_or_else(bad)?);
            }
            "--scenario" => plan.scenarios.push(Scenario::named(value)?),
            "--only" => plan.only = Some(value.clone()),
            "--jobs" => plan.jobs = value.parse().map_err(|_| bad())?,
            "--shard" => {
                let (part, of) = value.split_once('/').ok_or_else(bad)?;
                plan.shard = (part.parse().map_err(|_| bad())?, of.parse().map_err(|_| bad())?);
            }
            "--planted" => plan.planted.clone_from(value),
            "--folder" => plan.folder = PathBuf::from(value),
            _ => return Err(Fault(format!("`{flag}` is not known"))),
        }
    }
    if plan.backends.is_empty() {
        plan.backends = Backend::ALL.to_vec();
    }
    if plan.scenarios.is_empty() {
        plan.scenarios = Scenario::ALL.to_vec();
    }
    Ok(plan)
}
