//! The ledger without each of its rules, and what breaks then.

use super::{Ledger, Rules};
use crate::verdicts::{Variant, WHOLE};

fn small(rules: Rules) -> Ledger {
    Ledger { rules, opens: 4, kills: 1, raises: 1, withheld: 0 }
}

/// The ledger under all its rules, and without each of them.
#[must_use]
pub fn variants() -> Vec<Variant<Ledger>> {
    let whole = Rules::whole();
    let without = |without, rules, breaks| Variant {
        without,
        model: small(rules),
        breaks,
        loses: &["a hold is released with proof"],
    };
    vec![
        Variant { model: Ledger { opens: 5, kills: 2, ..small(whole) }, ..without(WHOLE, whole, &[]) },
        Variant {
            without: "nothing: a request withheld, a raise asked twice",
            model: Ledger { opens: 3, raises: 2, withheld: 1, ..small(whole) },
            breaks: &[],
            loses: &[],
        },
        without(
            "a hold only at the folded end",
            Rules { at_the_folded_end: false, ..whole },
            &[("booked and held are within the cap at admission", 10)],
        ),
        without(
            "counting the whole run",
            Rules { whole_run: false, ..whole },
            &[("booked and held are within the cap at admission", 10)],
        ),
        without(
            "counting what is held",
            Rules { held_counts: false, ..whole },
            &[("booked and held are within the cap at admission", 10)],
        ),
        without(
            "counting what is unknown",
            Rules { unknown_counts: false, ..whole },
            &[("booked and held are within the cap at admission", 12)],
        ),
        without(
            "a hold under the session's epoch",
            Rules { hold_fenced: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 5)],
        ),
        without(
            "a booking under the session's epoch",
            Rules { booking_fenced: false, ..whole },
            &[("a hold ends at most once", 8)],
        ),
        Variant {
            without: "many writers (one, which fences the last)",
            model: Ledger { opens: 3, withheld: 1, ..small(Rules { many_writers: false, ..whole }) },
            breaks: &[],
            loses: &["a process books after another one of the run was opened"],
        },
        Variant {
            without: "holds ended by their owner alone",
            model: Ledger { opens: 3, raises: 0, ..small(Rules { ended_by_owner: false, ..whole }) },
            breaks: &[
                ("what was sent is never released", 5),
                ("a hold ends at most once", 6),
                ("the bills are within the cap", 23),
            ],
            loses: &[],
        },
        Variant {
            without: "an id of a raise (it says by how much)",
            model: Ledger { raises: 2, ..small(Rules { raise_by_id: false, ..whole }) },
            breaks: &[("the cap is what a person set", 12)],
            loses: &[],
        },
        Variant {
            without: "asking the gate again when parked",
            model: Ledger { opens: 3, withheld: 1, ..small(Rules { parked_asks_again: false, ..whole }) },
            breaks: &[],
            loses: &["a parked session goes on after a raise"],
        },
    ]
}
