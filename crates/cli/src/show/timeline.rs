//! One line a record, for a person: when, under which owner, what, and what it cost.

use std::collections::HashMap;

use agentrun_cap::Books;
use agentrun_kernel::{
    Body, EffectKey, EffectKind, Intent, Record, Replay, RunId, SessionKey, SessionState, TurnEndHow, TurnId,
};

use crate::output::counted;
use crate::progress::end_word;

/// Characters of a text that are shown.
const SHOWN: usize = 72;

/// Remembers intents, since an outcome names its effect only by key.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    begun: HashMap<EffectKey, (Intent, u64)>,
    turn: Option<TurnId>,
}

impl Timeline {
    /// The line of the next record.
    pub(super) fn line(&mut self, record: &Record) -> String {
        let what = self.what(record);
        format!("{:>5}  e{:<3} {}  {:<10} {what}", record.seq.0, record.epoch.0, time(record.at), record.body.kind())
    }

    fn what(&mut self, record: &Record) -> String {
        match &record.body {
            Body::Bound(bound) => {
                format!("{}, {} on {}, run {}", bound.plan.label, bound.plan.model, bound.adapter, bound.run)
            }
            Body::Opened(opened) => {
                let harness =
                    opened.harness.as_ref().map_or_else(String::new, |it| format!(", {} {}", it.name, it.version));
                format!("by agentrun {}{harness}", opened.version)
            }
            Body::Submission(submission) => format!("{}: {}", submission.source, short(&submission.text)),
            Body::Withdrawn(withdrawn) => {
                format!("{}: {}", counted(withdrawn.ids.len() as u64, "submission"), short(&withdrawn.why))
            }
            Body::Placed(placed) => {
                let steered = self.turn.replace(placed.turn.clone()).is_some_and(|turn| turn == placed.turn);
                let what = if steered { "into the turn" } else { "turn begins" };
                format!("{what}, {} bytes sent", placed.text.len())
            }
            Body::TurnEnd { how, .. } => format!("turn {}", how_word(*how)),
            Body::Intent(intent) => {
                self.begun.insert(intent.key.clone(), (intent.clone(), record.at));
                let quote = intent.quote.map_or_else(String::new, |quote| format!("  holds ${quote}"));
                match intent.effect {
                    EffectKind::Request => format!("request to {}{quote}", intent.name),
                    _ => format!(
                        "{} {} {}{quote}",
                        replay_word(intent.replay),
                        intent.name,
                        short(&intent.arguments.to_string())
                    ),
                }
            }
            Body::Outcome(outcome) => {
                let (name, took) = match self.begun.remove(&outcome.key) {
                    Some((intent, begun)) => (intent.name, format!(" after {} ms", record.at.saturating_sub(begun))),
                    None => (outcome.key.to_string(), String::new()),
                };
                let cost = outcome.cost.map_or_else(String::new, |cost| format!("  paid ${cost}"));
                let text = if outcome.text.is_empty() { String::new() } else { format!(": {}", short(&outcome.text)) };
                format!("{name} {}{took}{text}{cost}", end_word(outcome.end))
            }
            Body::Native(write) => {
                // Its folders are the harness's own and the same in every line.
                let file = write.stream.rsplit('/').next().unwrap_or_default();
                format!("{file} at {}: {} bytes", write.offset, write.bytes.len())
            }
            Body::Candidate(candidate) => format!("{}: {}", candidate.number, short(&candidate.submitted.to_string())),
            Body::Verdict(verdict) if verdict.accepted => format!("{} accepted", verdict.number),
            Body::Verdict(verdict) => format!("{} sent back: {}", verdict.number, short(&verdict.message)),
            Body::Delivered(delivered) => short(&delivered.value.to_string()),
            Body::Parked(parked) => format!(
                "{}: needs a cap of ${}, it is ${}, ${} stands against it",
                parked.word, parked.needed, parked.cap, parked.spent
            ),
            Body::Failed(failed) => format!("{}: {}", failed.word, short(&failed.message)),
            Body::Settled(settled) => match settled.unsent.len() {
                0 => "nothing stays unsent".to_owned(),
                1 => "1 submission stays unsent".to_owned(),
                more => format!("{more} submissions stay unsent"),
            },
            Body::Ask(ask) => short(&ask.what),
            Body::Answer(answer) => format!("{} by {}", short(&answer.answer), answer.by),
            Body::Checkpoint(checkpoint) => format!("of record {}: {}", checkpoint.of, checkpoint.reference),
            Body::Data { name, .. } => name.clone(),
            Body::Moved { to } => format!("to {to}"),
        }
    }
}

/// What the session is, in a line.
pub(super) fn head(key: &SessionKey, state: &SessionState) -> String {
    let bound = state.bound.as_ref();
    let harness = match (&state.harness, bound) {
        (Some(harness), _) => format!("{} {}", harness.name, harness.version),
        (None, Some(bound)) => bound.adapter.clone(),
        (None, None) => "unbound".to_owned(),
    };
    let label = bound.map_or("-", |bound| bound.plan.label.as_str());
    format!(
        "session {key} · {label} · {harness} · {} · opened {} · {}",
        standing(state),
        counted(state.opens, "time"),
        counted(state.turns, "turn")
    )
}

/// Where it stands.
fn standing(state: &SessionState) -> &'static str {
    if state.delivered.is_some() {
        "delivered"
    } else if state.failed.is_some() {
        "failed"
    } else if state.moved.is_some() {
        "moved"
    } else if state.parked.is_some() {
        "parked"
    } else if state.open_turn.is_some() {
        "turn open"
    } else {
        "open"
    }
}

/// What it spent, and its run.
pub(super) fn foot(state: &SessionState, books: Option<&(RunId, Books)>) -> String {
    let spent = state.spent;
    let mut text = format!("spent ${}", spent.booked);
    if spent.unknown_count > 0 {
        text.push_str(&format!(
            ", ${} unknown in {} (cut; nobody can say, so it counts in full)",
            spent.unknown, spent.unknown_count
        ));
    }
    if spent.held.pico() > 0 {
        text.push_str(&format!(", ${} held by what is open", spent.held));
    }
    if let Some((run, books)) = books {
        let cap = books.cap().map_or_else(|| "no cap".to_owned(), |cap| format!("cap ${cap}"));
        text.push_str(&format!(" · run {run}: {cap}, ${} counts against it", books.counted()));
    }
    text
}

const fn replay_word(replay: Replay) -> &'static str {
    match replay {
        Replay::Safe => "safe",
        Replay::Never => "never",
    }
}

const fn how_word(how: TurnEndHow) -> &'static str {
    match how {
        TurnEndHow::Done => "done",
        TurnEndHow::Interrupted => "interrupted",
        TurnEndHow::Failed => "failed",
    }
}

/// The beginning of a text in one line.
fn short(text: &str) -> String {
    let mut characters = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let beginning: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() { format!("{beginning}…") } else { beginning }
}

/// The time of day in UTC: records carry their writer's clock for eyes only.
fn time(ms: u64) -> String {
    let seconds = ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::{Digest, Epoch, Outcome, OutcomeEnd, Seq};

    #[test]
    fn an_outcome_names_its_effect_how_long_it_took_and_what_it_cost() {
        let mut timeline = Timeline::default();
        let key = EffectKey("k".to_owned());
        let intent = Intent {
            key: key.clone(),
            effect: EffectKind::Tool,
            replay: Replay::Never,
            name: "search".to_owned(),
            turn: None,
            call: None,
            arguments: serde_json::json!({"q": "a\nb"}),
            digest: Digest::of(b""),
            hold: None,
            quote: None,
        };
        let record = |seq, at, body| Record { seq: Seq(seq), epoch: Epoch(1), at, body };
        let begun = timeline.line(&record(1, 1_000, Body::Intent(intent)));
        assert!(begun.contains("never search"), "{begun}");
        let mut outcome = Outcome::new(key, OutcomeEnd::Ok, "one\ntwo");
        outcome.cost = "0.25".parse().ok();
        let ended = timeline.line(&record(2, 1_250, Body::Outcome(outcome)));
        assert!(ended.ends_with("search ok after 250 ms: one two  paid $0.25"), "{ended}");
        assert_eq!(ended.lines().count(), 1);
    }
}
