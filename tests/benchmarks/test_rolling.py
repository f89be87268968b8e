"""Simulated kubelet: it treats processes as a kubelet does, and an update loses no request."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.rolling.__main__ import plan, run
from benchmarks.rolling.kubelet import Pod, PodPlan, Probe
from benchmarks.rolling.service import Client, ClientAnswers, Service

# A server of a few lines: ready after its first look, deaf to SIGTERM where it is told to be.
FAKE = """
import http.server, os, signal, sys
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if "never" in sys.argv else 200)
        self.send_header("content-length", "0")
        self.end_headers()
    do_POST = do_GET
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PNNX_SERVE_PORT"])), Handler).serve_forever()
"""


def fake(grace_s: float, failures: int = 1000) -> PodPlan:
    probe = Probe(path="/health/ready", period_s=0.02, timeout_s=30, failures=3)
    startup = Probe(path="/health/ready", period_s=0.02, timeout_s=30, failures=failures)
    return PodPlan(
        environ={}, startup=startup, liveness=probe, readiness=probe, pre_stop_s=0.05, grace_s=grace_s
    )  # fmt: skip


def patient(own: PodPlan) -> PodPlan:
    """Return the same plan with patient probes, for slow machines."""
    probes = {name: replace(getattr(own, name), timeout_s=60) for name in ("startup", "liveness", "readiness")}
    return replace(own, **probes, grace_s=300)  # type: ignore[arg-type]


async def lived(tmp_path: Path, own: PodPlan, *words: str) -> tuple[int, bool] | None:
    """Return how a pod ended that was told to leave once it was ready."""
    pod = await Pod.start(own, {}, tmp_path / "log", [sys.executable, "-c", FAKE, *words])
    try:
        await pod.until_ready(120)
        await pod.leave()
        assert not pod.is_ready
        return pod.ended
    finally:
        await pod.remove()


@pytest.mark.slow
def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    assert asyncio.run(lived(tmp_path, fake(0.3), "deaf")) == (-9, True)
    assert asyncio.run(lived(tmp_path, fake(60))) == (-15, False)


@pytest.mark.slow
def test_what_never_becomes_ready_is_killed_by_its_startup_probe(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not become ready"):
        asyncio.run(lived(tmp_path, fake(60, failures=200), "never"))


def test_a_service_without_endpoints_is_a_failure_that_is_counted() -> None:
    async def ask() -> ClientAnswers:
        answers, stop = ClientAnswers(), asyncio.Event()
        client = asyncio.create_task(Client(Service(0.0), b"", answers, keeps=True).run(stop))
        while not answers.failed:
            await asyncio.sleep(0.01)
        stop.set()
        await client
        return answers

    assert asyncio.run(ask()).failures.keys() == {"ConnectionRefusedError"}


@pytest.mark.slow
def test_an_update_under_load_loses_no_request(tmp_path: Path) -> None:
    own = patient(plan(hurry=10))
    (row,) = asyncio.run(run(own, tmp_path, updates=1, replicas=1, clients=4, pause_s=0.02, late_s=0.2))
    assert (row.failed, row.failures, row.killed, row.statuses) == (0, {}, 0, [0])
    assert row.answered > 20
