//! `agentrun follow-up`: one more turn in a session that has answered. Asked again under its name it prints what is recorded.

use std::sync::Arc;

use agentrun_kernel::{FollowUpName, FollowUpNext, OutcomeEnd, SessionKey, Usd, follow_up_next};
use agentrun_runner::{FollowUp, FollowUpError, FollowedUp, Step};
use clap::Args;
use serde::Serialize;

use crate::args::{How, amount};
use crate::credential::Secrets;
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::run::{self, Place, Seat};
use crate::{output, stores};

pub(crate) const HELP: &str = "\
Sends one more turn into a session that has answered (it delivered its value, or its last turn ended by itself), with the node and the flags
of its records, and prints the model's words. The value stays what it is.

It happens at most once a session and name: asked again under the same name, whatever the prompt, it prints the recorded outcome and runs
nothing; another name is another follow-up. Cut in the middle it stays interrupted and is not asked again.

Its paid steps are held to --reserve, counted from its first: what the session spent before is left out. Where the most a request can cost
finds no room, or a step of its own ended and nobody can say what it cost, the request is not sent. The node's budget_usd and the run's cap
hold beside it; its turn_limit does not. Refused by one of them it has ended with an error, and is not parked: ask under another name.

Refused with exit 3 and nothing written when the session has not answered, with exit 4 while an owner of it lives on this machine.
Exit 0: its turn ended by itself. Exit 3: the recorded end is an error or an interruption; ask under another name.

With --json the last line is {\"type\":\"follow_up\",\"session\",\"name\",\"end\":\"ok|error|interrupted\",\"text\",\"usd\",\"unknown_usd\",
\"from_records\"}, or {\"type\":\"failed\",..} as `agentrun run` has it, with the words `busy` and `not_answered` beside its own.";

#[derive(Debug, Args)]
pub(crate) struct FollowUpArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// Its name in the session.
    #[arg(long, value_name = "NAME")]
    name: FollowUpName,
    /// What the model is asked.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// The most its paid steps may cost, in dollars; without it the node's budget and the run's cap alone bound it.
    #[arg(long, value_name = "USD", value_parser = amount, allow_hyphen_values = true)]
    reserve: Option<Usd>,
    /// Where the API is now, if not where the session's records say; for this time alone.
    #[arg(long, value_name = "ORIGIN")]
    base_url: Option<String>,
    #[command(flatten)]
    how: How,
}

/// The last line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Last<'a> {
    FollowUp {
        session: &'a SessionKey,
        name: &'a FollowUpName,
        end: OutcomeEnd,
        text: Arc<str>,
        usd: Usd,
        unknown_usd: Usd,
        from_records: bool,
    },
    Failed {
        session: &'a SessionKey,
        word: &'a str,
        message: String,
        r#final: bool,
        park: Option<()>,
    },
}

pub(crate) async fn follow_up(url: &str, args: &FollowUpArgs, secrets: &Secrets) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let session = args.session.clone();
    let (_, state) = stores::session(&store, url, &session).await?;
    let next = follow_up_next(&state, &args.name);
    let Some(bound) = state.bound.clone() else {
        return Err(Failure::refused(format!(
            "session `{session}` was never bound to a node, so it has answered nothing"
        )));
    };
    // What is known or refused needs neither a key nor the node's commands.
    let asks = matches!(next, FollowUpNext::Begin | FollowUpNext::Begun);
    let mut plan = Plan::of_record(&session, &bound.host, !asks)?;
    plan.flags.moved_to(args.base_url.as_deref())?;
    let at = Place { store, url, session: session.clone(), run: bound.run.clone(), state };
    let seat = Seat::new(&at, &plan, &args.how, secrets, asks).await?;
    let node = plan.node(&session, at.store.id())?;
    let step = Step { run: at.run.clone(), ..Step::first(session.clone()) };
    let ask = FollowUp { name: args.name.clone(), prompt: args.prompt.clone(), reserve: args.reserve };
    let ended = seat.runner.follow_up_once(node, step, ask).await;
    seat.end(url);
    match ended {
        Ok(followed) => told(&followed, args.how.json),
        Err(FollowUpError::Node(error)) => Ok(run::failed(&error, url, args.how.json)),
        Err(error @ FollowUpError::Busy(_)) => Ok(refused(&session, "busy", &error, Exit::Again, args.how.json)),
        Err(error @ FollowUpError::NotAnswered { .. }) => {
            Ok(refused(&session, "not_answered", &error, Exit::Final, args.how.json))
        }
    }
}

fn told(followed: &FollowedUp, as_json: bool) -> Result<Exit, Failure> {
    let FollowedUp { session, name, end, text, spent, from_records } = followed;
    let (ok, usd) = (*end == OutcomeEnd::Ok, spent.booked);
    // What is still held has no bill either.
    let unknown_usd = spent.unknown.saturating_add(spent.held);
    let last =
        Last::FollowUp { session, name, end: *end, text: text.clone(), usd, unknown_usd, from_records: *from_records };
    let line = if as_json { serde_json::to_string(&last) } else { Ok(text.to_string()) };
    let line = line.map_err(|error| Failure::internal(error.to_string()))?;
    if ok || as_json {
        output::result(&line).map_err(|error| {
            Failure::again(format!("the words could not be written to stdout ({error}); they are in the records, the same command prints them"))
        })?;
    }
    if !as_json {
        let from = if *from_records { ", from the records" } else { "" };
        match ok {
            true => output::note(&format!("follow-up `{name}` ended by itself{from}, ${usd} spent")),
            false => output::note(&format!("agentrun: follow-up `{name}` ended without{from}: {text}")),
        }
    }
    Ok(if ok { Exit::Done } else { Exit::Final })
}

fn refused(session: &SessionKey, word: &str, error: &FollowUpError, exit: Exit, as_json: bool) -> Exit {
    if as_json {
        let last = Last::Failed { session, word, message: error.to_string(), r#final: exit == Exit::Final, park: None };
        output::json_line(&last);
    }
    output::note(&format!("agentrun: {error}"));
    exit
}
