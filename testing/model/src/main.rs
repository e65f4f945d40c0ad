//! Prints the table of verdicts and fails on one that is unexpected. With an argument, only the variants whose model or name holds it,
//! each with its shortest traces.
#![allow(clippy::print_stdout, reason = "the table is its result")]

use std::process::ExitCode;
use std::time::Instant;

use agentrun_model::MODELS;
use agentrun_model::verdicts::HEAD;

fn main() -> ExitCode {
    let sought = std::env::args().nth(1);
    let mut unexpected = 0;
    println!("{HEAD}");
    for (name, explore) in MODELS {
        let wanted = |without: &str| {
            sought.as_ref().is_none_or(|sought| name.contains(sought.as_str()) || without.contains(sought.as_str()))
        };
        let began = Instant::now();
        explore(&wanted, &mut |verdict| {
            println!("{verdict}");
            if sought.is_some() {
                for broken in &verdict.report.broken {
                    println!("    {}: {}", broken.property, broken.trace.join(", "));
                }
            }
            for what in &verdict.unexpected {
                unexpected += 1;
                println!("    UNEXPECTED: {what}");
            }
        });
        eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
    if unexpected > 0 {
        eprintln!("{unexpected} verdicts are not as expected");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
