//! The price catalog: what a token of a model costs, in whole pico-dollars, by exact model id, dated. A lookup never guesses: an id,
//! a mode or a kind of token that is not listed has no price here, and what has no price is not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentrun_kernel::Usd;
use serde::{Deserialize, Deserializer, Serialize};

use crate::date::Date;
use crate::price::{is_anywhere, is_choice, is_standard};

/// The format of catalog files that this version reads.
const FORMAT: u32 = 1;

const BUNDLED: &[u8] = include_bytes!("../../../vendor/prices/catalog.json");

/// Prices by exact model id.
#[derive(Clone, Debug)]
pub struct Catalog {
    id: String,
    date: Date,
    /// Each quote and each price carries it.
    stamp: String,
    models: BTreeMap<String, Model>,
}

/// Whose API serves a model; decides which figures a quote must expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Messages.
    Anthropic,
    /// Responses and chat completions.
    Openai,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The id as a request spells it.
    pub id: String,
    /// Who serves it.
    pub provider: Provider,
    /// The most tokens a prompt can have.
    pub context_window: u64,
    /// The most tokens an answer can have; `None`: a request must bound its own output.
    #[serde(default)]
    pub max_output: Option<u64>,
    /// Multipliers on token prices by the place that computes.
    #[serde(default)]
    pub geo: Vec<Multiplier>,
    /// Standard prices, oldest first.
    pub prices: Vec<RatesFrom>,
    /// Other modes of serving (a service tier, a speed) with prices of their own.
    #[serde(default)]
    pub modes: Vec<Mode>,
}

/// A factor on token prices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multiplier {
    /// The provider's word, such as `us`.
    pub name: String,
    /// Thousandths: 1100 is 1.1 times.
    pub permille: u64,
}

/// A mode of serving.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// The provider's word, such as `priority` or `fast`.
    pub name: String,
    /// Its prices, oldest first.
    pub prices: Vec<RatesFrom>,
}

/// Prices from a day on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatesFrom {
    /// The first day; `None`: as long as the model exists.
    pub from: Option<Date>,
    /// Prices of the lowest tier.
    pub rates: Rates,
    /// Prices of larger prompts, lowest edge first.
    #[serde(default)]
    pub above: Vec<Tier>,
    /// Prompts of more tokens have no price here; `None`: none is too large.
    #[serde(default)]
    pub up_to: Option<u64>,
}

/// Prices of prompts of more than `prompt` tokens. They hold for all tokens of the request, not only for those above the edge.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The edge; a prompt of exactly so many tokens is below it.
    pub prompt: u64,
    /// The prices.
    pub rates: Rates,
}

/// The price of one token, or of one web search. In a file each is a whole number of pico-dollars above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Uncached input.
    #[serde(deserialize_with = "price")]
    pub input: Usd,
    /// Output, reasoning included.
    #[serde(deserialize_with = "price")]
    pub output: Usd,
    /// Input read from the cache.
    #[serde(default, deserialize_with = "some_price")]
    pub cache_read: Option<Usd>,
    /// Input written to the cache for five minutes, or for the provider's only lifetime.
    #[serde(default, deserialize_with = "some_price")]
    pub cache_write_5m: Option<Usd>,
    /// Input written to the cache for one hour.
    #[serde(default, deserialize_with = "some_price")]
    pub cache_write_1h: Option<Usd>,
    /// One web search.
    #[serde(default, deserialize_with = "some_price")]
    pub web_search: Option<Usd>,
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Usd, D::Error> {
    match i64::deserialize(deserializer)? {
        // A price of zero is nearly always a figure that somebody did not have.
        pico if pico > 0 => Ok(Usd::from_pico(pico)),
        pico => {
            Err(serde::de::Error::custom(format!("a price is a whole number of pico-dollars above zero, not {pico}")))
        }
    }
}

fn some_price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Usd>, D::Error> {
    price(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    id: String,
    date: Date,
    models: Vec<Model>,
}

/// Why a file is not a price catalog. Nothing of it was taken.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file cannot be read.
    #[error("the price catalog {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not JSON, or a member is missing, unknown or of the wrong kind.
    #[error("price catalog, at `{at}`: {why}")]
    Json {
        /// The path of the member inside the document.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// Well formed, but it contradicts itself.
    #[error("price catalog, at `{at}`: {why}")]
    Invalid {
        /// The path of the member inside the document.
        at: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Catalog {
    /// The catalog this version came with.
    ///
    /// # Errors
    /// None in a released build: a test holds that the vendored file is sound.
    pub fn bundled() -> Result<Self, CatalogError> {
        Self::from_json(BUNDLED)
    }

    /// A catalog from the text of one file.
    ///
    /// # Errors
    /// [`CatalogError::Json`] and [`CatalogError::Invalid`] name the place.
    pub fn from_json(text: &[u8]) -> Result<Self, CatalogError> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let json = |at: String, why: String| CatalogError::Json { at, why };
        let file: File = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| json(error.path().to_string(), error.inner().to_string()))?;
        deserializer.end().map_err(|error| json(".".to_owned(), error.to_string()))?;
        check(&file)?;
        let models = file.models.into_iter().map(|model| (model.id.clone(), model)).collect();
        Ok(Self::of(file.id, file.date, models))
    }

    /// This catalog with the models of a file beside its own; where both list an id, the file's row stands whole.
    ///
    /// # Errors
    /// [`CatalogError::Read`], or as [`Catalog::from_json`].
    pub fn with_file(&self, path: &Path) -> Result<Self, CatalogError> {
        let text = std::fs::read(path).map_err(|source| CatalogError::Read { path: path.to_owned(), source })?;
        Ok(self.with(Self::from_json(&text)?))
    }

    /// This catalog with another's models over its own.
    #[must_use]
    pub fn with(&self, other: Self) -> Self {
        let mut models = self.models.clone();
        models.extend(other.models);
        Self::of(format!("{}+{}", self.id, other.id), self.date.max(other.date), models)
    }

    fn of(id: String, date: Date, models: BTreeMap<String, Model>) -> Self {
        Self { stamp: format!("{id} {date}"), id, date, models }
    }

    /// What the catalog was made of.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The day it was made.
    #[must_use]
    pub fn date(&self) -> Date {
        self.date
    }

    /// Id and date in one, as bookings carry it.
    #[must_use]
    pub fn stamp(&self) -> String {
        self.stamp.clone()
    }

    /// The model of exactly this id.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.get(id)
    }

    /// Every model, by id.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.models.values()
    }
}

impl Model {
    /// The prices in force on a day, in the standard mode or the one named. `None`: no such mode, or not yet on that day.
    #[must_use]
    pub fn rates(&self, mode: Option<&str>, at: Date) -> Option<&RatesFrom> {
        let listed = match mode {
            None => &self.prices,
            Some(name) => &self.modes.iter().find(|mode| mode.name == name)?.prices,
        };
        listed.iter().rev().find(|row| row.from.is_none_or(|from| from <= at))
    }

    /// The factor on token prices for a place, in thousandths. `None`: the place has no factor listed.
    #[must_use]
    pub fn permille(&self, geo: &str) -> Option<u64> {
        self.geo.iter().find(|multiplier| multiplier.name == geo).map(|multiplier| multiplier.permille)
    }
}

impl RatesFrom {
    /// The prices of a prompt of so many tokens, cached ones included. `None`: such a prompt has no price here.
    #[must_use]
    pub fn of_prompt(&self, tokens: u64) -> Option<&Rates> {
        if !self.covers(tokens) {
            return None;
        }
        Some(self.above.iter().rev().find(|tier| tokens > tier.prompt).map_or(&self.rates, |tier| &tier.rates))
    }

    /// Whether a prompt of so many tokens has a price here.
    #[must_use]
    pub fn covers(&self, tokens: u64) -> bool {
        self.up_to.is_none_or(|most| tokens <= most)
    }

    /// Every set of prices that a prompt of at most so many tokens can meet.
    pub fn reachable(&self, tokens: u64) -> impl Iterator<Item = &Rates> {
        std::iter::once(&self.rates)
            .chain(self.above.iter().filter(move |tier| tokens > tier.prompt).map(|tier| &tier.rates))
    }
}

/// A word that can stand in a booking and on a line.
fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.chars().any(char::is_control)
}

/// What types cannot say: ids once, dates and edges in order, nothing empty, nothing that a lookup never reaches.
fn check(file: &File) -> Result<(), CatalogError> {
    let invalid = |at: String, why: String| Err(CatalogError::Invalid { at, why });
    if file.format != FORMAT {
        return invalid("format".to_owned(), format!("this version reads format {FORMAT}, not {}", file.format));
    }
    if !is_name(&file.id) {
        return invalid("id".to_owned(), "a catalog needs an id in plain letters: bookings name it".to_owned());
    }
    let mut ids = BTreeSet::new();
    for (index, model) in file.models.iter().enumerate() {
        let at = format!("models[{index}]");
        if !is_name(&model.id) {
            return invalid(format!("{at}.id"), "a model id is not empty, and plain letters".to_owned());
        }
        if !ids.insert(&model.id) {
            return invalid(format!("{at}.id"), format!("two rows for `{}`; keep one", model.id));
        }
        if model.context_window == 0 || model.max_output == Some(0) {
            return invalid(at, format!("`{}` has a window or a maximum output of no tokens", model.id));
        }
        let mut names = BTreeSet::new();
        for (geo, multiplier) in model.geo.iter().enumerate() {
            // A word for computing anywhere is never looked up: a factor for it would be read as one that holds.
            let is_place = is_name(&multiplier.name) && !is_anywhere(&multiplier.name);
            if multiplier.permille == 0 || !is_place || !names.insert(&multiplier.name) {
                return invalid(
                    format!("{at}.geo[{geo}]"),
                    "a place is listed once, under its own name, with a factor above zero".to_owned(),
                );
            }
        }
        let mut names = BTreeSet::new();
        for (mode, listed) in model.modes.iter().enumerate() {
            let here = format!("{at}.modes[{mode}].name");
            if !is_name(&listed.name) || is_standard(&listed.name) || is_choice(&listed.name) {
                return invalid(
                    here,
                    format!("`{}` is no mode of its own; its prices belong to `prices`", listed.name),
                );
            }
            if !names.insert(&listed.name) {
                return invalid(here, format!("mode `{}` is listed twice", listed.name));
            }
        }
        let lists = std::iter::once((format!("{at}.prices"), &model.prices)).chain(
            model.modes.iter().enumerate().map(|(mode, listed)| (format!("{at}.modes[{mode}].prices"), &listed.prices)),
        );
        for (at, rows) in lists {
            if rows.is_empty() {
                return invalid(at, "no price at all".to_owned());
            }
            if !rows.is_sorted_by(|a, b| a.from < b.from) {
                return invalid(at, "dated prices run from the oldest to the newest, each day once".to_owned());
            }
            for (row, dated) in rows.iter().enumerate() {
                if !dated.above.is_sorted_by(|a, b| a.prompt < b.prompt) {
                    return invalid(
                        format!("{at}[{row}].above"),
                        "edges run from the lowest to the highest, each once".to_owned(),
                    );
                }
                let last = dated.above.last().map_or(0, |tier| tier.prompt);
                if dated.up_to.is_some_and(|most| most <= last) {
                    return invalid(format!("{at}[{row}].up_to"), "no prompt reaches the last tier, or any".to_owned());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"id":"m","provider":"anthropic","context_window":1000,"prices":[{"from":null,"rates":{"input":1,"output":2}}]}"#;

    fn file(models: &str) -> String {
        format!(r#"{{"format":1,"id":"mine","date":"2026-11-30","models":[{models}]}}"#)
    }

    fn refused(text: &str) -> String {
        Catalog::from_json(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_bundled_catalog_is_sound_and_lists_what_the_harnesses_send() {
        let catalog = Catalog::bundled().unwrap();
        for id in [
            "claude-sonnet-4-5",
            "claude-sonnet-4-5-20250929",
            "claude-opus-5-5",
            "claude-haiku-5-5",
            "claude-haiku-4-5-20251001",
            "gpt-5",
            "gpt-5-codex",
            "gpt-5.6",
        ] {
            assert!(catalog.model(id).is_some(), "{id}");
        }
        assert_eq!(catalog.stamp(), format!("{} {}", catalog.id(), catalog.date()));
    }

    #[test]
    fn an_id_is_looked_up_exactly_and_never_by_its_beginning() {
        let catalog = Catalog::bundled().unwrap();
        for typo in [
            "claude-sonnet-4-5-typo",
            "claude-sonnet",
            "Claude-sonnet-4-5",
            "claude-sonnet-4-5 ",
            "anthropic/claude-sonnet-4-5",
            "",
        ] {
            assert!(catalog.model(typo).is_none(), "{typo}");
        }
    }

    #[test]
    fn a_file_adds_models_and_overrides_whole_rows() {
        let catalog = Catalog::bundled().unwrap();
        let mine = file(&[ROW, &ROW.replace(r#""m""#, r#""claude-opus-5-5""#)].join(","));
        let both = catalog.with(Catalog::from_json(mine.as_bytes()).unwrap());
        assert!(both.model("m").is_some());
        let row = both.model("claude-opus-5-5").unwrap();
        assert_eq!((row.context_window, row.modes.len()), (1000, 0));
        assert_eq!(both.id(), format!("{}+mine", catalog.id()));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_by_its_path() {
        let bad_price = |figure: &str| file(&ROW.replace(r#""input":1"#, &format!(r#""input":{figure}"#)));
        for (text, at, why) in [
            (file(&ROW.replace(r#""input""#, r#""inptu""#)), "models[0].prices[0].rates", "unknown field `inptu`"),
            (bad_price("0"), "models[0].prices[0].rates.input", "above zero, not 0"),
            (bad_price("-5"), "models[0].prices[0].rates.input", "above zero, not -5"),
            (bad_price("1.5"), "models[0].prices[0].rates.input", "floating point"),
            (bad_price("null"), "models[0].prices[0].rates.input", "null"),
            (file(&[ROW, ROW].join(",")), "models[1].id", "two rows for `m`"),
            (file(&ROW.replace("[{\"from\"", "[],\"x\":[{\"from\"")), "models[0].x", "unknown field `x`"),
            (file(&ROW.replace(r#""from":null"#, r#""from":"2026-02-30""#)), "models[0].prices[0].from", "not a day"),
            (file(ROW).replace(r#""format":1"#, r#""format":2"#), "format", "format 1, not 2"),
            (file(ROW).replace(r#""format":1"#, r#""format":1,"format":1"#), "format", "duplicate field"),
            (file(ROW) + "x", ".", "trailing"),
            ("{".to_owned(), "?", "EOF"),
        ] {
            let message = refused(&text);
            assert!(message.contains(&format!("`{at}")) && message.contains(why), "{at} / {why}: {message}");
        }
    }

    #[test]
    fn contradictions_in_a_file_are_refused() {
        let rows =
            |prices: &str| file(&format!(r#"{{"id":"m","provider":"openai","context_window":1,"prices":[{prices}]}}"#));
        let row = |from: &str, above: &str| {
            format!(r#"{{"from":{from},"rates":{{"input":1,"output":1}},"above":[{above}]}}"#)
        };
        let edge = |prompt: u64| format!(r#"{{"prompt":{prompt},"rates":{{"input":1,"output":1}}}}"#);
        for (text, why) in [
            (rows(""), "no price at all"),
            (rows(&[row(r#""2026-02-01""#, ""), row(r#""2026-01-01""#, "")].join(",")), "oldest to the newest"),
            (rows(&[row("null", ""), row("null", "")].join(",")), "oldest to the newest"),
            (rows(&row("null", &[edge(5), edge(5)].join(","))), "each once"),
            (rows(&row("null", &[edge(9), edge(5)].join(","))), "lowest to the highest"),
            (rows(&row("null", "")).replace(r#""context_window":1"#, r#""context_window":0"#), "no tokens"),
        ] {
            let message = refused(&text);
            assert!(message.contains(why), "{why}: {message}");
        }
    }

    #[test]
    fn dated_prices_hold_from_their_day_on() {
        let catalog = Catalog::bundled().unwrap();
        let model = catalog.model("gpt-5.6").unwrap();
        let input = |day: &str| model.rates(None, day.parse().unwrap()).unwrap().of_prompt(1).unwrap().input.pico();
        assert_eq!((input("2026-08-20"), input("2026-08-21")), (5_000_000, 4_000_000));
        assert!(model.rates(Some("flex"), "2026-10-11".parse().unwrap()).is_none());
        assert!(model.rates(Some("flex"), "2026-10-12".parse().unwrap()).is_some());
        assert!(model.rates(Some("ultrafast"), "2026-11-30".parse().unwrap()).is_none());
    }
}
