"""Ray's own commands, with its own config file: as docs/scaling.md has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.scale.conftest import ROOT, Deployed, Ray, answer
from tests.docs.pages import blocks, page
from tests.patience import until

pytestmark = pytest.mark.slow


def serve_command(folder: Path, *words: str) -> str:
    """Return the output of 'serve', run in a folder."""
    command = [str(Path(sys.executable).with_name("serve")), *words]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def block(language: str, holds: str) -> str:
    """The one of the page in which a line occurs."""
    (found,) = (
        each.text for each in blocks(page("docs/scaling.md")) if each.language == language and holds in each.text
    )
    return found


def runs(name: str) -> bool:
    from ray import serve

    found = serve.status().applications.get(name)
    assert found is None or found.status.value != "DEPLOY_FAILED", found
    return found is not None and found.status.value == "RUNNING"


def deploy(cluster: Ray, file: Path) -> None:
    """Deploy as 'serve deploy' does, and wait until all of it runs."""
    serve_command(file.parent, "deploy", file.name, "--address", cluster.dashboard)
    for each in yaml.safe_load(file.read_text())["applications"]:
        until(lambda name=each["name"]: runs(name))  # type: ignore[misc]
        assert re.search(
            rf"{each['name']}:\s+status: RUNNING", serve_command(file.parent, "status", "-a", cluster.dashboard)
        )


def asked(cluster: Ray) -> list[float]:
    client = Deployed(cluster.url)
    try:
        return [answer(client, name) for name in "abc"]
    finally:
        client.close()


def test_what_serve_build_writes_serve_deploy_deploys(cluster: Ray, store: Path, tmp_path: Path) -> None:
    from ray import serve

    text = block("python", "build(Options(").replace("s3://bucket/models", str(store)).replace("resnet18", "a")
    (tmp_path / "serving.py").write_text(re.sub(r"(cpus|replicas)=\d+", r"\1=1", text))
    serve_command(tmp_path, "build", "serving:application", "--output-path", "serve.yaml")
    config: dict[str, Any] = yaml.safe_load((tmp_path / "serve.yaml").read_text())
    (application,) = config["applications"]
    assert {each["name"] for each in application["deployments"]} == {"pnnx-serve", "model-a"}
    # The module has to be where every node looks for it; this is one of the ways.
    application["runtime_env"] = {"env_vars": {"PYTHONPATH": f"{ROOT}:{tmp_path}"}}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    deploy(cluster, tmp_path / "serve.yaml")
    try:
        assert asked(cluster) == [0.0, 1.0, 2.0]
    finally:
        serve.delete("app1")


def test_the_config_file_of_the_page_deploys_and_another_one_changes_what_runs(
    cluster: Ray, store: Path, tmp_path: Path
) -> None:
    from ray import serve

    config: dict[str, Any] = yaml.safe_load(block("yaml", "import_path: app.scale.ray:build"))
    (application,) = config["applications"]
    told = application["args"]
    assert told["models"].keys() == {"resnet18"}
    # As the page has it, but for a cluster of this size, and a store that is here.
    told |= {"store": str(store), "cpus": 0.5, "settings": {"max_queue": 32}, "min_replicas": 1}
    told["models"] = {"a": {"replicas": 2, "cpus": 0.5}}
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    deploy(cluster, file)
    try:
        assert asked(cluster) == [0.0, 1.0, 2.0]
        told["models"]["a"]["replicas"] = 1
        file.write_text(yaml.safe_dump(config))
        deploy(cluster, file)
        until(lambda: serve.status().applications["pnnx-serve"].deployments["model-a"].replica_states == {"RUNNING": 1})
        assert asked(cluster) == [0.0, 1.0, 2.0]
    finally:
        serve.delete("pnnx-serve")
