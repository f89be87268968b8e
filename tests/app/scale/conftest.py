"""A Ray of two nodes' worth on this machine, for tests that 'make scale' runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.sample_models import elementwise, write_model, write_zoo
from tests.app.v2_models import write_v2_zoo
from tests.patience import PATIENCE_S
from tests.ports import unused_port

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """Addresses of a Ray: of its proxy, of its head for those that connect, and of its dashboard for its commands."""

    url: str
    address: str
    dashboard: str


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    """Ray cluster without deployments."""
    if not os.environ.get("WITH_RAY"):
        pytest.skip("Ray takes memory and minutes: 'make scale' runs this")
    ray = pytest.importorskip("ray", reason="Ray is not installed; see 'make scale'")
    from ray import serve

    port, dashboard = unused_port(), unused_port()
    environ = {"PYTHONPATH": str(ROOT), "PNNX_SERVE_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    # Handles and replicas report their request counts every 0.2 s instead of 10 s, so that tests need not wait.
    told = {f"RAY_SERVE_{each}_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.2" for each in ("HANDLE", "REPLICA")}
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **told, **environ})
    ray.init(
        num_cpus=8,
        object_store_memory=150 * 2**20,
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        dashboard_port=dashboard,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": environ},
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    address = ray.get_runtime_context().gcs_address
    yield Ray(url=f"http://127.0.0.1:{port}", address=address, dashboard=f"http://127.0.0.1:{dashboard}")
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def ray_url(cluster: Ray) -> str:
    """URL of the deployment's proxy."""
    return cluster.url


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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for term, name in enumerate("abc"):
        write_model(tmp_path, name, elementwise(f"add(@0,{term})", "(?,2)f32"))
    return tmp_path


def answer(client: Deployed, name: str) -> float:
    return float(client.infer(name, [[0, 0]]).json()["outputs"]["out0"]["data"][0])


@contextmanager
def load(client: Deployed, *names: str) -> Iterator[dict[str, list[int]]]:
    """Requests for models, one after the other for each; their statuses, 0 for none."""
    statuses: dict[str, list[int]] = {name: [] for name in names}
    stopping = threading.Event()

    def ask(name: str) -> None:
        with httpx.Client(base_url=client.url, timeout=PATIENCE_S) as own:
            while not stopping.is_set():
                try:
                    found = own.post(f"/models/{name}/infer", json={"inputs": [[0, 0]]}).status_code
                except httpx.HTTPError:
                    found = 0
                statuses[name].append(found)

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


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
    """Fixture of the protocol's tests; replicas hold the requested models."""
    from app.scale.ray import Options

    store = tmp_path_factory.mktemp("v2")
    write_v2_zoo(store)
    with deployed(ray_url, Options(store=str(store), replicas=1, cpus=0.5, settings=PLUGINS)) as client:
        yield client
