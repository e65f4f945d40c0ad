//! `agentrun send` and `agentrun retract`: a person's word to a session, beside an owner that lives or for the next one. They write to the
//! session's inbox alone, so they fence nobody and need neither a program nor a key.

use agentrun_kernel::{SessionKey, SessionState, Store};
use agentrun_runner::{InboxError, PostState, Posted, live_owner, retract_message, send_message, waiting_messages};
use clap::Args;
use serde_json::json;

use crate::args::name;
use crate::exit::{Exit, Failure};
use crate::output::{self, counted};
use crate::stores;

pub(crate) const SEND_HELP: &str = "\
Sends a message to a session, as a person would say it to the model. It waits in the session's inbox. An owner that lives, in whatever
process, takes it into the turn that runs, where the harness can be steered (`agentrun doctor --verbose` says which), and else when that turn
has ended, before any reminder, as a turn of its own (it counts for turn_limit). A session that rests takes it at its next `agentrun
resume`, behind what is to be finished there; one that has delivered, with its next `agentrun follow-up`, since its value stands.

The model sees it exactly once, whatever is killed in between. The same --id with the same words is the same message, so a script may repeat
it; with other words it is refused with exit 3. Without --id each is a new one, and its id is printed, for `agentrun retract KEY ID`.";

pub(crate) const RETRACT_HELP: &str = "\
Takes a message back that was sent and not taken: no model ever sees it. Exit 0, also for one that was retracted before; exit 3 when the
session's owner has taken it; exit 2 when no message has that id.";

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// The message.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    /// Its id in the session: the same id again is the same message.
    #[arg(long, value_name = "ID", value_parser = name)]
    id: Option<String>,
    /// One JSON object: {"type":"message","session","id","state":"waiting|taken|retracted","again"}; `again`: it was there already.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RetractArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// The message's id.
    #[arg(value_name = "ID")]
    id: String,
    /// One JSON object, as `agentrun send` prints it.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn send(url: &str, args: &SendArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let (_, state) = stores::session(&store, url, &args.session).await?;
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let posted = send_message(&store, &args.session, &id, &args.text).await.map_err(failed)?;
    let lives = live_owner(&stores::homes(url), store.id(), &args.session).is_some();
    let next = match posted.state {
        PostState::Waiting => waits(&state, &args.session, url, lives),
        PostState::Taken => "it was taken before; the model has it, or gets it with the next message".to_owned(),
        PostState::Retracted => "it was retracted and stays so; send it under another id".to_owned(),
    };
    told(&posted, &args.session, &next, args.json);
    Ok(if posted.state == PostState::Retracted { Exit::Final } else { Exit::Done })
}

pub(crate) async fn retract(url: &str, args: &RetractArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    stores::session(&store, url, &args.session).await?;
    let posted = retract_message(&store, &args.session, &args.id).await.map_err(failed)?;
    told(&posted, &args.session, "retracted: no model sees it", args.json);
    Ok(Exit::Done)
}

/// Whether a session takes messages that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// With its next turn.
    Open,
    /// With a follow-up alone.
    Delivered,
    /// No more.
    Over,
}

impl Standing {
    pub(crate) const fn of(state: &SessionState) -> Self {
        if state.delivered.is_some() {
            Self::Delivered
        } else if state.failed.is_some() || state.moved.is_some() {
            Self::Over
        } else {
            Self::Open
        }
    }
}

/// The messages that wait in a session's inbox, and how they are taken; `None`: none waits.
pub(crate) async fn waiting(
    store: &Store,
    url: &str,
    session: &SessionKey,
    standing: Standing,
) -> Result<Option<String>, Failure> {
    let count = waiting_messages(store, session).await.map_err(|error| Failure::store(&error))?;
    if count == 0 {
        return Ok(None);
    }
    let (wait, go, are) = if count == 1 { ("waits", "goes", "is") } else { ("wait", "go", "are") };
    let messages = counted(count as u64, "message");
    Ok(Some(match standing {
        Standing::Delivered => {
            format!("{messages} {wait} and {go} with the next follow-up: agentrun follow-up {session} --store {url}")
        }
        Standing::Open => format!("{messages} {wait} and {are} taken by: agentrun resume {session} --store {url}"),
        Standing::Over => format!("{messages} {wait} and {are} never taken: the session has ended"),
    }))
}

/// When a message that waits is taken.
fn waits(state: &SessionState, session: &SessionKey, url: &str, lives: bool) -> String {
    if state.delivered.is_some() {
        return format!("the session has delivered; it goes with the next: agentrun follow-up {session} --store {url}");
    }
    if lives {
        return "its owner takes it into the turn that runs, or when that has ended; if that turn delivers, a follow-up does"
            .to_owned();
    }
    format!(
        "no owner lives on this machine; it is taken by: agentrun resume {session} --store {url}, unless a turn that is taken up delivers"
    )
}

fn told(posted: &Posted, session: &SessionKey, next: &str, as_json: bool) {
    let Posted { id, state, again } = posted;
    if as_json {
        let state = match state {
            PostState::Waiting => "waiting",
            PostState::Taken => "taken",
            PostState::Retracted => "retracted",
        };
        return output::json_line(
            &json!({"type": "message", "session": session, "id": id, "state": state, "again": again}),
        );
    }
    output::text(id);
    output::note(&format!("message `{id}`: {next}"));
}

fn failed(error: InboxError) -> Failure {
    let message = error.to_string();
    match error {
        InboxError::Store(error) => Failure::store(&error),
        InboxError::Unknown(_) | InboxError::NoMessage(_) | InboxError::Unfit(_) => Failure::usage(message),
        InboxError::Over { .. } | InboxError::Conflict(_) | InboxError::TooLate(_) => Failure::refused(message),
        InboxError::Full { .. } | InboxError::InDoubt(_) | InboxError::Busy => Failure::again(message),
    }
}
