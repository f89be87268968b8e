"""What only a deployment has: replicas that come, go and share."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.sample_models import elementwise, write_model
from tests.app.scale.conftest import ROOT, Deployed, deployed

pytestmark = pytest.mark.slow
PATIENCE_S = 180.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for term, name in enumerate("abc"):
        write_model(tmp_path, name, elementwise(f"add(@0,{term})", "(?,2)f32"))
    return tmp_path


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.1)


def answer(client: Deployed, name: str) -> float:
    return float(client.infer(name, [[0, 0]]).json()["outputs"]["out0"]["data"][0])


def rewrite(store: Path, name: str, old: int, new: int) -> None:
    path = store / name / "1" / "model.pnnx.param"
    path.with_name("next").write_text(path.read_text().replace(f"add(@0,{old})", f"add(@0,{new})"))
    path.with_name("next").replace(path)


@contextmanager
def load(client: Deployed, *names: str) -> Iterator[dict[str, list[int]]]:
    """Requests for models, one after the other for each; their statuses, 0 for none."""
    statuses: dict[str, list[int]] = {name: [] for name in names}
    stopping = threading.Event()

    def ask(name: str) -> None:
        with httpx.Client(base_url=client.url, timeout=60) as own:
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


def test_a_model_is_replaced_in_all_replicas_while_all_serve(ray_url: str, store: Path) -> None:
    from app.scale.ray import ModelOptions, Options

    own = {"a": ModelOptions(replicas=2, cpus=0.5)}
    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5, models=own)) as client:
        with load(client, "a", "b", "c") as statuses:
            rewrite(store, "a", 0, 7)
            rewrite(store, "b", 1, 8)
            eventually(lambda: {answer(client, "a") for _ in range(8)} == {7.0})
            eventually(lambda: {answer(client, "b") for _ in range(8)} == {8.0})
        assert {name: set(each) for name, each in statuses.items()} == {name: {200} for name in "abc"}


def test_replicas_of_another_revision_take_the_place_of_those_of_one_model(ray_url: str, store: Path) -> None:
    from ray import serve

    from app.scale.ray import ModelOptions, Options, build

    def options(revision: str) -> Any:
        own = {"a": ModelOptions(replicas=2, cpus=0.5, revision=revision)}
        return Options(store=str(store), replicas=1, cpus=0.5, models=own)

    with deployed(ray_url, options("1")) as client, load(client, "a", "b") as statuses:
        serve.run(build(options("2")), name="tested")
        assert answer(client, "b") == 1.0
    assert {name: set(each) for name, each in statuses.items()} == {"a": {200}, "b": {200}}


def test_a_replica_holds_the_models_it_is_asked_for(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    with deployed(ray_url, Options(store=str(store), replicas=1, cpus=0.5, models_per_replica=2)) as client:
        assert [answer(client, name) for name in "abc"] == [0.0, 1.0, 2.0]
        states = {row["name"]: row["state"] for row in client.get("/models").json()["models"]}
        assert states == {"a": "unloaded", "b": "ready", "c": "ready"}
        assert client.get("/health/ready").status_code == 200


def test_replicas_compile_once_and_whoever_is_asked_tells_of_all(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    for name, old in zip("abc", range(3), strict=True):
        rewrite(store, name, old, 4711 + old)  # of which nothing is in the cache yet
    with deployed(ray_url, Options(store=str(store), replicas=3, cpus=0.5)) as client:
        page = client.get("/metrics").text
        found = re.findall(r"^pnnx_serve_programs_total\{(.*)\} (\S+)$", page, re.MULTILINE)
        rows = [(dict(re.findall(r'(\w+)="(.*?)"', labels)), float(count)) for labels, count in found]
        made = {(labels["worker"], labels["origin"]): count for labels, count in rows}
        workers = {worker for worker, _ in made}
        assert len(workers) == 3
        # Of three that began at once, two have compiled none of their models.
        idle = [each for each in workers if not made[each, "compiled"]]
        assert len(idle) == 2 and all(made[each, "cache"] >= 3 for each in idle), made
        for _ in range(30):
            answer(client, "c")
        page = client.get("/metrics").text
        counted = re.findall(r'pnnx_serve_requests_total\{model="c",.*outcome="ok".*?\} (\S+)', page)
        assert sum(map(float, counted)) == 30.0
        statistics = client.get("/models/c").json()["versions"][0]["statistics"]
        assert statistics["requests"] == 30


def test_what_is_said_to_one_replica_is_done_by_all(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5)) as client:
        assert client.post("/v2/repository/models/c/unload").status_code == 200
        assert {client.infer("c", [[0, 0]]).status_code for _ in range(12)} == {404}
        assert client.post("/v2/repository/models/c/load").status_code == 200
        assert {client.infer("c", [[0, 0]]).status_code for _ in range(12)} == {200}


def test_rays_own_config_file_deploys_it(ray_url: str, store: Path) -> None:
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    config = {
        "applications": [
            {
                "name": "filed",
                "route_prefix": "/",
                "import_path": "app.scale.ray:build",
                "args": {"store": str(store), "cpus": 0.5, "models": {"a": {"replicas": 1, "cpus": 0.5}}},
            }
        ]
    }
    client = serve.context._get_global_client()
    client.deploy_apps(ServeDeploySchema.model_validate(config), _blocking=True)
    try:
        eventually(lambda: serve.status().applications["filed"].status.value == "RUNNING")
        made = Deployed(ray_url)
        assert [answer(made, name) for name in "abc"] == [0.0, 1.0, 2.0]
        made.close()
    finally:
        serve.delete("filed")


def test_a_replica_that_no_node_has_room_for_is_told(ray_url: str, store: Path) -> None:
    from app.scale.ray.cluster import Cluster, ClusterError
    from app.scale.ray.options import Options

    cluster = Cluster.__new__(Cluster)
    import ray

    cluster._ray = ray
    with pytest.raises(
        ClusterError, match="a replica is to have 1000 cores, and no node of the cluster has more than 8"
    ):
        cluster._check_room([Options(store=str(store), cpus=1000)])


def test_a_cluster_that_is_not_there_is_told(ray_url: str, store: Path) -> None:
    command = [sys.executable, "-m", "app", "deploy", "ray", "--store", str(store), "--address", "127.0.0.1:1"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr.splitlines()[-1]


def test_the_command_line_deploys_on_this_machine_alone_until_it_is_told_to_stop(ray_url: str, store: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "app",
        "deploy",
        "ray",
        "--store",
        str(store),
        "--port",
        str(port),
        "--cpus",
        "0.5",
    ]
    environ = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("pnnx-serve:"))
        assert line == f"pnnx-serve: {store} is served by Ray at http://127.0.0.1:{port}\n"
        client = Deployed(f"http://127.0.0.1:{port}")
        assert [answer(client, name) for name in "abc"] == [0.0, 1.0, 2.0]
        client.close()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
