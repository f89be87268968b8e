"""Many clients at once, good and bad requests mixed: is every answer right, and does memory stay where it was?

    python benchmarks/soak.py [--clients 64] [--seconds 60] [--store model_store] [--model digits]

Starts a server process of its own on a free loopback port. Every good answer is compared with the engine's; every bad
request must get its own 4xx, or 429 with Retry-After when the queue is full. Memory is the server's resident set, read
every second; growth is counted from ten seconds after the start. Exit status 1 when anything is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import engine

ALLOWED_GROWTH_MB = 16
SETTLED_S = 10


@dataclass(frozen=True)
class Request:
    """A body and what must come back: the outputs, or a status."""

    name: str
    content_type: str
    body: bytes
    status: int = 200
    expected: np.ndarray | None = None
    params: dict[str, str] = field(default_factory=dict)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def requests(param: Path, model: str, picture: Path) -> list[Request]:
    """Good requests at several batch sizes and forms, and one bad request of every kind."""
    session = engine.Session(engine.load(param))
    shape = [dim or 1 for dim in session.graph.inputs[0].spec.shape[1:]]  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    good = []
    for batch in (1, 2, 3, 8):
        x = rng.standard_normal((batch, *shape)).astype(np.float32)
        expected = session.run([x])[0]
        good.append(Request(f"npy batch {batch}", "application/x-npy", npy(x), expected=expected))
        text = str({"inputs": x.tolist()}).replace("'", '"').encode()
        good.append(Request(f"json batch {batch}", "application/json", text, expected=expected))
    photo = picture.read_bytes()
    good.append(Request("picture", "image/png", photo))
    one = rng.standard_normal((1, *shape))
    bad = [
        Request("not json", "application/json", b"{", 400),
        Request("nan in json", "application/json", b'{"inputs": [NaN]}', 400),
        Request("deep json", "application/json", b"[" * 100_000, 400),
        Request("wrong rank", "application/json", b'{"inputs": [1, 2]}', 422),
        Request("wrong dtype", "application/x-npy", npy(one), 422),
        Request("wrong shape", "application/x-npy", npy(np.zeros((1, 1, 3, 3), np.float32)), 422),
        Request("truncated npy", "application/x-npy", npy(one)[:-5], 400),
        Request("truncated picture", "image/png", photo[: len(photo) // 2], 400),
        Request("no picture", "image/png", b"not a picture", 400),
        Request("unknown type", "text/plain", b"hello", 415),
        Request("unknown model", "application/json", b'{"inputs": [1]}', 404, params={"model": "nobody"}),
        Request(
            "huge shape",
            "application/json",
            b'{"inputs": {"in0": {"shape": [1000000000], "dtype": "float32", "data": [1]}}}',
            413,
        ),
    ]
    return [
        Request(r.name, r.content_type, r.body, r.status, r.expected, {"model": model, **r.params})
        for r in [*good, *bad]
    ]


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)


async def client(url: str, todo: list[Request], seed: int, end: float, tally: Tally) -> None:
    chooser = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        while time.monotonic() < end:
            request = chooser.choice(todo)
            start = time.monotonic()
            answer = await http.post(
                "/infer", params=request.params, content=request.body, headers={"content-type": request.content_type}
            )
            tally.latencies_s.append(time.monotonic() - start)
            judge(request, answer, tally)


def judge(request: Request, answer: httpx.Response, tally: Tally) -> None:
    if answer.status_code == 429 and "retry-after" in answer.headers:
        tally.counts["busy"] += 1
        return
    tally.counts["good" if request.status == 200 else "bad"] += 1
    if answer.status_code != request.status:
        tally.wrong.append(f"{request.name}: {answer.status_code} {answer.text[:200]}")
    elif request.status != 200 and "error" not in answer.json():
        tally.wrong.append(f"{request.name}: no error in the body")
    elif request.expected is not None:
        output: dict[str, Any] = answer.json()["outputs"]["out0"]
        found = np.array(output["data"], np.float32).reshape(output["shape"])
        if not np.allclose(found, request.expected, rtol=1e-4, atol=1e-5):
            tally.wrong.append(f"{request.name}: wrong values")


def resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


async def watch_memory(pid: int, start: float, end: float, tally: Tally) -> None:
    while time.monotonic() < end:
        tally.memory_mb.append((time.monotonic() - start, resident_mb(pid)))
        await asyncio.sleep(1)


async def soak(url: str, pid: int, todo: list[Request], clients: int, seconds: float) -> Tally:
    tally, start = Tally(), time.monotonic()
    end = start + seconds
    work = [client(url, todo, seed, end, tally) for seed in range(clients)]
    await asyncio.gather(*work, watch_memory(pid, start, end, tally))
    return tally


def report(tally: Tally, seconds: float) -> bool:
    latencies = sorted(tally.latencies_s)
    total = sum(tally.counts.values())
    settled = [mb for at, mb in tally.memory_mb if at >= SETTLED_S]
    growth = max(settled[-3:]) - settled[0] if settled else 0.0
    print(f"{total} requests in {seconds:.0f} s ({total / seconds:.0f}/s): {dict(tally.counts)}")
    print(f"latency p50 {latencies[total // 2] * 1e3:.1f} ms, p99 {latencies[int(total * 0.99)] * 1e3:.1f} ms")
    print(f"memory {tally.memory_mb[0][1]:.0f} MB at the start, {growth:+.1f} MB after the first {SETTLED_S} s")
    for line in tally.wrong[:10]:
        print(f"WRONG {line}")
    print(f"{len(tally.wrong)} wrong answers")
    return not tally.wrong and growth <= ALLOWED_GROWTH_MB


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--store", type=Path, default=Path("model_store"))
    parser.add_argument("--model", default="digits")
    options = parser.parse_args()
    folder = options.store / options.model
    todo = requests(
        folder / "1" / "model.pnnx.param", options.model, next(iter(sorted((folder / "examples").glob("*.png"))))
    )
    command = [sys.executable, "-m", "app", "serve", "--store", str(options.store), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as server:
        try:
            banner = ""
            while "  try  " not in banner:
                banner += server.stdout.readline()  # type: ignore[union-attr]
            url = re.findall(r"console +(http://\S+)/", banner)[0]
            tally = asyncio.run(soak(url, server.pid, todo, options.clients, options.seconds))
        finally:
            server.send_signal(signal.SIGTERM)
    return 0 if report(tally, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
