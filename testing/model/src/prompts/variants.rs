//! The prompts without each of their rules, and what breaks then.

use super::{Prompts, Rules};
use crate::verdicts::{Variant, WHOLE};

fn small(rules: Rules) -> Prompts {
    Prompts { rules, own_ids: false, kills: 2, settles: 1, asks: 2 }
}

/// The prompts under all their rules, with a harness that takes our ids and with one that does not, and without each of the rules.
#[must_use]
pub fn variants() -> Vec<Variant<Prompts>> {
    let whole = Rules::whole();
    let without = |without, rules, breaks| Variant { without, model: small(rules), breaks, loses: &[] };
    vec![
        Variant { model: Prompts { kills: 3, settles: 2, ..small(whole) }, ..without(WHOLE, whole, &[]) },
        Variant {
            without: "nothing: the harness takes our ids",
            model: Prompts { own_ids: true, kills: 3, settles: 2, ..small(whole) },
            breaks: &[],
            loses: &[],
        },
        without(
            "a placement recorded first",
            Rules { placed_first: false, ..whole },
            &[("words reach the model by one message", 7)],
        ),
        without(
            "the request barrier",
            Rules { request_barrier: false, ..whole },
            &[("words reach the model by one message", 12)],
        ),
        without(
            "\"taken\" only by the history",
            Rules { taken_by_history: false, ..whole },
            &[("no request goes without its words", 6), ("no accepted words are lost", 15)],
        ),
        without(
            "\"taken\" by the newest message that carries it",
            Rules { taken_is_transitive: false, ..whole },
            &[("words reach the model by one message", 16), ("words stand once in the history", 16)],
        ),
        without(
            "carrying what is unsent",
            Rules { unsent_is_carried: false, ..whole },
            &[("no accepted words are lost", 5)],
        ),
        without(
            "looking for a cut follow-up first",
            Rules { follow_up_row_first: false, ..whole },
            &[("a cut follow-up does not go on", 19)],
        ),
        without(
            "one batch that ends a cut follow-up",
            Rules { settled_in_one_batch: false, ..whole },
            &[("a cut follow-up does not go on", 22)],
        ),
        without(
            "a settle that names its own prompt alone",
            Rules { withdraws_its_own: false, ..whole },
            &[("a settle withdraws no person's words", 16)],
        ),
        without(
            "a follow-up asked once a name",
            Rules { asked_once: false, ..whole },
            &[("a follow-up is begun once", 15)],
        ),
        without(
            "a history that shows the end",
            Rules { at_rest: false, ..whole },
            &[("an ended turn is not taken up again", 14)],
        ),
    ]
}
