//! A session's spend by model, by paid tool, by turn and in all, from its records alone. Each part adds up to the whole, and the whole is
//! what the session's fold counts.

use std::collections::{BTreeMap, HashMap};

use agentrun_kernel::{Body, EffectKey, EffectKind, Record, TurnId, Usd};

/// Sums of one model, tool or turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Paid steps begun.
    count: u64,
    booked: Usd,
    /// Of steps that ended and nobody can say what they cost.
    unknown: Usd,
    /// Of steps that have not ended.
    held: Usd,
}

/// What a row is of; the order of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    Model(String),
    Tool(String),
    /// A paid decision or follow-up of the host's.
    Other(String),
    /// The nth, from 1; 0 is none.
    Turn(u64),
    All,
}

impl Of {
    fn words(&self) -> (&'static str, String) {
        match self {
            Self::Model(name) => ("model", name.clone()),
            Self::Tool(name) => ("tool", name.clone()),
            Self::Other(name) => ("other", name.clone()),
            Self::Turn(0) => ("turn", "-".to_owned()),
            Self::Turn(number) => ("turn", number.to_string()),
            Self::All => ("all", String::new()),
        }
    }
}

/// The sums of a session's records.
pub(super) fn rows(records: &[Record]) -> BTreeMap<Of, Sums> {
    let mut rows = BTreeMap::from([(Of::All, Sums::default())]);
    let mut turns: HashMap<&TurnId, u64> = HashMap::new();
    let mut open: HashMap<&EffectKey, (Usd, [Of; 3])> = HashMap::new();
    for record in records {
        match &record.body {
            Body::Placed(placed) => {
                let next = turns.len() as u64 + 1;
                turns.entry(&placed.turn).or_insert(next);
            }
            Body::Intent(intent) => {
                let Some(quote) = intent.quote else { continue };
                let name = intent.name.clone();
                let what = match intent.effect {
                    EffectKind::Request => Of::Model(name),
                    EffectKind::Tool | EffectKind::Submit | EffectKind::Builtin => Of::Tool(name),
                    EffectKind::Decision | EffectKind::FollowUp => Of::Other(name),
                };
                let turn = intent.turn.as_ref().and_then(|turn| turns.get(turn).copied()).unwrap_or(0);
                let of = [what, Of::Turn(turn), Of::All];
                for of in &of {
                    let sums = rows.entry(of.clone()).or_default();
                    sums.count += 1;
                    sums.held = sums.held.saturating_add(quote);
                }
                open.insert(&intent.key, (quote, of));
            }
            Body::Outcome(outcome) => {
                let Some((quote, of)) = open.remove(&outcome.key) else { continue };
                for of in of {
                    let sums = rows.entry(of).or_default();
                    sums.held = sums.held.checked_sub(quote).unwrap_or_default();
                    match outcome.cost {
                        Some(cost) => sums.booked = sums.booked.saturating_add(cost),
                        None => sums.unknown = sums.unknown.saturating_add(quote),
                    }
                }
            }
            _ => {}
        }
    }
    rows
}

/// The rows as text, or as comma-separated values.
pub(super) fn table(rows: &BTreeMap<Of, Sums>, csv: bool) -> String {
    let mut lines = Vec::with_capacity(rows.len() + 1);
    if csv {
        lines.push("by,name,count,booked_usd,unknown_usd,held_usd".to_owned());
    } else {
        lines.push(format!(
            "{:<6} {:<34} {:>6} {:>16} {:>16} {:>16}",
            "BY", "NAME", "COUNT", "BOOKED", "UNKNOWN", "HELD"
        ));
    }
    for (of, sums) in rows {
        let (by, name) = of.words();
        let Sums { count, booked, unknown, held } = sums;
        lines.push(if csv {
            format!("{by},{},{count},{booked},{unknown},{held}", quoted(&name))
        } else {
            let [booked, unknown, held] = [booked, unknown, held].map(|amount| format!("${amount}"));
            format!("{by:<6} {name:<34} {count:>6} {booked:>16} {unknown:>16} {held:>16}")
        });
    }
    lines.join("\n")
}

/// A name that cannot break its line or its column.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::{Digest, Epoch, HoldId, Intent, MessageId, Outcome, OutcomeEnd, Placed, Replay, Seq};

    fn intent(key: &str, effect: EffectKind, name: &str, turn: Option<&TurnId>, quote: Option<&str>) -> Body {
        Body::Intent(Intent {
            key: EffectKey(key.to_owned()),
            effect,
            replay: Replay::Never,
            name: name.to_owned(),
            turn: turn.cloned(),
            call: None,
            arguments: serde_json::Value::Null,
            digest: Digest::of(b""),
            hold: quote.map(|_| HoldId::fresh()),
            quote: quote.map(|quote| quote.parse().unwrap()),
        })
    }

    fn outcome(key: &str, cost: Option<&str>) -> Body {
        let mut outcome = Outcome::new(EffectKey(key.to_owned()), OutcomeEnd::Ok, "");
        outcome.cost = cost.map(|cost| cost.parse().unwrap());
        Body::Outcome(outcome)
    }

    fn placed(turn: &TurnId) -> Body {
        Body::Placed(Placed {
            message: MessageId::fresh(),
            turn: turn.clone(),
            carries: Vec::new(),
            replaces: Vec::new(),
            text: "t".into(),
        })
    }

    #[test]
    fn what_is_booked_unknown_and_held_is_told_apart_and_every_part_adds_up() {
        let (first, second) = (TurnId::fresh(), TurnId::fresh());
        let bodies = [
            placed(&first),
            intent("a", EffectKind::Request, "m", Some(&first), Some("1")),
            outcome("a", Some("0.25")),
            intent("b", EffectKind::Tool, "dear, \"one\"", Some(&first), Some("0.5")),
            outcome("b", None),
            intent("free", EffectKind::Tool, "free", Some(&first), None),
            outcome("free", None),
            placed(&second),
            intent("c", EffectKind::Request, "m", Some(&second), Some("2")),
        ];
        let records: Vec<Record> =
            (1..).zip(bodies).map(|(seq, body)| Record { seq: Seq(seq), epoch: Epoch(1), at: 0, body }).collect();
        assert_eq!(
            table(&rows(&records), true).lines().collect::<Vec<_>>(),
            [
                "by,name,count,booked_usd,unknown_usd,held_usd",
                "model,m,2,0.25,0,2",
                "tool,\"dear, \"\"one\"\"\",1,0,0.5,0",
                "turn,1,2,0.25,0.5,0",
                "turn,2,1,0,0,2",
                "all,,3,0.25,0.5,2",
            ]
        );
    }

    #[test]
    fn a_session_without_a_paid_step_spent_nothing() {
        assert_eq!(table(&rows(&[]), true).lines().last(), Some("all,,0,0,0,0"));
    }
}
