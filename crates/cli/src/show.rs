//! `agentrun show`: a session as its records tell it. Reads only, so it never disturbs an owner that lives.

mod spend;
mod timeline;

use std::time::Duration;

use agentrun_kernel::{Body, LogKey, Record, SessionState, Store, StoreError, read_all, validate};
use agentrun_runner::{Following, live_owner};
use serde_json::{Value, json};

use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::send::{self, Standing};
use crate::signals::Signals;
use crate::{output, run, stores};

pub(crate) async fn show(url: &str, args: &ShowArgs) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    if args.check {
        return check(&store, url, args).await;
    }
    let (records, state) = stores::session(&store, url, &args.session).await?;
    if args.spend {
        output::text(&spend::table(&spend::rows(&records), args.csv));
        return Ok(Exit::Done);
    }
    // From the first line on, so that a person may end it as soon as something is shown.
    let signals = args.follow.then(Signals::new).transpose();
    let signals = signals.map_err(|error| Failure::internal(format!("signals cannot be handled: {error}")))?;
    let mut timeline = timeline::Timeline::default();
    if !args.json {
        output::text(&timeline::head(&args.session, &state));
    }
    print(&records, args.json, &mut timeline);
    let state = match signals {
        Some(signals) => follow(&store, url, args, state, signals, &mut timeline).await?,
        None => state,
    };
    if !args.json {
        let books = match &state.bound {
            Some(bound) => Some((bound.run.clone(), stores::books(&store, &bound.run).await?)),
            None => None,
        };
        output::text(&timeline::foot(&state, books.as_ref()));
        if let Some(waiting) = send::waiting(&store, url, &args.session, Standing::of(&state)).await? {
            output::text(&waiting);
        }
    }
    Ok(Exit::Done)
}

fn print(records: &[Record], as_json: bool, timeline: &mut timeline::Timeline) {
    for record in records {
        if as_json {
            output::json_line(&as_value(record));
        } else {
            output::text(&timeline.line(record));
        }
    }
}

/// A record as one JSON object: its place, then its body. Bytes that ride behind the text are told by their number.
fn as_value(record: &Record) -> Value {
    let mut value = json!({"seq": record.seq, "epoch": record.epoch, "at": record.at});
    let body = serde_json::to_value(&record.body).unwrap_or(Value::Null);
    if let (Some(members), Value::Object(body)) = (value.as_object_mut(), body) {
        members.extend(body);
        match &record.body {
            Body::Native(write) => members.insert("bytes".to_owned(), write.bytes.len().into()),
            Body::Outcome(outcome) if !outcome.response.is_empty() => {
                members.insert("response_bytes".to_owned(), outcome.response.len().into())
            }
            _ => None,
        };
    }
    value
}

/// How long the end of a delivered turn is waited for: an owner that was killed right behind its delivery never writes it.
const LAST_RECORDS: Duration = Duration::from_secs(5);

/// How long nothing comes before it is looked whether an owner lives.
const LOOK: Duration = Duration::from_secs(1);

/// Shows records as they come, until nothing more is to come of the node, or nothing comes of itself. Answers the state they led to.
///
/// A session whose owner was killed may be taken up by another one, so it is said once and followed on; a parked one waits for a person.
async fn follow(
    store: &Store,
    url: &str,
    args: &ShowArgs,
    mut state: SessionState,
    mut signals: Signals,
    timeline: &mut timeline::Timeline,
) -> Result<SessionState, Failure> {
    let failed = |error: StoreError| Failure::store(&error);
    let session = &args.session;
    let mut following = Following::open(store, session, state.head).await.map_err(failed)?;
    let (mut look, mut left) = (Duration::ZERO, false);
    while !is_over(&state) {
        let delivered = state.is_over();
        tokio::select! {
            records = following.next() => match records.map_err(failed)? {
                Some(records) => {
                    print(&records, args.json, timeline);
                    records.iter().for_each(|record| state.apply(record));
                    left = false;
                }
                None => {
                    output::note(&format!("session {} is gone from this store", args.session));
                    break;
                }
            },
            _ = signals.next() => break,
            () = tokio::time::sleep(LAST_RECORDS), if delivered => break,
            () = tokio::time::sleep(look), if !delivered => {
                look = LOOK;
                if live_owner(&stores::homes(url), store.id(), session).is_some() {
                    left = false;
                    continue;
                }
                if let Some(parked) = &state.parked {
                    output::note(&format!("session {session} is parked; {}", run::unpark(session, &parked.needed.to_string(), url)));
                    break;
                }
                if !std::mem::replace(&mut left, true) {
                    output::note(&format!(
                        "no process on this machine has session {session}; to go on: agentrun resume {session} --store {url} (followed on; \
                         Ctrl-C ends this)"
                    ));
                }
            }
        }
    }
    Ok(state)
}

/// Whether the node has its end and no turn is open behind it.
fn is_over(state: &SessionState) -> bool {
    state.failed.is_some() || state.moved.is_some() || (state.delivered.is_some() && state.open_turn.is_none())
}

/// Every invariant over the whole log, and the run's ledger.
async fn check(store: &Store, url: &str, args: &ShowArgs) -> Result<Exit, Failure> {
    let key = &args.session;
    let records = match read_all::<Body>(&**store, &LogKey::from(key)).await {
        Ok(records) => records,
        // Damage is what a check is for: it names the log and the seq.
        Err(error @ StoreError::Corrupt { .. }) => return Err(Failure::refused(error.to_string())),
        Err(error) => return Err(Failure::store(&error)),
    };
    if records.is_empty() {
        return Err(Failure::usage(format!("there is no session `{key}` in {url}")));
    }
    let state: SessionState =
        validate(&records).map_err(|illegal| Failure::refused(format!("session `{key}`: {illegal}")))?;
    let mut what = format!("session `{key}`: {} records hold every invariant", state.head);
    if let Some(bound) = &state.bound {
        let books = stores::books(store, &bound.run).await?;
        what.push_str(&format!("; the ledger of run `{}` folds to ${} booked", bound.run, books.booked()));
    }
    output::text(&what);
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::{EffectKey, Epoch, Outcome, OutcomeEnd, Seq};

    #[test]
    fn a_record_prints_its_place_its_body_and_how_many_bytes_ride_with_it() {
        let mut outcome = Outcome::new(EffectKey("k".to_owned()), OutcomeEnd::Ok, "done");
        outcome.response = vec![0_u8; 7].into();
        let record = Record { seq: Seq(3), epoch: Epoch(2), at: 5, body: Body::Outcome(outcome) };
        let value = as_value(&record);
        assert_eq!(value["seq"], 3);
        assert_eq!(value["kind"], "outcome");
        assert_eq!(value["response_bytes"], 7);
        assert_eq!(value["text"], "done");
    }
}
