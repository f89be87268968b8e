"""Measure servers of embeddings by MLPerf LoadGen, scenario Server: queries a second within a bound of the latency.

    python -m benchmarks.texts.loadgen --model FOLDER [--bound-ms 15] [--longest 64] [--seconds 2]
        [--python KIND=PYTHON ...] [--save NAME]

Queries come at random times (Poisson), a text of 8 to 64 tokens each. The rate is searched by bisection, in turns of
all servers. MLPerf's bound of 15 ms leaves no time for more tokens on one core: a text of 256 takes 25 ms alone, and
one picture through ResNet-50 takes longer than the bound on two. LoadGen's own verdict needs more queries than such a
turn has, so its p99 latency is compared with the bound. KIND is fastapi, litserve, bentoml or mlserver, and PYTHON the
interpreter of an environment with that server, onnxruntime, openvino and tokenizers. Needs mlcommons-loadgen.
"""

from __future__ import annotations

import argparse
import http.client
import queue
import re
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import describe
from benchmarks.raw import Result
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
STEPS: Final = 5
RANGE: Final = (0.0, 160.0)


def p99_ms(port: int, texts: Sequence[str], rate: float, seconds: float) -> float:
    """Return LoadGen's p99 latency in ms at a rate of queries a second."""
    import mlperf_loadgen as lg

    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (sample := waiting.get()) is not None:
            ask(connection, texts[sample.index])
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for each in threads:
        each.start()
    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.Server, lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.min_query_count = int(rate * seconds)
    settings.max_query_count = int(rate * seconds)
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
    return int(found[1]) / 1e6


def measure(
    model: Path, bound_ms: float, longest: int, seconds: float, pythons: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the highest rate of each server that keeps the bound, and all trials."""
    texts = make_texts(open_tokenizer(model), longest=longest)
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for name in SERVERS:
            port = stack.enter_context(
                serving(name, model, 1, "float32", pythons.get(name.partition("+")[0], sys.executable))
            )
            ask(http.client.HTTPConnection("127.0.0.1", port, timeout=120), texts[0])
            found.append({"server": name, "port": port, "range": list(RANGE), "trials": []})
        for _ in range(STEPS):
            for each in found:
                low, high = each["range"]
                rate = (low + high) / 2
                latency = p99_ms(each["port"], texts, rate, seconds)
                each["trials"].append([rate, latency])
                each["range"] = [rate, high] if latency <= bound_ms else [low, rate]
    return [{**each, "rate": each["range"][0]} for each in found]


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table of rates."""
    ours = next(each["rate"] for each in records if each["server"] == "ours")
    rows = [
        [OURS if each["server"] == "ours" else each["server"], f"{each['rate']:.1f}", f"{ours / each['rate']:.2f}"]
        for each in records
    ]
    return table(["server", "queries/s", "ours / this"], rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder with model.onnx and tokenizer.json")
    parser.add_argument("--bound-ms", type=float, default=15.0, help="of the p99 latency (15)")
    parser.add_argument("--longest", type=int, default=64, help="tokens of the longest text (64)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a trial (2)")
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="KIND=PYTHON", help="interpreters of other servers (this one)"
    )
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in options.python)
    records = measure(options.model, options.bound_ms, options.longest, options.seconds, pythons)
    how = (
        f"scenario Server, texts of {SHORTEST} to {options.longest} tokens, p99 latency at most {options.bound_ms:g} ms"
    )
    how += f", one thread, {STEPS} steps of bisection"
    machine = describe([OURS, "onnxruntime", "openvino"])
    result = Result(kind="loadgen", machine=machine, how=how, body=report(records), records=records)
    print(result.text())
    if options.save:
        result.save(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
