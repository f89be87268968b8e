"""Tests of a real server process with sockets and signals."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.pictures import npy, png
from tests.app.sample_models import FAULTY, elementwise, through, write_classifier, write_detector, write_model
from tests.patience import PATIENCE_S, limits, until
from tests.ports import unused_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SERVE = (sys.executable, "-m", "app", "serve")
# Between two looks at servers that start: asked without a pause, they would take the core from each other.
PAUSE_S = 0.05


class Process:
    """Server in a process of its own, whose banner has been printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.banner = ""
        while not re.search(r"\d threads? \(", self.banner):
            line = process.stdout.readline()  # type: ignore[union-attr]
            assert line, f"the server ended: {process.communicate()[1]}"
            self.banner += line
        self.url = re.findall(r"console +(https?://\S+)/", self.banner)[0]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Return the exit status and the log."""
        _, log = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Return the address it listens on."""
        host, _, port = self.url.rpartition("/")[2].partition(":")
        return host, int(port)


@contextmanager
def process(store: Path, **settings: Any) -> Iterator[Process]:
    # Machine code is not what these tests are about, and takes a third of a start.
    settings = {"port": 0, "backend": "reference", **settings}
    own = {f"PNNX_SERVE_{key.upper()}": str(value) for key, value in settings.items()}
    environ = {**os.environ, **own, "PNNX_SERVE_STORE": str(store), "PYTHONPATH": str(ROOT)}
    command = [*SERVE]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield Process(child)
        finally:
            child.kill()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    return tmp_path


@pytest.fixture
def tasks(store: Path) -> Path:
    """Add a classifier and a detector to the store."""
    write_classifier(store)
    write_detector(store)
    return store


def test_good_and_bad_clients_at_once_each_get_their_own_answer(tasks: Path) -> None:
    x = np.random.default_rng(0).random((32, 3), np.float32)

    def good(index: int) -> bool:
        body = npy(x[index % 32 :][:1])
        answer = client.post("/infer?model=one", content=body, headers={"content-type": "application/x-npy"}).json()
        return bool(np.array_equal(np.float32(answer["outputs"]["out0"]["data"]), x[index % 32] + 1))

    def bad(index: int) -> bool:
        kinds = [(b"{", 400), (b'{"inputs": [[1]]}', 422), (b'{"model": "none", "inputs": 1}', 404)]
        body, status = kinds[index % 3]
        query = "" if status == 404 else "?model=one"
        return client.post(f"/infer{query}", content=body).status_code == status

    def picture(index: int) -> bool:
        headers = {"content-type": "image/png"}
        answer = client.post("/infer?model=boxes", content=png(80, 80), headers=headers).json()
        return bool(answer["predictions"][0]["box"] == [20, 40, 40, 80])

    def rude(index: int) -> bool:
        """Announce a body and disconnect in the middle of it."""
        with socket.create_connection(server.address) as connection:
            connection.sendall(b"POST /infer?model=one HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
        return True

    with (
        process(tasks, backend="auto") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client,
    ):
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit((good, bad, picture, rude)[index % 4], index) for index in range(200)]
            assert all(job.result() for job in jobs)
        assert client.get("/health/ready").json() == {"ready": True}
        row = client.get("/models/one").json()["versions"][0]
        assert row["statistics"]["requests"] == 50 and row["running"] == row["queued"] == 0
        server.signal()
        status, log = server.wait()
    assert status == 0, log
    assert "Traceback" not in log


def test_settings_host_and_port_are_where_the_server_listens(store: Path) -> None:
    port = unused_port()
    with process(store, host="0.0.0.0", port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE_S).json() == {"live": True}


def test_an_address_that_is_taken_is_told_in_one_line(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environ = {**os.environ, "PNNX_SERVE_PORT": str(taken.getsockname()[1]), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(SERVE, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(
        r"pnnx-serve: error: cannot listen on 127\.0\.0\.1 port \d+: Address already in use\n", done.stderr
    )


def test_the_banners_curl_line_works_as_pasted(tasks: Path) -> None:
    (tasks / "shades" / "examples").mkdir()
    (tasks / "shades" / "examples" / "it's one.png").write_bytes(png(2, 2, "L"))
    with process(tasks, default_model="shades") as server:
        line = re.findall(r"  try +(.*)", server.banner)[0]
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, cwd=ROOT)
    assert len(json.loads(done.stdout)["predictions"]) == 3


def write_slow_model(store: Path, steps: int) -> bytes:
    """Write a model of many steps of some ten milliseconds each, and return an input for it."""
    shape = "(?,1000000)f32"
    lines = [f"nn.Tanh step{i} 1 1 {i} {i + 1} #{i}={shape} #{i + 1}={shape}" for i in range(steps)]
    ends = f"pnnx.Input in0 0 1 0 #0={shape}", f"pnnx.Output out 1 0 {steps} #{steps}={shape}"
    write_model(store, "slow", [ends[0], *lines, ends[1]])
    return npy(np.random.default_rng(0).random((4, 1_000_000), np.float32))


def write_gate(store: Path) -> dict[str, Any]:
    """Write a model whose runs wait for a file called open, and return settings to serve it."""
    (store / "gate.py").write_text(
        "import pathlib, time\n"
        "import engine\n"
        "@engine.register('gate.Waits')\n"
        "class Waits(engine.Layer):\n"
        "    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:\n"
        "        return input\n"
        "    def forward(self, input):\n"
        f"        while not pathlib.Path({str(store / 'open')!r}).exists():\n"
        "            time.sleep(0.01)\n"
        "        return input\n"
    )
    write_model(store, "gate", through("gate.Waits", "(1,3)f32"))
    more = {"request_timeout_s": PATIENCE_S, "shutdown_timeout_s": PATIENCE_S}
    return {"plugins": store / "gate.py", "warmup": False, **more}


def test_settings_drain_delay_s_and_shutdown_timeout_s_let_requests_finish(store: Path) -> None:
    settings = write_gate(store)
    for delay_s in limits(1.0):
        (store / "open").unlink(missing_ok=True)
        with process(store, drain_delay_s=delay_s, **settings) as server:
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client, ThreadPoolExecutor(1) as pool:
                assert client.get("/health/ready").status_code == 200
                pending = pool.submit(client.post, "/models/gate/infer", json={"inputs": [[1, 2, 3]]})
                until(lambda: client.get("/models/gate").json()["versions"][0]["running"])
                server.signal()
                is_late = False
                try:
                    until(lambda: client.get("/health/ready").status_code == 503)
                    assert "the server is stopping" in client.get("/health/ready").text
                    assert client.get("/health/live").status_code == 200
                except httpx.TransportError:  # on a busy machine the delay may be over before anybody asks
                    is_late = True
                (store / "open").touch()
                assert pending.result().status_code == 200
            assert server.wait()[0] == 0
        if not is_late:
            break
    assert not is_late


def test_a_client_that_goes_away_frees_its_place(store: Path) -> None:
    request = write_slow_model(store, 1000)
    head = "POST /models/slow/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-npy\r\n"
    with process(store, max_in_flight=1) as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:

            def row() -> Any:
                return client.get("/models/slow").json()["versions"][0]

            with socket.create_connection(server.address) as connection:
                connection.sendall(f"{head}content-length: {len(request)}\r\n\r\n".encode() + request)
                until(lambda: row()["running"])
            until(lambda: (row()["running"], row()["queued"]) == (0, 0))
            until(lambda: row()["statistics"]["failures"] == {"cancelled": 1})
            assert row()["statistics"]["requests"] == 0
        server.signal()
        status, log = server.wait()
    assert status == 0 and "ERROR" not in log, log


def children(server: Process) -> list[int]:
    """Return the workers, without processes that multiprocessing starts for itself."""

    def is_worker(pid: str) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end between being listed and being looked at
            return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    pids = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [int(pid) for pid in pids if is_worker(pid)]


WHO = """import os
import numpy as np
import engine
@engine.register('who.Answers')
class Who(engine.Layer):
    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input
    def forward(self, input):
        return np.full_like(input, os.getpid())
"""


def test_setting_workers_answers_from_several_processes_and_one_in_place_of_another_waits_until_it_is_ready(
    store: Path,
) -> None:
    (store / "who.py").write_text(WHO)
    write_model(store, "who", through("who.Answers", "(1,1)f64"))
    (store / "broken" / "1").mkdir(parents=True)  # as ready as it will be
    (store / "broken" / "1" / "model.pnnx.param").write_text("no such magic")

    def ask(_: int) -> int | None:
        """Return the process that answers on a new connection, or None if its worker was killed."""
        connection = HTTPConnection(*server.address, timeout=PATIENCE_S)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("POST", "/models/who/infer", b'{"inputs": [[0]]}')
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return int(np.ravel(json.loads(content)["outputs"]["out0"]["data"])[0])
        return None

    def until(is_enough: Callable[[set[int]], bool]) -> set[int]:
        """Return the processes of answers, requested eight at a time until the condition holds."""
        pids, end = set[int](), time.monotonic() + PATIENCE_S
        while not is_enough(pids):
            assert time.monotonic() < end, pids
            pids.update(pid for pid in pool.map(ask, range(8)) if pid is not None)
            time.sleep(PAUSE_S)
        return pids

    with process(store, workers=2, plugins=store / "who.py") as server, ThreadPoolExecutor(8) as pool:
        assert "for each of 2 workers" in server.banner
        workers = until(lambda pids: len(pids) == 2)
        assert workers == set(children(server))
        killed = children(server)[1]
        os.kill(killed, signal.SIGKILL)
        assert until(lambda pids: len(pids - workers) == 1) > workers - {killed}
        server.signal()
        status, log = server.wait()
    assert status == 0 and "worker 1 ended with status -9; starting another" in log


def test_counters_of_several_workers_do_not_go_backwards_when_one_of_them_dies(store: Path) -> None:
    def counts() -> tuple[float, float]:
        """Return the model's answers and the ready processes, as any worker reports them."""
        connection = HTTPConnection(*server.address, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        ready = [float(value) for name, value in lines.items() if name.startswith("pnnx_serve_ready")]
        return float(lines['pnnx_serve_requests_total{model="one",outcome="ok",version="1"}']), sum(ready)

    def until(expected: tuple[float, float]) -> None:
        end, before = time.monotonic() + PATIENCE_S, 0.0
        while (seen := counts()) != expected:
            assert before <= seen[0] <= expected[0] and time.monotonic() < end, seen
            before = seen[0]
            time.sleep(PAUSE_S)

    with process(store, workers=2) as server:
        for number in range(20):
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
                assert client.post("/models/one/infer", json={"inputs": [[number, 2, 3]]}).status_code == 200
        until((20, 2))
        killed = children(server)[1]
        os.kill(killed, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_S
        while killed in (pids := children(server)) or len(pids) < 2:
            assert time.monotonic() < end
            with suppress(OSError, HTTPException):  # it may be asked while it dies
                assert counts()[0] == 20
            time.sleep(PAUSE_S)
        until((20, 2))
        server.signal()
        status, _ = server.wait()
    assert status == 0


def test_blas_threads_are_settled_before_numpy_is_imported(store: Path) -> None:
    code = (
        "import os, sys; from app.cli import main; from app import settings;"
        "sys.modules['app.process.server'] = fake = type(sys)('app.process.server');"
        "fake.serve = lambda *_: print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules) or 0;"
        "sys.exit(main(['serve', '--port', '0']))"
    )
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    environ |= {"PNNX_SERVE_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.stdout == "1 False\n", done.stderr


def test_settings_that_do_not_work_are_told_in_one_line() -> None:
    environ = {**os.environ, "PNNX_SERVE_PORT": "x"}
    done = subprocess.run(SERVE, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("pnnx-serve: error: port (PNNX_SERVE_PORT): ") and done.stderr.count("\n") == 1


def test_a_model_that_never_ends_loading_holds_up_neither_the_others_nor_the_end(store: Path) -> None:
    (store / "endless.py").write_text(
        "import time\n"
        "import engine\n"
        "@engine.register('endless.Loop')\n"
        "class Loop(engine.Layer):\n"
        "    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:\n"
        "        return input\n"
        "    def forward(self, input):\n"
        "        while True:\n"
        "            time.sleep(0.001)\n"  # the others need the time
    )
    for name in ("a", "b"):
        write_model(store, name, through("endless.Loop", "(1,3)f32"))
    with process(store, plugins=store / "endless.py", load_timeout_s=10) as server:
        rows = {row["name"]: row for row in httpx.get(f"{server.url}/models", timeout=PATIENCE_S).json()["models"]}
        answer = httpx.post(f"{server.url}/models/one/infer", json={"inputs": [[1, 2, 3]]}, timeout=PATIENCE_S)
        server.signal()
        status, log = server.wait()
    assert rows["a"]["reason"] == "version 1: not loaded within 10 seconds (load_timeout_s)"
    assert {name for name, row in rows.items() if row["state"] == "ready"} == {"one"}
    assert answer.status_code == 200 and status == 0, log


@pytest.fixture
def a_terminal() -> Iterator[None]:
    """Make SIGHUP take effect, which ``nohup`` and its children ignore."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_second_signal_ends_it_at_once_but_not_a_terminal_that_is_closed(a_terminal: None, store: Path) -> None:
    with process(store, drain_delay_s=3600) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        server.signal(signal.SIGHUP)
        until(lambda: client.get("/health/ready").status_code == 503)  # two that come at once are one
        server.signal(signal.SIGHUP)
        for _ in range(10):
            assert client.get("/health/ready").status_code == 503
        server.signal()
        status, _ = server.wait()
    assert status == 1


def test_a_plugin_whose_rule_fails_is_answered_by_the_reference_logged_counted_and_listed(store: Path) -> None:
    (store / "faulty.py").write_text(FAULTY)
    write_model(store, "twice", through("faulty.Twice", "(1,3)f32"))
    with (
        process(store, plugins=store / "faulty.py", log_format="json", backend="auto") as server,
        httpx.Client(base_url=server.url) as client,
    ):
        until(lambda: client.get("/health/ready").is_success)
        answer = client.post("/models/twice/infer", json={"inputs": [[1, 2, 4]]}, timeout=PATIENCE_S).json()
        (version,) = client.get("/models/twice").json()["versions"]
        metrics = client.get("/metrics").text
        server.signal()
        status, log = server.wait()
    assert status == 0 and answer["outputs"]["out0"]["data"] == [2, 4, 8]
    found = {"operator": "op", "type": "faulty.Twice", "error": "ZeroDivisionError: a fault of the rule"}
    assert version["compiler_defects"] == [found]
    assert 'pnnx_serve_compiler_defects_total{model="twice",version="1"}' in metrics
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line["level"] == "error" and "operator 'op' (faulty.Twice)" in line["message"] for line in lines)
