"""Service and its clients: each new connection goes to any pod that every node believes to be ready.

Nodes learn of changes late, and a connection stays with its pod, as with kube-proxy. Clients do not retry: every answer
other than 200 counts as failed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.rolling.kubelet import HOST, Pod

_LOOK_S: Final = 0.02


class Service:
    """Pods that connections may go to.

    Args:
        late_s: from a change to when nodes act on it.
    """

    def __init__(self, late_s: float) -> None:
        self._late_s = late_s
        self._pods: list[Pod] = []
        self._seen: list[tuple[float, list[int]]] = [(0.0, [])]

    def join(self, pod: Pod) -> None:
        """Add a pod to the service while it is ready."""
        self._pods.append(pod)

    async def watch(self) -> None:
        """Record which pods are ready, until cancelled."""
        while True:
            now, ready = time.monotonic(), [pod.port for pod in self._pods if pod.is_ready]
            if ready != self._seen[-1][1]:
                self._seen.append((now + self._late_s, ready))
            while len(self._seen) > 1 and self._seen[1][0] <= now:
                del self._seen[0]
            await asyncio.sleep(_LOOK_S)

    def port(self) -> int:
        """Return the port for a new connection.

        Raises:
            ConnectionRefusedError: nowhere.
        """
        ports = self._seen[0][1]
        if not ports:
            raise ConnectionRefusedError("no endpoint")
        return random.choice(ports)


@dataclass
class ClientAnswers:
    """Answers that clients got."""

    waits_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    by_port: Counter[int] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Return the number of requests without a right answer."""
        return sum(self.failures.values())


class Client:
    """Client that sends the next request as soon as it is answered, on one connection while that lives."""

    def __init__(
        self, service: Service, message: bytes, answers: ClientAnswers, *, keeps: bool, pause_s: float = 0.0
    ) -> None:
        self._service = service
        self._message = message
        self._heard = answers
        self._keeps = keeps
        self._pause_s = pause_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter, int] | None = None

    async def run(self, stop: asyncio.Event, patience_s: float = 60.0) -> None:
        """Send requests until told to stop."""
        while not stop.is_set():
            start = time.monotonic()
            try:
                async with asyncio.timeout(patience_s):
                    status, port = await self._ask()
            except (OSError, EOFError, TimeoutError, ValueError, IndexError) as exc:
                self._heard.failures[type(exc).__name__] += 1
                self._close()
                await asyncio.sleep(_LOOK_S)
            else:
                if status == 200:
                    self._heard.waits_s.append(time.monotonic() - start)
                    self._heard.by_port[port] += 1
                else:
                    self._heard.failures[str(status)] += 1
            await asyncio.sleep(self._pause_s)
        self._close()

    async def _ask(self) -> tuple[int, int]:
        if self._streams is None:
            port = self._service.port()
            self._streams = (*await asyncio.open_connection(HOST, port), port)
        reader, writer, port = self._streams
        writer.write(self._message)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        if not self._keeps or b"connection: close" in head:
            self._close()
        return int(head.split(b" ", 2)[1]), port

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def quantile_s(waits_s: Sequence[float], share: float) -> float:
    """Return a quantile of the waits."""
    ordered = sorted(waits_s)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
