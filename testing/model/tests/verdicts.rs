//! Every verdict is as its variant says, and as the README's table says. A model that changes changes these, and has to say so in both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report
#![allow(clippy::print_stdout)] // the verdicts are read there

use std::fmt::Debug;
use std::hash::Hash;

use agentrun_model::verdicts::verdict;
use agentrun_model::{MODELS, Variant, calls, explore, ledger, prompts, session};
use stateright::{Checker, Model};

const README: &str = include_str!("../README.md");

/// Explores every variant of one model, tells them all, and then fails for what is not as it should be.
fn every_verdict_is_as_expected(of: &str) {
    let (_, explore) = MODELS.iter().find(|(name, _)| *name == of).unwrap();
    let mut wrong = Vec::new();
    let mut rows = 0;
    explore(&|_| true, &mut |verdict| {
        let row = verdict.to_string();
        println!("{row}");
        rows += 1;
        wrong.extend(verdict.unexpected.iter().map(|what| format!("without {}: {what}", verdict.without)));
        if !README.contains(&row) {
            wrong.push(format!("the README's table lacks\n{row}"));
        }
    });
    assert!(rows > 1);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_session_is_whole_under_all_the_rules_and_breaks_without_each() {
    every_verdict_is_as_expected("session");
}

#[test]
fn a_ledger_is_whole_under_all_the_rules_and_breaks_without_each() {
    every_verdict_is_as_expected("ledger");
}

#[test]
fn prompts_are_whole_under_all_the_rules_and_break_without_each() {
    every_verdict_is_as_expected("prompts");
}

#[test]
fn calls_are_whole_under_all_the_rules_and_break_without_each() {
    every_verdict_is_as_expected("calls");
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
        let ours = explore(&model, &[]).states;
        let checker = model.checker().spawn_bfs().join();
        // Whole, so what was not found is nowhere.
        let found = checker.discoveries();
        let expected = |name| matches!(checker.model().property(name).expectation, stateright::Expectation::Sometimes);
        assert!(found.keys().all(|name| expected(name)), "{:?}", found.keys());
        assert_eq!(checker.unique_state_count(), ours);
    }
    let rules = session::Rules::whole();
    agree(session::Session { rules, opens: 2, kills: 1, power_cuts: 1, drops: 0 });
    let rules = ledger::Rules::whole();
    agree(ledger::Ledger { rules, opens: 3, kills: 0, raises: 1, withheld: 0 });
    let rules = prompts::Rules::whole();
    agree(prompts::Prompts { rules, own_ids: false, kills: 1, settles: 1, asks: 1 });
    let rules = calls::Rules::whole();
    agree(calls::Calls { rules, kills: 2, stops: 0, cuts: 1, twice: 0, repeats: 1, attempts: 1 });
}

/// The table is only worth what a wrong row is told by.
#[test]
fn a_verdict_that_is_not_as_expected_says_how() {
    let rules = prompts::Rules { unsent_is_carried: false, ..prompts::Rules::whole() };
    let model = prompts::Prompts { rules, own_ids: false, kills: 1, settles: 0, asks: 0 };
    let of = |breaks: &'static [(&'static str, usize)]| {
        verdict("prompts", &Variant { without: "a rule", model, breaks, loses: &[] }).unexpected.join(", ")
    };
    let lost = "`no accepted words are lost`";
    assert_eq!(of(&[("no accepted words are lost", 5)]), "");
    assert_eq!(of(&[("no accepted words are lost", 4)]), format!("{lost} breaks in 5 steps, not in 4"));
    assert!(of(&[]).contains(&format!("{lost} breaks in 5 steps")));
    assert!(of(&[("one turn is open at a time", 5)]).contains("nothing breaks `one turn is open at a time`"));
}
