//! The calls without each of their rules, and what breaks then.

use super::{Calls, Rules};
use crate::verdicts::{Variant, WHOLE};

fn small(rules: Rules) -> Calls {
    Calls { rules, kills: 1, stops: 1, cuts: 1, twice: 1, repeats: 2, attempts: 2 }
}

/// The calls under all their rules, and without each of them.
#[must_use]
pub fn variants() -> Vec<Variant<Calls>> {
    let whole = Rules::whole();
    let without = |without, rules, breaks| Variant { without, model: small(rules), breaks, loses: &[] };
    vec![
        Variant { without: WHOLE, model: Calls { repeats: 1, ..small(whole) }, breaks: &[], loses: &[] },
        Variant {
            without: "nothing: two repeats, no stop",
            model: Calls { stops: 0, twice: 0, ..small(whole) },
            breaks: &[],
            loses: &["a call is joined", "a drained call keeps its outcome"],
        },
        Variant {
            without: "nothing: three kills, one attempt",
            model: Calls { kills: 3, stops: 0, twice: 0, repeats: 1, attempts: 1, ..small(whole) },
            breaks: &[],
            loses: &["a call is joined", "a drained call keeps its outcome", "a later attempt answers from a receipt"],
        },
        without(
            "joining a call that runs",
            Rules { joined: false, ..whole },
            &[("a call runs once at a time", 4), ("a never tool runs at most once", 4)],
        ),
        without(
            "refusing a repeat of an interrupted call",
            Rules { repeat_refused: false, ..whole },
            &[("a never tool runs at most once", 8)],
        ),
        without(
            "a refusal that hides nothing",
            Rules { refusal_hides_nothing: false, ..whole },
            &[("a never tool runs at most once", 13)],
        ),
        without(
            "receipts of earlier attempts",
            Rules { receipts_kept: false, ..whole },
            &[("a never tool runs at most once", 8)],
        ),
        without(
            "\"interrupted\" for what was cut (it is an error)",
            Rules { cut_is_interrupted: false, ..whole },
            &[("a never tool runs at most once", 9)],
        ),
        without(
            "an exclusive submit",
            Rules { exclusive: false, ..whole },
            &[("nothing runs beside submit or is open at delivery", 5)],
        ),
        without(
            "an intent after the permit",
            Rules { intent_after_permit: false, ..whole },
            &[("no call is called interrupted that never had its permit", 3)],
        ),
        without(
            "withholding what waits at a stop",
            Rules { stop_withholds: false, ..whole },
            &[("nothing begins after a stop", 3)],
        ),
        without(
            "writing nothing at the deadline",
            Rules { deadline_writes_nothing: false, ..whole },
            &[("a call that ran to its end is not called interrupted", 6)],
        ),
        without(
            "ordinals in keys",
            Rules { keys_have_ordinals: false, ..whole },
            &[("a new call is not answered with an old result", 7)],
        ),
        without(
            "the sweep before \"interrupted\"",
            Rules { swept_first: false, ..whole },
            &[("nothing runs on that is called interrupted", 5)],
        ),
        Variant {
            without: "an end to safe runs",
            model: Calls {
                kills: 3,
                stops: 0,
                cuts: 0,
                twice: 0,
                repeats: 0,
                attempts: 1,
                ..small(Rules { safe_ends: false, ..whole })
            },
            breaks: &[("a safe call runs three times at most", 9)],
            loses: &[],
        },
    ]
}
