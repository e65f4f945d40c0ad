//! The proxy's bench: one program that is each of the processes it measures. Called without a role it starts them and the peers, loads
//! each in turn, and prints one table. What is read of a proxy is its process's own processor time and memory; the load and the scripted
//! provider are other processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench is a report: it may stop, and it prints"
)]

mod bodies;
mod disk;
mod load;
mod ours;
mod pass;
mod peers;
mod process;
mod report;
mod upstream;

use std::env;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match arguments.as_slice() {
            ["upstream"] => upstream::serve().await,
            ["pass", origin] => pass::serve(origin).await,
            ["ours", origin, books] => ours::serve(origin, books).await,
            options => report::run(&report::Options::of(options)).await,
        }
    });
}

/// A role tells where it listens, and with what key, on its first line.
fn tell(url: &str, key: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    writeln!(out, "{url} {key}").unwrap();
    out.flush().unwrap();
}
