"""Tests of deploy/haproxy with two servers behind HAProxy, of which one shuts down."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.app.process.test_server import Process, process
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S
from tests.ports import unused_port

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
CONFIG = ROOT / "deploy/haproxy/haproxy.cfg"
PICTURE = (ROOT / "model_store/digits/examples/digit-3-a.png").read_bytes()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(HAPROXY is None, reason="needs haproxy (Debian's package)")]


@contextmanager
def haproxy(*servers: Process) -> Iterator[str]:
    """Run the example before two servers, and yield its address."""
    port = unused_port()
    addresses = {
        f"SERVER_{letter}": httpx.URL(each.url).netloc.decode() for letter, each in zip("AB", servers, strict=True)
    }
    environ = {**os.environ, **addresses, "LISTEN": f"127.0.0.1:{port}", "CHECK_EVERY": "100ms"}
    with subprocess.Popen([str(HAPROXY), "-f", str(CONFIG), "-db"], env=environ, stderr=subprocess.DEVNULL) as child:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.kill()


def wait_for(http: httpx.Client, url: str, status: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if http.get(f"{url}/health/ready").status_code == status:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, f"{url} never said {status}"
        time.sleep(0.02)


def answered(http: httpx.Client, server: Process) -> int:
    text = http.get(f"{server.url}/metrics").text
    return sum(
        int(float(line.split()[-1]))
        for line in text.splitlines()
        if line.startswith('pnnx_serve_requests_total{model="digits"') and 'outcome="ok"' in line
    )


def infer(http: httpx.Client, url: str) -> int:
    return http.post(f"{url}/infer?model=digits", content=PICTURE, headers={"content-type": "image/png"}).status_code


def test_haproxy_accepts_the_configuration_without_warnings() -> None:
    done = subprocess.run(
        [str(HAPROXY), "-c", "-f", str(CONFIG)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0 and "warning" not in (done.stdout + done.stderr).lower(), done.stderr


def test_requests_reach_both_servers_and_none_fails_when_one_shuts_down(tmp_path: Path) -> None:
    own = {"threads": 1, "cache_dir": tmp_path / "cache", "drain_delay_s": 3.0, "max_wait_s": 30}
    store = ROOT / "model_store"
    with (
        httpx.Client(trust_env=False, timeout=PATIENCE_S) as http,
        process(store, **own) as first,
        process(store, **own) as second,
        haproxy(first, second) as url,
    ):
        for each in (first.url, second.url, url):
            wait_for(http, each, 200)
        statuses = [infer(http, url) for _ in range(20)]
        assert set(statuses) == {200}
        assert answered(http, first) > 0 < answered(http, second)

        stop, heard = threading.Event(), list[int]()

        def client() -> None:
            with httpx.Client(trust_env=False, timeout=PATIENCE_S) as own:
                while not stop.is_set():
                    heard.append(infer(own, url))

        clients = [threading.Thread(target=client) for _ in range(2)]
        for each in clients:
            each.start()
        first.signal()
        status, _ = first.wait()
        before = len(heard)
        end = time.monotonic() + PATIENCE_S
        while len(heard) < before + 20 and time.monotonic() < end:
            time.sleep(0.01)
        stop.set()
        for each in clients:
            each.join()
        assert status == 0 and set(heard) == {200} and len(heard) >= before + 20

        second.signal()
        second.wait()
        wait_for(http, url, 503)  # no server is left
