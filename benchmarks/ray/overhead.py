"""Where the time of a request goes: in the replica, in what is pickled, and on the way."""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import httpx

from benchmarks.ray.world import HEADERS, MEMORY, STORE, free_port, settle, tensor

REQUESTS: Final = 200
ITEMS: Final = 600


def run(kind: str) -> dict[str, float]:
    """Milliseconds a request, behind Ray."""
    settle(kind)
    import ray
    from ray import serve

    from app.scale.ray import Options, build

    port = free_port()
    ray.init(num_cpus=2, object_store_memory=MEMORY, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build(Options(store=str(STORE), replicas=1)), name="overhead")
    try:
        return measured(f"http://127.0.0.1:{port}")
    finally:
        serve.shutdown()
        ray.shutdown()


def alone() -> dict[str, float]:
    """The same behind a server alone."""
    port = free_port()
    command = [sys.executable, "-m", "app", "serve", "--store", str(STORE), "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return measured(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()


def measured(url: str) -> dict[str, float]:
    body, totals, insides = tensor(ITEMS), [], []
    with httpx.Client(base_url=url, timeout=60) as client:
        while not _is_ready(client):
            time.sleep(0.1)
        for number in range(REQUESTS + 20):
            start = time.perf_counter()
            answer = client.post("/models/digits/infer", content=body, headers=HEADERS)
            took = (time.perf_counter() - start) * 1e3
            answer.raise_for_status()
            if number >= 20:
                totals.append(took)
                insides.append(
                    sum(float(part.partition("dur=")[2]) for part in answer.headers["server-timing"].split(","))
                )
    outside = [total - inside for total, inside in zip(totals, insides, strict=True)]
    return {
        "total": statistics.median(totals),
        "model": statistics.median(insides),
        "outside": statistics.median(outside),
    }


def compare(asked: Callable[[str], dict[str, float]]) -> int:
    """Print all three, with what Ray adds to a server alone."""
    found = {"server alone": alone(), "Ray's proxy": asked("plain"), "HAProxy": asked("haproxy")}
    print(f"{len(tensor(ITEMS)):,} bytes to digits, median of {REQUESTS} requests, ms")
    print(f"{'':14} {'total':>8} {'model':>8} {'outside':>8} {'added':>8}")
    base = found["server alone"]["outside"]
    for name, row in found.items():
        added = row["outside"] - base
        print(f"{name:14} {row['total']:8.2f} {row['model']:8.2f} {row['outside']:8.2f} {added:8.2f}")
    print(f"pickling and unpickling the body, which Ray's proxy does and HAProxy does not: {_pickling():.2f} ms")
    return 0


def _pickling() -> float:
    """A body as Ray has it on its way: messages of 64 KiB in lists."""
    body = tensor(ITEMS)
    parts = [
        {"type": "http.request", "body": body[at : at + 65536], "more_body": True} for at in range(0, len(body), 65536)
    ]
    times = []
    for _ in range(100):
        start = time.perf_counter()
        pickle.loads(pickle.dumps(parts))
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.HTTPError:
        return False
