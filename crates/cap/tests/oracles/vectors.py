#!/usr/bin/env python3
"""Prices random usages of every model in the catalog with two independent libraries and prints one JSON line each, for tests/oracles.rs.
Both libraries are oracles here and nowhere else: they compute in floats or fall back silently, which the product must not.

    python3 -m venv V && V/bin/pip install genai-prices==0.2.3 litellm==1.108.7
    LITELLM_LOCAL_MODEL_COST_MAP=True V/bin/python crates/cap/tests/oracles/vectors.py > crates/cap/tests/oracles/vectors.jsonl
"""

import datetime
import decimal
import json
import pathlib
import random

import genai_prices
import litellm

CATALOG = pathlib.Path(__file__).resolve().parents[4] / "vendor/prices/catalog.json"
DAY = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
SIZES = (0, 1, 999, 20_000, 99_999, 150_000, 272_000, 272_001, 600_000)


def genai(model, usage, mode):
    counts = {
        "input_tokens": usage["input"] + usage["cache_read"] + usage["cache_write_5m"] + usage["cache_write_1h"],
        "cache_read_tokens": usage["cache_read"],
        "cache_write_tokens": usage["cache_write_5m"] + usage["cache_write_1h"],
        "cache_write_1h_tokens": usage["cache_write_1h"],
        "output_tokens": usage["output"],
        "web_searches": usage["web_searches"],
    }
    kind = "speed" if model["provider"] == "anthropic" else "service_tier"
    result = genai_prices.calc_price(
        genai_prices.Usage(**{k: v for k, v in counts.items() if v or k in ("input_tokens", "output_tokens")}),
        model["id"],
        provider_id=model["provider"],
        genai_request_timestamp=DAY,
        price_context={kind: mode} if mode else None,
    )
    return format(decimal.Decimal(result.total_price), "f")


def other(model, usage, mode):
    if model["id"] not in litellm.model_cost or usage["web_searches"] or (mode and model["provider"] == "anthropic"):
        return None
    total = usage["input"] + usage["cache_read"] + usage["cache_write_5m"] + usage["cache_write_1h"]
    written = usage["cache_write_5m"] + usage["cache_write_1h"]
    details = litellm.types.utils.PromptTokensDetailsWrapper(
        cached_tokens=usage["cache_read"],
        cache_creation_tokens=written,
        cache_creation_token_details=litellm.types.utils.CacheCreationTokenDetails(
            ephemeral_5m_input_tokens=usage["cache_write_5m"], ephemeral_1h_input_tokens=usage["cache_write_1h"]
        ),
    )
    counted = litellm.Usage(
        prompt_tokens=total,
        completion_tokens=usage["output"],
        total_tokens=total + usage["output"],
        prompt_tokens_details=details,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=usage["cache_read"],
    )
    try:
        spent = litellm.cost_per_token(
            model=model["id"], custom_llm_provider=model["provider"], usage_object=counted, service_tier=mode
        )
    except Exception:  # a model it cannot price is no oracle
        return None
    return f"{sum(spent):.12f}"


def main():
    dice = random.Random(20261130)
    catalog = json.loads(CATALOG.read_text())
    for model in catalog["models"]:
        for mode in (None, *(m["name"] for m in model.get("modes", []))):
            listed = model["prices"] if mode is None else next(m for m in model["modes"] if m["name"] == mode)["prices"]
            rates = listed[-1]["rates"]
            for _ in range(6):
                usage = {
                    kind: dice.choice(SIZES) if kind in rates else 0
                    for kind in ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
                }
                usage["web_searches"] = dice.choice((0, 0, 3)) if "web_search" in rates else 0
                line = {"model": model["id"], "mode": mode, "usage": usage}
                line |= {"genai": genai(model, usage, mode), "litellm": other(model, usage, mode)}
                print(json.dumps(line))


if __name__ == "__main__":
    main()
