//! What a usage costs, case by case: modes, edges, parts beside the totals, and what must be an error. The published vectors are in
//! oracles.rs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use agentrun_cap::{Catalog, Date, PriceError, price};
use agentrun_kernel::{Iteration, Usage};

fn day() -> Date {
    "2026-11-01".parse().unwrap()
}

fn usage(input: u64, cache_read: u64, cache_write_5m: u64, cache_write_1h: u64, output: u64) -> Usage {
    Usage { input, cache_read, cache_write_5m, cache_write_1h, output, ..Usage::default() }
}

fn cost(model: &str, usage: &Usage) -> String {
    price(&Catalog::bundled().unwrap(), model, usage, day()).unwrap().amount.to_string()
}

fn tier(usage: Usage, tier: &str) -> Usage {
    Usage { tier: Some(tier.to_owned()), ..usage }
}

#[test]
fn b76_fast_mode_and_regional_computing_have_their_own_prices() {
    let base = usage(5_000, 0, 0, 0, 1_000);
    let fast = Usage { speed: Some("fast".to_owned()), ..base.clone() };
    let us = Usage { geo: Some("us".to_owned()), ..base.clone() };
    let both = Usage { speed: Some("fast".to_owned()), ..us.clone() };
    for (usage, expected) in [(&base, "0.04"), (&fast, "0.08"), (&us, "0.044"), (&both, "0.088")] {
        assert_eq!(cost("claude-opus-5-5", usage), expected);
    }
    for anywhere in ["global", "not_available"] {
        assert_eq!(cost("claude-opus-5-5", &Usage { geo: Some(anywhere.to_owned()), ..base.clone() }), "0.04");
    }
    for standard in ["standard", "default"] {
        assert_eq!(cost("claude-opus-5-5", &tier(base.clone(), standard)), "0.04");
    }
}

#[test]
fn b76_a_tier_looks_at_the_whole_prompt_and_its_edge_is_strict() {
    // 100,000 tokens, however split, are below the edge; one cached token more prices all of them above it.
    assert_eq!(cost("claude-haiku-5-5", &usage(40_000, 60_000, 0, 0, 1_000)), "0.0051");
    assert_eq!(cost("claude-haiku-5-5", &usage(40_000, 60_001, 0, 0, 1_000)), "0.02550005");
    assert_eq!(cost("claude-haiku-5-5", &usage(0, 0, 50_000, 50_001, 0)), "0.081251");
}

#[test]
fn report_13_a_compaction_beside_the_totals_is_counted() {
    let message = Usage { web_searches: 2, ..usage(23_000, 0, 2_300, 0, 1_000) };
    assert_eq!(cost("claude-sonnet-4-5", &message), "0.112625");
    let compaction = Iteration { model: None, usage: usage(180_000, 0, 0, 0, 3_500) };
    assert_eq!(cost("claude-sonnet-4-5", &Usage { iterations: vec![compaction], ..message }), "0.705125");
}

#[test]
fn report_9_a_part_of_another_model_is_priced_as_that_model_in_the_mode_of_the_whole() {
    let part = Iteration { model: Some("claude-opus-5-5".to_owned()), usage: usage(1_000, 0, 0, 0, 0) };
    let whole = Usage { iterations: vec![part], ..usage(1_000, 0, 0, 0, 0) };
    assert_eq!(cost("claude-sonnet-5-5", &whole), "0.006");
    let fast = Usage { speed: Some("fast".to_owned()), ..whole };
    assert_eq!(cost("claude-opus-5-5", &fast), "0.016");
    assert!(matches!(
        price(&Catalog::bundled().unwrap(), "claude-sonnet-5-5", &fast, day()),
        Err(PriceError::Lacks { what, .. }) if what == "mode `fast`"
    ));
}

#[test]
fn report_12_a_cache_write_without_a_lifetime_is_not_free() {
    // The tap files what the provider did not split under five minutes; split and remainder cost the same as five minutes alone.
    assert_eq!(cost("claude-sonnet-4-5", &usage(0, 0, 1_000, 1_000, 0)), "0.00975");
    assert_eq!(cost("claude-sonnet-4-5", &usage(0, 0, 2_000, 0, 0)), "0.0075");
}

#[test]
fn report_15_what_the_catalog_lacks_is_an_error_and_never_free_or_at_base() {
    let catalog = Catalog::bundled().unwrap();
    let refused = |model: &str, usage: Usage| price(&catalog, model, &usage, day()).unwrap_err();
    for unknown in ["claude-sonnet-99", "claude-sonnet-4-5-typo", "anthropic/claude-sonnet-99", ""] {
        assert!(matches!(refused(unknown, usage(1, 0, 0, 0, 1)), PriceError::UnknownModel { .. }), "{unknown}");
    }
    for (model, usage, lacking) in [
        ("gpt-5.6-sol", tier(usage(1, 0, 0, 0, 1), "ultrafast"), "mode `ultrafast`"),
        ("claude-opus-5-5", tier(usage(1, 0, 0, 0, 1), "priority"), "mode `priority`"),
        ("claude-sonnet-4-5", Usage { geo: Some("us".to_owned()), ..usage(1, 0, 0, 0, 1) }, "computing in `us`"),
        ("gpt-5", usage(1, 0, 1, 0, 1), "cache writes"),
        ("gpt-5.6", usage(1, 0, 0, 1, 1), "cache writes for one hour"),
        ("o1-pro", usage(1, 1, 0, 0, 1), "cached input"),
        ("gpt-4", Usage { web_searches: 1, ..usage(1, 0, 0, 0, 1) }, "web searches"),
    ] {
        match refused(model, usage) {
            PriceError::Lacks { what, .. } => assert_eq!(what, lacking),
            other => panic!("{model}: {other}"),
        }
    }
    let long = refused("gpt-5.5", tier(usage(272_001, 0, 0, 0, 1), "priority"));
    assert!(matches!(long, PriceError::Lacks { what, .. } if what.contains("272001 tokens")));
    let early = price(&catalog, "gpt-5.6", &tier(usage(1, 0, 0, 0, 1), "flex"), "2026-01-01".parse().unwrap());
    assert!(matches!(early, Err(PriceError::Lacks { .. })), "a mode has no price before its first day");
}

#[test]
fn a_historic_long_prompt_is_priced_at_its_tier() {
    assert_eq!(cost("claude-sonnet-4-5", &usage(260_000, 0, 0, 0, 2_000)), "1.605");
    assert_eq!(cost("claude-sonnet-4-5", &usage(200_000, 0, 0, 0, 2_000)), "0.63");
}

#[test]
fn counts_beyond_any_amount_are_an_error_and_not_a_wrap() {
    let catalog = Catalog::bundled().unwrap();
    let all = Usage { web_searches: u64::MAX, ..usage(u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX) };
    assert!(matches!(price(&catalog, "claude-opus-5-5", &all, day()), Err(PriceError::Overflow { .. })));
}
