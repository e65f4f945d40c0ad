//! Random usages of every model, against what two independent libraries answered (oracles/vectors.py made the file).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::collections::BTreeSet;

use agentrun_cap::{Catalog, Date, PriceError, Provider, price};
use agentrun_kernel::{Usage, Usd};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    model: String,
    mode: Option<String>,
    usage: Usage,
    genai: Usd,
    litellm: Option<Usd>,
}

fn ours(catalog: &Catalog, vector: &Vector, mode: Option<&str>) -> Result<Usd, PriceError> {
    let mut usage = vector.usage.clone();
    match catalog.model(&vector.model).unwrap().provider {
        Provider::Anthropic => usage.speed = mode.map(str::to_owned),
        Provider::Openai => usage.tier = mode.map(str::to_owned),
    }
    price(catalog, &vector.model, &usage, day()).map(|priced| priced.amount)
}

fn day() -> Date {
    "2026-11-30".parse().unwrap()
}

/// A prompt too long for the mode: the libraries price it at the mode's flat rate or at the standard one, and nobody lists either.
fn too_long(catalog: &Catalog, vector: &Vector) -> bool {
    let listed = catalog.model(&vector.model).unwrap().rates(vector.mode.as_deref(), day()).unwrap();
    !listed.covers(vector.usage.prompt())
}

fn vectors() -> Vec<Vector> {
    include_str!("oracles/vectors.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn b76_every_model_in_every_mode_costs_what_genai_prices_says_to_the_pico() {
    let catalog = Catalog::bundled().unwrap();
    let (mut models, mut refused) = (BTreeSet::new(), 0);
    for vector in vectors() {
        match ours(&catalog, &vector, vector.mode.as_deref()) {
            Ok(amount) => assert_eq!(amount, vector.genai, "{} {:?} {:?}", vector.model, vector.mode, vector.usage),
            Err(PriceError::Lacks { .. }) if too_long(&catalog, &vector) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        models.insert(vector.model);
    }
    println!("{} vectors, {refused} of them too long for their mode and refused", vectors().len());
    let listed: BTreeSet<String> = catalog.models().map(|model| model.id.clone()).collect();
    assert_eq!(models, listed, "run oracles/vectors.py again");
}

#[test]
fn b76_where_litellm_differs_it_is_known_why() {
    let catalog = Catalog::bundled().unwrap();
    // It computes in floats: one pico for each part of the sum.
    let close = |ours: Usd, theirs: Usd| (ours.pico() - theirs.pico()).abs() <= 5;
    let (mut same, mut fell_back, mut historic, mut refused) = (0, 0, 0, 0);
    for vector in vectors() {
        let Some(theirs) = vector.litellm else { continue };
        let Ok(amount) = ours(&catalog, &vector, vector.mode.as_deref()) else {
            assert!(too_long(&catalog, &vector));
            refused += 1;
            continue;
        };
        if close(amount, theirs) {
            same += 1;
        } else if vector.mode.is_some() && close(ours(&catalog, &vector, None).unwrap(), theirs) {
            // It has no price for the mode and answers the standard one, without a word. Ours is right: OpenAI lists the mode.
            fell_back += 1;
        } else {
            // It dropped the tier above 200,000 tokens, which prices bookings from before the long window was retired. Ours is right
            // for those; a request of today cannot be so long.
            assert!(
                vector.model.starts_with("claude-sonnet-4-5") && vector.usage.prompt() > 200_000,
                "{vector:?}: {amount}"
            );
            historic += 1;
        }
    }
    println!(
        "{same} the same, {fell_back} without the mode's price, {historic} historic, {refused} too long and refused here"
    );
    assert!(same > 500, "{same}");
}
