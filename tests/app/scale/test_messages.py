"""Tests that provoke each error of a deployment and check the last line of the command."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.remote.stores import write
from tests.app.remote.web import Web, tar_folder, web_server
from tests.app.sample_models import elementwise, write_model
from tests.app.scale.conftest import ROOT, Ray

pytestmark = pytest.mark.slow
NAME = "told"


@pytest.fixture
def web() -> Iterator[Web]:
    pytest.importorskip("aiohttp", reason="fetching needs the extra [remote]")
    with web_server() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_model(tmp_path / "store", "a", elementwise("add(@0,0)", "(?,2)f32"))
    return tmp_path / "store"


def deploy(cluster: Ray, store: object, *more: str, before: str = "") -> tuple[int, str]:
    """The command's status, and the last line of what it complains of; nothing is left of what it deployed."""
    code = f"import sys; {before}from app.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "deploy", "ray", "--store", str(store), "--address", cluster.address]
    port = cluster.url.rpartition(":")[2]
    done = subprocess.run(
        [*command, "--name", NAME, "--port", port, "--cpus", "0.5", *more],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    from ray import serve

    serve.delete(NAME)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


def test_a_cluster_of_another_version_is_told_with_both(cluster: Ray, store: Path) -> None:
    import ray

    status, line = deploy(cluster, store, before="import ray; ray.__version__ = '2.99.0'; ")
    assert status == 1
    assert f"the cluster at '{cluster.address}' has another version of Ray or of Python" in line
    assert "install the same on both" in line and "Ray: 2.99.0" in line and f"Ray: {ray.__version__}" in line


def test_a_cluster_that_is_full_is_told_after_the_wait_with_what_is_free(cluster: Ray, store: Path) -> None:
    status, line = deploy(cluster, store, "--cpus", "5", "--replicas", "2", "--load-timeout-s", "15")
    assert status == 1
    assert "1 of 2 replicas run; 3 of the cluster's 8 cores are free. If it is full: fewer replicas, fewer" in line
    assert "what was asked for stays, and starts when there is room" in line


def test_a_replica_that_no_node_has_room_for_is_told_before_anything_is_deployed(cluster: Ray, store: Path) -> None:
    status, line = deploy(cluster, store, "--cpus", "1000")
    assert status == 1
    assert "a replica: found 1000 cores, expected at most 8 as the largest node has: use fewer" in line


def test_a_folder_that_a_node_has_not_is_told(cluster: Ray, tmp_path: Path) -> None:
    status, line = deploy(cluster, tmp_path / "nowhere")
    assert status == 1
    assert "the replicas do not start: node " in line and f"has no folder '{tmp_path}/nowhere'" in line
    assert "a store must be in the same place on every node, or at an address" in line


def test_a_store_that_cannot_be_reached_is_told(cluster: Ray) -> None:
    status, line = deploy(cluster, "http://127.0.0.1:9/models.tar")
    assert status == 1
    assert "of http://127.0.0.1:9/models.tar cannot be read: it cannot be reached" in line
    assert "check the address" in line


def test_another_digest_is_told_with_both(cluster: Ray, web: Web, tmp_path: Path) -> None:
    write(tmp_path / "source", "one", 1)
    data = tar_folder(tmp_path / "source")
    web.files["models.tar"] = data
    status, line = deploy(cluster, f"{web.url}/models.tar#sha256={'0' * 64}")
    assert status == 1
    assert hashlib.sha256(data).hexdigest() in line and "0" * 64 in line


def test_a_model_that_cannot_be_served_is_told_and_the_others_are_served(cluster: Ray, store: Path) -> None:
    write_model(store, "broken", elementwise("add(@0,0)", "(?,2)f32"))
    (store / "broken" / "1" / "model.pnnx.param").write_text("nonsense")
    status, line = deploy(cluster, store)
    assert (status, line) == (0, "pnnx-serve: deployed, but not ready: failed to load: broken")
