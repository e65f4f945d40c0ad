//! `agentrun export`: a session as a file. A file is there whole or not at all, and one that is there is never written over.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use agentrun_kernel::{ExportError, Exported, SessionKey, export as write_export};
use agentrun_runner::{LeaveFrom, seal_session};
use clap::Args;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::exit::{Exit, Failure};
use crate::rm::left;
use crate::{output, stores};

pub(crate) const HELP: &str = "\
Writes a session to a file: its records as they are now, and the messages posted to it. FILE must not be there; without one, or as -, it
goes to stdout. Nobody is fenced: an owner that lives goes on, and what it writes meanwhile is not in the file.

  agentrun export t1 t1.jsonl                          a copy. It can be imported under another key only
  agentrun export t1 t1.jsonl --seal-to \"host b\"       a move. Nothing can be written to t1 here any more, and there is no way back; it goes
                                                       on where the file is imported: agentrun import t1.jsonl
  agentrun export t1 t1.jsonl                          again, of a sealed session: its file once more

Import a sealed file once: nothing can tell one import from another in two stores, and each would run and pay for what is left.

A move takes the session and its messages. It does not take the run: its ledger stays here with all that was spent, and what the session
held for calls in flight keeps counting against the cap here. Where the session lands, the run begins with what the session has counted so far
as its whole cap, so that no cap grows by a move; `agentrun cap KEY --raise NEWCAP` there gives it room.

An owner that lives on this machine keeps its session, unless --take is given; any other is fenced by the seal. Processes that the session
left on this machine are ended before the file is written.

The file is JSON, one object a line, with checksums. It holds prompts, answers, tool results and the harness's own history, and no
credential; it is readable by you alone.";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// Where to; - is stdout.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Seal it first, for a move to WHERE: in words, for whoever asks for it here later.
    #[arg(long, value_name = "WHERE")]
    seal_to: Option<String>,
    /// Seal it also while its owner lives on this machine; that owner ends as fenced.
    #[arg(long, requires = "seal_to")]
    take: bool,
    /// One JSON object, with a FILE: {"type":"exported","session","file","records","messages","sealed","bytes","digest"}.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn export(url: &str, args: &ExportArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let key = &args.session;
    let stdout = args.file == Path::new("-");
    if args.json && stdout {
        return Err(Failure::usage("--json says what was written on stdout, so the export needs a FILE"));
    }
    // Before the seal, which cannot be taken back: a place that cannot hold the file is found now.
    let mut file = if stdout { None } else { Some(begin(&args.file)?) };
    if let Some(to) = &args.seal_to {
        let from = LeaveFrom { store: store.clone(), homes: stores::homes(url), take: args.take };
        let sealed = seal_session(&from, key, to).await.map_err(|error| left(&error, url))?;
        if !sealed.now {
            output::note(&format!("{key} was sealed before, to move to {}", sealed.to));
        }
    }
    let written = match &mut file {
        Some(file) => write_export(&*store, key, &mut BufWriter::new(file)).await,
        None => write_export(&*store, key, &mut BufWriter::new(std::io::stdout())).await,
    };
    let kept = written.map_err(|error| failed(error, url)).and_then(|exported| {
        if let Some(file) = file {
            keep(file, &args.file)?;
        }
        Ok(exported)
    });
    match kept {
        Ok(exported) => say(args, url, stdout, &exported),
        Err(failure) if args.seal_to.is_some() => Err(Failure {
            message: format!("{}; {key} is sealed, the same command writes its file", failure.message),
            ..failure
        }),
        Err(failure) => Err(failure),
    }
}

fn say(args: &ExportArgs, url: &str, stdout: bool, exported: &Exported) -> Result<Exit, Failure> {
    let (key, file) = (&args.session, args.file.display());
    let Exported { records, inbox, sealed, end, bytes } = exported;
    if args.json {
        output::json_line(&json!({
            "type": "exported", "session": key, "file": args.file, "records": records, "messages": inbox, "sealed": sealed, "bytes": bytes,
            "digest": end.digest,
        }));
        return Ok(Exit::Done);
    }
    let next = match sealed {
        Some(to) => format!(
            "sealed, to move to {to}; it goes on where this is imported, once: agentrun import {file} --store URL"
        ),
        None => format!("a copy: agentrun import {file} --as NEWKEY --store {url}"),
    };
    let told = format!("exported {key}: {records} records, {inbox} messages, {bytes} bytes\n{next}");
    if stdout {
        output::note(&told)
    } else {
        output::text(&told)
    }
    Ok(Exit::Done)
}

/// A file beside the one to be, so that no half of it ever has its name.
fn begin(path: &Path) -> Result<NamedTempFile, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Failure::usage(format!(
            "{} is there already, and is not written over; name another file",
            path.display()
        )));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    NamedTempFile::new_in(folder).map_err(failed)
}

/// Gives the file its name once it is on disk.
fn keep(file: NamedTempFile, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::again(format!("{}: {error}", path.display()));
    file.as_file().sync_all().map_err(failed)?;
    file.persist_noclobber(path).map_err(|error| failed(error.error))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn failed(error: ExportError, url: &str) -> Failure {
    match error {
        ExportError::Unknown { .. } => {
            Failure::usage(format!("{error}; `agentrun sessions --store {url}` lists those there are"))
        }
        ExportError::Removed { .. } => Failure::refused(error.to_string()),
        ExportError::Store(error) => Failure::store(&error),
        ExportError::Io(_) => Failure::again(error.to_string()),
    }
}
