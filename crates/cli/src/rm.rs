//! `agentrun rm`: a session goes for good. What stays is said: the key, and what its run still counts.

use agentrun_cap::Books;
use agentrun_kernel::{RemoveError, SessionKey, SessionState, Usd};
use agentrun_runner::{LeaveError, LeaveFrom, remove_session};
use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::{output, stores};

pub(crate) const HELP: &str = "\
Removes a session for good: its records and the messages posted to it. To keep a copy, first: agentrun export KEY FILE

What stays:
  its key       it is never used again in this store, so that no old owner and no old command can meet another session under it
  its money     it lives in the run's ledger. What the session spent keeps counting against the run's cap, and so does what it held for
                calls and requests in flight: nobody can say whether they were spent. `agentrun cap RUN` shows it, and a raise makes room

An owner that lives on this machine keeps its session, unless --take is given. Any other owner is fenced without being asked: it can record
nothing more, though what it had in flight may still finish. Processes that the session left on this machine are ended.

What it did is forgotten with it. A step that is tried again rests on what its earlier attempts ran: remove the attempts of a step together.

Exit 2 for a session that is not there; again for one that was removed is exit 0 and changes nothing.";

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// Remove it also while its owner lives on this machine; that owner ends as fenced.
    #[arg(long)]
    take: bool,
    /// One JSON object: {"type":"removed","session","records","epoch","digest","run","held_usd"}.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn rm(url: &str, args: &RmArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let key = &args.session;
    // Damage is no reason to keep it: then only what its run counts is not known here.
    let state = match stores::records(&store, key).await {
        Ok(records) => Some(SessionState::fold(&records)),
        Err(unread) => {
            output::note(&format!("agentrun: {}; it is removed unread", unread.message));
            None
        }
    };
    let bound = state.as_ref().and_then(|state| state.bound.as_ref()).map(|bound| bound.run.clone());
    let from = LeaveFrom { store: store.clone(), homes: stores::homes(url), take: args.take };
    let tombstone = remove_session(&from, key).await.map_err(|error| left(&error, url))?;
    let held = match &bound {
        Some(run) => Some((run, held(&stores::books(&store, run).await?, key))),
        None => None,
    };
    if args.json {
        output::json_line(&json!({
            "type": "removed", "session": key, "records": tombstone.end.seq, "epoch": tombstone.epoch, "digest": tombstone.end.digest,
            "run": bound, "held_usd": held.map(|(_, held)| held),
        }));
    } else {
        output::text(&format!("removed {key}: {} records; its key stays taken", tombstone.end.seq));
        if let Some((run, held)) = held.filter(|(_, held)| *held > Usd::ZERO) {
            output::text(&format!(
                "${held} that it held keeps counting against run {run}; to make room: agentrun cap {run} --raise NEWCAP --store {url}"
            ));
        }
    }
    Ok(Exit::Done)
}

/// What the ledger holds open for the session.
fn held(books: &Books, key: &SessionKey) -> Usd {
    let own = books.open_holds().filter(|(_, held)| held.session == *key);
    own.fold(Usd::ZERO, |sum, (_, held)| sum.saturating_add(held.quote))
}

/// How a command ends whose session did not leave, or not cleanly.
pub(crate) fn left(error: &LeaveError, url: &str) -> Failure {
    use agentrun_kernel::SealError;
    let listed = || format!("{error}; `agentrun sessions --store {url}` lists those there are");
    match error {
        LeaveError::Busy(_) | LeaveError::Remove(RemoveError::Unsupported) => Failure::usage(error.to_string()),
        LeaveError::Remove(RemoveError::Unknown { .. }) | LeaveError::Seal(SealError::Unknown { .. }) => {
            Failure::usage(listed())
        }
        LeaveError::Seal(SealError::Removed { .. } | SealError::Broken { .. }) => Failure::refused(error.to_string()),
        LeaveError::Remove(RemoveError::Store(error)) | LeaveError::Seal(SealError::Store(error)) => {
            Failure::store(error)
        }
        LeaveError::Remove(RemoveError::HeadChanged { .. })
        | LeaveError::Seal(SealError::Busy { .. })
        | LeaveError::Presence { .. }
        | LeaveError::Survivors { .. }
        | LeaveError::Home { .. } => Failure::again(error.to_string()),
    }
}
