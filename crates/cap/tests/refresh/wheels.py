"""Two packages as refresh.py expects them, with one price and one limit each, made from arguments: FOLDER then JSON with the members
`models` (list of [id, input dollars a million, output dollars a million]), `limits` (LiteLLM's figures by id), `version`. Prints the
paths and checksums as refresh.py wants them. For tests only."""

import hashlib
import json
import pathlib
import sys
import zipfile

folder, asked = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])


def wheel(package, version, files):
    path = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        about = f"{package}-{version}.dist-info"
        made.writestr(f"{about}/METADATA", f"Metadata-Version: 2.4\nName: {package}\nVersion: {version}\n\ntext\n")
        made.writestr(f"{about}/licenses/LICENSE", f"Copyright (c) {package}\n")
        for name, text in files.items():
            made.writestr(name, text)
    return [str(path), hashlib.sha256(path.read_bytes()).hexdigest()]


def model(name, input_price, output_price):
    prices = f"ModelPrice(input_mtok=Decimal('{input_price}'), output_mtok=Decimal('{output_price}'))"
    return f"ModelInfo(id='{name}', match=ClauseEquals(equals='{name}'), prices={prices})"


data = f"providers: list[Provider] = [Provider(id='openai', models=[{', '.join(model(*m) for m in asked['models'])}])]\n"
limits = {
    name: {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 1000, "max_output_tokens": 100} | more
    for name, more in asked["limits"].items()
}
print(
    json.dumps(
        [
            wheel("genai_prices", asked["version"], {"genai_prices/data.py": data}),
            wheel("litellm", asked["version"], {"litellm/model_prices_and_context_window_backup.json": json.dumps(limits)}),
        ]
    )
)
