//! `agentrun cap`: what a run may spend, what counts against it, and a raise. A raise goes to the run's ledger, so it fences nobody: a live
//! run sees it at its next step, a parked one when it is resumed.

use agentrun_kernel::{End, RunId, Seq, SessionKey, SessionState, Store, Usd};
use agentrun_runner::{LedgerError, RunLedger};
use serde_json::json;

use crate::args::CapArgs;
use crate::exit::{Exit, Failure};
use crate::{output, stores};

/// Sessions of one page.
const PAGE: usize = 256;

pub(crate) async fn cap(url: &str, args: &CapArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let (run, needed) = run_of(&store, url, &args.of).await?;
    if let Some(cap) = args.raise {
        let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        raise(&store, &run, &id, cap, needed).await?;
    }
    let books = stores::books(&store, &run).await?;
    if args.json {
        output::json_line(&json!({
            "type": "cap", "run": run, "cap": books.cap(), "booked": books.booked(), "held": books.held(), "unknown": books.unknown(),
            "left": books.left(),
        }));
    } else {
        let amount = |amount: Option<Usd>| amount.map_or_else(|| "none".to_owned(), |amount| format!("${amount}"));
        output::text(&format!("run      {run}"));
        output::text(&format!("cap      {}", amount(books.cap())));
        output::text(&format!("booked   ${}", books.booked()));
        output::text(&format!("held     ${}", books.held()));
        output::text(&format!("unknown  ${} in {}", books.unknown(), books.unknown_count()));
        output::text(&format!("left     {}", amount(books.left())));
    }
    Ok(Exit::Done)
}

/// The run a session or run id names, and the quote of the step that waits for a raise, if one does.
async fn run_of(store: &Store, url: &str, name: &str) -> Result<(RunId, Option<Usd>), Failure> {
    let key = SessionKey::new(name)?;
    let state = SessionState::fold(&stores::records(store, &key).await?);
    if let Some(bound) = &state.bound {
        return Ok((bound.run.clone(), waiting(&state)));
    }
    let run = RunId::new(name)?;
    if stores::books(store, &run).await?.seq() == Seq::START {
        return Err(Failure::usage(format!(
            "there is no session or run `{name}` in {url}; `agentrun sessions --store {url}` lists those there are"
        )));
    }
    let needed = parked(store, &run).await?;
    Ok((run, needed))
}

/// The smallest quote that waits among the run's parked sessions: a raise is of use once it lets one of them go on.
async fn parked(store: &Store, run: &RunId) -> Result<Option<Usd>, Failure> {
    let mut quotes = Vec::new();
    let mut after = None;
    loop {
        let heads = store.heads(after.as_ref(), PAGE).await.map_err(|error| Failure::store(&error))?;
        let Some(last) = heads.last() else { return Ok(quotes.into_iter().min()) };
        after = Some(last.key.clone());
        for head in &heads {
            if head.run.as_ref() == Some(run) && head.end == Some(End::Parked) {
                quotes.extend(waiting(&SessionState::fold(&stores::records(store, &head.key).await?)));
            }
        }
    }
}

/// The quote of the step a session is parked at.
fn waiting(state: &SessionState) -> Option<Usd> {
    state.parked.as_ref().and_then(|parked| parked.needed.checked_sub(parked.spent))
}

async fn raise(store: &Store, run: &RunId, id: &str, cap: Usd, needed: Option<Usd>) -> Result<(), Failure> {
    let ledger = RunLedger::existing(store.clone(), run).await.map_err(|error| stores::of_ledger(run, error))?;
    ledger.raise(id, cap, needed).await.map_err(|error| match error {
        LedgerError::Raise(error) => Failure::usage(format!("run `{run}`: {error}")),
        LedgerError::Busy => Failure::again(format!("the ledger of run `{run}` is too busy; try again")),
        error @ (LedgerError::Store(_) | LedgerError::Fault(_)) => stores::of_ledger(run, error),
        error => Failure::again(format!("the ledger of run `{run}`: {error}")),
    })
}
