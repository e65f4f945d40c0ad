#!/usr/bin/env python3
"""Asks two independent libraries what usages cost, and prints one JSON line for each: first the published vectors (vectors.json), then
random usages of every model in the catalog in every mode. crates/cap/tests/oracles.rs compares them with ours. Both libraries are
oracles here and nowhere else: they compute in floats or fall back silently, which the product must not.

    python3 -m venv V && V/bin/pip install genai-prices==0.2.3 litellm==1.108.7
    LITELLM_LOCAL_MODEL_COST_MAP=True V/bin/python testing/oracles/answers.py > answers.jsonl && mv answers.jsonl testing/oracles/

An answer is dollars as text, or null where the library says that it has none; `not_asked` names who was not asked."""

import datetime
import decimal
import json
import pathlib
import random

import genai_prices
import litellm
from litellm.types.utils import (
    CacheCreationTokenDetails,
    ModelResponse,
    PromptTokensDetailsWrapper,
    ServerToolUse,
)

HERE = pathlib.Path(__file__).resolve().parent
CATALOG = HERE.parents[1] / "vendor/prices/catalog.json"
DAY = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
SIZES = (0, 1, 999, 20_000, 99_999, 150_000, 272_000, 272_001, 600_000)
COUNTS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "web_searches")


def genai(model, provider, usage, split):
    written = usage["cache_write_5m"] + usage["cache_write_1h"]
    counts = {
        "input_tokens": usage["input"] + usage["cache_read"] + written,
        "cache_read_tokens": usage["cache_read"],
        "cache_write_tokens": written,
        "cache_write_1h_tokens": split[1],
        "output_tokens": usage["output"],
        "web_searches": usage["web_searches"],
    }
    context = {"speed": usage.get("speed"), "service_tier": usage.get("tier")}
    try:
        result = genai_prices.calc_price(
            genai_prices.Usage(**{k: v for k, v in counts.items() if v or k in ("input_tokens", "output_tokens")}),
            model,
            provider_id=provider,
            genai_request_timestamp=DAY,
            price_context={k: v for k, v in context.items() if v} or None,
        )
    except LookupError:
        return None
    return format(decimal.Decimal(result.total_price), "f")


def other(model, provider, usage, split):
    written = usage["cache_write_5m"] + usage["cache_write_1h"]
    total = usage["input"] + usage["cache_read"] + written
    counted = litellm.Usage(
        prompt_tokens=total,
        completion_tokens=usage["output"],
        total_tokens=total + usage["output"],
        prompt_tokens_details=PromptTokensDetailsWrapper(
            cached_tokens=usage["cache_read"],
            cache_creation_tokens=written,
            cache_creation_token_details=CacheCreationTokenDetails(
                ephemeral_5m_input_tokens=split[0], ephemeral_1h_input_tokens=split[1]
            ),
        ),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=usage["cache_read"],
    )
    if usage["web_searches"]:
        counted.server_tool_use = ServerToolUse(web_search_requests=usage["web_searches"])
    if usage.get("speed"):
        counted.speed = usage["speed"]
    if usage.get("geo"):
        counted.inference_geo = usage["geo"]
    try:
        spent = litellm.completion_cost(
            completion_response=ModelResponse(model=model, usage=counted),
            model=model,
            custom_llm_provider=provider,
            service_tier=usage.get("tier"),
        )
    except Exception:  # it has no type of its own for a model it cannot price
        return None
    return f"{spent:.12f}"


def answers(model, provider, usage, split=None):
    whole = {count: 0 for count in COUNTS} | {k: v for k, v in usage.items() if k != "iterations"}
    split = split or (whole["cache_write_5m"], whole["cache_write_1h"])
    both = {"genai": genai(model, provider, whole, split), "litellm": None}
    # It counts OpenAI's searches in the items of an answer, which are not part of a usage.
    if provider == "openai" and whole["web_searches"]:
        return both | {"not_asked": ["litellm"]}
    return both | {"litellm": other(model, provider, whole, split)}


def provider_of(model):
    return {"c": "anthropic", "g": "openai"}[model[0]] if not model.startswith("gemini") else None


def main():
    for vector in json.loads((HERE / "vectors.json").read_text()):
        model, usage = vector["model"], vector["usage"]
        provider = provider_of(model) or "google"
        if provider == "google":  # the two name it differently
            both = {
                "genai": answers(model, "google", usage)["genai"],
                "litellm": answers(model, "gemini", usage)["litellm"],
            }
        else:
            both = answers(model, provider, usage, vector.get("split"))
        print(json.dumps({"name": vector["name"], "model": model, "usage": usage} | both))

    dice = random.Random(20261130)
    for model in json.loads(CATALOG.read_text())["models"]:
        provider = model["provider"]
        for mode in (None, *(m["name"] for m in model.get("modes", []))):
            listed = model["prices"] if mode is None else next(m for m in model["modes"] if m["name"] == mode)["prices"]
            rates = listed[-1]["rates"]
            for _ in range(6):
                usage = {count: dice.choice(SIZES) for count in COUNTS[:5] if count in rates}
                if "web_search" in rates and dice.random() < 0.33:
                    usage["web_searches"] = 3
                if mode:
                    usage["speed" if provider == "anthropic" else "tier"] = mode
                if "geo" in model and dice.random() < 0.33:
                    usage["geo"] = model["geo"][0]["name"]
                usage = {k: v for k, v in usage.items() if v}
                print(json.dumps({"model": model["id"], "usage": usage} | answers(model["id"], provider, usage)))


if __name__ == "__main__":
    main()
