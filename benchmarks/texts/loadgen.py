"""Measure servers of embeddings by MLPerf LoadGen, scenario Server: queries a second within a bound of the latency.

    python -m benchmarks.texts.loadgen --model FOLDER [--servers NAME ...] [--bound-ms 15] [--longest 64]
        [--seconds 2.5] [--python KIND=PYTHON ...] [--save NAME]

Queries come at random times (Poisson), a text of 8 to 64 tokens each. One server runs at a time, and its rate is
searched by bisection. Saved results of other servers are kept. MLPerf's bound of 15 ms leaves no time for more tokens
on one core: a text of 256 takes 25 ms alone, and one picture through ResNet-50 takes longer than the bound. LoadGen's
own verdict needs more queries than such a trial has, so its p99 latency is compared with the bound. KIND is fastapi,
litserve, bentoml or mlserver, and PYTHON the interpreter of an environment with that server, onnxruntime, openvino and
tokenizers. Needs mlcommons-loadgen.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import queue
import re
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from app.render.formatting import counted
from benchmarks.machine import describe
from benchmarks.raw import RAW, Result
from benchmarks.record import OURS
from benchmarks.report import table
from benchmarks.texts.__main__ import SHORTEST, make_texts
from benchmarks.texts.rivals import open_tokenizer
from benchmarks.texts.served import ask, serving

SERVERS: Final = (
    "ours",
    "litserve+onnxruntime",
    "bentoml+onnxruntime",
    "mlserver+onnxruntime",
    "fastapi+openvino",
)
CONNECTIONS: Final = 32
STEPS: Final = 6
RANGE: Final = (0.0, 64.0)


def p99_ms(port: int, texts: Sequence[str], rate: float, seconds: float) -> float:
    """Return LoadGen's p99 latency in ms at a rate of queries a second; infinite if a query is refused."""
    import mlperf_loadgen as lg

    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    refused: list[Exception] = []

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (sample := waiting.get()) is not None:
            try:
                ask(connection, texts[sample.index])
            except (OSError, ValueError, http.client.HTTPException) as error:
                refused.append(error)
                connection.close()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for each in threads:
        each.start()
    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.Server, lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.min_query_count = settings.max_query_count = int(rate * seconds)
    settings.min_duration_ms = 0
    sut = lg.ConstructSUT(lambda samples: [waiting.put(each) for each in samples], lambda: None)
    library = lg.ConstructQSL(len(texts), len(texts), lambda _: None, lambda _: None)
    with tempfile.TemporaryDirectory() as folder:
        log = lg.LogSettings()
        log.log_output.outdir = folder
        log.log_output.copy_summary_to_stdout = False
        lg.StartTestWithLogSettings(sut, library, settings, log)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    for _ in threads:
        waiting.put(None)
    for each in threads:
        each.join()
    lg.DestroyQSL(library)
    lg.DestroySUT(sut)
    found = re.search(r"99\.00 percentile latency \(ns\)\s*:\s*(\d+)", summary)
    if found is None:
        raise ValueError("LoadGen's summary has no p99 latency")
    return math.inf if refused else int(found[1]) / 1e6


def measure(
    name: str, model: Path, threads: int, bound_ms: float, longest: int, seconds: float, python: str
) -> dict[str, Any]:
    """Return the highest rate of a server that keeps the bound, and all trials."""
    texts = make_texts(open_tokenizer(model), longest=longest)
    low, high = RANGE
    trials = []
    with serving(name, model, threads, "float32", python) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for text in texts:  # compiled and warm before it is measured
            ask(connection, text)
        for _ in range(STEPS):
            rate = (low + high) / 2
            latency = p99_ms(port, texts, rate, seconds)
            trials.append([rate, latency])
            low, high = (rate, high) if latency <= bound_ms else (low, rate)
    return {"server": name, "rate": low, "trials": trials}


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table of rates."""
    rates = {each["server"]: each["rate"] for each in records}
    ours = rates.get("ours")
    rows = [
        [OURS if name == "ours" else name, f"{rate:.0f}", f"{ours / rate:.2f}" if ours and rate else "–"]
        for name, rate in rates.items()
    ]
    return table(["server", "queries/s", "ours / this"], rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder with model.onnx and tokenizer.json")
    parser.add_argument("--servers", nargs="+", default=SERVERS, choices=SERVERS, metavar="NAME", help="(all)")
    parser.add_argument("--threads", type=int, default=1, help="of every engine (1)")
    parser.add_argument("--bound-ms", type=float, default=15.0, help="of the p99 latency (15)")
    parser.add_argument("--longest", type=int, default=64, help="tokens of the longest text (64)")
    parser.add_argument("--seconds", type=float, default=2.5, help="of a trial (2.5)")
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="KIND=PYTHON", help="interpreters of other servers (this one)"
    )
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in options.python)
    how = (
        f"scenario Server, texts of {SHORTEST} to {options.longest} tokens, p99 latency at most {options.bound_ms:g}"
        f" ms, {counted(options.threads, 'thread')} each, one server at a time, {STEPS} steps of bisection of"
        f" {options.seconds:g} s"
    )
    machine = describe([OURS, "onnxruntime", "openvino"])
    found = _saved(options.save, how)
    for name in options.servers:
        python = pythons.get(name.partition("+")[0], sys.executable)
        found[name] = measure(
            name, options.model, options.threads, options.bound_ms, options.longest, options.seconds, python
        )
        records = [found[each] for each in SERVERS if each in found]
        result = Result(kind="loadgen", machine=machine, how=how, body=report(records), records=records)
        if options.save:
            result.save(options.save)
    print(result.text())
    return 0


def _saved(name: str | None, how: str) -> dict[str, dict[str, Any]]:
    """Return the saved records by server, if they were measured in the same way."""
    path = RAW / f"{name}.json"
    if name is None or not path.exists():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    return {each["server"]: each for each in data["records"]} if data["how"] == how else {}


if __name__ == "__main__":
    sys.exit(main())
