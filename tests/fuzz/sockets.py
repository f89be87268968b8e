"""Hostile streams of bytes against a real server: whatever comes over a socket, it lives, answers and stays small.

A stream is made from a grammar of requests with faults sown into it, sent in pieces of any size, in part, slowly,
several at once, by clients that read nothing or leave in the midst. The server is a process of its own with little
memory and few files. After each round: it is alive, its health answers soon, its memory is bounded, and every answer it
gave is well-formed, errors as JSON in their one shape without a word of its inside.

The test suite runs a little of it; ``python -m tests.fuzz.sockets --seconds 3600 --seed 1`` as much as one likes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.app.sample_models import elementwise, write_model
from tests.patience import PATIENCE_S
from tests.ports import unused_port

ROOT = Path(__file__).parent.parent.parent
# What the server may take: address space, resident memory at its most, files, and time for its health when it is busy.
ADDRESS_BYTES, MOST_BYTES, FILES, HEALTH_S = 6 << 30, 700 << 20, 256, 60.0
# Who has not asked when his time is up, for all the machine has to do, may ask again.
TRIES = 3
CLIENTS = 8
# What a server may have more of than at its start: the threads of its pools.
THREADS = 8
# A line of the log that is no error: it has a time, a level, and a logger of ours.
LINE = re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO|WARNING) [a-z][\w.]*: .*")
INSIDE = re.compile(rb'Traceback|File "|site-packages|/work/|/home/|\.py\b|0x[0-9a-f]{8}')

METHODS = [
    b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI", b"FOO", b"get", b"", b"G\0T",
    b"M" * 5000,
]  # fmt: skip
TARGETS = [
    b"/health/live", b"/health/ready", b"/infer", b"/infer?model=one", b"/models/one/infer", b"/models",
    b"/graph?model=one", b"/", b"/nope", b"//health/live", b"/%00", b"/%ff%fe", b"/models/%0a%1b[2J", b"*",
    b"http://x/health/live", b"http://x", b"a:1", b"/../../etc/passwd", b"/?" + b"a=b&" * 5000,
    b"/infer?" + b"%41" * 2000, b"/" + b"a" * 40_000, b"/a b", b"/\xff", b"/graph?model=one&version=" + b"9" * 5000,
    b"/models/one?version=1e9", b"/infer?model=one&outputs=" + b"x," * 3000, b"", b"/graph?format=svg",
    b"/graph?format=%1b[2J", b"/graph?profile=1&format=text", b"/models/one/graph?profile=%0a", b"/docs",
    b"/openapi.json",
    b"/models/%e2%80%ae%0d%0a12:00:00 INFO x: y", b"/infer?top_k=nan&threshold=1e400",
    b"/infer?model=%00&model=%ed%a0%80",
    b"/infer?version=%D9%A1", b"/static/%2e%2e/etc/passwd", b"/models/one/infer/", b"/health/live?" + b"%0a" * 500,
]  # fmt: skip
VERSIONS = [
    b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 ", b"", b"HTP/1.1",
]  # fmt: skip
HEADERS = [
    b"host: x", b"host: [", b"host: a/b", b"connection: close", b"connection: keep-alive", b"connection: upgrade",
    b"upgrade: websocket", b"upgrade: h2c", b"expect: 100-continue", b"expect: 1", b"content-length: 0",
    b"content-length: 5", b"content-length: 99999999999999999999", b"content-length: -1", b"content-length: 5, 5",
    b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"transfer-encoding: identity",
    b"content-type: application/json", b"content-type: multipart/form-data; boundary=x",
    b"content-type: multipart/form-data" + b'; a="' * 500, b"content-type: image/png", b"content-encoding: gzip",
    b"accept: " + b"a/b;q=0.1," * 2000, b"accept: */*;q=nan", b"x-request-id: a\tb",
    b"x-request-id: " + b"i" * 1000, b"range: bytes=" + b"0-0," * 1000, b"cookie: " + b"c" * 20_000, b"a" * 70_000,
    b"bad header: x", b": x", b"x", b"a: b\r", b"a:\0", b" a: b", b"a: \xff", b"origin: http://x", b"a: b\n",
    b"content-type: \xc2\x9b2J/\xe2\x80\xa8", b"content-type: multipart/form-data; boundary=\xff",
    b"user-agent: \x9b2J",
    b"x-request-id: \x1b[2J", b"x-request-id: %0a", b"x-forwarded-for: \xe2\x80\xae",
    b"access-control-request-method: x",
]  # fmt: skip
BODIES = [
    b"", b"{}", b'{"model": "one", "inputs": [[1, 2, 3]]}', b'{"inputs": "' + b'\\"' * 20_000, b"[" * 50_000,
    b'"' * 60_000, b'{"inputs": ' + b"9" * 50_000 + b"}", b'{"inputs": [' + b"1e999999," * 5000, b"\xff\xfe{",
    b'{"model": "' + b"m" * 60_000, b"--x\r\n" * 10_000,
    b"--x\r\ncontent-disposition: form-data; name=f; filename=g\r\n\r\n" + b"\r\n--" * 10_000,
    b"--x\r\n" + b"a: b\r\n" * 5000, b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b" " * 1000, b"PK\x03\x04" + b"\0" * 100,
    b"\x89PNG\r\n\x1a\n" + b"\0" * 100, b"x" * 300_000, b'{"model": "\\u001b[2J\\n\\u202e\\ud800"}',
    b'{"model": "one", "inputs": {"\\u0085\\n12:00:00 INFO x: y": 1}}', b'{"\x7f\xc2\x9b\xe2\x80\xa8": 1}',
    b'--x\r\ncontent-disposition: form-data; name="\xe2\x80\xae\x1b"; filename="\x7f\n"\r\n\r\n\r\n--x--\r\n',
]  # fmt: skip
CHUNK_SIZES = [
    b"5", b"0", b"-1", b"zz", b"ffffffffffffffffff", b"5;a=b", b"5;" + b"e" * 30_000, b"05", b" 5", b"5 ", b"0x5",
]  # fmt: skip

NAMED = b"POST /models/one/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
ASKED = b'{"inputs": [[1,2,3]]}'
GOOD = [
    b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n",
    # A head that is known from the second time on, with bodies that come with it or behind it, and such as are none.
    *(NAMED % size + ASKED.ljust(size) for size in (21, 22, 65_536, 65_537, 200_000, 1_500_000)),
    NAMED % 100_000 + ASKED * 3,
    NAMED % 100_000 + b"x" * 100_001,
    NAMED % 10**12 + ASKED,
    b'POST /infer HTTP/1.1\r\nhost: x\r\ncontent-length: 21\r\n\r\n{"inputs": [[1,2,3]]}',
]

# What connections send that then do nothing more.
IDLE = [b"", b"G", b"GET / HTTP/1.1\r\na: ", b"POST /infer HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"]


@dataclass
class Stream:
    """Bytes sent by one client, and its behaviour."""

    pieces: list[bytes] = field(default_factory=list)
    pause_s: float = 0.0
    reads: bool = True
    ends: bool = False
    resets: bool = False


@dataclass
class Report:
    """Statuses and findings."""

    statuses: Counter[int] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    streams: int = 0
    peak_bytes: int = 0
    slowest_health_s: float = 0.0


def request(random_: random.Random) -> bytes:
    """One request, mostly wrong in one or two places."""
    pick = random_.choice
    if random_.random() < 0.15:
        return pick(GOOD)
    is_mended = random_.random() < 0.7  # so that what comes behind the first fault is reached as well
    line = b" ".join(
        [pick(METHODS[:2]) if is_mended else pick(METHODS), pick(TARGETS), b"HTTP/1.1" if is_mended else pick(VERSIONS)]
    )
    headers = [pick(HEADERS) for _ in range(pick([0, 1, 1, 2, 3, 200]))]
    if is_mended:
        headers.insert(0, b"host: x")
    body = pick(BODIES)
    framing = random_.random()
    if framing < 0.5:
        headers.append(b"content-length: %d" % (len(body) + pick([0, 0, 0, 1, -1, 10_000]) * bool(body)))
    elif framing < 0.8:
        headers.append(b"transfer-encoding: chunked")
        body = chunked(random_, body)
    end = pick([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    before = pick([b"", b"", b"", b"", b"", b"", b"\r\n", b"\n" * 100, b"\r\n" * 20_000])
    return before + line + end + b"".join(header + end for header in headers) + end + body


def chunked(random_: random.Random, body: bytes) -> bytes:
    """A body in chunks, one of them perhaps with a length of its own."""
    size = random_.choice([1, 7, 1000, 100_000])
    parts = [body[start : start + size] for start in range(0, min(len(body), 2000 * size), size)]
    made = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    if random_.random() < 0.3:
        made += random_.choice(CHUNK_SIZES) + b"\r\nhello\r\n"
    return made + random_.choice(
        [b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\n" + b"t: u\r\n" * 10_000, b"0\r\nhost: y\r\n\r\n"]
    )


def stream(random_: random.Random) -> Stream:
    """Return one client's bytes and behaviour."""
    data = b"".join(request(random_) for _ in range(random_.choice([1, 1, 2, 5, 40])))
    if random_.random() < 0.2:  # bytes that were no grammar's idea
        position = random_.randrange(len(data) + 1)
        data = data[:position] + random_.randbytes(random_.choice([1, 4, 100])) + data[position + 1 :]
    if random_.random() < 0.3:
        data = data[: random_.randrange(len(data) + 1)]
    size = random_.choice([len(data) or 1, 65_536, 1000, 17])
    pieces = [data[start : start + size] for start in range(0, min(len(data), 300 * size), size)]
    pause = random_.choice([0.0, 0.0, 0.0, 0.002])
    reads, ends, resets = random_.random() < 0.8, random_.random() < 0.3, random_.random() < 0.2
    return Stream(pieces=pieces, pause_s=pause, reads=reads, ends=ends, resets=resets)


class Server:
    """The process that is attacked."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        self.process = process
        self.port = port
        self._log = log

    def holds(self) -> dict[str, int]:
        """Its threads and open files."""
        return {name: len(os.listdir(f"/proc/{self.process.pid}/{name}")) for name in ("task", "fd")}

    def complaints(self) -> list[str]:
        """Return new log lines that should not be there: errors, and malformed lines."""
        lines = self._log.read().decode(errors="surrogateescape").splitlines()
        return [ascii(line)[:500] for line in lines if not LINE.fullmatch(line) or not line.isprintable()]

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) << 10

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=HEALTH_S)

    def health_s(self, what: bytes = b"live") -> float:
        """Return the seconds until the health endpoint answers.

        Raises:
            OSError: it does not.
        """
        start = time.monotonic()
        with self.connect() as connection:
            connection.sendall(b"GET /health/" + what + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            received = b""
            while data := connection.recv(65536):
                received += data
        if b'{"' + what + b'":true}' not in received:
            raise OSError(f"the health says {received[:200]!r}")
        return time.monotonic() - start


@contextmanager
def attacked() -> Iterator[Server]:
    """A server with short times and little room, ready."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.NamedTemporaryFile() as log,
    ):
        write_model(Path(folder), "one", elementwise("add(@0,1)", "(?,3)f32"))
        port = unused_port()
        own = {
            "port": port,
            "store": folder,
            "header_timeout_s": 1,
            "body_timeout_s": 2,
            "keep_alive_s": 1,
            "cache": False,
            "access_log": True,
            "log_level": "debug",
        }
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environ |= {f"PNNX_SERVE_{key.upper()}": str(value) for key, value in own.items()}
        with (
            subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=ROOT,
                env=environ,
                preexec_fn=_confine,
                stdout=subprocess.DEVNULL,
                stderr=log,
            ) as process,
            open(log.name, "rb") as written,
        ):
            server = Server(process, port, written)
            try:
                _until_ready(server)
                yield server
            finally:
                process.kill()


def _confine() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _until_ready(server: Server) -> None:
    """It lives before it is imported; what it holds is counted from when it can do everything."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError):
            server.health_s(b"ready")
            return
        assert server.process.poll() is None and time.monotonic() < end, "the server does not start"
        time.sleep(0.1)


def play(server: Server, made: Stream) -> bytes:
    """Send a stream; what was answered."""
    received = b""
    with suppress(OSError), server.connect() as connection:
        connection.settimeout(6)  # beyond every time the server gives
        with suppress(OSError):
            for piece in made.pieces:
                connection.sendall(piece)
                time.sleep(made.pause_s)
            if made.resets:  # now, in the midst of whatever is done for it
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            if made.ends:
                connection.shutdown(socket.SHUT_WR)
        while made.reads and (data := connection.recv(1 << 16)):
            received += data
    return received


def judge(received: bytes, statuses: Counter[int]) -> str | None:
    """Return the fault of answers, or None. The last one may be cut short by the client itself."""
    while received:
        head, ended, rest = received.partition(b"\r\n\r\n")
        if not ended:
            return None
        first, *lines = head.split(b"\r\n")
        found = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+", first)
        if not found:
            return f"not a status line: {first[:200]!r}"
        status = int(found[1])
        if status == 100:
            received = rest
            continue
        statuses[status] += 1
        headers = {key.lower(): value for key, _, value in (line.partition(b": ") for line in lines)}
        if headers.get(b"x-content-type-options") != b"nosniff" or b"content-length" not in headers:
            return f"headers: {head[:500]!r}"
        # The answer to a HEAD has no body, whatever length it tells: what follows is the next one.
        length = 0 if rest.startswith(b"HTTP/1.1 ") else int(headers[b"content-length"])
        body, received = rest[:length], rest[length:]
        if len(body) < length:
            return None  # cut short, or the answer to a HEAD
        if status >= 400 and length and (wrong := judge_error(status, headers, body)):
            return wrong
    return None


def judge_error(status: int, headers: dict[bytes, bytes], body: bytes) -> str | None:
    """Return the fault of an error answer, or None."""
    if status == 500 or len(body) > 20_000 or INSIDE.search(body):
        return f"an error of {status}: {body[:500]!r}"
    with suppress(ValueError, KeyError, TypeError):
        error: dict[str, Any] = json.loads(body)["error"]
        if isinstance(error["code"], str) and isinstance(error["message"], str):
            return None
    return f"not an error in JSON: {headers.get(b'content-type')!r} {body[:200]!r}"


def attack(seconds: float, seed: int, rounds: int | None = None) -> Report:
    """Round after round of streams, until the time is over or so many rounds were played."""
    report, end, number = Report(), time.monotonic() + seconds, 0
    with attacked() as server, ThreadPoolExecutor(CLIENTS) as pool:
        crowd: list[socket.socket] = []
        before = server.holds()
        while time.monotonic() < end and number != rounds and not report.findings:
            random_ = random.Random(f"{seed}/{number}")
            _crowd(server, crowd, random_)
            streams = [stream(random_) for _ in range(4 * CLIENTS)]
            lock = threading.Lock()
            for made, received in zip(streams, pool.map(lambda made: play(server, made), streams), strict=True):
                with lock:
                    wrong = judge(received, report.statuses)
                if wrong:
                    report.findings.append(f"round {number} of seed {seed}: {wrong}; sent {made.pieces[:2]!r:.500}")
            report.streams += len(streams)
            number += 1
            _look(server, report, number)
        for connection in crowd:
            connection.close()
        _look_behind(server, report, before)
    return report


def _crowd(server: Server, crowd: list[socket.socket], random_: random.Random) -> None:
    """Connections that do nothing, or nearly, beside those that do something; more than there are files."""
    while len(crowd) > FILES + 100:
        crowd.pop(random_.randrange(len(crowd))).close()
    for _ in range(60):
        with suppress(OSError):
            crowd.append(server.connect())
            crowd[-1].sendall(random_.choice(IDLE))


def _look_behind(server: Server, report: Report, before: dict[str, int]) -> None:
    """Once all clients are gone, so is what was held for them."""
    end = time.monotonic() + PATIENCE_S
    while not report.findings:
        held = server.holds()
        if held["task"] <= before["task"] + THREADS and held["fd"] <= before["fd"] + THREADS:
            return
        if time.monotonic() > end:
            report.findings.append(f"held after all: {held}, before: {before}")
        time.sleep(0.1)


def _look(server: Server, report: Report, number: int) -> None:
    if server.process.poll() is not None:
        report.findings.append(f"the server ended with status {server.process.returncode} in round {number}")
        return
    wrong: list[str] = []
    while len(wrong) < TRIES:
        try:
            report.slowest_health_s = max(report.slowest_health_s, server.health_s())
            break
        except OSError as error:
            wrong.append(f"no health after round {number}: {error}")
    else:
        report.findings += wrong
    report.findings += [f"the log of round {number} has {line}" for line in server.complaints()[:40]]
    report.peak_bytes = max(report.peak_bytes, server.peak_bytes())
    if report.peak_bytes > MOST_BYTES:
        report.findings.append(f"{report.peak_bytes >> 20} MiB after round {number}")


def main() -> int:
    """The command line; status 1 when something was found."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = attack(options.seconds, options.seed)
    print(f"{report.streams} streams, answers {dict(sorted(report.statuses.items()))}")
    print(f"peak {report.peak_bytes >> 20} MiB, slowest health {report.slowest_health_s:.2f} s")
    print("\n".join(report.findings) or "nothing found")
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main())
