"""Measure embeddings of texts over HTTP beside onnxruntime and OpenVINO with `tokenizers` in one process.

    python -m benchmarks.texts --model FOLDER [--threads 1] [--seconds 5] [--precision float32|bf16] [--save NAME]

FOLDER has `model.onnx` and `tokenizer.json` of an embedding model, such as MiniLM. Texts have 8 to 256 tokens, drawn at
random. The server answers `/v1/embeddings` for one client and for sixteen, a text per request. The rivals embed the
same texts in a loop, without a server: one by one, or in batches of 16 texts of similar length, whichever is faster.
Server and rivals take turns. Needs onnxruntime, openvino and tokenizers.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import numpy as np

from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

RIVALS: Final = ("onnxruntime", "openvino")
COUNT: Final = 128
BATCH: Final = 16
CLIENTS: Final = (1, 16)
TURNS: Final = 5
TOKENS: Final = (8, 256)
# Least cosine of our embedding and onnxruntime's, for each precision.
AGREEMENT: Final = {"float32": 0.99999, "bf16": 0.999}
START_S: Final = 120

Embed = Callable[[Sequence[str]], np.ndarray]


def make_texts(tokenizer: Any) -> list[str]:
    """Return texts of random words; the number of tokens is uniform."""
    chosen = random.Random(0)
    words = [word for word in sorted(tokenizer.get_vocab()) if word.isalpha() and word.isascii() and len(word) > 2]
    return [" ".join(chosen.choices(words, k=chosen.randint(TOKENS[0] - 2, TOKENS[1] - 2))) for _ in range(COUNT)]


def rival(name: str, model: Path, tokenizer: Any, threads: int, precision: str) -> Embed:
    """Return a function that embeds texts as one padded batch: mean of the tokens, scaled to length 1."""
    run = _onnxruntime(model, threads) if name == "onnxruntime" else _openvino(model, threads, precision)

    def embed(texts: Sequence[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(list(texts))
        ids = np.zeros((len(texts), max(len(each.ids) for each in encodings)), np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(encodings):
            ids[row, : len(each.ids)], mask[row, : len(each.ids)] = each.ids, 1
        hidden = run({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        pooled = (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))

    return embed


def _onnxruntime(model: Path, threads: int) -> Callable[[dict[str, Any]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


def _openvino(model: Path, threads: int, precision: str) -> Callable[[dict[str, Any]], Any]:
    import openvino

    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    hints["INFERENCE_PRECISION_HINT"] = {"float32": "f32"}.get(precision, precision)
    request = openvino.Core().compile_model(str(model), "CPU", hints).create_infer_request()
    return lambda inputs: next(iter(request.infer(inputs).values()))


@contextmanager
def serving(model: Path, threads: int, precision: str) -> Iterator[str]:
    """Yield the URL of a server with the model."""
    with tempfile.TemporaryDirectory() as folder:
        version = Path(folder) / "model" / "1"
        version.mkdir(parents=True)
        for name in ("model.onnx", "tokenizer.json"):
            (version / name).write_bytes((model / name).read_bytes())
        config = f'task = "embedding"\nprecision = "{precision}"\n[text]\nmax_tokens = {TOKENS[1]}\n'
        (version.parent / "config.toml").write_text(config)
        port = _unused_port()
        command = [
            sys.executable,
            "-m",
            "app",
            "serve",
            "--store",
            folder,
            "--port",
            str(port),
            "--threads",
            str(threads),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                _await(f"http://127.0.0.1:{port}/health/ready")
                yield f"http://127.0.0.1:{port}/v1/embeddings"
            finally:
                server.terminate()


def _unused_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await(url: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"the server was not ready after {START_S} s")


def ask(client: httpx.Client, url: str, text: str) -> list[float]:
    """Return the embedding of a text."""
    answer = client.post(url, content=json.dumps({"input": text}))
    answer.raise_for_status()
    return list(answer.json()["data"][0]["embedding"])


def served_rate(url: str, texts: Sequence[str], clients: int, seconds: float) -> float:
    """Return the texts per second that so many clients get answered."""
    end, counts = time.monotonic() + seconds, [0] * clients

    def work(number: int) -> None:
        with httpx.Client(timeout=60) as client:
            while time.monotonic() < end:
                ask(client, url, texts[(number * 7 + counts[number]) % len(texts)])
                counts[number] += 1

    begin = time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts) / (time.monotonic() - begin)


def rival_rate(embed: Embed, texts: Sequence[str], seconds: float) -> float:
    """Return the texts per second of the faster of two ways: one by one, or sorted batches."""
    ordered = sorted(texts, key=len)
    batches = [ordered[at : at + BATCH] for at in range(0, len(ordered), BATCH)]
    return max(_rate(embed, [[text] for text in texts], seconds / 2), _rate(embed, batches, seconds / 2))


def _rate(embed: Embed, batches: Sequence[Sequence[str]], seconds: float) -> float:
    done, begin = 0, time.monotonic()
    for number in range(10**9):
        batch = batches[(number * 5) % len(batches)]
        embed(batch)
        done += len(batch)
        if (passed := time.monotonic() - begin) > seconds and number >= len(batches) // 2:
            return done / passed
    raise AssertionError


def measure(model: Path, threads: int, precision: str, seconds: float) -> dict[str, Any]:
    """Return the rates of all after proving that the answers agree."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS[1])
    texts = make_texts(tokenizer)
    embeds = {name: rival(name, model / "model.onnx", tokenizer, threads, precision) for name in RIVALS}
    rates: dict[str, list[float]] = {}
    with serving(model, threads, precision) as url:
        with httpx.Client(timeout=60) as client:
            found = np.array([ask(client, url, text) for text in texts])
        expected = np.concatenate([embeds["onnxruntime"]([text]) for text in texts])
        cosine = float((found * expected).sum(1).min())
        if cosine < AGREEMENT[precision]:
            raise ValueError(f"cosine: found {cosine}, expected at least {AGREEMENT[precision]}")
        for _ in range(TURNS):
            for clients in CLIENTS:
                rates.setdefault(f"{OURS}, clients: {clients}", []).append(served_rate(url, texts, clients, seconds))
            for name, embed in embeds.items():
                rates.setdefault(name, []).append(rival_rate(embed, texts, seconds))
    return {"threads": threads, "precision": precision, "cosine": cosine, "rates": rates}


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table: texts per second by median of the turns, and ours divided by the faster rival's."""
    lines = []
    for each in records:
        rates = {name: median(found) for name, found in each["rates"].items()}
        best = max(rates[name] for name in RIVALS)
        for clients in CLIENTS:
            ours = rates[f"{OURS}, clients: {clients}"]
            others = [f"{rates[name]:.1f}" for name in RIVALS]
            lines.append(
                [each["precision"], str(each["threads"]), str(clients), f"{ours:.1f}", *others, f"{ours / best:.2f}"]
            )
    return table(
        ["precision", "threads", "clients", f"{OURS} texts/s", *(f"{name} texts/s" for name in RIVALS), "ratio"], lines
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder with model.onnx and tokenizer.json")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of every engine (1)")
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=list(AGREEMENT))
    parser.add_argument("--seconds", type=float, default=5.0, help="for each turn (5)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    records = [
        measure(options.model, threads, precision, options.seconds)
        for precision in options.precision
        for threads in options.threads
    ]
    how = f"texts of {TOKENS[0]} to {TOKENS[1]} tokens, {TURNS} turns of {options.seconds:g} s, medians"
    result = Result(kind="texts", machine=describe([OURS, *RIVALS]), how=how, body=report(records), records=records)
    print(result.text())
    if options.save:
        result.save(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
