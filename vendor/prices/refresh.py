#!/usr/bin/env python3
"""Makes catalog.json from two pinned MIT packages: genai-prices (prices, dates, tiers) and LiteLLM (context window, maximum
output, regional multiplier). The packages are read as data; nothing of them is run. Standard library only.

    pip download --no-deps --dest /tmp/prices genai-prices==0.2.3 litellm==1.108.7
    python3 vendor/prices/refresh.py --date 2026-11-30 \\
        --genai /tmp/prices/genai_prices-0.2.3-py3-none-any.whl   56976ce2... \\
        --litellm /tmp/prices/litellm-1.108.7-...whl              0c8a062e...

It prints what changes. A lowered price, a dropped model, a dropped tier or mode is refused without --accept: a price that is too
low lets a run overspend its cap, so a person looks first. Without a change it writes nothing new (same bytes)."""

import argparse
import ast
import hashlib
import json
import pathlib
import re
import sys
import zipfile
from decimal import Decimal

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CATALOG = HERE / "catalog.json"
UPSTREAM = ROOT / "UPSTREAM.json"
PROVIDERS = ("anthropic", "openai")
# Ours <- theirs. What is not named here (audio, images, storage) has no route, so a model priced by it is not vendored.
TOKENS = {
    "input": "input_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}
SEARCH = ("web_search", "web_searches_kcount")
# Parts of names of models that hear, draw or search by themselves: they spend by other units than the tokens of a response.
UNROUTED = ("audio", "realtime", "transcribe", "tts", "image", "search", "/", "ft:")
HARMLESS = {"storage_searches_kcount"}  # file search: its tool is refused by name


def plain(node):
    """A literal tree as plain data: `Name(k=v)` becomes {"@": "Name", "k": v}. Anything else stops the refresh."""
    match node:
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple():
            return [plain(item) for item in node.elts]
        case ast.Dict():
            return {plain(key): plain(value) for key, value in zip(node.keys, node.values)}
        case ast.Attribute():
            return node.attr
        case ast.Call():
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name == "Decimal":
                return Decimal(node.args[0].value)
            if name == "date":
                return "{:04}-{:02}-{:02}".format(*(arg.value for arg in node.args))
            return {"@": name, **{k.arg: plain(k.value) for k in node.keywords}} | (
                {"args": [plain(arg) for arg in node.args]} if node.args else {}
            )
    sys.exit(f"genai-prices holds an expression this script does not know: {ast.dump(node)[:200]}")


def matches(clause, name):
    match clause["@"]:
        case "ClauseEquals":
            return name == clause["equals"]
        case "ClauseStartsWith":
            return name.startswith(clause["starts_with"])
        case "ClauseEndsWith":
            return name.endswith(clause["ends_with"])
        case "ClauseContains":
            return clause["contains"] in name
        case "ClauseRegex":
            return re.search(clause["regex"], name) is not None
        case "ClauseOr":
            return any(matches(part, name) for part in clause["or_"])
        case "ClauseAnd":
            return all(matches(part, name) for part in clause["and_"])
    sys.exit(f"unknown clause {clause}")


def equals(clause):
    if clause["@"] == "ClauseEquals":
        return [clause["equals"]]
    return [name for part in clause.get("or_", []) for name in equals(part)]


def pico(dollars, per):
    """Pico-dollars a unit, rounded up: a price may be a hair too high, never too low."""
    exact = dollars * Decimal(10) ** 12 / per
    whole = int(exact.to_integral_value(rounding="ROUND_CEILING"))
    if whole <= 0:
        sys.exit(f"a price of {dollars} is no price")
    return whole


def at_edge(price, edge):
    """The price that holds for prompts above `edge` tokens (None: the lowest tier)."""
    if not isinstance(price, dict):
        return price
    best = price["base"]
    for tier in sorted(price["tiers"], key=lambda t: t["start"]):
        if edge is not None and edge >= tier["start"]:
            best = tier["price"]
    return best


def rates(prices):
    """{rates, above}, or None when something in it is priced by a unit that no route of ours can bound."""
    known = set(TOKENS.values()) | {SEARCH[1]} | HARMLESS
    fields = {key: value for key, value in prices.items() if key not in ("@", "args") and value is not None}
    if set(fields) - known or "input_mtok" not in fields or "output_mtok" not in fields:
        return None

    def row(edge):
        out = {ours: pico(at_edge(fields[theirs], edge), 10**6) for ours, theirs in TOKENS.items() if theirs in fields}
        if SEARCH[1] in fields:
            out[SEARCH[0]] = pico(at_edge(fields[SEARCH[1]], edge), 1000)
        return out

    edges = sorted({tier["start"] for value in fields.values() if isinstance(value, dict) for tier in value["tiers"]})
    out = {"rates": row(None)}
    if edges:
        out["above"] = [{"prompt": edge, "rates": row(edge)} for edge in edges]
    return out


def dated(standard, model):
    """[{from, ...rates}], oldest first."""
    listed = standard if isinstance(standard, list) else [{"prices": standard}]
    out = []
    for entry in listed:
        constraint = entry.get("constraint")
        if constraint and constraint["@"] != "StartDateConstraint":
            sys.exit(f"{model}: a price by time of day; teach this script and the catalog")
        row = rates(entry["prices"])
        if row is None:
            return None
        out.append({"from": constraint["start_date"] if constraint else None, **row})
    if [r["from"] or "" for r in out] != sorted(r["from"] or "" for r in out):
        sys.exit(f"{model}: dated prices out of order")
    return out


def modes(model, standard):
    """Modes of serving with prices of their own. A variant names only what differs, so it is laid over today's standard price."""
    out = {}
    newest = standard[-1]["prices"] if isinstance(standard, list) else standard
    for variant in model.get("price_variants") or []:
        (kind, word), *more = variant["when"].items()
        if more or kind == "processing" or word in ("default", "standard"):
            continue  # batches have no route; the default is the standard price
        if kind not in ("service_tier", "speed"):
            sys.exit(f"{model['id']}: unknown kind of variant {kind}")
        constraint = variant.get("constraint")
        row = rates({**newest, **{k: v for k, v in variant["prices"].items() if k != "@"}})
        # Flat in a mode although larger prompts cost more in the standard one: nobody lists what those cost in the mode.
        edges = [tier["prompt"] for tier in rates(newest).get("above", [])]
        if edges and "above" not in row:
            row["up_to"] = edges[0]
        # A lookup takes the last row whose date has come; earlier than the first row the mode has no price at all.
        out.setdefault(word, []).append({"from": constraint["start_date"] if constraint else None, **row})
    return [{"name": word, "prices": rows} for word, rows in sorted(out.items())]


def dearer(rows, spec):
    """The first standard figure of today that the second source has above ours, or None. Lower is no matter: ours is the safe side."""
    names = {
        "input": "input_cost_per_token",
        "cache_read": "cache_read_input_token_cost",
        "cache_write_5m": "cache_creation_input_token_cost",
        "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
        "output": "output_cost_per_token",
    }
    today = rows[-1]
    for key, figure in spec.items():
        found = re.fullmatch(r"(.+?)(?:_above_(\d+)k_tokens)?", key)
        kind = next((ours for ours, theirs in names.items() if found[1] == theirs), None)
        if kind is None or not figure:
            continue
        edge = int(found[2]) * 1000 if found[2] else None
        ours = today["rates"]
        for tier in today.get("above", []):
            if edge is not None and edge >= tier["prompt"]:
                ours = tier["rates"]
        # A kind we have no price for is refused, so only a listed one can be too low.
        if kind in ours and pico(Decimal(figure), 1) > ours[kind]:
            return f"{key} {figure}"
    return None


def build(genai, limits, identity, date):
    rows = []
    for provider in genai:
        if provider["id"] not in PROVIDERS:
            continue
        first_party = {
            name: spec
            for name, spec in limits.items()
            if spec.get("litellm_provider") == provider["id"]
            and spec.get("mode") in ("chat", "responses")
            and not any(word in name for word in UNROUTED)
        }
        for model in provider["models"]:
            prices = dated(model["prices"], model["id"])
            if prices is None:
                continue
            names = {name for name in first_party if matches(model["match"], name)}
            # Priced by one source and unknown to the other: routed all the same when its window is known, under the names the price
            # source spells out only. Without a maximum output a request must name its own.
            if not names and model.get("context_window") and not any(word in model["id"] for word in UNROUTED):
                spelt = equals(model["match"])
                names = {name for name in spelt if provider["id"] == "anthropic" or name == model["id"]}
            for name in names:
                spec = first_party.get(name, {})
                window = max(spec.get("max_input_tokens") or 0, model.get("context_window") or 0)
                if not window:
                    print(f"left out: {name} has no context window in either source")
                    continue
                if higher := dearer(prices, spec):
                    print(f"left out: {name}: the second source has it dearer ({higher}); a person must say which is right")
                    continue
                row = {"id": name, "provider": provider["id"], "context_window": window}
                if spec.get("max_output_tokens"):
                    row["max_output"] = spec["max_output_tokens"]
                geo = {k: v for k, v in (spec.get("provider_specific_entry") or {}).items() if k == "us"}
                if geo:
                    row["geo"] = [
                        {"name": k, "permille": int((Decimal(str(v)) * 1000).to_integral_value(rounding="ROUND_CEILING"))}
                        for k, v in sorted(geo.items())
                    ]
                row["prices"] = prices
                if extra := modes(model, model["prices"]):
                    row["modes"] = extra
                rows.append(row)
    rows.sort(key=lambda row: (row["provider"], row["id"]))
    seen = [row["id"] for row in rows]
    if twice := sorted({name for name in seen if seen.count(name) > 1}):
        sys.exit(f"two prices match one id: {', '.join(twice)}")
    return {"format": 1, "id": identity, "date": date, "models": rows}


def flatten(row):
    """{path: figure} of one model, so that two catalogs compare line by line."""
    out = {}

    def walk(value, path):
        if isinstance(value, dict):
            label = value.get("name") or (value.get("from") or "start" if "from" in value else value.get("prompt"))
            here = path if label is None else [*path, f"[{label}]"]
            for key, part in value.items():
                if key not in ("name", "from", "prompt", "id", "provider"):
                    walk(part, [*here, key])
        elif isinstance(value, list):
            for part in value:
                walk(part, path)
        else:
            out[".".join(path)] = value

    walk(row, [])
    return out


def compare(old, new):
    """Prints the difference; answers what needs --accept."""
    before = {row["id"]: flatten(row) for row in old.get("models", [])}
    after = {row["id"]: flatten(row) for row in new["models"]}
    doubts = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            doubts.append(f"dropped model {name}")
            print(f"- {name}")
        elif name not in before:
            print(f"+ {name}")
        else:
            for path in sorted(before[name].keys() | after[name].keys()):
                was, now = before[name].get(path), after[name].get(path)
                if was == now:
                    continue
                print(f"  {name} {path}: {was} -> {now}")
                if was is not None and (now is None or now < was):
                    doubts.append(f"{name} {path}: {was} -> {now}")
    return doubts


def opened(path, digest, package):
    data = pathlib.Path(path).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        sys.exit(f"{path}: sha256 is {found}, not the pinned {digest}")
    wheel = zipfile.ZipFile(path)
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    fields = dict(line.split(": ", 1) for line in wheel.read(metadata).decode().split("\n\n")[0].splitlines() if ": " in line)
    if fields["Name"].replace("_", "-").lower() != package:
        sys.exit(f"{path} is {fields['Name']}, not {package}")
    licence = next(name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    return wheel, fields["Version"], wheel.read(licence).decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--genai", nargs=2, metavar=("WHEEL", "SHA256"), required=True)
    parser.add_argument("--litellm", nargs=2, metavar=("WHEEL", "SHA256"), required=True)
    parser.add_argument("--date", required=True, help="the day of this refresh, YYYY-MM-DD")
    parser.add_argument("--accept", action="store_true", help="a person has looked at the lowered prices and dropped models")
    options = parser.parse_args()
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", options.date):
        sys.exit("--date is YYYY-MM-DD")

    genai, genai_version, genai_licence = opened(*options.genai, "genai-prices")
    litellm, litellm_version, litellm_licence = opened(*options.litellm, "litellm")
    tree = ast.parse(genai.read("genai_prices/data.py").decode())
    providers = next(plain(node.value) for node in tree.body if isinstance(node, ast.AnnAssign))
    limits = json.loads(litellm.read("litellm/model_prices_and_context_window_backup.json"), parse_float=Decimal)
    new = build(providers, limits, f"genai-prices-{genai_version}+litellm-{litellm_version}", options.date)

    old = json.loads(CATALOG.read_text()) if CATALOG.exists() else {}
    doubts = compare(old, new)
    if doubts and not options.accept:
        print(f"\n{len(doubts)} changes lower a price or drop something; look at each, then say --accept:", file=sys.stderr)
        for doubt in doubts:
            print(f"  {doubt}", file=sys.stderr)
        sys.exit(1)

    CATALOG.write_text(json.dumps(new, indent=1) + "\n")
    (HERE / "licences" / "genai-prices.txt").write_text(genai_licence)
    (HERE / "licences" / "litellm.txt").write_text(litellm_licence)
    listed = json.loads(UPSTREAM.read_text())
    for name, version, (path, digest) in (
        ("genai-prices", genai_version, options.genai),
        ("litellm", litellm_version, options.litellm),
    ):
        source = next(s for s in listed["sources"] if s["name"] == name)
        source.update(version=version, file=pathlib.Path(path).name, sha256=digest)
    for entry in listed["vendored"]:
        entry["sha256"] = hashlib.sha256((ROOT / entry["path"]).read_bytes()).hexdigest()
    UPSTREAM.write_text(json.dumps(listed, indent=2) + "\n")
    print(f"{len(new['models'])} models, {new['id']}")


if __name__ == "__main__":
    main()
