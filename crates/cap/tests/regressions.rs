//! What went wrong with spend caps elsewhere, as reported in public. Each report that concerns a cap has a test: here, or where the table
//! below says, and the table is held to the tests' names. (Reports 19 to 24 are about credentials; crates/host/tests/canary.rs.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::fs;
use std::path::Path;

use agentrun_cap::{Books, Catalog, Fault, QuoteError, RequestFacts, Word, quote};
use agentrun_kernel::{Epoch, HoldId, LedgerBody, Record, Seq, SessionKey, Usd};

#[allow(dead_code)] // each suite draws what it needs
mod dice;
use dice::Dice;

/// Number, what happened, the file and the test that holds it.
const REPORTS: &[(u32, &str, &str, &str)] = &[
    (
        1,
        "parallel requests of one session all passed the budget",
        "crates/runner/src/books/tests/parallel.rs",
        "b75_report_1_of_64_requests_at_once_under_a_cap_that_fits_3_exactly_3_are_sent",
    ),
    (
        2,
        "99 spent of a budget of 30",
        "crates/cap/tests/regressions.rs",
        "report_02_a_budget_of_30_was_passed_by_requests_that_each_fitted",
    ),
    (
        2,
        "and the same for any interleaving of two processes",
        "crates/runner/src/books/tests/interleavings.rs",
        "f01_f02_b77_b80_no_interleaving_of_two_processes_overspends_loses_or_counts_twice",
    ),
    (
        3,
        "a reservation leaked when the client hung up",
        "crates/host/tests/ends.rs",
        "b91_hang_ups_at_any_moment_leave_no_request_without_its_end",
    ),
    (
        4,
        "the store of reservations failed and requests went through",
        "crates/cli/tests/store_lost.rs",
        "f16_a_store_moved_away_while_a_tool_runs_ends_as_storage_and_goes_on_once_it_is_back",
    ),
    (
        4,
        "and with the ledger itself unwritable",
        "crates/runner/src/books/tests/unwritable.rs",
        "f04_report_4_a_ledger_that_cannot_be_written_sends_nothing",
    ),
    (
        4,
        "a proxy alone",
        "crates/runner/src/books/tests/unwritable.rs",
        "f04_report_4_a_proxy_alone_gets_no_hold_from_a_ledger_that_cannot_be_written",
    ),
    (
        5,
        "a failed clean-up counted the actual on top of the reserved",
        "crates/cap/tests/books.rs",
        "report_5_a_hold_ends_at_most_once_however_it_ends",
    ),
    (
        5,
        "and in both logs",
        "crates/runner/src/books/tests/rules.rs",
        "report_5_a_price_that_cannot_be_booked_counts_as_unknown_in_both_logs",
    ),
    (
        6,
        "what was enforced was twice what was recorded",
        "crates/cap/tests/regressions.rs",
        "report_06_the_sum_that_was_enforced_was_not_the_sum_that_was_shown",
    ),
    (
        7,
        "a streamed answer was booked at nothing",
        "crates/host/tests/regressions.rs",
        "report_07_a_streamed_answer_was_booked_at_nothing_while_the_same_in_one_piece_was_billed",
    ),
    (
        8,
        "a client that hung up in the stream left no spend at all",
        "crates/host/tests/ends.rs",
        "f_a_harness_that_hangs_up_in_the_stream_is_drained_and_booked",
    ),
    (
        8,
        "and what nobody can say is counted in full",
        "crates/cap/tests/regressions.rs",
        "report_08_a_stream_that_was_cut_was_counted_at_nothing",
    ),
    (
        9,
        "a partial stream was priced at the wrong model",
        "crates/host/tests/regressions.rs",
        "report_09_a_partial_stream_was_priced_at_the_model_asked_for_and_not_at_the_one_that_answered",
    ),
    (
        10,
        "one request was booked twice",
        "crates/host/tests/regressions.rs",
        "report_10_one_request_of_the_responses_api_was_booked_twice",
    ),
    (
        11,
        "cache reads were priced as fresh input when streamed",
        "crates/host/tests/regressions.rs",
        "report_11_cache_reads_were_priced_as_fresh_input_when_streamed",
    ),
    (
        12,
        "cache writes beyond the split were free",
        "crates/host/tests/regressions.rs",
        "report_12_cache_writes_that_the_last_event_did_not_split_by_lifetime_were_free",
    ),
    (
        13,
        "a compaction was not counted",
        "crates/host/tests/regressions.rs",
        "report_13_a_compaction_inside_a_request_was_not_counted",
    ),
    (
        13,
        "nor a call of the compact route",
        "crates/host/tests/regressions.rs",
        "report_13_a_call_of_the_compact_route_was_free",
    ),
    (
        14,
        "a route passed through without asking the budget",
        "crates/host/tests/regressions.rs",
        "report_14_a_route_passed_through_without_asking_the_budget",
    ),
    (
        15,
        "a model without a price cost nothing and every budget was silent",
        "crates/cap/tests/regressions.rs",
        "report_15_a_model_without_a_price_cost_nothing_and_every_budget_was_silent",
    ),
    (
        16,
        "a budget under an old name was not read",
        "crates/cli/tests/prices.rs",
        "report_16_a_budget_under_an_old_name_was_not_read",
    ),
    (
        17,
        "receipts in another order went to the wrong account",
        "crates/cap/tests/books.rs",
        "report_17_an_outcome_ends_its_own_hold_in_whatever_order_they_come",
    ),
    (
        18,
        "the end of a request was committed before its amount",
        "crates/cap/tests/regressions.rs",
        "report_18_a_request_had_ended_before_its_amount_was_written",
    ),
];

#[test]
fn every_report_that_concerns_a_cap_has_a_test_of_that_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (number, what, file, test) in REPORTS {
        let text =
            fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{number}, {what}: {file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{number}, {what}: {file} has no {test}");
    }
    let numbers: Vec<u32> = REPORTS.iter().map(|report| report.0).collect();
    assert!((1..=18).all(|number| numbers.contains(&number)));
}

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

fn hold(name: &str, quote: Usd) -> LedgerBody {
    LedgerBody::Hold {
        id: HoldId(name.to_owned()),
        session: SessionKey::new("s").unwrap(),
        epoch: Epoch(1),
        what: "m".into(),
        quote,
        catalog: "c 1".into(),
    }
}

fn booking(name: &str, amount: Usd) -> LedgerBody {
    LedgerBody::Booking { hold: HoldId(name.to_owned()), usage: None, model: None, catalog: "c 1".into(), amount }
}

fn unknown(name: &str) -> LedgerBody {
    LedgerBody::Unknown { hold: HoldId(name.to_owned()), why: "cut".into() }
}

/// A run's ledger as it is written.
struct Ledger {
    books: Books,
    log: Vec<Record<LedgerBody>>,
}

impl Ledger {
    fn under(cap: &str) -> Self {
        let mut ledger = Self { books: Books::new(), log: Vec::new() };
        ledger.write(LedgerBody::Cap { cap: Some(usd(cap)) }).unwrap();
        ledger
    }

    fn write(&mut self, body: LedgerBody) -> Result<(), Fault> {
        let record = Record { seq: Seq(self.log.len() as u64 + 1), epoch: Epoch(0), at: 0, body };
        self.books.fold([&record]).map_err(|error| error.fault)?;
        self.log.push(record);
        Ok(())
    }
}

#[test]
fn report_02_a_budget_of_30_was_passed_by_requests_that_each_fitted() {
    let mut dice = Dice::new(30);
    for _ in 0..200 {
        let mut ledger = Ledger::under("30");
        let mut open: Vec<(String, Usd)> = Vec::new();
        for request in 0..99 {
            let quote = Usd::from_pico(i64::try_from(dice.below(5_000_000_000_000)).unwrap());
            if ledger.books.admit(quote).is_ok() {
                ledger.write(hold(&request.to_string(), quote)).unwrap();
                open.push((request.to_string(), quote));
            }
            assert!(ledger.books.counted() <= usd("30"), "booked and held at every admission");
            if dice.below(2) == 0 && !open.is_empty() {
                let (name, quote) = open.swap_remove(dice.below(open.len() as u64) as usize);
                let amount = Usd::from_pico(quote.pico() / 2);
                ledger.write(if dice.below(4) == 0 { unknown(&name) } else { booking(&name, amount) }).unwrap();
            }
        }
    }
}

#[test]
fn report_06_the_sum_that_was_enforced_was_not_the_sum_that_was_shown() {
    let mut ledger = Ledger::under("1");
    for (name, quote) in [("a", "0.3"), ("b", "0.2"), ("c", "0.1")] {
        ledger.write(hold(name, usd(quote))).unwrap();
    }
    ledger.write(booking("a", usd("0.25"))).unwrap();
    ledger.write(unknown("b")).unwrap();
    let shown = usd("0.25").checked_add(usd("0.2")).and_then(|sum| sum.checked_add(usd("0.1"))).unwrap();
    assert_eq!(ledger.books.counted(), shown);
    assert_eq!(ledger.books.left(), Some(usd("0.45")));
    // What is left is exactly what is let through, and what a reader of the records comes to.
    assert!(ledger.books.admit(usd("0.45")).is_ok());
    let denied = ledger.books.admit(usd("0.450000000001")).unwrap_err();
    assert_eq!(denied.word, Word::OverCap);
    let mut reader = Books::new();
    reader.fold(&ledger.log).unwrap();
    assert_eq!(reader, ledger.books);
}

#[test]
fn report_08_a_stream_that_was_cut_was_counted_at_nothing() {
    let mut ledger = Ledger::under("1");
    ledger.write(hold("cut", usd("0.9"))).unwrap();
    ledger.write(unknown("cut")).unwrap();
    assert_eq!((ledger.books.unknown(), ledger.books.unknown_count()), (usd("0.9"), 1));
    assert!(ledger.books.admit(usd("0.2")).is_err(), "it counts in full and no clock frees it");
}

#[test]
fn report_15_a_model_without_a_price_cost_nothing_and_every_budget_was_silent() {
    let catalog = Catalog::bundled().unwrap();
    let facts = |model: &str| RequestFacts {
        model: model.to_owned(),
        body_bytes: 10,
        max_output: Some(10),
        ..RequestFacts::default()
    };
    for unpriced in ["claude-sonnet-99", "claude-sonnet-4-5-typo", "gpt-5-", "GPT-5", "openai/gpt-5", "gpt-5 ", ""] {
        let refused = quote(&catalog, &facts(unpriced), "2026-11-30".parse().unwrap());
        assert!(matches!(refused, Err(QuoteError::Unpriced { .. })), "{unpriced}: {refused:?}");
    }
}

#[test]
fn report_18_a_request_had_ended_before_its_amount_was_written() {
    let mut ledger = Ledger::under("1");
    ledger.write(hold("a", usd("0.3"))).unwrap();
    ledger.write(booking("a", usd("0.25"))).unwrap();
    // Cut anywhere, the ledger counts the hold or the amount: the end and its amount are one record.
    let counted: Vec<Usd> = (1..=ledger.log.len())
        .map(|cut| {
            let mut books = Books::new();
            books.fold(&ledger.log[..cut]).unwrap();
            books.counted()
        })
        .collect();
    assert_eq!(counted, [Usd::ZERO, usd("0.3"), usd("0.25")]);
    // And neither can be said again.
    assert!(ledger.write(booking("a", usd("0.25"))).is_err());
    assert!(ledger.write(unknown("a")).is_err());
}
