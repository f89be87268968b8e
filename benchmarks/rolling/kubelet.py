"""A kubelet's treatment of a pod, applied to a process: probes, preStop, SIGTERM, the grace period, SIGKILL.

Probes and times are those of a Deployment; times may be divided to shorten the run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT

HOST: Final = "127.0.0.1"
SERVE: Final = (sys.executable, "-m", "app", "serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Probe that is repeated."""

    path: str
    period_s: float
    timeout_s: float
    failures: int

    async def ask(self, port: int) -> bool:
        """Return whether the probe is answered with 200 in time."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await _status(port, self.path) == 200
        except (OSError, EOFError, TimeoutError, ValueError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """Plan to start, probe and end a server."""

    environ: Mapping[str, str]
    startup: Probe
    liveness: Probe
    readiness: Probe
    pre_stop_s: float
    grace_s: float


def plan_of(pod: Mapping[str, Any], hurry: float = 1.0) -> PodPlan:
    """Return the plan of a pod's specification.

    Args:
        hurry: what its times are divided by; timeouts of a probe, which a busy machine needs, are left.
    """
    (server,) = (each for each in pod["containers"] if each["name"] == "server")
    environ = {each["name"]: each["value"] for each in server["env"]}
    environ["PNNX_SERVE_DRAIN_DELAY_S"] = str(float(environ["PNNX_SERVE_DRAIN_DELAY_S"]) / hurry)

    def probe(name: str) -> Probe:
        found = server[name]
        period_s = found["periodSeconds"] / hurry
        return Probe(
            path=found["httpGet"]["path"],
            period_s=period_s,
            timeout_s=found["timeoutSeconds"],
            failures=round(found["failureThreshold"] * (hurry if name == "startupProbe" else 1)),
        )

    return PodPlan(
        environ=environ,
        startup=probe("startupProbe"),
        liveness=probe("livenessProbe"),
        readiness=probe("readinessProbe"),
        pre_stop_s=server["lifecycle"]["preStop"]["sleep"]["seconds"] / hurry,
        grace_s=pod["terminationGracePeriodSeconds"],
    )


class Pod:
    """Server process, and its state in the kubelet.

    Attributes:
        is_ready: as the last probes say; False from the moment it is to end.
        ended: None while it runs; then its status, and whether it had to be killed.
    """

    def __init__(self, plan: PodPlan, process: asyncio.subprocess.Process, port: int) -> None:
        self.plan = plan
        self.port = port
        self.is_ready = False
        self.is_leaving = False
        self.restarts = 0
        self.ended: tuple[int, bool] | None = None
        self._process = process
        self._probing = asyncio.create_task(self._probe())

    @classmethod
    async def start(cls, plan: PodPlan, environ: Mapping[str, str], log: Path, command: Sequence[str] = SERVE) -> Pod:
        """Start a server on a free port, given by PNNX_SERVE_PORT."""
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        own = {**os.environ, "PYTHONPATH": str(ROOT), **plan.environ, **environ, "PNNX_SERVE_PORT": str(port)}
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=own, stdout=output, stderr=output)
        return cls(plan, process, port)

    async def until_ready(self, patience_s: float) -> None:
        """Wait until the pod is ready.

        Raises:
            RuntimeError: it has ended, or takes too long.
        """
        end = time.monotonic() + patience_s
        while not self.is_ready:
            if self._process.returncode is not None or time.monotonic() > end:
                raise RuntimeError("the server did not become ready")
            await asyncio.sleep(0.02)

    async def leave(self) -> None:
        """Run preStop, send SIGTERM, and SIGKILL after the grace period."""
        self.is_leaving, self.is_ready = True, False
        end = time.monotonic() + self.plan.grace_s
        await asyncio.sleep(self.plan.pre_stop_s)
        self.kill(signal.SIGTERM)
        try:
            async with asyncio.timeout(end - time.monotonic()):
                await self._process.wait()
            killed = False
        except TimeoutError:
            self.kill(signal.SIGKILL)
            await self._process.wait()
            killed = True
        self._probing.cancel()
        self.ended = (self._process.returncode or 0, killed)

    async def remove(self) -> None:
        """Kill the process if it still runs."""
        self._probing.cancel()
        self.kill(signal.SIGKILL)
        await self._process.wait()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the process if it still runs."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    async def _probe(self) -> None:
        """Run the startup probe until it succeeds, then readiness and liveness, each at its period."""
        failures = 0
        while not await self.plan.startup.ask(self.port):
            failures += 1
            if failures >= self.plan.startup.failures:
                self.kill(signal.SIGKILL)
                return
            await asyncio.sleep(self.plan.startup.period_s)
        await asyncio.gather(self._watch_ready(), self._watch_alive())

    async def _watch_ready(self) -> None:
        failures, probe = 0, self.plan.readiness
        while True:
            failures = 0 if await probe.ask(self.port) else failures + 1
            if failures in (0, probe.failures):
                self.is_ready = failures == 0 and not self.is_leaving
            await asyncio.sleep(probe.period_s)

    async def _watch_alive(self) -> None:
        failures, probe = 0, self.plan.liveness
        while not self.is_leaving:
            failures = 0 if await probe.ask(self.port) else failures + 1
            if failures >= probe.failures:
                self.restarts += 1
                self.kill(signal.SIGKILL)
                return
            await asyncio.sleep(probe.period_s)


async def _status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: kubelet\r\nconnection: close\r\n\r\n".encode())
        return int((await reader.readline()).split()[1])
    except IndexError:
        raise EOFError from None
    finally:
        writer.close()
