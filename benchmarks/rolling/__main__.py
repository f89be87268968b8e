"""Update a Deployment five times under load, and count lost requests.

    python -m benchmarks.rolling [--updates 5] [--replicas 2] [--clients 8] [--hurry 1] [--save NAME]

Needs PyYAML (the extra `test` brings it). Plays kubelet, Deployment and Service for server processes of this machine:
probes, environment, preStop and grace are those of deploy/kubernetes/base, one new pod comes before an old one goes
(maxSurge 1, maxUnavailable 0), endpoints change a second late. Half of the clients keep their connections, the other
half open one for each request; none retries. Exit status 1 if a request was not answered with 200, or a server had to
be killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, describe
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.rolling.kubelet import Pod, PodPlan, plan_of
from benchmarks.rolling.service import Client, ClientAnswers, Service, quantile_s

DEPLOYMENT = ROOT / "deploy/kubernetes/base/deployment.yaml"
PICTURE = ROOT / "model_store/digits/examples/digit-3-a.png"
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result of one update, or of the time without one."""

    name: str
    seconds: float
    answered: int
    failed: int
    failures: dict[str, int]
    p50_ms: float
    p99_ms: float
    longest_ms: float
    killed: int
    statuses: list[int]


def message(model: str, body: bytes, kind: str) -> bytes:
    """Return a request as it is sent."""
    head = (
        f"POST /infer?model={model} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def plan(hurry: float) -> PodPlan:
    """Return the plan of the Deployment in deploy/."""
    import yaml  # of the extra `test`

    manifest = yaml.safe_load(DEPLOYMENT.read_text(encoding="utf-8"))
    return plan_of(manifest["spec"]["template"]["spec"], hurry)


async def update(pods: list[Pod], service: Service, start: Any) -> list[Pod]:
    """Replace every pod, one after the other; old ones end while the next one starts."""
    new, leaving = [], []
    for old in pods:
        pod = await start()
        await pod.until_ready(PATIENCE_S)
        new.append(pod)
        leaving.append(asyncio.create_task(old.leave()))
    await asyncio.gather(*leaving)
    return new


async def run(
    plan: PodPlan, folder: Path, *, updates: int, replicas: int, clients: int, pause_s: float = 0.0, late_s: float = 1.0
) -> list[Row]:
    """Update under load; return a row for each update."""
    environ = {
        "PNNX_SERVE_STORE": str(ROOT / "model_store"),
        "PNNX_SERVE_HOST": "127.0.0.1",
        "PNNX_SERVE_CACHE_DIR": str(folder / "cache"),
        "PNNX_SERVE_THREADS": "1",
        # What is asked is whether requests are lost, not how many two cores can answer: a queue may be long.
        "PNNX_SERVE_MAX_WAIT_S": "30",
    }
    service, answers, stop = Service(late_s), ClientAnswers(), asyncio.Event()
    every: list[Pod] = []

    async def start() -> Pod:
        pod = await Pod.start(plan, environ, folder / "servers.log")
        every.append(pod)
        service.join(pod)
        return pod

    watching = asyncio.create_task(service.watch())
    rows: list[Row] = []
    try:
        pods = [await start() for _ in range(replicas)]
        for pod in pods:
            await pod.until_ready(PATIENCE_S)
        await asyncio.sleep(late_s + 0.2)
        text = message("digits", PICTURE.read_bytes(), "image/png")
        asking = [
            asyncio.create_task(Client(service, text, answers, keeps=bool(each % 2), pause_s=pause_s).run(stop))
            for each in range(clients)
        ]
        for number in range(updates):
            begin, answered, before = time.monotonic(), len(answers.waits_s), answers.failures.copy()
            old, pods = pods, await update(pods, service, start)
            waits, failures = answers.waits_s[answered:], answers.failures - before
            ended = [pod.ended for pod in old if pod.ended is not None]
            rows.append(
                Row(
                    name=f"update {number + 1}",
                    seconds=time.monotonic() - begin,
                    answered=len(waits),
                    failed=sum(failures.values()),
                    failures=dict(failures),
                    p50_ms=quantile_s(waits, 0.5) * 1e3,
                    p99_ms=quantile_s(waits, 0.99) * 1e3,
                    longest_ms=max(waits, default=float("nan")) * 1e3,
                    killed=sum(killed for _, killed in ended),
                    statuses=[status for status, _ in ended],
                )
            )
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
        stop.set()
        await asyncio.gather(*asking)
    finally:
        watching.cancel()
        await asyncio.gather(*(pod.remove() for pod in every))
    return rows


def report(rows: list[Row]) -> str:
    """Return the table."""
    titles = ["update", "s", "answered", "failed", "p50 ms", "p99 ms", "longest ms", "killed"]
    found = [
        [row.name, f"{row.seconds:.1f}", str(row.answered), str(row.failed), f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}",
         f"{row.longest_ms:.0f}", str(row.killed)] for row in rows
    ]  # fmt: skip
    return table(titles, found)


def main() -> int:
    """Update, print, and save if asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--hurry", type=float, default=1.0, help="divisor of waiting times")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        own = plan(options.hurry)
        rows = asyncio.run(
            run(own, Path(folder), updates=options.updates, replicas=options.replicas, clients=options.clients)
        )
    how = (
        f"{len(os.sched_getaffinity(0))} cores, {options.replicas} replicas, {options.clients} clients, "
        f"times of the Deployment divided by {options.hurry:g}"
    )
    records = [asdict(row) for row in rows]
    result = Result(kind="rolling", machine=describe(()), how=how, body=report(rows), records=records)
    result.publish(options.save)
    return 0 if not any(row.failed or row.killed or any(row.statuses) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
