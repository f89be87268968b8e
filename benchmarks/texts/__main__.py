"""Measure embeddings of texts over HTTP beside other engines in one process and beside other servers.

    python -m benchmarks.texts --model FOLDER [--threads 1] [--precision float32|bf16|int8] [--texts 128]
        [--python PYTHON] [--save NAME]

FOLDER has `model.onnx` and `tokenizer.json` of an embedding model, such as MiniLM. For int8 the file has integer
products, as `onnxruntime.quantization.quantize_dynamic` writes them; OpenVINO, which runs them 5 times slower, is left
out. Texts have 8 to 256 tokens, drawn at random. Servers answer `/v1/embeddings` for one client and for sixteen, a
text per request. Engines embed the same texts in a loop, without a server: one by one, or in batches of 16 texts of
similar length, whichever is faster. Every turn goes through all texts, in turns of all competitors. Needs onnxruntime,
openvino, tokenizers and fastembed. PYTHON is the interpreter of an environment with fastapi, uvicorn, litserve,
onnxruntime, openvino and tokenizers; by default it is this one.
"""

from __future__ import annotations

import argparse
import http.client
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table
from benchmarks.texts.rivals import LONGEST, Embed, open_rival, open_tokenizer
from benchmarks.texts.served import ask, served_rate, serving

ENGINES: Final = {
    "float32": ("onnxruntime", "openvino", "fastembed"),
    "bf16": ("openvino",),
    "int8": ("onnxruntime", "fastembed"),
}
PEERS: Final = {
    "float32": ("fastapi+onnxruntime", "fastapi+openvino", "litserve+onnxruntime"),
    "bf16": ("fastapi+openvino", "litserve+openvino"),
    "int8": ("fastapi+onnxruntime", "litserve+onnxruntime"),
}
COUNT: Final = 128
BATCH: Final = 16
CLIENTS: Final = (1, 16)
SHORTEST: Final = 8
# Least cosine of an embedding and onnxruntime's of the same file, for each precision.
AGREEMENT: Final = {"float32": 0.99999, "bf16": 0.999, "int8": 0.99}


def make_texts(tokenizer: Any, count: int = COUNT, longest: int = LONGEST) -> list[str]:
    """Return texts of random words; the number of tokens is uniform, from SHORTEST to longest."""
    chosen = random.Random(0)
    words = [word for word in sorted(tokenizer.get_vocab()) if word.isalpha() and word.isascii() and len(word) > 2]
    return [" ".join(chosen.choices(words, k=chosen.randint(SHORTEST - 2, longest - 2))) for _ in range(count)]


def engine_rate(embed: Embed, batches: Sequence[Sequence[str]]) -> float:
    """Return the texts a second of an engine that embeds all batches."""
    begin = time.monotonic()
    for batch in batches:
        embed(batch)
    return sum(map(len, batches)) / (time.monotonic() - begin)


def check(name: str, found: np.ndarray, expected: np.ndarray, precision: str) -> float:
    """Return the least cosine; raise ValueError if it is too small."""
    cosine = float((found * expected).sum(1).min())
    if cosine < AGREEMENT[precision]:
        raise ValueError(f"{name}: found cosine {cosine}, expected at least {AGREEMENT[precision]}")
    return cosine


def measure(model: Path, threads: int, precision: str, turns: int, count: int, python: str) -> dict[str, Any]:
    """Return the rates of all after proving that the answers agree."""
    texts = make_texts(open_tokenizer(model), count)
    ordered = sorted(texts, key=len)
    ways = [[[text] for text in texts], [ordered[at : at + BATCH] for at in range(0, len(ordered), BATCH)]]
    expected = np.concatenate([open_rival("onnxruntime", model, threads, "float32")([text]) for text in texts])
    engines = {name: open_rival(name, model, threads, precision) for name in ENGINES[precision]}
    cosines: dict[str, float] = {}
    for name, embed in engines.items():
        cosines[name] = check(name, np.concatenate([embed([text]) for text in texts]), expected, precision)
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        ports = {
            name: stack.enter_context(serving(name, model, threads, precision, python))
            for name in ("ours", *PEERS[precision])
        }
        for name, port in ports.items():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            cosines[name] = check(name, np.array([ask(connection, text) for text in texts]), expected, precision)
        for _ in range(turns):
            for clients in CLIENTS:
                for name, port in ports.items():
                    rates.setdefault(f"{name}, clients: {clients}", []).append(served_rate(port, texts, clients))
            for name, embed in engines.items():
                rates.setdefault(name, []).append(max(engine_rate(embed, batches) for batches in ways))
    return {"threads": threads, "precision": precision, "cosines": cosines, "rates": rates}


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table: texts a second by median of the turns, and ours divided by each competitor's."""
    lines = []
    for each in records:
        rates = {name: median(found) for name, found in each["rates"].items()}
        start = [each["precision"], str(each["threads"])]
        for clients in CLIENTS:
            ours = rates[f"ours, clients: {clients}"]
            lines.append([*start, str(clients), f"{OURS}", f"{ours:.1f}", "–"])
            for name in PEERS[each["precision"]]:
                rate = rates[f"{name}, clients: {clients}"]
                lines.append([*start, str(clients), f"{name}, HTTP", f"{rate:.1f}", f"{ours / rate:.2f}"])
            for name in ENGINES[each["precision"]]:
                lines.append(
                    [*start, str(clients), f"{name}, no server", f"{rates[name]:.1f}", f"{ours / rates[name]:.2f}"]
                )
    return table(["precision", "threads", "clients", "by", "texts/s", "ours / this"], lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder with model.onnx and tokenizer.json")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of every engine (1)")
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=list(AGREEMENT))
    parser.add_argument("--turns", type=int, default=3, help="of all competitors (3)")
    parser.add_argument("--texts", type=int, default=COUNT, help=f"of a turn ({COUNT})")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the other servers (this one)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    records = [
        measure(options.model, threads, precision, options.turns, options.texts, options.python)
        for precision in options.precision
        for threads in options.threads
    ]
    how = f"texts of {SHORTEST} to {LONGEST} tokens, {options.turns} turns of {options.texts} texts, medians"
    machine = describe([OURS, "onnxruntime", "openvino"])
    kind = "texts_int8" if options.precision == ["int8"] else "texts"
    result = Result(kind=kind, machine=machine, how=how, body=report(records), records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
