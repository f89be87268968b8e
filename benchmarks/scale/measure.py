"""Measure a server's service times, the input of the simulation.

    python -m benchmarks.scale.measure [--requests 300] [--save benchmarks/scale/times.json]

One server, one thread, one client that asks again once it is answered: no request waits, so the time of an answer is
the time that a node is busy. Two loads: equal images of a digit; and images to enlarge, whose sizes are log-normal with
the long tail of uploads.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx
import numpy as np

from benchmarks.machine import ROOT, describe
from benchmarks.overload.__main__ import server
from benchmarks.raw import raw_text

TIMES: Final = Path(__file__).with_name("times.json")
_SIDES: Final = (32, 320)


def npy(shape: Sequence[int]) -> bytes:
    """Return a tensor as a body."""
    held = io.BytesIO()
    np.save(held, np.zeros(shape, np.float32))
    return held.getvalue()


def sizes(count: int) -> list[tuple[int, int]]:
    """Return sides of images: log-normal around 64, with few values, as from clients that pad to multiples of 32."""
    draw = random.Random(1)

    def side() -> int:
        return int(min(max(round(draw.lognormvariate(np.log(64), 0.7) / 32) * 32, _SIDES[0]), _SIDES[1]))

    return [(side(), side()) for _ in range(count)]


def loads(requests: int) -> dict[str, list[tuple[str, bytes]]]:
    """Return path and body of every request, by load."""
    return {
        "alike": [("/infer?model=digits", npy((1, 1, 16, 16)))] * requests,
        "heavy-tailed": [("/infer?model=superres", npy((1, 3, *size))) for size in sizes(requests)],
    }


def measure(http: httpx.Client, asked: list[tuple[str, bytes]]) -> list[float]:
    """Return the time of every answer in seconds: the minimum of three, once all sizes have code."""
    best: dict[int, float] = {}
    for turn in range(4):
        for number, (path, body) in enumerate(asked):
            start = time.perf_counter()
            answer = http.post(
                path, content=body, headers={"content-type": "application/x-npy", "accept": "application/x-npy"}
            )
            took = time.perf_counter() - start
            if answer.status_code != 200:
                raise SystemExit(f"{path}: {answer.status_code} {answer.text[:200]}")
            if turn:
                best[number] = min(best.get(number, took), took)
        if not turn:
            _settle(http)
    return list(best.values())


def _settle(http: httpx.Client) -> None:
    """Wait until nothing is compiled or queued for it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        text = http.get("/metrics").text
        if all(f'pnnx_serve_{name}{{worker="0"}} 0.0' in text for name in ("compiling", "compile_wishes")):
            return
        time.sleep(0.2)


def main() -> int:
    """Measure and save."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--save", type=Path, default=TIMES)
    options = parser.parse_args()
    found = {}
    with (
        tempfile.TemporaryDirectory() as cache,
        server(ROOT, cache, 0) as (_, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as http,
    ):
        for name, asked in loads(options.requests).items():
            times_s = measure(http, asked)
            found[name] = sorted(round(each * 1e3, 3) for each in times_s)
            quantiles = ", ".join(f"p{share:g} {np.percentile(times_s, share) * 1e3:.2f}" for share in (50, 99))
            print(f"{name}: mean {np.mean(times_s) * 1e3:.2f} ms, {quantiles}")
        batch_ms = http.get("/models/digits").json()["batching"]["latency_ms"]
    text = raw_text({"machine": describe(()), "times_ms": found, "batch_ms": batch_ms})
    options.save.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
