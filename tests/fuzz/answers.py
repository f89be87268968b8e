"""Answers that are not their requests': unique tensors in several forms, from many clients that behave in many ways.

Every request has a tensor and an id of its own, so an answer belongs to one request only. The outputs that each must
get are computed by the reference in this process. Models that share runs, keep outputs, and do neither are asked at
once; clients send requests in pieces and ahead of answers, reset connections, leave in the middle of an answer, and
read large answers slowly.

    python -m tests.fuzz.answers --seconds 3600 --seed 1 --clients 64
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

import engine
from tests.patience import PATIENCE_S
from tests.ports import unused_port

ROOT: Final = Path(__file__).parent.parent.parent
MODELS: Final = ROOT / "model_store"
LENGTH: Final = "inference-header-content-length"
# Statuses of a server that has more to do than it can; nothing else but 200 is right.
BUSY: Final = (429, 503)
# Requests up to so many bytes are sent ahead of answers.
SHORT: Final = 60_000
# Each model of the store: what it is a copy of, and its configuration.
STORE: Final = {
    "plain": ("digits", ""),
    "shared": ("digits", "[batching]\nenabled = true\nmax_batch_size = 8\nmax_queue_delay_us = 3000\n"),
    "cached": ("digits", "[response_cache]\nmax_bytes = 1048576\n"),
    "large": ("superres", ""),
    "large_cached": ("superres", "[response_cache]\nmax_bytes = 33554432\n"),
}
# Values that reach other items where kernels do not keep items apart.
SPECIAL: Final = (np.nan, np.inf, -np.inf, 1e30, 1e-42)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Message: TypeAlias = tuple[bytes, bytes]


class Answer(NamedTuple):
    """An answer as it was received."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def npy(path: str, name: str, x: Array) -> Message:
    """A request whose body is an ``.npy`` file."""
    body = _npy(x)
    return _head(path, len(body), name, *_NPY), body


def chunked(path: str, name: str, x: Array) -> Message:
    """The same in chunks."""
    body = _npy(x)
    size = max(1, len(body) // 3)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return _head(path, None, name, *_NPY, "Transfer-Encoding: chunked"), chunks + b"0\r\n\r\n"


def own_json(path: str, name: str, x: Array) -> Message:
    """A request in the service's own JSON."""
    body = json.dumps({"inputs": x.tolist(), "outputs": True}).encode()
    return _head(path, len(body), name, "Content-Type: application/json"), body


def v2_json(path: str, name: str, x: Array) -> Message:
    """A request of the Open Inference Protocol."""
    row = {"name": "in0", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"id": name, "inputs": [row]}).encode()
    return _head(f"/v2{path}", len(body), None, "Content-Type: application/json"), body


def v2_binary(path: str, name: str, x: Array) -> Message:
    """The same with the tensor behind the JSON."""
    row = {"name": "in0", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    wanted = {"name": "out0", "parameters": {"binary_data": True}}
    text = json.dumps({"id": name, "inputs": [row], "outputs": [wanted]}).encode()
    return _head(f"/v2{path}", len(text) + x.nbytes, None, f"{LENGTH}: {len(text)}"), text + x.tobytes()


_NPY: Final = ("Content-Type: application/x-npy", "Accept: application/x-npy")
FORMS: Final = (npy, chunked, own_json, v2_json, v2_binary)
BINARY: Final = (npy, v2_binary)


def _npy(x: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x)
    return buffer.getvalue()


def _head(path: str, length: int | None, name: str | None, *lines: str) -> bytes:
    own = [f"X-Request-Id: {name}"] if name is not None else []
    sized = [f"Content-Length: {length}"] if length is not None else []
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *own, *lines, *sized, "", ""]).encode()


@dataclass(frozen=True)
class Case:
    """A request and the outputs it must get.

    Args:
        name: its id, unique.
        message: its head and body.
    """

    name: str
    model: str
    form: Callable[[str, str, Array], Message]
    expected: Array
    message: Message

    @property
    def data(self) -> bytes:
        """The whole request."""
        return b"".join(self.message)

    def problem(self, answer: Answer) -> str | None:
        """Return what is wrong with an answer; None where nothing is."""
        if answer.status in BUSY:
            return None
        where = f"{self.name} ({self.model}, {self.form.__name__}, {len(self.expected)} items)"
        if answer.status != 200:
            return f"{where}: status {answer.status}, {answer.body[:200]!r}"
        try:
            found, name = self._read(answer)
        except (ValueError, KeyError, TypeError) as error:
            return f"{where}: unreadable, {error!r}: {answer.body[:200]!r}"
        if name != self.name:
            return f"{where}: found the id of another request, {name}"
        if not engine.is_close(found, self.expected):
            return f"{where}: wrong values, {_difference(found, self.expected)}"
        return None

    def _read(self, answer: Answer) -> tuple[Array, str]:
        if self.form in (npy, chunked):
            return np.load(io.BytesIO(answer.body)), answer.headers["x-request-id"]
        if self.form is own_json:
            output = json.loads(answer.body)["outputs"]["out0"]
            return _array(output), answer.headers["x-request-id"]
        text = json.loads(answer.body[: int(answer.headers.get(LENGTH, len(answer.body)))])
        output = text["outputs"][0]
        if self.form is v2_json:
            return _array(output), text["id"]
        values = np.frombuffer(answer.body[int(answer.headers[LENGTH]) :], np.float32)
        return values.reshape(output["shape"]), text["id"]


def _array(output: Mapping[str, Any]) -> Array:
    return np.array([float(value) for value in output["data"]], np.float32).reshape(output["shape"])


def _difference(found: Array, expected: Array) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    rows = [row for row in range(len(found)) if not engine.is_close(found[row], expected[row])]
    return f"by up to {np.nanmax(np.abs(found - expected)):.3g} in items {rows[:10]}"


def cases(seed: int, count: int) -> list[Case]:
    """Return requests for every model, in every form, with ``count`` tensors of each usual kind."""
    random_ = np.random.default_rng(seed)
    sessions = {name: _reference(name) for name, _ in STORE.values()}
    made: list[Case] = []

    def add(model: str, form: Callable[[str, str, Array], Message], x: Array) -> None:
        name = f"seed{seed}-{len(made)}"
        with np.errstate(all="ignore"):
            expected = sessions[STORE[model][0]].run([x])[0]
        made.append(Case(name, model, form, expected, form(f"/models/{model}/infer", name, x)))

    for model in ("plain", "shared", "cached"):
        for form in FORMS:
            for _ in range(count):
                add(model, form, _digits(random_, int(random_.choice([1, 1, 1, 2, 3]))))
        for form in BINARY:
            for _ in range(-(-count // 3)):
                add(model, form, _digits(random_, int(random_.integers(70, 200))))
            for value in SPECIAL:
                x = _digits(random_, 1)
                x[0, 0, 3:9] = value
                add(model, form, x)
    for model in ("large", "large_cached"):
        for form in (*BINARY, chunked):
            for size in ((24, 24),) * count + ((96, 128),) * -(-count // 4):
                add(model, form, random_.random((1, 3, *size), np.float32))
    return made


def _reference(name: str) -> engine.Session:
    return engine.Session(engine.load(MODELS / name / "1" / "model.pnnx.param"), backend="reference")


def _digits(random_: np.random.Generator, items: int) -> Array:
    return 3 * random_.standard_normal((items, 1, 16, 16), np.float32)


@dataclass
class Report:
    """Counts of correct answers and client behaviours, and the findings."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def check(self, case: Case, answer: Answer, way: str) -> None:
        """Count an answer, and note what is wrong with it."""
        self.counts[f"status {answer.status}"] += 1
        if (problem := case.problem(answer)) is not None:
            self.findings.append(f"{way}: {problem}")
        elif answer.status == 200:
            self.counts["right"] += 1


class Client:
    """One connection after the other, and the requests on it."""

    def __init__(self, port: int, made: Sequence[Case], report: Report, random_: random.Random) -> None:
        self._port, self._report, self._random = port, report, random_
        self._all = made
        self._short = [each for each in made if len(each.data) < SHORT]
        self._large = [each for each in made if STORE[each.model][0] == "superres"]
        self._wires: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def live(self, end: float) -> None:
        """Behave in one way after the other until the time is over."""
        ways: dict[Callable[[], Awaitable[None]], int] = {
            self._ask: 45, self._pipeline: 20, self._send_pieces: 10, self._reset: 7, self._leave: 7,
            self._read_slowly: 5, self._follow_error: 3, self._follow_health: 3,
        }  # fmt: skip
        while time.monotonic() < end:
            (way,) = self._random.choices([*ways], [*ways.values()])
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await way()
            except TimeoutError:
                self._report.findings.append(f"{way.__name__}: no answer within {PATIENCE_S:g} s")
                self._close()
            except (OSError, asyncio.IncompleteReadError) as error:
                self._report.counts[type(error).__name__] += 1
                self._close()
        self._close()

    async def _ask(self) -> None:
        case, (_, writer) = self._pick(), await self._open()
        head, body = case.message
        if self._random.random() < 0.5:
            writer.write(head)
            await asyncio.sleep(self._random.choice((0, 0.02)) * self._random.random())
            writer.write(body)
        else:
            writer.write(head + body)
        await self._check(case, "ask")

    async def _pipeline(self) -> None:
        asked = [self._random.choice(self._short) for _ in range(self._random.randint(2, 6))]
        await self._write_pieces(b"".join(each.data for each in asked), self._random.randint(1, 4))
        for case in asked:
            await self._check(case, "pipeline")
            if self._wires is None:  # a refusal ended the connection: the rest is not answered
                return

    async def _send_pieces(self) -> None:
        case = self._pick()
        await self._write_pieces(case.data, self._random.randint(1, 6))
        await self._check(case, "pieces")

    async def _reset(self) -> None:
        case, (_, writer) = self._pick(), await self._open()
        writer.write(case.data[: self._random.randrange(len(case.message[0]), len(case.data) + 1)])
        await asyncio.sleep(self._random.random() * 0.01)
        connection: socket.socket = writer.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        self._wires = None
        self._report.counts["reset"] += 1

    async def _leave(self) -> None:
        reader, writer = await self._open()
        writer.write(self._pick().data)
        await reader.readuntil(b"\r\n\r\n")
        self._close()
        self._report.counts["left"] += 1

    async def _read_slowly(self) -> None:
        case, (_, writer) = self._random.choice(self._large), await self._open()
        writer.write(case.data)
        await self._check(case, "slow reader", pause_s=0.005)

    async def _follow_error(self) -> None:
        case, (_, writer) = self._random.choice(self._short), await self._open()
        writer.write(_head(f"/models/{case.model}/infer", 5, None, *_NPY) + b"hello" + case.data)
        answer = await self._receive()
        if answer.status not in (400, *BUSY):
            self._report.findings.append(f"a body that is no .npy file: status {answer.status}")
        if self._wires is not None:
            await self._check(case, "behind an error")

    async def _follow_health(self) -> None:
        case, (_, writer) = self._random.choice(self._short), await self._open()
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" + case.data)
        if (answer := await self._receive()).body != b'{"live":true}':
            self._report.findings.append(f"the health says {answer.body[:200]!r}")
        if self._wires is not None:
            await self._check(case, "behind health")

    async def _check(self, case: Case, way: str, pause_s: float = 0.0) -> None:
        self._report.check(case, await self._receive(pause_s), way)

    async def _receive(self, pause_s: float = 0.0) -> Answer:
        """Read an answer, 32 KiB at a time with a pause where the client is slow."""
        reader, _ = await self._open()
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        left, pieces = int(headers.get("content-length", 0)), list[bytes]()
        while left:
            pieces.append(await reader.readexactly(min(left, 1 << 15 if pause_s else left)))
            left -= len(pieces[-1])
            await asyncio.sleep(pause_s)
        if headers.get("connection") == "close":
            self._close()
        return Answer(int(first.split()[1]), headers, b"".join(pieces))

    async def _write_pieces(self, data: bytes, count: int) -> None:
        _, writer = await self._open()
        cuts = sorted(self._random.randrange(len(data)) for _ in range(count))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            writer.write(data[start:end])
            await writer.drain()
            await asyncio.sleep(self._random.choice((0, 0.01)) * self._random.random())

    def _pick(self) -> Case:
        return self._random.choice(self._all if self._random.random() < 0.4 else self._short)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._wires is None:
            self._wires = await asyncio.open_connection("127.0.0.1", self._port)
        return self._wires

    def _close(self) -> None:
        if self._wires is not None:
            self._wires[1].close()
            self._wires = None


@contextlib.contextmanager
def serving(end: float) -> Iterator[tuple[int, Callable[[], list[str]]]]:
    """Start a server on the models; gives its port, and a function that returns what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        for name, (source, config) in STORE.items():
            shutil.copytree(MODELS / source, Path(folder) / name)
            own = Path(folder) / name / "config.toml"
            own.write_text(f"{own.read_text().replace('default = true', '')}\n{config}")
        port = unused_port()
        given = {"port": port, "store": folder, "log_level": "warning", "request_timeout_s": PATIENCE_S}
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        environ |= {f"PNNX_SERVE_{key.upper()}": str(value) for key, value in given.items()}
        command = [sys.executable, "-m", "app", "serve"]
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=log)

        def problems() -> list[str]:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
            errors = [line[:500] for line in lines if " ERROR " in line or line.startswith("Traceback")]
            ended = (
                [] if process.poll() is None else [f"the server ended with status {process.returncode}", *lines[-20:]]
            )
            return [*ended, *errors[:20]]

        try:
            _until_ready(process, port, end)
            yield port, problems
        finally:
            process.kill()
            process.wait()


def _until_ready(process: subprocess.Popen[bytes], port: int, end: float) -> None:
    end = max(end, time.monotonic() + PATIENCE_S)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if connection.makefile("rb").read().endswith(b'{"ready":true}'):
                return
        assert process.poll() is None and time.monotonic() < end, "the server does not start"
        time.sleep(0.1)


def hunt(seconds: float, seed: int, clients: int, count: int = 12) -> Report:
    """Ask for so long, preparation included, and for a second at least.

    Args:
        count: tensors of each usual kind.
    """
    end, report = time.monotonic() + seconds, Report()
    made = cases(seed, count)
    with serving(end) as (port, problems):
        end = max(end, time.monotonic() + 1)

        async def ask() -> None:
            crowd = [Client(port, made, report, random.Random(f"{seed}/{number}")) for number in range(clients)]
            await asyncio.gather(*(each.live(end) for each in crowd))

        asyncio.run(ask())
        report.findings += problems()
    return report


def main() -> int:
    """The command line; status 1 when something was found."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=32)
    options = parser.parse_args()
    report = hunt(options.seconds, options.seed, options.clients)
    print(f"answers of seed {options.seed}: {dict(sorted(report.counts.items()))}")
    print("\n".join(report.findings[:40]) or "nothing found")
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main())
