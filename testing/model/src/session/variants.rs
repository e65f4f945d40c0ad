//! The session without each of its rules, and what breaks then.

use super::{Rules, Session};
use crate::verdicts::{Variant, WHOLE};

fn small(rules: Rules) -> Session {
    Session { rules, opens: 2, kills: 1, power_cuts: 1, drops: 1 }
}

/// The session under all its rules, without each of them, and under two that could be chosen otherwise.
#[must_use]
pub fn variants() -> Vec<Variant<Session>> {
    let whole = Rules::whole();
    let without = |without, rules, breaks| Variant { without, model: small(rules), breaks, loses: &[] };
    vec![
        Variant { without: WHOLE, model: Session { opens: 3, kills: 2, ..small(whole) }, breaks: &[], loses: &[] },
        without(
            "the fence",
            Rules { fence: false, ..whole },
            &[
                ("a fenced owner does nothing new after its next write", 7),
                ("epochs never fall", 8),
                ("a booked response is not paid again", 10),
                ("a prompt reaches the model at most once", 13),
            ],
        ),
        without(
            "the fence in the append (it is compared before)",
            Rules { fence_in_append: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 9), ("epochs never fall", 11)],
        ),
        without(
            "the sync before an act",
            Rules { synced: false, ..whole },
            &[
                ("intent and hold are on disk before the act", 6),
                ("a prompt reaches the model at most once", 13),
                ("a never effect runs at most once", 29),
            ],
        ),
        without(
            "the check of a batch in its append",
            Rules { checked: false, ..whole },
            &[
                ("a placement is written once", 3),
                ("a hold ends at most once", 8),
                ("at most one outcome", 12),
                ("delivered at most once", 22),
            ],
        ),
        without(
            "the request barrier",
            Rules { request_barrier: false, ..whole },
            &[("a booked response is not paid again", 10), ("a prompt reaches the model at most once", 11)],
        ),
        without(
            "the tool barrier",
            Rules { tool_barrier: false, ..whole },
            &[("an intent is explained by the history before it", 8)],
        ),
        without(
            "both barriers and restored responses",
            Rules { request_barrier: false, tool_barrier: false, responses_restored: false, ..whole },
            &[
                ("an intent is explained by the history before it", 7),
                ("a booked response is not paid again", 10),
                ("a prompt reaches the model at most once", 11),
                ("a never effect runs at most once", 25),
            ],
        ),
        without(
            "the request barrier and restored responses",
            Rules { request_barrier: false, responses_restored: false, ..whole },
            &[("a booked response is not paid again", 10), ("a prompt reaches the model at most once", 11)],
        ),
        without(
            "the tool barrier and restored responses",
            Rules { tool_barrier: false, responses_restored: false, ..whole },
            &[
                ("an intent is explained by the history before it", 8),
                ("a booked response is not paid again", 9),
                ("a never effect runs at most once", 24),
            ],
        ),
        without(
            "hold and intent in one batch",
            Rules { hold_with_intent: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 8)],
        ),
        without(
            "booking and response in one batch",
            Rules { booking_with_response: false, ..whole },
            &[("a booked response is not paid again", 10)],
        ),
        without(
            "restored responses",
            Rules { responses_restored: false, ..whole },
            &[("a booked response is not paid again", 9)],
        ),
        without(
            "interrupted never effects",
            Rules { never_interrupted: false, ..whole },
            &[("a never effect runs at most once", 17)],
        ),
        without(
            "reading back before the prompt is given again",
            Rules { read_back: false, ..whole },
            &[("a prompt reaches the model at most once", 9)],
        ),
        without(
            "\"taken\" only by the history",
            Rules { taken_by_history: false, ..whole },
            &[("no request goes without the prompt", 7)],
        ),
        without("a home from the records (it starts on a leftover)", Rules { home_from_records: false, ..whole }, &[]),
        without(
            "a home from the records, both barriers and restored responses",
            Rules {
                home_from_records: false,
                request_barrier: false,
                tool_barrier: false,
                responses_restored: false,
                ..whole
            },
            &[
                ("an intent is explained by the history before it", 7),
                ("a booked response is not paid again", 9),
                ("a prompt reaches the model at most once", 11),
            ],
        ),
        without("unsynced bytes handed over (they wait in RAM)", Rules { handed_over: false, ..whole }, &[]),
    ]
}
