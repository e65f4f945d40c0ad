//! `agentrun-scripted-model --script FILE [--port 0] [--log FILE]`: the scripted model server as a program, for tests from outside.
//! The first line on stdout names the URL. It runs until its stdin ends or SIGTERM, so whoever started it cannot leave it behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use agentrun_testing::script::Script;
use agentrun_testing::scripted::{Options, ScriptedModel};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

const USAGE: &str = "usage: agentrun-scripted-model --script FILE|- [--port PORT] [--log FILE]

Plays the script as a model provider on 127.0.0.1. First line on stdout: {\"type\":\"scripted\",\"url\":…}.
--log gets a JSON line for each request before it is answered. Runs until stdin ends (unless the script came from it) or SIGTERM.";

struct Arguments {
    script: String,
    port: u16,
    log: Option<PathBuf>,
}

/// Exit 2: bad usage or input. Exit 1: anything else.
struct Failure(u8, String);

fn bad(message: impl Into<String>) -> Failure {
    Failure(2, message.into())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, message)) => {
            // Nobody may be reading stderr any more; the exit code still tells.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(code)
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments = arguments(std::env::args().skip(1))?;
    let from_stdin = arguments.script == "-";
    let text = if from_stdin {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(&arguments.script)
    };
    let text = text.map_err(|e| bad(format!("{}: {e}", arguments.script)))?;
    let script = Script::parse(&text).map_err(|e| bad(format!("{}: {e}", arguments.script)))?;
    let log = arguments.log.as_ref().map(open_log).transpose()?;
    let model = ScriptedModel::start_with(script, Options { port: arguments.port, log })
        .map_err(|e| Failure(1, format!("cannot listen on 127.0.0.1:{}: {e}", arguments.port)))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| Failure(1, format!("cannot start: {e}")))?;
    runtime.block_on(until_ended(&model, from_stdin)).map_err(|e| Failure(1, e.to_string()))
}

/// Says where the model is and waits for the end. The signal is caught before anybody can know the URL.
async fn until_ended(model: &ScriptedModel, from_stdin: bool) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut out = io::stdout();
    writeln!(out, "{}", json!({"type": "scripted", "url": model.base_url()}))?;
    out.flush()?;
    let (hold, ended) = oneshot::channel::<()>();
    let held = if from_stdin {
        // The script used stdin up: its end says nothing then.
        Some(hold)
    } else {
        // A thread, not an async read: the runtime would wait for that read at the end, and it never returns after SIGTERM.
        std::thread::spawn(move || {
            // An error is an end as well.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            drop(hold);
        });
        None
    };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = ended => {}
    }
    drop(held);
    Ok(())
}

fn open_log(path: &PathBuf) -> Result<File, Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|e| bad(format!("--log {}: {e}", path.display())))
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let (mut script, mut port, mut log) = (None, 0, None);
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or_else(|| bad(format!("{flag} needs a value\n{USAGE}")));
        match flag.as_str() {
            "--script" => script = Some(value()?),
            "--port" => {
                let text = value()?;
                port = text.parse().map_err(|_| bad(format!("--port {text}: not a port\n{USAGE}")))?;
            }
            "--log" => log = Some(PathBuf::from(value()?)),
            other => return Err(bad(format!("unknown argument {other}\n{USAGE}"))),
        }
    }
    let script = script.ok_or_else(|| bad(format!("--script is missing\n{USAGE}")))?;
    Ok(Arguments { script, port, log })
}
