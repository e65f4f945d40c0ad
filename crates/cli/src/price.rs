//! `agentrun price`: what a request's usage costs, exactly; without a model, what the catalog lists.

use std::sync::Arc;

use agentrun_cap::{Catalog, Date, price as price_of};
use agentrun_kernel::{Usage, Usd};
use serde_json::json;

use crate::args::PriceArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// The built-in catalog with a file over it.
pub(crate) fn catalog(file: Option<&std::path::Path>) -> Result<Arc<Catalog>, Failure> {
    let bundled = Catalog::bundled().map_err(|error| Failure::internal(error.to_string()))?;
    let catalog = match file {
        Some(file) => {
            bundled.with_file(file).map_err(|error| Failure::usage(format!("--catalog {}: {error}", file.display())))?
        }
        None => bundled,
    };
    Ok(Arc::new(catalog))
}

pub(crate) fn price(args: &PriceArgs) -> Result<Exit, Failure> {
    let catalog = catalog(args.catalog.as_deref())?;
    let at = args.at.unwrap_or_else(today);
    match (&args.model, &args.usage) {
        (Some(model), Some(usage)) => one(&catalog, model, usage, at, args.json),
        _ => {
            list(&catalog, at, args.json);
            Ok(Exit::Done)
        }
    }
}

fn one(catalog: &Catalog, model: &str, usage: &str, at: Date, as_json: bool) -> Result<Exit, Failure> {
    let mut json = serde_json::Deserializer::from_str(usage);
    let usage: Usage = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Failure::usage(format!("--usage, at `{}`: {}", error.path(), error.inner())))?;
    json.end().map_err(|error| Failure::usage(format!("--usage: {error}")))?;
    let priced = price_of(catalog, model, &usage, at).map_err(|error| Failure::refused(error.to_string()))?;
    if as_json {
        output::json_line(&json!({"model": priced.model, "usd": priced.amount, "catalog": priced.catalog}));
    } else {
        output::text(&format!("${}  {} ({})", priced.amount, priced.model, priced.catalog));
    }
    Ok(Exit::Done)
}

fn list(catalog: &Catalog, at: Date, as_json: bool) {
    if !as_json {
        output::text(&format!("catalog {}; dollars a million tokens on {at}", catalog.stamp()));
        output::text(&format!("{:<34} {:>10} {:>10} {:>10}", "MODEL", "INPUT", "CACHED", "OUTPUT"));
    }
    for model in catalog.models() {
        let Some(row) = model.rates(None, at) else { continue };
        let million = |price: Usd| price.checked_mul(1_000_000).unwrap_or(Usd::MAX);
        let (input, cached, output) =
            (million(row.rates.input), row.rates.cache_read.map(million), million(row.rates.output));
        if as_json {
            output::json_line(&json!({
                "model": model.id, "usd_per_million": {"input": input, "cache_read": cached, "output": output}, "catalog": catalog.stamp(),
            }));
        } else {
            let cached = cached.map_or_else(|| "-".to_owned(), |price| price.to_string());
            let (input, output) = (input.to_string(), output.to_string());
            output::text(&format!("{:<34} {input:>10} {cached:>10} {output:>10}", model.id));
        }
    }
}

/// The day it is, in UTC.
pub(crate) fn today() -> Date {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Date::of_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
