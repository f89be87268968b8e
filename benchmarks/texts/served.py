"""Servers of embeddings, and clients that ask them."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.texts.rivals import LONGEST

START_S: Final = 120
PATH: Final = "/v1/embeddings"
# Paths of the health of servers; others have /health.
HEALTH: Final = {"ours": "/health/ready", "bentoml": "/readyz"}


@contextmanager
def serving(name: str, model: Path, threads: int, precision: str, python: str = sys.executable) -> Iterator[int]:
    """Yield the port of a server.

    Args:
        name: `ours`, or kind of a peer and its engine, such as `fastapi+onnxruntime`.
        model: folder with model.onnx and tokenizer.json.
        threads: threads of a run.
        precision: of products.
        python: interpreter of the environment of peers.
    """
    # A stopped benchmark ends its servers, which are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        common = [str(port), str(model), str(threads), precision]
        kind, _, engine = name.partition("+")
        command = [python, "-m", f"benchmarks.texts.{kind}_peer", engine, *common]
        if name == "ours":
            store = _store(Path(folder), model, precision)
            command = [sys.executable, "-m", "app", "serve", "--store", str(store), "--port", str(port)]
            command += ["--threads", str(threads)]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environ}
        with subprocess.Popen(command, start_new_session=True, **quiet) as server:
            try:
                _await(port, HEALTH.get(kind, "/health"))
                yield port
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    server.wait(10)
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)


def _store(folder: Path, model: Path, precision: str) -> Path:
    version = folder / "model" / "1"
    version.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copyfile(model / name, version / name)
    precision = "float32" if precision == "int8" else precision  # the file's own products are integers
    config = f'task = "embedding"\nprecision = "{precision}"\n[text]\nmax_tokens = {LONGEST}\n'
    (version.parent / "config.toml").write_text(config)
    return folder


def _await(port: int, path: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        time.sleep(0.2)
    raise TimeoutError(f"the server was not ready after {START_S} s")


def ask(connection: http.client.HTTPConnection, text: str) -> list[float]:
    """Return the embedding of a text."""
    connection.request("POST", PATH, json.dumps({"input": text}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise ValueError(f"status {response.status}: {body[:200]!r}")
    return list(json.loads(body)["data"][0]["embedding"])


def served_rate(port: int, texts: Sequence[str], clients: int) -> float:
    """Return the texts a second while so many clients ask for all texts once, each for the next one left."""
    left = itertools.count()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (number := next(left)) < len(texts):
            ask(connection, texts[number])

    threads = [threading.Thread(target=work) for _ in range(clients)]
    begin = time.monotonic()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(texts) / (time.monotonic() - begin)
