//! `agentrun sessions`: the store's sessions in the order of their keys.

use agentrun_kernel::{End, SessionHead};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::{output, stores};

/// Sessions of one read.
const PAGE: usize = 500;

pub(crate) async fn sessions(url: &str, as_json: bool) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let mut after = None;
    let mut any = false;
    loop {
        let heads = store.heads(after.as_ref(), PAGE).await.map_err(|error| Failure::store(&error))?;
        let Some(last) = heads.last() else { break };
        after = Some(last.key.clone());
        for head in &heads {
            if as_json {
                output::json_line(&json!({
                    "session": head.key, "run": head.run, "state": state(head), "records": head.head.seq, "epoch": head.head.epoch,
                }));
            } else {
                if !any {
                    output::text(&format!("{:<40} {:<10} {:>8} {:>6}  RUN", "SESSION", "STATE", "RECORDS", "EPOCH"));
                }
                let run = head.run.as_ref().map_or("-", |run| run.as_str());
                let (seq, epoch) = (head.head.seq.0, head.head.epoch.0);
                output::text(&format!("{:<40} {:<10} {seq:>8} {epoch:>6}  {run}", head.key.as_str(), state(head)));
            }
            any = true;
        }
    }
    if !any {
        output::note(&format!("no sessions in {url}"));
    }
    Ok(Exit::Done)
}

fn state(head: &SessionHead) -> &'static str {
    head.end.map_or("open", End::as_str)
}
