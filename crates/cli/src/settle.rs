//! `agentrun settle`: ends what is open in a session and runs nothing. Needs its store and nothing else: no program, no key, no node file.

use agentrun_kernel::{SessionKey, TurnEndHow};
use agentrun_runner::{SettleError, SettleIn, Settlement, settle_open_turn};
use clap::{Args, ValueEnum as _};
use serde_json::json;

use crate::args::Harness;
use crate::exit::{Exit, Failure};
use crate::{harness, output, stores};

pub(crate) const HELP: &str = "\
Ends the open turn of a session as interrupted, from its records alone: no program is started, no request is sent, nothing is run or paid.
What was open is ended with it: a request in flight counts in full as unknown spend, a call that was cut is interrupted (also one that is
safe to run), a submission that waited for its review is not accepted. A follow-up that was cut stays interrupted.

The turn is never opened again. `agentrun resume` goes on with a turn of its own, and `agentrun follow-up` asks one more question. Prompts
that did not reach the model are named, and begin the next message; whether one did is told by the harness's history in the records.

An owner that lives on this machine keeps its session, unless --take is given. A session with nothing open is left as it is, with exit 0.";

#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    session: SessionKey,
    /// Settle it also while its owner lives on this machine; that owner ends as fenced.
    #[arg(long)]
    take: bool,
    /// One JSON object: {"type":"settled","session","turn","how","interrupted","unsent"}; `turn` and `how` are null when none was open.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn settle(url: &str, args: &SettleArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let (_, state) = stores::session(&store, url, &args.session).await?;
    let settlement = match &state.bound {
        // Opened and never bound: nothing was ever placed in it.
        None => Settlement::default(),
        Some(bound) => {
            let harness = Harness::from_str(&bound.adapter, false).map_err(|_| {
                Failure::refused(format!(
                    "session `{}` is of `{}`, which this version does not know",
                    args.session, bound.adapter
                ))
            })?;
            let at = SettleIn { store, adapter: harness::idle(harness)?, homes: stores::homes(url) };
            settle_open_turn(&at, &args.session, args.take).await.map_err(failed)?
        }
    };
    if args.json {
        output::json_line(&json!({
            "type": "settled", "session": args.session,
            "turn": settlement.turn.as_ref().map(|(turn, _)| turn), "how": settlement.turn.as_ref().map(|(_, how)| how),
            "interrupted": settlement.interrupted, "unsent": settlement.unsent,
        }));
    } else {
        output::text(&told(&settlement));
    }
    Ok(Exit::Done)
}

fn told(settlement: &Settlement) -> String {
    let turn = match &settlement.turn {
        None if settlement.interrupted.is_empty() => "nothing was open".to_owned(),
        None => "no turn was open".to_owned(),
        Some((_, TurnEndHow::Done)) => "the turn was over; it is recorded as done".to_owned(),
        Some(_) if settlement.follow_up.is_some() => "the follow-up's turn was ended as interrupted".to_owned(),
        Some(_) => "the turn was ended as interrupted".to_owned(),
    };
    let list = |what: &str, names: Vec<&str>| {
        if names.is_empty() { String::new() } else { format!("\n{what}: {}", names.join(", ")) }
    };
    let cut = list("interrupted", settlement.interrupted.iter().map(String::as_str).collect());
    let unsent = list("to be sent with the next message", settlement.unsent.iter().map(|id| id.as_str()).collect());
    turn + &cut + &unsent
}

fn failed(error: SettleError) -> Failure {
    let exit = match &error {
        SettleError::Busy(_) => Exit::Again,
        SettleError::Node(node) => Exit::from(node.word),
    };
    Failure { exit, message: error.to_string() }
}
