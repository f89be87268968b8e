"""Tests of a deployment: replicas start, stop and share weights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.scale.conftest import ROOT, Deployed, answer, deployed, load
from tests.patience import PATIENCE_S, until
from tests.ports import unused_port

pytestmark = pytest.mark.slow


def rewrite(store: Path, name: str, old: int, new: int) -> None:
    path = store / name / "1" / "model.pnnx.param"
    path.with_name("next").write_text(path.read_text().replace(f"add(@0,{old})", f"add(@0,{new})"))
    path.with_name("next").replace(path)


def test_a_model_is_replaced_in_all_replicas_while_all_serve(ray_url: str, store: Path) -> None:
    from app.scale.ray import ModelOptions, Options

    own = {"a": ModelOptions(replicas=2, cpus=0.5)}
    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5, models=own)) as client:
        with load(client, "a", "b", "c") as statuses:
            rewrite(store, "a", 0, 7)
            rewrite(store, "b", 1, 8)
            until(lambda: {answer(client, "a") for _ in range(8)} == {7.0})
            until(lambda: {answer(client, "b") for _ in range(8)} == {8.0})
        assert {name: set(each) for name, each in statuses.items()} == {name: {200} for name in "abc"}


def test_a_replica_holds_the_models_it_is_asked_for(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    with deployed(ray_url, Options(store=str(store), replicas=1, cpus=0.5, models_per_replica=2)) as client:
        assert [answer(client, name) for name in "abc"] == [0.0, 1.0, 2.0]
        states = {row["name"]: row["state"] for row in client.get("/models").json()["models"]}
        assert states == {"a": "unloaded", "b": "ready", "c": "ready"}
        assert client.get("/health/ready").status_code == 200


def test_replicas_compile_once_and_each_reports_all(ray_url: str, store: Path) -> None:
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


def test_a_cluster_that_is_not_there_is_told(ray_url: str, store: Path) -> None:
    command = [sys.executable, "-m", "app", "deploy", "ray", "--store", str(store), "--address", "127.0.0.1:1"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr.splitlines()[-1]


def test_the_command_line_deploys_on_this_machine_alone_until_it_is_told_to_stop(ray_url: str, store: Path) -> None:
    port = unused_port()
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
