"""A Ray of two nodes' worth on this machine, for tests that 'make scale' runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.sample_models import write_zoo
from tests.app.v2_models import write_v2_zoo

ROOT = Path(__file__).parents[3]


class Deployed:
    """Requests to a deployment, through Ray's proxy."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=120)
        self.url = url

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self._client.get(path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self._client.post(path, **more)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, path, **more)

    def infer(self, model: str, inputs: object, **more: Any) -> httpx.Response:
        return self.post(f"/models/{model}/infer", json={"inputs": inputs, **more})


@pytest.fixture(scope="session")
def ray_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where Ray's proxy listens; nothing is deployed."""
    if not os.environ.get("WITH_RAY"):
        pytest.skip("Ray takes memory and minutes: 'make scale' runs this")
    ray = pytest.importorskip("ray", reason="Ray is not installed; see 'make scale'")
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {"PYTHONPATH": str(ROOT), "PNNX_SERVE_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **environ})
    ray.init(
        num_cpus=8,
        object_store_memory=150 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": environ},
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


@contextmanager
def deployed(url: str, options: object) -> Iterator[Deployed]:
    """A client of an application, which is gone afterwards."""
    from ray import serve

    from app.scale.ray import build

    serve.run(build(options), name="tested")  # type: ignore[arg-type]
    client = Deployed(url)
    try:
        yield client
    finally:
        client.close()
        serve.delete("tested")


PLUGINS = {"plugins": ("tests.app.sample_models",)}


@pytest.fixture(scope="module")
def zoo(ray_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The zoo of the service's own tests; two of its models have replicas of their own."""
    from app.scale.ray import ModelOptions, Options

    store = tmp_path_factory.mktemp("zoo")
    write_zoo(store)
    own = {name: ModelOptions(replicas=1, cpus=0.5) for name in ("one", "boxes")}
    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5, settings=PLUGINS, models=own)) as client:
        yield client


@pytest.fixture(scope="module")
def v2(ray_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """That of the protocol's tests; replicas hold the models they are asked for."""
    from app.scale.ray import Options

    store = tmp_path_factory.mktemp("v2")
    write_v2_zoo(store)
    with deployed(ray_url, Options(store=str(store), replicas=1, cpus=0.5, settings=PLUGINS)) as client:
        yield client
