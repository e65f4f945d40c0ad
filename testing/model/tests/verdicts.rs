//! The verdicts: together the rules hold over the whole bounded space, and without any one of them a shortest counterexample of the length
//! written here is found. A model that changes changes these numbers, and has to say so in the README's table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report
#![allow(clippy::print_stdout)] // the verdicts are read there

use std::fmt::Debug;
use std::hash::Hash;

use agentrun_model::{Report, explore, ledger, session};
use stateright::{Checker, Model};

/// A rule's name, the rules without it, and what breaks in how many steps.
type Without<R> = (&'static str, R, &'static [(&'static str, usize)]);

fn a_session(rules: session::Rules) -> session::Session {
    session::Session { rules, opens: 2, kills: 1, power_cuts: 1, drops: 1 }
}

fn a_ledger(rules: ledger::Rules) -> ledger::Ledger {
    ledger::Ledger { rules, opens: 4, kills: 1 }
}

fn holds_whole(name: &str, report: &Report) {
    println!("{name}: {} states, {} transitions, depth {}", report.states, report.transitions, report.depth);
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.unreached.is_empty(), "never reached: {:?}", report.unreached);
}

/// Without a rule, `property` is broken and no way there is shorter than `steps`.
fn is_caught<M>(without: &str, model: &M, property: &str, steps: usize)
where
    M: Model,
    M::State: Hash,
    M::Action: Clone + Debug,
{
    let report = explore(model, Some(property));
    let broken = report.broken.iter().find(|broken| broken.property == property);
    let broken = broken.unwrap_or_else(|| panic!("without {without}, nothing breaks `{property}`"));
    println!("without {without}: {property}: {} steps: {}", broken.trace.len(), broken.trace.join(", "));
    assert_eq!(broken.trace.len(), steps, "without {without}: {property}: {:#?}", broken.trace);
}

#[test]
fn a_session_under_all_the_rules_is_whole_in_every_history() {
    let model = session::Session { opens: 3, kills: 2, ..a_session(session::Rules::whole()) };
    let report = explore(&model, None);
    holds_whole("session", &report);
    assert!(report.states > 2_000_000, "the space has shrunk to {}", report.states);
}

#[test]
fn a_ledger_under_all_the_rules_stays_within_its_cap_in_every_history() {
    let model = ledger::Ledger { opens: 5, kills: 2, ..a_ledger(ledger::Rules::whole()) };
    let report = explore(&model, None);
    holds_whole("ledger", &report);
    assert!(report.states > 1_000_000, "the space has shrunk to {}", report.states);
}

/// Two searches that share nothing but the model: ours, and the library's.
#[test]
fn the_librarys_own_checker_finds_the_same_states() {
    fn agree<M>(model: M)
    where
        M: Model + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
        M::Action: Clone + Debug + PartialEq,
    {
        let ours = explore(&model, None).states;
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), ours);
    }
    agree(a_session(session::Rules::whole()));
    agree(a_ledger(ledger::Rules::whole()));
}

#[test]
fn every_rule_of_a_session_is_needed() {
    use session::Rules;
    let whole = Rules::whole();
    let without: Vec<Without<Rules>> = vec![
        (
            "the fence",
            Rules { fence: false, ..whole },
            &[
                ("a fenced owner does nothing new after its next write", 7),
                ("epochs never fall", 8),
                ("a prompt reaches the model at most once", 13),
            ],
        ),
        (
            "the fence in the append",
            Rules { fence_in_append: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 9), ("epochs never fall", 11)],
        ),
        (
            "the sync",
            Rules { synced: false, ..whole },
            &[
                ("intent and hold are on disk before the act", 6),
                ("a prompt reaches the model at most once", 13),
                ("a never effect runs at most once", 29),
            ],
        ),
        (
            "the check",
            Rules { checked: false, ..whole },
            &[
                ("a placement is written once", 3),
                ("a hold ends at most once", 8),
                ("at most one outcome", 12),
                ("delivered at most once", 22),
            ],
        ),
        (
            "the request barrier",
            Rules { request_barrier: false, ..whole },
            &[("a booked response is not paid again", 10), ("a prompt reaches the model at most once", 11)],
        ),
        (
            "the tool barrier",
            Rules { tool_barrier: false, ..whole },
            &[("an intent is explained by the history before it", 8)],
        ),
        (
            "the tool barrier and restored responses",
            Rules { tool_barrier: false, responses_restored: false, ..whole },
            &[("a never effect runs at most once", 24)],
        ),
        (
            "hold and intent in one batch",
            Rules { hold_with_intent: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 8)],
        ),
        (
            "booking and response in one batch",
            Rules { booking_with_response: false, ..whole },
            &[("a booked response is not paid again", 10)],
        ),
        (
            "restored responses",
            Rules { responses_restored: false, ..whole },
            &[("a booked response is not paid again", 9)],
        ),
        (
            "interrupted never effects",
            Rules { never_interrupted: false, ..whole },
            &[("a never effect runs at most once", 17)],
        ),
        ("reading back", Rules { read_back: false, ..whole }, &[("a prompt reaches the model at most once", 9)]),
        ("taken by history", Rules { taken_by_history: false, ..whole }, &[("no request goes without the prompt", 7)]),
    ];
    for (name, rules, broken) in without {
        for (property, steps) in broken {
            is_caught(name, &a_session(rules), property, *steps);
        }
    }
}

#[test]
fn every_rule_of_the_cap_is_needed() {
    use ledger::Rules;
    const ADMISSION: &str = "booked and held are within the cap at admission";
    let whole = Rules::whole();
    let without: Vec<Without<Rules>> = vec![
        ("the folded end", Rules { at_the_folded_end: false, ..whole }, &[(ADMISSION, 10)]),
        ("the whole run", Rules { whole_run: false, ..whole }, &[(ADMISSION, 10)]),
        ("counted holds", Rules { held_counts: false, ..whole }, &[(ADMISSION, 10)]),
        (
            "counted unknowns",
            Rules { unknown_counts: false, ..whole },
            &[(ADMISSION, 12), ("the bills are within the cap", 27)],
        ),
        (
            "the fenced hold",
            Rules { hold_fenced: false, ..whole },
            &[("a fenced owner does nothing new after its next write", 5)],
        ),
        ("the fenced booking", Rules { booking_fenced: false, ..whole }, &[("a hold ends at most once", 8)]),
    ];
    for (name, rules, broken) in without {
        for (property, steps) in broken {
            is_caught(name, &a_ledger(rules), property, *steps);
        }
    }
}
