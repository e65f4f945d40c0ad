//! Two independent libraries are asked what we are asked: LiteLLM's calculator (answers in testing/oracles/answers.jsonl, made by the
//! script beside it, with those of the genai-prices of the vendored catalog) and the genai-prices crate, here and now. Where one differs,
//! testing/oracles/disagreements.tsv says who is right and why; a disagreement that is not listed there fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)] // a failed test is a report

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use agentrun_cap::{Catalog, Date, Model, PriceError, Provider, price};
use agentrun_kernel::{Usage, Usd};
use genai_prices::{PriceRequest, Usage as Counts, UsageKey};
use serde::Deserialize;

mod dice;
use dice::Dice;

const ANSWERS: &str = include_str!("../../../testing/oracles/answers.jsonl");
const VECTORS: &str = include_str!("../../../testing/oracles/vectors.json");
const DISAGREEMENTS: &str = include_str!("../../../testing/oracles/disagreements.tsv");
const CATALOG: &[u8] = include_bytes!("../../../vendor/prices/catalog.json");

/// What the two libraries answered to one usage; `None`: that they have no price.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    name: Option<String>,
    model: String,
    usage: Usage,
    genai: Option<Usd>,
    litellm: Option<Usd>,
    #[serde(default)]
    not_asked: Vec<String>,
}

/// A published usage with its price, by hand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    model: String,
    usage: Usage,
    /// What the provider split by lifetime (five minutes, one hour), where that is less than what was written: the libraries are told
    /// so, and ours is told what the tap makes of it.
    split: Option<(u64, u64)>,
    /// `None`: it must be refused.
    usd: Option<Usd>,
    /// Which answer is right and why, where they differ.
    why: Option<String>,
}

fn answers() -> Vec<Answer> {
    ANSWERS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn day() -> Date {
    "2026-11-30".parse().unwrap()
}

/// The libraries compute in floats: one pico for each part of the sum.
fn close(ours: Usd, theirs: Usd) -> bool {
    (ours.pico() - theirs.pico()).abs() <= 5
}

#[test]
fn b76_the_published_vectors_in_three_columns_and_who_is_right_where_they_differ() {
    let catalog = Catalog::bundled().unwrap();
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).unwrap();
    let answers: BTreeMap<String, Answer> =
        answers().into_iter().filter_map(|answer| Some((answer.name.clone()?, answer))).collect();
    assert_eq!(answers.len(), vectors.len(), "run testing/oracles/answers.py again");
    println!("{:<24} {:>10} {:>13} {:>10}  right, and why", "vector", "ours", "genai-prices", "LiteLLM");
    for vector in vectors {
        let answer = &answers[&vector.name];
        assert_eq!(
            (&answer.model, &answer.usage),
            (&vector.model, &vector.usage),
            "run testing/oracles/answers.py again"
        );
        let ours = price(&catalog, &vector.model, &vector.usage, day()).ok().map(|priced| priced.amount);
        let shown =
            |amount: Option<Usd>| amount.map_or_else(|| "refused".to_owned(), |amount| rounded(amount).to_string());
        println!(
            "{:<24} {:>10} {:>13} {:>10}  {}",
            vector.name,
            shown(ours),
            shown(answer.genai),
            shown(answer.litellm),
            vector.why.as_deref().unwrap_or("all")
        );
        assert_eq!(ours, vector.usd, "{}", vector.name);
        let same = |theirs: Option<Usd>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => close(ours, theirs),
            (ours, theirs) => ours == theirs,
        };
        let differs = !same(answer.genai) || !same(answer.litellm);
        assert_eq!(differs, vector.why.is_some(), "{}: say who is right and why, or that all are", vector.name);
        assert!(
            vector
                .split
                .is_none_or(|split| split.0 + split.1 < vector.usage.cache_write_5m + vector.usage.cache_write_1h)
        );
    }
}

/// Without the float's last digits, for people.
fn rounded(amount: Usd) -> Usd {
    Usd::from_pico((amount.pico() + 500) / 1_000 * 1_000)
}

/// Who may be wrong with whom: an oracle's answers beside ours, so that each disagreement has a cause that can be recomputed.
struct Court {
    catalog: Catalog,
    /// The same without prices of larger prompts.
    flat: Catalog,
    found: BTreeMap<[String; 4], (u64, String)>,
    agreed: BTreeMap<&'static str, u64>,
}

impl Court {
    fn new() -> Self {
        let mut file: serde_json::Value = serde_json::from_slice(CATALOG).unwrap();
        without_tiers(&mut file);
        Self {
            catalog: Catalog::bundled().unwrap(),
            flat: Catalog::from_json(file.to_string().as_bytes()).unwrap(),
            found: BTreeMap::new(),
            agreed: BTreeMap::new(),
        }
    }

    fn hear(&mut self, oracle: &'static str, model: &str, usage: &Usage, theirs: Option<Usd>) {
        let ours = price(&self.catalog, model, usage, day());
        let cause = match (&ours, theirs) {
            (Ok(ours), Some(theirs)) if close(ours.amount, theirs) => None,
            (Ok(_), Some(theirs)) => Some(self.cause(model, usage, theirs)),
            (Ok(_), None) => Some("no answer".to_owned()),
            (Err(_), None) => None,
            (Err(PriceError::Lacks { what, .. }), Some(_)) if what.starts_with("a prompt of") => {
                Some("too long for the mode".to_owned())
            }
            (Err(error), Some(_)) => Some(error.to_string()),
        };
        let Some(cause) = cause else {
            *self.agreed.entry(oracle).or_default() += 1;
            return;
        };
        let mode = usage.tier.as_deref().or(usage.speed.as_deref()).unwrap_or("-");
        let row = [oracle, model, mode, &cause].map(str::to_owned);
        let example = || {
            format!(
                "{} against ours {}",
                theirs.map_or_else(|| "none".to_owned(), |usd| usd.to_string()),
                ours.map_or_else(|e| e.to_string(), |priced| priced.amount.to_string())
            )
        };
        self.found
            .entry(row)
            .or_insert_with(|| (0, format!("{} for {}", example(), serde_json::to_string(usage).unwrap())))
            .0 += 1;
    }

    /// What the oracle must have left out to come to its answer: the fewest things that explain it to the pico.
    fn cause(&self, model: &str, usage: &Usage, theirs: Usd) -> String {
        const LEFT_OUT: [&str; 4] = ["mode", "larger prompt", "place", "searches"];
        if theirs == Usd::ZERO {
            return "free".to_owned();
        }
        let searches = usage.web_searches;
        let mut subsets: Vec<u32> = (1..16).collect();
        subsets.sort_by_key(|subset| subset.count_ones());
        for subset in subsets {
            let left_out = |bit: u32| subset & (1 << bit) != 0;
            let mut usage = usage.clone();
            if left_out(0) {
                (usage.tier, usage.speed) = (None, None);
            }
            if left_out(2) {
                usage.geo = None;
            }
            if left_out(3) {
                usage.web_searches = 0;
            }
            let catalog = if left_out(1) { &self.flat } else { &self.catalog };
            let Ok(without) = price(catalog, model, &usage, day()) else { continue };
            let words: Vec<&str> = (0..4).filter(|bit| left_out(*bit)).map(|bit| LEFT_OUT[bit as usize]).collect();
            if close(without.amount, theirs) {
                return format!("no price of its own for the {}", words.join(" and the "));
            }
            // One of its prices of a search: whole tenths of a cent.
            let rest = (theirs.pico() - without.amount.pico() + 5) / 1_000_000_000;
            let searched = close(Usd::from_pico(without.amount.pico() + rest * 1_000_000_000), theirs) && rest > 0;
            if searched && left_out(3) && searches > 0 && rest < 100 {
                return format!("{} for {searches} searches", Usd::from_pico(rest * 1_000_000_000));
            }
        }
        "another price".to_owned()
    }

    /// Each disagreement of the oracles heard is in the table with a verdict, and the table has no other of theirs.
    fn judge(&self, oracles: &[&str]) {
        let mut lines = DISAGREEMENTS.lines();
        assert_eq!(lines.next(), Some("oracle\tmodel\tmode\tcause\tright\twhy"));
        let mut listed = BTreeSet::new();
        for line in lines {
            let cells: Vec<&str> = line.split('\t').collect();
            let [oracle, model, mode, cause, right, why] = cells[..] else { panic!("six cells: {line}") };
            assert!(["ours", "theirs", "both"].contains(&right) && why.len() > 20, "{line}");
            if oracles.contains(&oracle) {
                assert!(listed.insert([oracle, model, mode, cause].map(str::to_owned)), "twice: {line}");
            }
        }
        for (row, (times, example)) in &self.found {
            println!("{}\t{times} times, such as {example}", row.join("\t"));
        }
        println!("agreed: {:?}; {} kinds of disagreement", self.agreed, self.found.len());
        let found: BTreeSet<_> = self.found.keys().cloned().collect();
        let new: Vec<String> = found.difference(&listed).map(|row| row.join("\t")).collect();
        assert!(new.is_empty(), "say who is right and why in testing/oracles/disagreements.tsv:\n{}", new.join("\n"));
        let gone: Vec<String> = listed.difference(&found).map(|row| row.join("\t")).collect();
        assert!(gone.is_empty(), "nobody disagrees so any more:\n{}", gone.join("\n"));
    }
}

fn without_tiers(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(members) => {
            members.remove("above");
            members.values_mut().for_each(without_tiers);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(without_tiers),
        _ => {}
    }
}

#[test]
fn b76_every_model_in_every_mode_costs_what_the_committed_answers_say_or_it_is_listed_who_is_right() {
    let mut court = Court::new();
    let mut models = BTreeSet::new();
    for answer in answers().into_iter().filter(|answer| answer.name.is_none()) {
        court.hear("genai-prices 0.2.3 (Python)", &answer.model, &answer.usage, answer.genai);
        if !answer.not_asked.iter().any(|who| who == "litellm") {
            court.hear("LiteLLM 1.108.7", &answer.model, &answer.usage, answer.litellm);
        }
        models.insert(answer.model);
    }
    let listed: BTreeSet<String> = court.catalog.models().map(|model| model.id.clone()).collect();
    assert_eq!(models, listed, "run testing/oracles/answers.py again");
    court.judge(&["genai-prices 0.2.3 (Python)", "LiteLLM 1.108.7"]);
    assert!(court.agreed.values().all(|agreed| *agreed > 800), "{:?}", court.agreed);
}

#[test]
fn b76_every_model_in_every_mode_costs_what_the_genai_prices_crate_says_or_it_is_listed_who_is_right() {
    let mut court = Court::new();
    let mut dice = Dice::new(0x9e_4a_15);
    let models: Vec<Model> = court.catalog.models().cloned().collect();
    for model in &models {
        let modes = std::iter::once(None).chain(model.modes.iter().map(|mode| Some(mode.name.as_str())));
        for mode in modes {
            for _ in 0..40 {
                let usage = random_usage(&mut dice, model, mode);
                court.hear("genai-prices 0.2.1 (crate)", &model.id, &usage, crate_says(model, &usage));
            }
        }
    }
    court.judge(&["genai-prices 0.2.1 (crate)"]);
    assert!(court.agreed.values().all(|agreed| *agreed > 5_000), "{:?}", court.agreed);
}

/// A usage of the kinds of token that the mode has a price for.
fn random_usage(dice: &mut Dice, model: &Model, mode: Option<&str>) -> Usage {
    let rates = model.rates(mode, day()).unwrap().rates;
    // As often at the edges of the tiers as anywhere else.
    const EDGES: [u64; 6] = [99_999, 100_001, 200_000, 272_000, 272_001, 600_000];
    let mut count = |priced: bool| match dice.below(3) {
        0 if priced => dice.of_bits(20),
        1 if priced => EDGES[dice.below(6) as usize],
        _ => 0,
    };
    let (input, output) = (count(true), count(true));
    let cache_read = count(rates.cache_read.is_some());
    let cache_write_5m = count(rates.cache_write_5m.is_some());
    let cache_write_1h = count(rates.cache_write_5m.is_some() && rates.cache_write_1h.is_some());
    let web_searches = if rates.web_search.is_some() { dice.below(4) } else { 0 };
    let (tier, speed) = match model.provider {
        Provider::Anthropic => (None, mode.map(str::to_owned)),
        Provider::Openai => (mode.map(str::to_owned), None),
    };
    Usage { input, output, cache_read, cache_write_5m, cache_write_1h, web_searches, tier, speed, ..Usage::default() }
}

fn crate_says(model: &Model, usage: &Usage) -> Option<Usd> {
    let figures = [
        (UsageKey::INPUT_TOKENS, usage.prompt()),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write_5m + usage.cache_write_1h),
        (UsageKey::CACHE_WRITE_1H_TOKENS, usage.cache_write_1h),
        (UsageKey::OUTPUT_TOKENS, usage.output),
        (UsageKey::WEB_SEARCHES, usage.web_searches),
    ];
    let counts: Counts =
        figures.into_iter().filter(|(_, count)| *count > 0).map(|(key, count)| (key, count as f64)).collect();
    let provider = match model.provider {
        Provider::Anthropic => "anthropic",
        Provider::Openai => "openai",
    };
    // Noon of the day.
    let mut request = PriceRequest::new(&model.id, &counts)
        .with_provider_id(provider)
        .with_timestamp(UNIX_EPOCH + Duration::from_secs(1_796_040_000));
    for (kind, word) in [("service_tier", &usage.tier), ("speed", &usage.speed)] {
        if let Some(word) = word {
            request = request.with_price_context(kind, word);
        }
    }
    let said = genai_prices::calculate(&request).ok()?;
    Some(Usd::from_pico((said.total_price * 1e12).round() as i64))
}
