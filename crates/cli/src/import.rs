//! `agentrun import`: a session from a file. The file is read and checked whole before a store is made or opened.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use agentrun_kernel::{Import, ImportError, LandError, Landed, SessionKey};
use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{self, counted};
use crate::stores;

pub(crate) const HELP: &str = "\
Reads a session from a file of `agentrun export` (- is stdin) into the store, whole or not at all: one that was cut is simply done again.

  agentrun import t1.jsonl                 a moved session, under its own key. It goes on where it was: agentrun resume t1
  agentrun import t1.jsonl --as t1-copy    a copy, also of a session that lives on. What was open in it is told to the model as interrupted;
                                           nothing of the other one is run or sent again

Only a file that was sealed (`agentrun export KEY FILE --seal-to WHERE`) is taken under the session's own key, and only in a store where
that key was never used: two owners of one key would both run and pay. Import a sealed file once.

The run's ledger does not come along. If the store knows nothing of the run, its ledger begins with what the session has spent, or may have,
and where the run had a cap, with exactly that much cap: it parks at its next paid step until a person says what it may spend here:
agentrun cap KEY --raise NEWCAP. If the store knows the run, a moved session's spend is added to it.

The node's workspace and the commands of its tools must be at the same paths here. Earlier attempts of the same step come first.

Exit 2: the file is damaged, cut, no export or of a newer version (its line is named), was not sealed, or the key is taken; nothing was written.";

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file; - is stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The key it gets here, for a copy.
    #[arg(long = "as", value_name = "KEY")]
    under: Option<SessionKey>,
    /// One JSON object: {"type":"imported","session","from","moved","records","messages","epoch","interrupted","run","cap"}.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn import(url: &str, args: &ImportArgs) -> Result<Exit, Failure> {
    let file = args.file.clone();
    let read = tokio::task::spawn_blocking(move || read(&file)).await;
    let import = read.map_err(|lost| Failure::internal(format!("reading stopped: {lost}")))??;
    let key = import.key();
    if import.sealed().is_none() && args.under.as_ref().is_none_or(|under| under == key) {
        return Err(failed(&LandError::Unsealed { key: key.clone() }, &args.file));
    }
    let store = stores::open(url).await?;
    let landed = import.land(&*store, args.under.as_ref()).await.map_err(|error| failed(&error, &args.file))?;
    let Landed { key, from, moved, records, inbox, epoch, interrupted, run, cap } = &landed;
    if args.json {
        output::json_line(&json!({
            "type": "imported", "session": key, "from": from, "moved": moved, "records": records, "messages": inbox, "epoch": epoch,
            "interrupted": interrupted, "run": run, "cap": cap,
        }));
        return Ok(Exit::Done);
    }
    if *moved {
        output::text(&format!("{key} moved here: {}, {}", counted(*records, "record"), counted(*inbox, "message")));
    } else {
        output::text(&format!(
            "{key} is a copy of {from}: {}, {}, {} ended as interrupted",
            counted(*records, "record"),
            counted(*inbox, "message"),
            counted(*interrupted as u64, "open effect")
        ));
    }
    if let (Some(run), Some(cap)) = (run, cap) {
        output::text(&format!(
            "run {run} has a cap of ${cap} here, which is what the session has spent; to give it room: agentrun cap {key} --raise NEWCAP --store {url}"
        ));
    }
    output::text(&format!("to go on: agentrun resume {key} --store {url}"));
    Ok(Exit::Done)
}

fn read(path: &Path) -> Result<Import, Failure> {
    let at = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(path).map_err(|error| at(&error))?))
    };
    Import::read(input).map_err(|error| at(&error))
}

fn failed(error: &LandError, file: &Path) -> Failure {
    let told = format!("{}: {error}", file.display());
    match error {
        LandError::Unsealed { key } => Failure::usage(format!(
            "{told}; that is: agentrun import {file} --as NEWKEY, or there agentrun export {key} FILE --seal-to WHERE",
            file = file.display()
        )),
        LandError::Earlier { .. } | LandError::Refused(ImportError::Taken { .. } | ImportError::Unsupported) => {
            Failure::usage(told)
        }
        LandError::Busy { .. } | LandError::Refused(ImportError::Conflict { .. } | ImportError::Refused(_)) => {
            Failure::again(told)
        }
        LandError::Refused(ImportError::Store(error)) => Failure::store(error),
        LandError::Illegal { .. } | LandError::Unwritable { .. } => Failure::internal(told),
    }
}
