//! Before a request is sent: the most it can cost. A bound, not an estimate, so that holds keep a run under its cap whatever the model
//! does. A request whose spend has no bound, or no price, is refused here by name.
//!
//! ```text
//! input  = window                      if anything of the prompt lies outside the body
//!        = min(window, bytes + extras) otherwise: no tokenizer makes more tokens than bytes
//! output = the request's own limit, else the model's maximum, times the choices asked for
//! quote  = input × dearest kind of input + output × output
//!        + per allowed search: the window again, the output again, the search
//!        + for a compaction: the window and the output again
//! ```
//! each at the dearest price that any tier and mode within reach can ask.

use agentrun_kernel::Usd;

use crate::catalog::{Catalog, Model, Provider, Rates, RatesFrom};
use crate::date::Date;
use crate::denied::{Denied, Scope, Word};
use crate::price::{is_anywhere, is_standard, times_permille};

/// Tokens a provider adds to a prompt that are not in the body: the instructions around tools and roles. The largest set published is
/// below 2,000 tokens; twice that leaves room for one that grows.
pub const OVERHEAD_TOKENS: u64 = 4_096;

/// Most tokens one inline image can come to. The densest published rule cuts an image into at most 10,000 patches of about 1.6 tokens.
pub const IMAGE_TOKENS: u64 = 16_384;

/// The server tools that search, priced by the search. Exact: another version may have another price.
const SEARCHES: [&str; 4] = ["web_search", "web_search_2025_08_26", "web_search_20250305", "web_search_20260209"];

/// The server tools that cost nothing but tokens.
const FETCHES: [&str; 2] = ["web_fetch_20250910", "web_fetch_20260209"];

/// How long the request asks the provider to cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheWrite {
    /// No `cache_control`.
    #[default]
    None,
    /// Five minutes, the default lifetime.
    FiveMinutes,
    /// One hour somewhere in the request; five minutes may be there too.
    OneHour,
}

/// What the request lets the provider do to its own context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextEdits {
    /// No `context_management`.
    #[default]
    None,
    /// Only edits that are known to remove things (`clear_*`): they make the prompt smaller, so the bound by bytes stands.
    Clears,
    /// Anything else but a compaction: bounded by the context window.
    Other,
    /// A compaction: one more model call inside the request, billed beside its totals.
    Compacts,
}

/// A tool that the provider runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    /// Its `type` as the request spells it.
    pub kind: String,
    /// How often it may run in this request: the tool's `max_uses`, or the request's limit on all tool calls.
    pub max_uses: Option<u64>,
}

/// What a quote looks at, read by the proxy from the request that will be sent. The default is a request of no bytes for no model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model, as the request spells it.
    pub model: String,
    /// Bytes of the body as sent.
    pub body_bytes: u64,
    /// The request's own limit on output tokens.
    pub max_output: Option<u64>,
    /// Answers asked for (`n`); 0 counts as 1.
    pub choices: u64,
    /// The longest cache lifetime asked for.
    pub cache_write: CacheWrite,
    /// Inline images.
    pub images: u64,
    /// Whether anything the model will read is not text in the body: a stored conversation or prompt, a file, a URL, a document (text
    /// inside a PDF is compressed).
    pub held_elsewhere: bool,
    /// `context_management`.
    pub context_edits: ContextEdits,
    /// Tools the provider runs.
    pub server_tools: Vec<ServerTool>,
    /// Members by which money can be spent that this response will not show, as the request spells them (`background`, `fallbacks`).
    /// One is enough to refuse.
    pub escapes: Vec<String>,
    /// `service_tier`. Without one OpenAI applies the project's own setting, which nobody here knows: a proxy that pins `default`
    /// gets a tighter bound.
    pub service_tier: Option<String>,
    /// `speed`.
    pub speed: Option<String>,
    /// `inference_geo`.
    pub geo: Option<String>,
}

/// The most a request can cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The amount to hold.
    pub amount: Usd,
    /// The model it is for.
    pub model: String,
    /// Most input tokens of one pass.
    pub input: u64,
    /// Most output tokens of one pass.
    pub output: u64,
    /// The day whose prices it uses; the request is priced with the same.
    pub at: Date,
    /// The catalog's id and date.
    pub catalog: String,
}

/// The request is not sent: nothing says what it could cost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// The catalog has no price for something it may use.
    #[error("{what} has no price in the catalog {catalog}; add it with a catalog file")]
    Unpriced {
        /// What.
        what: String,
        /// The catalog.
        catalog: String,
    },
    /// Something in it has no limit.
    #[error("{what}")]
    Unbounded {
        /// What has no limit, and what would give it one.
        what: String,
    },
}

impl From<QuoteError> for Denied {
    fn from(error: QuoteError) -> Self {
        let word = match error {
            QuoteError::Unpriced { .. } => Word::Unpriced,
            QuoteError::Unbounded { .. } => Word::Unbounded,
        };
        Self::because(word, Scope::Request, error.to_string())
    }
}

fn unbounded(what: impl Into<String>) -> QuoteError {
    QuoteError::Unbounded { what: what.into() }
}

/// The most that a request with these facts can cost on the day `at`.
///
/// # Errors
/// [`QuoteError`] names what has no price or no limit. Nothing may be sent then.
pub fn quote(catalog: &Catalog, facts: &RequestFacts, at: Date) -> Result<Quote, QuoteError> {
    let unpriced = |what: String| QuoteError::Unpriced { what, catalog: catalog.stamp() };
    if let Some(member) = facts.escapes.first() {
        return Err(unbounded(format!(
            "with `{member}` a request can cost more than its body tells or its answer shows; leave it out"
        )));
    }
    let model = catalog.model(&facts.model).ok_or_else(|| unpriced(format!("model `{}`", facts.model)))?;
    let modes = reachable_modes(model, facts, at).map_err(unpriced)?;

    let input = input_bound(model, facts);
    let choices = facts.choices.max(1);
    let output =
        facts.max_output.or(model.max_output).and_then(|tokens| tokens.checked_mul(choices)).ok_or_else(|| {
            unbounded(format!(
                "the request has no limit on output tokens and `{}` has none in the catalog; set one",
                model.id
            ))
        })?;
    let searches = search_uses(facts)?;

    // Passes of a search loop add up in the totals that the provider reports, and a tier looks at that sum.
    let compaction = u128::from(facts.context_edits == ContextEdits::Compacts);
    let window = u128::from(model.context_window);
    let all_input =
        if searches > 0 { (u128::from(searches) + 1) * window } else { u128::from(input) } + compaction * window;
    let all_output = u128::from(output) * (u128::from(searches) + 1 + compaction);
    let reach = u64::try_from(all_input).unwrap_or(u64::MAX);

    let dearest = |kind: fn(&Rates, &RequestFacts, Provider) -> Result<Usd, &'static str>| {
        let mut most = Usd::ZERO;
        for rates in modes.iter().flat_map(|row| row.reachable(reach)) {
            most = most
                .max(kind(rates, facts, model.provider).map_err(|what| unpriced(format!("{what} of `{}`", model.id)))?);
        }
        Ok::<_, QuoteError>(most)
    };
    let (input_price, output_price) = (dearest(input_rate)?, dearest(output_rate)?);
    let search_price = if searches > 0 { dearest(search_rate)? } else { Usd::ZERO };

    let too_much = || unbounded("the limits of the request come to more than any amount; lower them");
    let times = |units: u128, price: Usd| {
        i128::try_from(units).ok().and_then(|units| units.checked_mul(i128::from(price.pico()))).ok_or_else(too_much)
    };
    let tokens = times(all_input, input_price)?.checked_add(times(all_output, output_price)?).ok_or_else(too_much)?;
    let tokens = match facts.geo.as_deref().filter(|geo| !is_anywhere(geo)) {
        None => tokens,
        Some(geo) => {
            let permille =
                model.permille(geo).ok_or_else(|| unpriced(format!("computing in `{geo}` for `{}`", model.id)))?;
            times_permille(tokens, permille).ok_or_else(too_much)?
        }
    };
    let searching = times(u128::from(searches), search_price)?;
    let pico = tokens.checked_add(searching).and_then(|pico| i64::try_from(pico).ok()).ok_or_else(too_much)?;
    Ok(Quote { amount: Usd::from_pico(pico), model: model.id.clone(), input, output, at, catalog: catalog.stamp() })
}

fn input_bound(model: &Model, facts: &RequestFacts) -> u64 {
    let beyond = facts.held_elsewhere || matches!(facts.context_edits, ContextEdits::Other | ContextEdits::Compacts);
    if beyond {
        return model.context_window;
    }
    let images = facts.images.saturating_mul(IMAGE_TOKENS);
    facts.body_bytes.saturating_add(OVERHEAD_TOKENS).saturating_add(images).min(model.context_window)
}

/// The price lists the provider may apply; the error names the mode that has none.
fn reachable_modes<'c>(model: &'c Model, facts: &RequestFacts, at: Date) -> Result<Vec<&'c RatesFrom>, String> {
    let listed = |mode: Option<&str>| {
        model.rates(mode, at).ok_or_else(|| match mode {
            Some(mode) => format!("mode `{mode}` of `{}` on {at}", model.id),
            None => format!("`{}` on {at}", model.id),
        })
    };
    let tier = facts.service_tier.as_deref().filter(|tier| !is_standard(tier));
    let speed = facts.speed.as_deref().filter(|speed| !is_standard(speed));
    match (tier, speed) {
        (None | Some("auto"), None) if model.provider == Provider::Openai && !pinned(facts) => {
            let others = model.modes.iter().filter_map(|mode| model.rates(Some(&mode.name), at));
            Ok(std::iter::once(listed(None)?).chain(others).collect())
        }
        // Anthropic's `auto` means a prepaid tier where there is one, and that has no price a token: a served one is flagged when priced.
        (None | Some("auto" | "standard_only"), None) => Ok(vec![listed(None)?]),
        // A mode that the provider does not offer for this model, has no room in, or not for so long a prompt, is served as the
        // standard one, which need not be the cheaper.
        (Some(mode), None) | (None | Some("auto" | "standard_only"), Some(mode)) => {
            Ok(vec![listed(Some(mode))?, listed(None)?])
        }
        (Some(tier), Some(speed)) => Err(format!("tier `{tier}` at speed `{speed}` of `{}`", model.id)),
    }
}

/// Whether the request names the standard tier, so that no setting elsewhere chooses another.
fn pinned(facts: &RequestFacts) -> bool {
    facts.service_tier.as_deref().is_some_and(is_standard)
}

/// How many searches and fetches the provider may run.
fn search_uses(facts: &RequestFacts) -> Result<u64, QuoteError> {
    let mut uses = 0_u64;
    for tool in &facts.server_tools {
        if !SEARCHES.contains(&tool.kind.as_str()) && !FETCHES.contains(&tool.kind.as_str()) {
            return Err(unbounded(format!(
                "the provider runs tool `{}` at a cost that is not known here; leave it out",
                tool.kind
            )));
        }
        let limit = tool.max_uses.ok_or_else(|| {
            unbounded(format!(
                "tool `{}` may run any number of times; set its `max_uses`, or `max_tool_calls` where the API has that",
                tool.kind
            ))
        })?;
        uses = uses.saturating_add(limit);
    }
    Ok(uses)
}

/// The dearest that one input token can be.
fn input_rate(rates: &Rates, facts: &RequestFacts, provider: Provider) -> Result<Usd, &'static str> {
    let five = rates.cache_write_5m;
    let asked = match (facts.cache_write, provider) {
        // OpenAI caches unasked and, where writes have a price, bills them.
        (CacheWrite::None, Provider::Openai) => five.unwrap_or(Usd::ZERO),
        (CacheWrite::None, Provider::Anthropic) => Usd::ZERO,
        (CacheWrite::FiveMinutes, _) => five.ok_or("cache writes")?,
        // What the provider does not split by lifetime is priced as five minutes.
        (CacheWrite::OneHour, _) => {
            rates.cache_write_1h.ok_or("cache writes for one hour")?.max(five.ok_or("cache writes")?)
        }
    };
    Ok(rates.input.max(rates.cache_read.unwrap_or(Usd::ZERO)).max(asked))
}

fn output_rate(rates: &Rates, _: &RequestFacts, _: Provider) -> Result<Usd, &'static str> {
    Ok(rates.output)
}

fn search_rate(rates: &Rates, facts: &RequestFacts, _: Provider) -> Result<Usd, &'static str> {
    if facts.server_tools.iter().all(|tool| FETCHES.contains(&tool.kind.as_str())) {
        return Ok(Usd::ZERO);
    }
    rates.web_search.ok_or("web searches")
}
