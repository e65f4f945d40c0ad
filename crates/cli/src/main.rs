//! The `agentrun` program: the command line over the runner. Start at [`args`] for what can be asked, [`run`] for the main job.

mod args;
mod cap;
mod command;
mod command_tool;
mod credential;
mod demo;
mod doctor;
mod exit;
mod export;
mod follow_up;
mod harness;
mod import;
mod node_file;
mod output;
mod plan;
mod price;
mod progress;
mod proxy;
mod resume;
mod review;
mod rm;
mod run;
mod send;
mod sessions;
mod settle;
mod show;
mod signals;
mod stores;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use credential::Secrets;
use exit::{Exit, Failure};

/// Threads that run tasks. Nearly all time is spent waiting for a model, so more would only cost memory.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    // First, while there is one thread and no child: see `credential`.
    let ended = Secrets::shelter().and_then(|secrets| {
        let args = Args::parse();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()
            .map_err(|error| Failure::internal(format!("cannot start: {error}")))?;
        let ended = runtime.block_on(dispatch(&args, &secrets));
        // A blocking call that never returns (a dead file system) must not hold up the end.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::note(&format!("agentrun: {}", failure.message));
            failure.exit.into()
        }
    }
}

async fn dispatch(args: &Args, secrets: &Secrets) -> Result<Exit, Failure> {
    let url = args.store.as_str();
    match &args.command {
        Command::Run(run) => run::run(url, run, secrets).await,
        Command::Resume(resume) => resume::resume(url, resume, secrets).await,
        Command::Show(show) => show::show(url, show).await,
        Command::Sessions { json } => sessions::sessions(url, *json).await,
        Command::Doctor { verbose } => doctor::doctor(url, *verbose).await,
        Command::Price(price) => price::price(price),
        Command::Cap(of) => cap::cap(url, of).await,
        Command::Proxy(of) => proxy::proxy(url, of, secrets).await,
        Command::Rm(of) => rm::rm(url, of).await,
        Command::Export(of) => export::export(url, of).await,
        Command::Import(of) => import::import(url, of).await,
        Command::Settle(of) => settle::settle(url, of).await,
        Command::FollowUp(of) => follow_up::follow_up(url, of, secrets).await,
        Command::Send(of) => send::send(url, of).await,
        Command::Retract(of) => send::retract(url, of).await,
        Command::Demo => demo::demo().await,
    }
}
