//! Progress on stderr: a live line with turns, the running tool and the spend when stderr is a terminal, a plain line an event when not.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use agentrun_kernel::{OutcomeEnd, Usd};
use agentrun_runner::{Event, What};

use crate::output;

/// Told of every event of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    json: bool,
    live: bool,
    /// What is to be said when the session is opened.
    taken: Option<String>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    turn: u32,
    running: Vec<String>,
    asking: bool,
    spent: Usd,
    drawn: bool,
}

impl Progress {
    /// With `json` events go to stdout as they are, and stderr stays quiet but for notes.
    pub(crate) fn new(json: bool, taken: Option<String>) -> Self {
        Self { json, live: std::io::stderr().is_terminal(), taken, seen: Mutex::default() }
    }

    /// One event. Quick: the runner waits for it.
    pub(crate) fn on(&self, event: &Event) {
        if let (What::Opened { .. }, Some(taken)) = (&event.what, &self.taken) {
            output::note(taken);
        }
        if self.json {
            return output::json_line(event);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.take(&event.what);
        if self.live {
            seen.drawn = true;
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{}", seen.line());
        } else if let Some(line) = plain(&event.what) {
            output::note(&line);
        }
    }

    /// Takes the live line away.
    pub(crate) fn end(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut seen.drawn) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

impl Seen {
    fn take(&mut self, what: &What) {
        match what {
            What::TurnStart { turn } => self.turn = *turn,
            What::ToolStart { tool, .. } => self.running.push(tool.clone()),
            What::ToolEnd { tool, .. } => {
                if let Some(place) = self.running.iter().position(|running| running == tool) {
                    self.running.remove(place);
                }
            }
            What::RequestStart { .. } => self.asking = true,
            What::RequestEnd { spent, .. } => (self.asking, self.spent) = (false, *spent),
            _ => {}
        }
    }

    fn line(&self) -> String {
        let doing = match (self.running.as_slice(), self.asking) {
            ([], true) => "asking the model".to_owned(),
            ([], false) => "waiting".to_owned(),
            (tools, _) => format!("running {}", tools.join(", ")),
        };
        format!("turn {} · {doing} · ${}", self.turn, self.spent)
    }
}

fn plain(what: &What) -> Option<String> {
    Some(match what {
        What::Opened { epoch } => format!("opened, epoch {epoch}"),
        What::TurnStart { turn } => format!("turn {turn}"),
        What::Steered { turn } => format!("words sent into turn {turn}"),
        What::ToolStart { tool, .. } => format!("{tool} …"),
        What::ToolEnd { tool, end, .. } => format!("{tool}: {}", end_word(*end)),
        What::RequestStart { .. } | What::TurnEnd { .. } => return None,
        What::RequestEnd { end, cost, spent, .. } => request_end(*end, *cost, *spent),
        What::Verdict { accepted: true, .. } => "value accepted".to_owned(),
        What::Verdict { accepted: false, .. } => "value sent back to the model".to_owned(),
        What::Parked { needed } => format!("parked: needs a cap of ${needed}"),
        What::Message { id } => format!("message `{id}` taken"),
        // Said when the command ends.
        What::Answered { .. } | What::Bounded { .. } | What::Moved { .. } => return None,
    })
}

fn request_end(end: OutcomeEnd, cost: Option<Usd>, spent: Usd) -> String {
    let what = match (end, cost) {
        (OutcomeEnd::Ok, Some(cost)) => format!("model request: ${cost}"),
        (OutcomeEnd::Ok, None) => "model request: cost unknown".to_owned(),
        (_, Some(Usd::ZERO)) => "model request failed, nothing booked".to_owned(),
        (_, Some(cost)) => format!("model request failed: ${cost}"),
        (_, None) => "model request cut, cost unknown".to_owned(),
    };
    format!("{what}, ${spent} so far")
}

/// How an effect ended, in a word.
pub(crate) const fn end_word(end: OutcomeEnd) -> &'static str {
    match end {
        OutcomeEnd::Ok => "ok",
        OutcomeEnd::Error => "error",
        OutcomeEnd::Interrupted => "interrupted",
        OutcomeEnd::Refused => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::EffectKey;

    #[test]
    fn the_live_line_names_the_turn_the_running_tool_and_the_spend() {
        let mut seen = Seen::default();
        seen.take(&What::TurnStart { turn: 2 });
        let key = EffectKey::fresh();
        seen.take(&What::ToolStart { tool: "search".to_owned(), key: key.clone(), arguments: serde_json::Value::Null });
        let spent = "0.25".parse().unwrap();
        seen.take(&What::RequestEnd { model: "m".to_owned(), end: OutcomeEnd::Interrupted, cost: None, spent });
        assert_eq!(seen.line(), "turn 2 · running search · $0.25");
        seen.take(&What::ToolEnd { tool: "search".to_owned(), key, end: OutcomeEnd::Ok, result: "".into() });
        assert_eq!(seen.line(), "turn 2 · waiting · $0.25");
    }

    #[test]
    fn a_request_that_failed_is_not_told_as_one_that_was_free() {
        let told = |end, cost: Option<&str>| {
            let cost = cost.map(|cost| cost.parse().unwrap());
            plain(&What::RequestEnd { model: "m".to_owned(), end, cost, spent: "0.25".parse().unwrap() }).unwrap()
        };
        assert_eq!(told(OutcomeEnd::Ok, Some("0.1")), "model request: $0.1, $0.25 so far");
        assert_eq!(told(OutcomeEnd::Ok, Some("0")), "model request: $0, $0.25 so far");
        assert_eq!(told(OutcomeEnd::Ok, None), "model request: cost unknown, $0.25 so far");
        assert_eq!(told(OutcomeEnd::Error, Some("0")), "model request failed, nothing booked, $0.25 so far");
        assert_eq!(told(OutcomeEnd::Interrupted, None), "model request cut, cost unknown, $0.25 so far");
    }
}
