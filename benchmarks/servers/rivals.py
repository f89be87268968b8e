"""Servers: packages, start command, and fastest form of a request of each.

OpenVINO Model Server is missing: there is no wheel of it, only of its client.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.files import Files
from benchmarks.machine import ROOT

Array = np.ndarray[Any, np.dtype[Any]]
PEERS: Final = Path(__file__).with_name("peers")
OURS: Final = "pnnx-serve"
_BOUNDARY: Final = "a-boundary-of-the-benchmark"
_LENGTH: Final = "inference-header-content-length"


@dataclass(frozen=True, kw_only=True)
class Message:
    """Request: path, headers and body."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        """Return the bytes of the request."""
        headers = {"Host": "server", "Content-Length": str(len(self.body)), **self.headers}
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + self.body


@dataclass(frozen=True, kw_only=True)
class Start:
    """Command and environment of a server of one model."""

    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Server, its packages and its requests.

    Args:
        packages: that its environment needs; none for ours, which runs here.
        start: of a model's files, for a port; the folder is the server's own.
        ask: a request with this tensor.
        read: the first output of an answer, flat, from its headers and body.
        ready: a path that is 200 once it serves.
    """

    name: str
    packages: tuple[str, ...] = ()
    start: Callable[[Path, Files, int, Path, tuple[int, ...]], Start]
    ask: Callable[[Array], Message]
    read: Callable[[Mapping[str, str], bytes], Array]
    ready: str


def _start_ours(_: Path, files: Files, port: int, folder: Path, shape: tuple[int, ...]) -> Start:
    version = folder / "store" / "model" / "1"
    version.mkdir(parents=True)
    shutil.copyfile(files.param, version / "model.pnnx.param")
    shutil.copyfile(files.bin, version / "model.pnnx.bin")
    command = [sys.executable, "-m", "app", "serve", "--store", str(folder / "store"), "--port", str(port)]
    return Start(command=[*command, "--threads", "1"], environ={"PYTHONPATH": str(ROOT)})


def _ask_ours(x: Array) -> Message:
    row = {"name": "in0", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True}}).encode()
    return Message(path="/v2/models/model/infer", body=head + x.tobytes(), headers={_LENGTH: str(len(head))})


def _read_ours(headers: Mapping[str, str], body: bytes) -> Array:
    return np.frombuffer(body[int(headers[_LENGTH]) :], np.float32)


def _script(name: str) -> Callable[[Path, Files, int, Path, tuple[int, ...]], Start]:
    def start(python: Path, files: Files, port: int, _: Path, shape: tuple[int, ...]) -> Start:
        return Start(command=[str(python), str(PEERS / name), str(port), str(files.onnx(1)), _text(shape)])

    return start


def _start_bento(python: Path, files: Files, port: int, folder: Path, shape: tuple[int, ...]) -> Start:
    command = [str(python.with_name("bentoml")), "serve", "bento:Service", "--host", "127.0.0.1", "--port", str(port)]
    environ = {"MODEL": str(files.onnx(1)), "SHAPE": _text(shape), "BENTOML_HOME": str(folder)}
    return Start(command=[*command, "--working-dir", str(PEERS)], environ={**environ, "BENTOML_DO_NOT_TRACK": "True"})


def _start_mlserver(python: Path, files: Files, port: int, folder: Path, shape: tuple[int, ...]) -> Start:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2,
        "parallel_workers": 0, "debug": False, "access_log": False,
    }  # fmt: skip
    model = {"name": "model", "implementation": "mlserver_runtime.Runtime"}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    environ = {"MODEL": str(files.onnx(1)), "SHAPE": _text(shape), "PYTHONPATH": str(PEERS)}
    return Start(command=[str(python.with_name("mlserver")), "start", str(folder)], environ=environ)


def _ask_bytes(x: Array) -> Message:
    return Message(path="/infer", body=x.tobytes(), headers={"Content-Type": "application/octet-stream"})


def _read_bytes(_: Mapping[str, str], body: bytes) -> Array:
    return np.frombuffer(body, np.float32)


def _ask_form(x: Array) -> Message:
    disposition = 'Content-Disposition: form-data; name="tensor"; filename="x"\r\n'
    head = f"--{_BOUNDARY}\r\n{disposition}Content-Type: application/octet-stream\r\n\r\n".encode()
    body = head + x.tobytes() + f"\r\n--{_BOUNDARY}--\r\n".encode()
    return Message(path="/predict", body=body, headers={"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"})


def _ask_base64(x: Array) -> Message:
    data = base64.b64encode(x.tobytes()).decode()
    row = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"content_type": "base64"}, "data": [data]}
    body = json.dumps({"inputs": [row]}).encode()
    return Message(path="/v2/models/model/infer", body=body, headers={"Content-Type": "application/json"})


def _read_json(_: Mapping[str, str], body: bytes) -> Array:
    return np.array(json.loads(body)["outputs"][0]["data"], np.float32)


def _text(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


_ORT: Final = ("onnxruntime", "numpy")
RIVALS: Final = {
    rival.name: rival
    for rival in (
        Rival(name=OURS, start=_start_ours, ask=_ask_ours, read=_read_ours, ready="/health/ready"),
        Rival(
            name="fastapi",
            packages=("fastapi", "uvicorn", "uvloop", "httptools", *_ORT),
            start=_script("plain_fastapi.py"),
            ask=_ask_bytes,
            read=_read_bytes,
            ready="/ready",
        ),
        Rival(
            name="litserve",
            packages=("litserve", "python-multipart", *_ORT),
            start=_script("lit.py"),
            ask=_ask_form,
            read=_read_bytes,
            ready="/health",
        ),
        Rival(
            name="bentoml",
            packages=("bentoml", *_ORT),
            start=_start_bento,
            ask=_ask_bytes,
            read=_read_bytes,
            ready="/readyz",
        ),
        Rival(
            name="mlserver",
            packages=("mlserver", "uvloop==0.21.0", *_ORT),  # a newer one does not find its event loop
            start=_start_mlserver,
            ask=_ask_base64,
            read=_read_json,
            ready="/v2/health/ready",
        ),
    )
}
