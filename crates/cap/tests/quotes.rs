//! A quote is a bound: whatever the provider then counts within what the request allows costs no more. What has no bound is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use agentrun_cap::{
    CacheWrite, Catalog, ContextEdits, Date, Denied, IMAGE_TOKENS, OVERHEAD_TOKENS, Provider, QuoteError, RequestFacts,
    Scope, ServerTool, Word, price, quote,
};
use agentrun_kernel::{Iteration, Usage};

mod dice;
use dice::Dice;

fn day() -> Date {
    "2026-11-30".parse().unwrap()
}

fn facts(model: &str) -> RequestFacts {
    RequestFacts { model: model.to_owned(), body_bytes: 10_000, max_output: Some(1_000), ..RequestFacts::default() }
}

fn amount(facts: &RequestFacts) -> String {
    quote(&Catalog::bundled().unwrap(), facts, day()).unwrap().amount.to_string()
}

fn refused(facts: &RequestFacts) -> QuoteError {
    quote(&Catalog::bundled().unwrap(), facts, day()).unwrap_err()
}

fn text(word: &str) -> Option<String> {
    Some(word.to_owned())
}

fn search(kind: &str, max_uses: Option<u64>) -> Vec<ServerTool> {
    vec![ServerTool { kind: kind.to_owned(), max_uses }]
}

#[test]
fn b76_a_quote_is_bytes_plus_overhead_at_input_and_the_limit_at_output() {
    // (10,000 + 4,096) × $3/M + 1,000 × $15/M
    assert_eq!(amount(&facts("claude-sonnet-4-5")), "0.057288");
    let quote = quote(&Catalog::bundled().unwrap(), &facts("claude-sonnet-4-5"), day()).unwrap();
    assert_eq!((quote.input, quote.output, quote.at), (10_000 + OVERHEAD_TOKENS, 1_000, day()));
    assert_eq!(quote.catalog, Catalog::bundled().unwrap().stamp());
}

#[test]
fn b76_cache_writes_are_quoted_at_the_lifetime_asked_for() {
    let with = |cache_write| amount(&RequestFacts { cache_write, ..facts("claude-sonnet-4-5") });
    assert_eq!(with(CacheWrite::FiveMinutes), "0.06786");
    assert_eq!(with(CacheWrite::OneHour), "0.099576");
    // OpenAI writes to its cache unasked: the model that bills for it is quoted with it.
    let standard = RequestFacts { service_tier: text("default"), ..facts("gpt-5.6") };
    assert_eq!(amount(&standard), "0.09048");
}

#[test]
fn b76_the_input_is_never_more_than_the_window_nor_less_where_the_body_does_not_say() {
    let whole_window = "0.615"; // 200,000 × $3/M + 1,000 × $15/M
    let base = facts("claude-sonnet-4-5");
    assert_eq!(amount(&RequestFacts { body_bytes: u64::MAX, ..base.clone() }), whole_window);
    assert_eq!(amount(&RequestFacts { held_elsewhere: true, ..base.clone() }), whole_window);
    assert_eq!(amount(&RequestFacts { context_edits: ContextEdits::Other, ..base.clone() }), whole_window);
    assert_eq!(amount(&RequestFacts { context_edits: ContextEdits::Clears, ..base.clone() }), amount(&base));
    // A compaction is one more call: the window and the output again.
    assert_eq!(amount(&RequestFacts { context_edits: ContextEdits::Compacts, ..base.clone() }), "2.445");
}

#[test]
fn b76_an_image_of_few_bytes_is_quoted_flat() {
    let quoted =
        quote(&Catalog::bundled().unwrap(), &RequestFacts { images: 2, ..facts("claude-sonnet-4-5") }, day()).unwrap();
    assert_eq!(quoted.input, 10_000 + OVERHEAD_TOKENS + 2 * IMAGE_TOKENS);
}

#[test]
fn b76_the_dearest_reachable_tier_counts_and_its_edge_is_strict() {
    let at = |bytes| amount(&RequestFacts { body_bytes: bytes, ..facts("claude-haiku-5-5") });
    assert_eq!(at(100_000 - OVERHEAD_TOKENS), "0.0105");
    assert_eq!(at(100_001 - OVERHEAD_TOKENS), "0.0525005");
}

#[test]
fn b76_no_limit_on_output_means_the_models_own_and_without_one_no_quote() {
    let none = |model: &str| RequestFacts { max_output: None, ..facts(model) };
    let quoted = quote(&Catalog::bundled().unwrap(), &none("claude-sonnet-4-5"), day()).unwrap();
    assert_eq!(quoted.output, 64_000);
    assert!(matches!(refused(&none("claude-fable-5-2")), QuoteError::Unbounded { .. }));
    assert!(quote(&Catalog::bundled().unwrap(), &facts("claude-fable-5-2"), day()).is_ok());
}

#[test]
fn b76_every_answer_asked_for_is_quoted() {
    let one = quote(&Catalog::bundled().unwrap(), &facts("gpt-5"), day()).unwrap();
    let four = quote(&Catalog::bundled().unwrap(), &RequestFacts { choices: 4, ..facts("gpt-5") }, day()).unwrap();
    assert_eq!((one.output, four.output), (1_000, 4_000));
}

#[test]
fn b76_a_tier_that_the_project_may_choose_is_held_and_a_pinned_one_is_not() {
    let with = |service_tier: Option<&str>| {
        amount(&RequestFacts { service_tier: service_tier.map(str::to_owned), ..facts("gpt-5") })
    };
    assert_eq!(with(Some("default")), "0.02762");
    // A cheaper mode may be served as the standard one.
    assert_eq!(with(Some("flex")), "0.02762");
    assert_eq!(with(Some("priority")), "0.05524");
    assert_eq!((with(None), with(Some("auto"))), ("0.05524".to_owned(), "0.05524".to_owned()));
    let anthropic = |tier: &str| amount(&RequestFacts { service_tier: text(tier), ..facts("claude-sonnet-4-5") });
    assert_eq!((anthropic("auto"), anthropic("standard_only")), ("0.057288".to_owned(), "0.057288".to_owned()));
}

#[test]
fn b76_a_prompt_too_long_for_its_mode_is_held_at_the_standard_tier_too() {
    let priority = |bytes| RequestFacts { service_tier: text("priority"), body_bytes: bytes, ..facts("gpt-5.5") };
    let window = 1_050_000;
    // Below the edge only the mode counts; above it the provider serves the standard tier, whose long price may be the dearer.
    assert_eq!(amount(&priority(272_000 - OVERHEAD_TOKENS)), "3.475");
    let long = quote(&Catalog::bundled().unwrap(), &priority(u64::MAX), day()).unwrap();
    let usage = Usage { input: window, output: 1_000, ..Usage::default() };
    assert!(price(&Catalog::bundled().unwrap(), "gpt-5.5", &usage, day()).unwrap().amount <= long.amount);
}

#[test]
fn b76_fast_mode_and_a_region_are_quoted_where_they_have_a_price() {
    let base = facts("claude-opus-5-5");
    let fast = RequestFacts { speed: text("fast"), ..base.clone() };
    let us = RequestFacts { geo: text("us"), ..base.clone() };
    assert_eq!((amount(&base), amount(&fast), amount(&us)), ("0.076384".into(), "0.152768".into(), "0.0840224".into()));
    for (facts, what) in [
        (RequestFacts { speed: text("fast"), ..facts("claude-sonnet-4-5") }, "mode `fast`"),
        (RequestFacts { geo: text("us"), ..facts("claude-sonnet-4-5") }, "computing in `us`"),
        (RequestFacts { geo: text("mars"), ..base.clone() }, "computing in `mars`"),
        (RequestFacts { service_tier: text("ultrafast"), ..facts("gpt-5.6-sol") }, "mode `ultrafast`"),
        (
            RequestFacts { service_tier: text("flex"), speed: text("fast"), ..base.clone() },
            "tier `flex` at speed `fast`",
        ),
    ] {
        match refused(&facts) {
            QuoteError::Unpriced { what: found, .. } => assert!(found.contains(what), "{found}"),
            other => panic!("{what}: {other}"),
        }
    }
}

#[test]
fn report_15_an_unknown_model_is_unpriced_and_the_sentence_names_it() {
    let denied = Denied::from(refused(&facts("claude-sonnet-99")));
    assert_eq!((denied.word, denied.scope), (Word::Unpriced, Scope::Request));
    assert!(denied.to_string().contains("`claude-sonnet-99`"), "{denied}");
}

#[test]
fn b76_what_lets_spend_escape_is_refused_by_name_before_anything_else() {
    for member in ["background", "fallbacks", "prediction", "mcp_servers"] {
        let escaping = RequestFacts { escapes: vec![member.to_owned()], ..facts("claude-sonnet-99") };
        let denied = Denied::from(refused(&escaping));
        assert_eq!(denied.word, Word::Unbounded);
        assert!(denied.to_string().contains(&format!("`{member}`")), "{denied}");
    }
}

#[test]
fn b76_a_server_tool_needs_a_limit_and_a_price() {
    let with = |model: &str, kind: &str, uses| RequestFacts { server_tools: search(kind, uses), ..facts(model) };
    // 4 × (200,000 × $6/M + 1,000 × $22.5/M) + 3 × $0.01: the passes add up past the historic edge.
    assert_eq!(amount(&with("claude-sonnet-4-5", "web_search_20250305", Some(3))), "4.92");
    assert_eq!(amount(&with("claude-sonnet-4-5", "web_fetch_20250910", Some(3))), "4.89");
    for (facts, named) in [
        (with("claude-sonnet-4-5", "web_search_20250305", None), "max_uses"),
        (with("claude-sonnet-4-5", "code_execution_20250825", Some(1)), "code_execution_20250825"),
        (with("gpt-5", "file_search", Some(1)), "file_search"),
        (with("claude-sonnet-4-5", "web_search_20990101", Some(1)), "web_search_20990101"),
    ] {
        assert!(matches!(refused(&facts), QuoteError::Unbounded { what } if what.contains(named)));
    }
    assert!(
        matches!(refused(&with("gpt-4", "web_search", Some(1))), QuoteError::Unpriced { what, .. } if what.contains("web searches"))
    );
}

#[test]
fn limits_beyond_any_amount_are_refused_and_do_not_wrap() {
    for facts in [
        RequestFacts { max_output: Some(u64::MAX), ..facts("claude-opus-5-5") },
        RequestFacts { max_output: Some(u64::MAX), choices: u64::MAX, ..facts("claude-opus-5-5") },
        RequestFacts { server_tools: search("web_search", Some(u64::MAX)), ..facts("claude-opus-5-5") },
    ] {
        assert!(matches!(refused(&facts), QuoteError::Unbounded { .. }));
    }
}

/// For every model: facts drawn at random, then the worst and random usages that such a request allows. The price never passes the quote.
#[test]
fn b77_no_usage_that_a_request_allows_costs_more_than_its_quote() {
    let catalog = Catalog::bundled().unwrap();
    let mut dice = Dice::new(0x5eed);
    let mut cases = 0;
    for model in catalog.models() {
        for _ in 0..400 {
            let facts = random_facts(&mut dice, model.id.clone(), model.provider);
            let Ok(quoted) = quote(&catalog, &facts, day()) else { continue };
            for _ in 0..4 {
                let usage = allowed_usage(&mut dice, &facts, model.provider, &quoted, model.context_window);
                let Ok(priced) = price(&catalog, &model.id, &usage, day()) else { continue };
                assert!(priced.amount <= quoted.amount, "{facts:?}\n{usage:?}\n{} > {}", priced.amount, quoted.amount);
                cases += 1;
            }
        }
    }
    println!("{cases} usages priced against their quotes");
    assert!(cases > 50_000, "{cases}");
}

fn random_facts(dice: &mut Dice, model: String, provider: Provider) -> RequestFacts {
    let anthropic = provider == Provider::Anthropic;
    RequestFacts {
        model,
        body_bytes: dice.of_bits(22),
        max_output: (dice.below(4) > 0).then(|| dice.of_bits(18)),
        choices: if anthropic { 0 } else { dice.below(3) },
        cache_write: match dice.below(3) {
            1 if anthropic => CacheWrite::FiveMinutes,
            2 if anthropic => CacheWrite::OneHour,
            _ => CacheWrite::None,
        },
        images: dice.below(3),
        held_elsewhere: dice.below(8) == 0,
        context_edits: match dice.below(6) {
            0 => ContextEdits::Compacts,
            1 => ContextEdits::Other,
            2 => ContextEdits::Clears,
            _ => ContextEdits::None,
        },
        server_tools: if dice.below(4) == 0 { search("web_search_20250305", Some(dice.below(5))) } else { Vec::new() },
        escapes: Vec::new(),
        service_tier: [None, text("default"), text("auto"), text("priority"), text("flex")][dice.below(5) as usize]
            .clone()
            .filter(|_| !anthropic),
        speed: text("fast").filter(|_| anthropic && dice.below(4) == 0),
        geo: text("us").filter(|_| anthropic && dice.below(4) == 0),
    }
}

fn allowed_usage(
    dice: &mut Dice,
    facts: &RequestFacts,
    provider: Provider,
    quoted: &agentrun_cap::Quote,
    window: u64,
) -> Usage {
    let searches: u64 = facts.server_tools.iter().filter_map(|tool| tool.max_uses).sum();
    let most_input = if searches > 0 { window * (searches + 1) } else { quoted.input };
    let mut left = if dice.below(2) == 0 { most_input } else { dice.below(most_input + 1) };
    let mut take = |allowed: bool, dice: &mut Dice| {
        let part = if allowed && dice.below(2) == 0 { dice.below(left + 1) } else { 0 };
        left -= part;
        part
    };
    let writes = facts.cache_write != CacheWrite::None || provider == Provider::Openai;
    let cache_write_1h = take(facts.cache_write == CacheWrite::OneHour, dice);
    let cache_write_5m = take(writes, dice);
    let cache_read = take(true, dice);
    let served = match (provider, facts.service_tier.as_deref()) {
        (Provider::Openai, None | Some("auto")) => {
            [None, text("priority"), text("flex"), text("fast")][dice.below(4) as usize].clone()
        }
        // The mode asked for, or the standard one in its place.
        (_, tier) => tier.filter(|_| dice.below(2) == 0).map(str::to_owned),
    };
    let compaction =
        Iteration { model: None, usage: Usage { input: window, output: quoted.output, ..Usage::default() } };
    Usage {
        input: left,
        cache_read,
        cache_write_5m,
        cache_write_1h,
        output: quoted.output * (searches + 1),
        tier: served,
        speed: facts.speed.clone(),
        geo: facts.geo.clone(),
        web_searches: searches,
        iterations: if facts.context_edits == ContextEdits::Compacts { vec![compaction] } else { Vec::new() },
    }
}
