//! What a request did cost: the provider's own counts times the catalog. Exact, and without a fallback: a count that the catalog has
//! no price for is an error, so that the caller books the hold and says so instead of booking too little.

use agentrun_kernel::{Usage, Usd};

use crate::catalog::{Catalog, Model, Rates};
use crate::date::Date;

/// The price of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    /// The model that answered.
    pub model: String,
    /// What it cost.
    pub amount: Usd,
    /// The catalog's id and date.
    pub catalog: String,
}

/// What the catalog cannot price. The request was paid all the same: book its hold as unknown, and name this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// No such model.
    #[error("the catalog {catalog} has no model `{model}`; add it with a catalog file")]
    UnknownModel {
        /// The id as the provider spelt it.
        model: String,
        /// The catalog.
        catalog: String,
    },
    /// The model is listed, what it used is not.
    #[error("the catalog {catalog} has no price for {what} of `{model}` on {at}; add it with a catalog file")]
    Lacks {
        /// The model.
        model: String,
        /// What has no price.
        what: String,
        /// The day.
        at: Date,
        /// The catalog.
        catalog: String,
    },
    /// More money than there is.
    #[error("the counts of a request of `{model}` come to more than any amount")]
    Overflow {
        /// The model.
        model: String,
    },
}

/// The words of providers for the mode that has the standard price.
pub(crate) fn is_standard(mode: &str) -> bool {
    matches!(mode, "standard" | "default")
}

/// The words that leave the mode to the provider: of a request only, never of an answer.
pub(crate) fn is_choice(mode: &str) -> bool {
    matches!(mode, "auto" | "standard_only")
}

/// The words for computing anywhere.
pub(crate) fn is_anywhere(geo: &str) -> bool {
    matches!(geo, "global" | "not_available")
}

/// An amount times a factor in thousandths, rounded up.
pub(crate) fn times_permille(pico: i128, permille: u64) -> Option<i128> {
    pico.checked_mul(i128::from(permille))?.checked_add(999).map(|scaled| scaled / 1000)
}

/// Prices what the provider says was used. `model` is the model the answer names; `at` is the day of the request, which is the day
/// its hold was quoted for. Parts beside the totals ([`Usage::iterations`]) are priced under their own model where they name one, and
/// in the mode of the whole where they name none.
///
/// # Errors
/// [`PriceError`]: what the catalog lacks. Never a price at another model's, tier's or mode's rate.
pub fn price(catalog: &Catalog, model: &str, usage: &Usage, at: Date) -> Result<Priced, PriceError> {
    let mut pico = part(catalog, model, usage, at)?;
    let overflow = || PriceError::Overflow { model: model.to_owned() };
    for iteration in &usage.iterations {
        let name = iteration.model.as_deref().unwrap_or(model);
        if !iteration.usage.iterations.is_empty() {
            return Err(lacks(catalog, name, at, "parts inside a part"));
        }
        let mut own = iteration.usage.clone();
        own.tier = own.tier.or_else(|| usage.tier.clone());
        own.speed = own.speed.or_else(|| usage.speed.clone());
        own.geo = own.geo.or_else(|| usage.geo.clone());
        pico = pico.checked_add(part(catalog, name, &own, at)?).ok_or_else(overflow)?;
    }
    let amount = i64::try_from(pico).map(Usd::from_pico).map_err(|_| overflow())?;
    Ok(Priced { model: model.to_owned(), amount, catalog: catalog.stamp() })
}

fn lacks(catalog: &Catalog, model: &str, at: Date, what: impl Into<String>) -> PriceError {
    PriceError::Lacks { model: model.to_owned(), what: what.into(), at, catalog: catalog.stamp() }
}

fn part(catalog: &Catalog, id: &str, usage: &Usage, at: Date) -> Result<i128, PriceError> {
    let model =
        catalog.model(id).ok_or_else(|| PriceError::UnknownModel { model: id.to_owned(), catalog: catalog.stamp() })?;
    let lacks = |what: String| lacks(catalog, id, at, what);
    let listed = served(model, usage, at).map_err(lacks)?;
    let rates = listed
        .of_prompt(usage.prompt())
        .ok_or_else(|| lacks(format!("a prompt of {} tokens in this mode", usage.prompt())))?;
    let overflow = || PriceError::Overflow { model: id.to_owned() };

    let tokens = sum(rates, usage).map_err(|what| lacks(what.to_owned()))?.ok_or_else(overflow)?;
    let tokens = match usage.geo.as_deref().filter(|geo| !is_anywhere(geo)) {
        None => tokens,
        Some(geo) => {
            let permille = model.permille(geo).ok_or_else(|| lacks(format!("computing in `{geo}`")))?;
            times_permille(tokens, permille).ok_or_else(overflow)?
        }
    };
    let searches = times(usage.web_searches, rates.web_search).ok_or_else(|| lacks("web searches".to_owned()))?;
    tokens.checked_add(searches.ok_or_else(overflow)?).ok_or_else(overflow)
}

/// The prices of the mode that was served; the error says which has none.
fn served<'c>(model: &'c Model, usage: &Usage, at: Date) -> Result<&'c crate::catalog::RatesFrom, String> {
    let named = |mode: &Option<String>| mode.clone().filter(|mode| !is_standard(mode));
    let mode = match (named(&usage.tier), named(&usage.speed)) {
        (Some(tier), Some(speed)) => return Err(format!("tier `{tier}` at speed `{speed}`")),
        (tier, speed) => tier.or(speed),
    };
    model.rates(mode.as_deref(), at).ok_or_else(|| match mode {
        Some(mode) => format!("mode `{mode}`"),
        None => "any token".to_owned(),
    })
}

/// `Err`: the kind of token without a price. `Ok(None)`: out of range.
fn sum(rates: &Rates, usage: &Usage) -> Result<Option<i128>, &'static str> {
    let mut total = Some(0_i128);
    for (count, rate, what) in [
        (usage.input, Some(rates.input), "input"),
        (usage.cache_read, rates.cache_read, "cached input"),
        (usage.cache_write_5m, rates.cache_write_5m, "cache writes"),
        (usage.cache_write_1h, rates.cache_write_1h, "cache writes for one hour"),
        (usage.output, Some(rates.output), "output"),
    ] {
        let cost = times(count, rate).ok_or(what)?;
        total = total.zip(cost).and_then(|(total, cost)| total.checked_add(cost));
    }
    Ok(total)
}

/// `None`: units of a kind that has no price. `Some(None)`: out of range.
fn times(count: u64, rate: Option<Usd>) -> Option<Option<i128>> {
    match rate {
        None if count > 0 => None,
        None => Some(Some(0)),
        Some(rate) => Some(i128::from(rate.pico()).checked_mul(i128::from(count))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_rounds_up_and_never_wraps() {
        assert_eq!(
            (times_permille(1, 1_100), times_permille(10, 1_100), times_permille(0, 1_100)),
            (Some(2), Some(11), Some(0))
        );
        assert_eq!(times_permille(i128::MAX, 1_100), None);
    }
}
