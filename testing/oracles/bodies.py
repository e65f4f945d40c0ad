#!/usr/bin/env python3
"""Makes bodies that are as dense in tokens as a body can be, for all three APIs, and counts their tokens with the three tokenizers that
come with LiteLLM: OpenAI's cl100k and o200k, and the one that Anthropic published. crates/host/tests/bounds.rs holds that a quote is never below them.

    python3 -m venv V && V/bin/pip install litellm==1.108.7
    LITELLM_LOCAL_MODEL_COST_MAP=True V/bin/python testing/oracles/bodies.py > bodies.jsonl && mv bodies.jsonl testing/oracles/

One JSON line a body: the body as text, and the largest of their counts, of the body as sent or of all text in it unescaped, whichever is
more."""

import base64
import json
import os
import pathlib
import random

import litellm

HERE = pathlib.Path(litellm.__file__).parent / "litellm_core_utils/tokenizers"
os.environ["TIKTOKEN_CACHE_DIR"] = str(HERE)

import tiktoken  # noqa: E402  (reads the folder named above)
from tokenizers import Tokenizer  # noqa: E402

OPENAI = [tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")]
CLAUDE = Tokenizer.from_file(str(HERE / "anthropic_tokenizer.json"))
DICE = random.Random(20261130)
# A PNG of one pixel; what an image costs is not told by its bytes.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="


def of(low, high, count):
    return "".join(chr(DICE.randint(low, high)) for _ in range(count))


TEXTS = {
    "control characters": of(1, 31, 400),
    "controls that need no escape": of(0x7F, 0x9F, 600),
    "CJK": of(0x4E00, 0x9FFF, 500),
    "CJK of the second plane": of(0x20000, 0x2A6DF, 400),
    "private use": of(0xF0000, 0xF3FFF, 400),
    "base64": base64.b64encode(DICE.randbytes(1200)).decode(),
    "hex": DICE.randbytes(700).hex(),
    "emoji": "".join(DICE.choice("👩🏽‍💻🏳️‍🌈🤷🏿🧑‍🚀🫠") for _ in range(400)),
    "one byte a token": "".join(DICE.choice("~`^\\|{}<>@#$%&*") + DICE.choice("\t\r\f qzxj") for _ in range(500)),
    "words": "the quick brown fox jumps over the lazy dog " * 30,
}


def tokens(text):
    return max(len(CLAUDE.encode(text).ids), *(len(known.encode(text, disallowed_special=())) for known in OPENAI))


def strings(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [part for key, item in value.items() for part in [key, *strings(item)]]
    if isinstance(value, list):
        return [part for item in value for part in strings(item)]
    return [json.dumps(value)]


def bodies(text, tools, images):
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": "q"}}}
    named = [{"name": f"tool_{i}", "description": text[:40]} for i in range(tools)]
    url = "data:image/png;base64," + PNG
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    yield "anthropic", {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "tools": [tool | {"input_schema": schema} for tool in named],
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": source}] * images + [{"type": "text", "text": text}]}
        ],
    }
    yield "openai", {
        "model": "gpt-5",
        "max_output_tokens": 100,
        "tools": [tool | {"type": "function", "parameters": schema} for tool in named],
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": url}] * images + [{"type": "input_text", "text": text}],
            }
        ],
    }
    yield "openai-chat", {
        "model": "gpt-5",
        "max_tokens": 100,
        "tools": [{"type": "function", "function": tool | {"parameters": schema}} for tool in named],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": url}}] * images + [{"type": "text", "text": text}],
            }
        ],
    }


def main():
    kinds = [(kind, text, 0, 0) for kind, text in TEXTS.items()]
    kinds += [("many tools", "look", 120, 0), ("images", "look", 0, 4)]
    for kind, text, tools, images in kinds:
        for api, body in bodies(text, tools, images):
            sent = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
            held = {**body, "messages": "", "input": ""} if images else body  # an image's text is no text to the model
            most = tokens(json.dumps(held)) if images else max(tokens(sent), tokens("\n".join(strings(body))))
            print(json.dumps({"api": api, "kind": kind, "images": images, "tokens": most, "body": sent}, ensure_ascii=False))


if __name__ == "__main__":
    main()
