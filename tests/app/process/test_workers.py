"""Tests of several workers as one server."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.app.process.test_server import PAUSE_S, WHO, Process, children, process
from tests.app.sample_models import elementwise, through, write_model
from tests.engine.pnnx.build import param
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

SHAPE = "(?,2)f32"
ZEROS = b'{"inputs": [[0, 0]]}'
Answer = tuple[int, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "who.py").write_text(WHO)
    write_model(folder, "who", through("who.Answers", "(1,1)f64"))
    for version in (1, 2):
        write_model(folder, "one", elementwise(f"add(@0,{version})", SHAPE), version=version)
    write_model(folder, "counted", elementwise("add(@0,1)", SHAPE))
    return folder


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Process]:
    with process(store, workers=2, plugins=store / "who.py", reload_interval_s=0.1) as server:
        yield server
        server.signal()
        status, log = server.wait()
        assert status == 0 and "Traceback" not in log, log


def ask(connection: HTTPConnection, method: str, path: str, body: bytes = b"") -> Answer:
    connection.request(method, path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    return response.status, json.loads(content) if content else None


def of_each(server: Process, path: str, method: str = "GET", body: bytes = b"") -> dict[int, Answer]:
    """Return the answers of the two workers by process."""
    answers, end = dict[int, Answer](), time.monotonic() + PATIENCE_S
    while len(answers) < 2:
        assert time.monotonic() < end, answers
        connection = HTTPConnection(*server.url.removeprefix("http://").split(":"), timeout=PATIENCE_S)
        with closing(connection), suppress(OSError, HTTPException):
            status, said = ask(connection, "POST", "/models/who/infer", b'{"inputs": [[0]]}')
            if status == 200 and (pid := int(said["outputs"]["out0"]["data"][0])) not in answers:
                answers[pid] = ask(connection, method, path, body)
        if len(answers) < 2:
            time.sleep(PAUSE_S)
    return answers


def both(server: Process, path: str, method: str = "GET", body: bytes = b"") -> list[Answer]:
    return list(of_each(server, path, method, body).values())


def added(server: Process, version: str = "") -> list[int]:
    """Return what the model adds in each worker, or the status if it does not answer."""
    answers = both(server, f"/models/one/infer{version}", "POST", ZEROS)
    return [int(said["outputs"]["out0"]["data"][0]) if status == 200 else status for status, said in answers]


def call(server: Process, path: str, body: object = None) -> Answer:
    """Send a call to any worker."""
    connection = HTTPConnection(*server.url.removeprefix("http://").split(":"), timeout=PATIENCE_S)
    with closing(connection):
        return ask(connection, "POST", path, b"" if body is None else json.dumps(body).encode())


def replace_worker(server: Process) -> None:
    """Kill a worker, and wait until its replacement answers."""
    before = set(of_each(server, "/health/live"))
    os.kill(children(server)[1], signal.SIGKILL)
    until(lambda: set(of_each(server, "/health/live")) != before)


def test_a_model_is_loaded_and_unloaded_in_all_workers_and_in_those_that_come_later(
    store: Path, server: Process
) -> None:
    assert added(server) == [2, 2]
    assert call(server, "/v2/repository/models/one/unload") == (200, None)
    assert added(server) == [404, 404]
    replace_worker(server)
    assert added(server) == [404, 404]
    unloaded = {"name": "one", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"}
    for status, rows in both(server, "/v2/repository/index", "POST"):
        assert status == 200 and [row for row in rows if row["name"] == "one"][0]["state"] == unloaded["state"]
    config = {"parameters": {"config": json.dumps({"versions": "all", "tags": {"old": 1}})}}
    assert call(server, "/v2/repository/models/one/load", config) == (200, None)
    assert added(server) == [2, 2] and added(server, "?version=old") == [1, 1]
    replace_worker(server)
    assert added(server, "?version=old") == [1, 1]
    status, said = call(server, "/v2/repository/models/one/load", {"parameters": {"config": '{"tusk": 1}'}})
    assert status == 400 and "tusk" in said["error"]
    assert added(server, "?version=old") == [1, 1]
    assert call(server, "/v2/repository/models/one/load") == (200, None)
    assert added(server, "?version=old") == [404, 404]
    call(server, "/v2/repository/models/one/unload")
    (store / "one" / "2" / "model.pnnx.param").write_bytes(param(elementwise("add(@0,7)", SHAPE)))
    until(lambda: added(server) == [7, 7])
    replace_worker(server)  # what it was told is no longer what holds
    until(lambda: added(server) == [7, 7])


def test_settings_of_the_log_and_of_traces_hold_in_all_workers(server: Process) -> None:
    assert call(server, "/v2/logging", {"log_verbose_level": 1, "log_info": True})[0] == 200
    assert call(server, "/v2/models/counted/trace/setting", {"trace_rate": "7"})[0] == 200
    replace_worker(server)
    assert [said["log_verbose_level"] for _, said in both(server, "/v2/logging")] == [1, 1]
    assert [said["trace_rate"] for _, said in both(server, "/v2/models/counted/trace/setting")] == ["7", "7"]
    assert [said["trace_rate"] for _, said in both(server, "/v2/trace/setting")] == ["1000", "1000"]
    assert call(server, "/v2/logging", {"log_file": "/etc/x"})[0] == 400


def test_statistics_are_of_all_workers(server: Process) -> None:
    def counts() -> list[tuple[int, int]]:
        ours = both(server, "/models/counted")
        theirs = both(server, "/v2/models/counted/stats")
        return [
            (mine["versions"][0]["statistics"]["requests"], other["model_stats"][0]["execution_count"])
            for (_, mine), (_, other) in zip(ours, theirs, strict=True)
        ]

    both(server, "/models/counted/infer", "POST", ZEROS)
    both(server, "/v2/models/counted/infer", "POST", b"{}")  # no request of a model
    until(lambda: counts() == [(2, 2)] * 2)
