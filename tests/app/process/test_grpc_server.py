"""Tests of gRPC with real processes, signals and certificates."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from app.settings import Settings, SettingsError
from tests.app.process.test_server import ROOT, SERVE, Process, children, process, write_gate
from tests.app.process.test_tls import Files
from tests.app.sample_models import elementwise, write_model
from tests.patience import PATIENCE_S, limits, until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    return tmp_path


def client_of(server: Process, **more: Any) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(re.findall(r"grpc +(\S+)", server.banner)[0], **more)


def ones(name: str = "in0", shape: tuple[int, ...] = (1, 3)) -> list[triton.InferInput]:
    tensor = triton.InferInput(name, shape, "FP32")
    tensor.set_data_from_numpy(np.ones(shape, np.float32))
    return [tensor]


def test_setting_grpc_port_is_where_calls_come_in_and_those_that_run_at_the_end_are_finished_and_new_ones_are_not_ready(
    store: Path,
) -> None:
    settings = write_gate(store)
    for delay_s in limits(1.0):
        (store / "open").touch()
        with process(store, grpc_port=0, drain_delay_s=delay_s, **settings) as server:
            with client_of(server) as client, ThreadPoolExecutor(1) as pool:
                assert client.is_server_ready()
                client.infer("gate", ones())  # the first request finds out what may share a run
                (store / "open").unlink()
                pending = pool.submit(client.infer, "gate", ones())
                until(lambda: at_work(server, "gate"))
                server.signal()
                is_late = False
                try:
                    until(lambda: not client.is_server_ready())
                    assert client.is_server_live()
                except InferenceServerException:  # on a busy machine the delay may be over before anybody asks
                    is_late = True
                (store / "open").touch()
                np.testing.assert_array_equal(pending.result(PATIENCE_S).as_numpy("out0"), np.ones((1, 3)))
            status, log = server.wait()
        assert status == 0 and "ERROR" not in log, log
        if not is_late:
            break
    assert not is_late


def at_work(server: Process, model: str) -> int:
    """Return the number of a model's requests that are not answered."""
    row = httpx.get(f"{server.url}/models/{model}", timeout=PATIENCE_S).json()["versions"][0]
    return int(row["running"] + row["queued"])


def test_a_second_signal_ends_open_calls_at_once(store: Path) -> None:
    with (
        process(store, grpc_port=0, **write_gate(store)) as server,
        client_of(server) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        (store / "open").touch()
        client.infer("gate", ones())
        (store / "open").unlink()
        pending = pool.submit(client.infer, "gate", ones())
        until(lambda: at_work(server, "gate"))
        server.signal()
        server._process.send_signal(signal.SIGINT)
        assert server.wait()[0] == 1
        assert pending.exception(PATIENCE_S) is not None


def test_unclosed_streams_hold_up_the_end_no_longer_than_is_allowed(store: Path) -> None:
    with process(store, grpc_port=0, shutdown_timeout_s=0.5) as server, client_of(server) as client:
        client.start_stream(lambda result, error: None)
        client.async_stream_infer("one", ones())
        server.signal()
        assert server.wait()[0] == 0


def test_workers_share_the_port_and_their_figures(store: Path) -> None:
    with process(store, grpc_port=0, workers=2) as server:
        assert len(children(server)) == 2
        address = re.findall(r"grpc +(\S+)", server.banner)[0]
        # Each connection goes to one of them; how many there must be until both had some is chance.
        for _ in range(20):
            options = [("grpc.use_local_subchannel_pool", 1)]
            with triton.InferenceServerClient(address, channel_args=options) as client:
                np.testing.assert_array_equal(client.infer("one", ones()).as_numpy("out0"), np.full((1, 3), 2.0))
        deadline = time.monotonic() + PATIENCE_S
        pattern = r'pnnx_serve_grpc_responses_total\{code="OK"\} 20\.0'
        while not re.search(pattern, httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        server.signal()
        assert server.wait()[0] == 0


def test_calls_have_their_line_of_the_log(store: Path) -> None:
    with process(store, grpc_port=0, access_log=True, log_format="json") as server:
        with client_of(server) as client:
            client.infer("one", ones(), headers={"x-request-id": "mine"})
        server.signal()
        log = server.wait()[1]
    (line,) = [line for line in log.splitlines() if "ModelInfer" in line]
    assert '"message":"gRPC /inference.GRPCInferenceService/ModelInfer OK"' in line
    assert '"request_id":"mine"' in line and '"model":"one"' in line and '"infer_ms"' in line


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("asks_for_theirs", [False, True])
def test_the_certificate_of_http_is_that_of_grpc(store: Path, files: Files, asks_for_theirs: bool) -> None:
    own: dict[str, Any] = {"tls_client_ca": files.ca} if asks_for_theirs else {}
    if not asks_for_theirs:
        own = {"tls_key": files.key}
    with process(store, grpc_port=0, tls_certificate=files.both if asks_for_theirs else files.certificate, **own) as it:
        address = re.findall(r"grpc +(\S+)", it.banner)[0]
        authority, both = files.ca.read_bytes(), files.client.read_bytes()
        trusting = grpc.ssl_channel_credentials(authority)
        with_own = grpc.ssl_channel_credentials(authority, both, both)
        with triton.InferenceServerClient(address, creds=with_own, ssl=True) as client:
            assert client.is_server_live()
        if asks_for_theirs:
            with grpc.secure_channel(address, trusting) as made, pytest.raises(grpc.RpcError):
                made.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=20)
        with grpc.insecure_channel(address) as made, pytest.raises(grpc.RpcError):
            made.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=20)


def test_what_does_not_work_is_told_in_one_line(store: Path, files: Files, tmp_path: Path) -> None:
    def ended(*options: str, **settings: Any) -> str:
        environ = {f"PNNX_SERVE_{key.upper()}": str(value) for key, value in {"port": 0, **settings}.items()}
        done = subprocess.run(
            [sys.executable, *options, *SERVE[1:], "--store", str(store)],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environ},
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode not in (0, -signal.SIGKILL) and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} (grpc_port): Address already in use" in ended(grpc_port=port)
    more = {"tls_certificate": files.certificate, "tls_key": files.locked, "tls_key_password": "word"}
    assert "gRPC cannot read an encrypted key" in ended(grpc_port=0, **more)


def test_without_the_extra_a_server_without_grpc_works_and_one_with_it_says_what_is_missing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.process import sockets

    for name in [name for name in sys.modules if name == "grpc" or name.startswith(("grpc.", "app.grpc"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert sockets.reserve_port(Settings(store=store)) is None
    with pytest.raises(SettingsError, match=r"pip install 'pnnx-serve\[grpc\]'"):
        sockets.reserve_port(Settings(store=store, grpc_port=0))


def test_nothing_of_grpc_is_loaded_where_there_is_no_port_for_it() -> None:
    loaded = "{name.split('.')[0] for name in sys.modules} & {'grpc', 'google'}"
    code = f"import sys, app.process.server; sys.exit(bool({loaded}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 0
