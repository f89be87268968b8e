"""Tests of the image run as in the manifests; they need Docker, 'make image' and WITH_IMAGE=1."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.test_kubernetes import FOLDER, environment, pod, server
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S, until
from tests.ports import unused_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("WITH_IMAGE"), reason="needs a container engine, and the image in it"),
]
PLAN = FOLDER / "base"
PICTURE = (ROOT / "model_store/digits/examples/digit-3-a.png").read_bytes()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Provide a volume with the permissions that fsGroup sets."""
    tmp_path.chmod(0o755)
    made = tmp_path / "cache"
    made.mkdir()
    os.chown(made, 10001, 10001)
    return made


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=280, check=False)


def run(container: dict[str, object], cache: Path, *words: str, more: tuple[str, ...] = ()) -> list[str]:
    """Return the arguments of ``docker run`` for a container of the manifest."""
    context = pod(PLAN)["securityContext"]
    user = f"{context['runAsUser']}:{context['runAsGroup']}"
    options = [
        "--read-only",
        "--user",
        user,
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--memory",
        "1g",
    ]
    options += ["--network", "host", "--tmpfs", "/tmp:mode=1777", "--volume", f"{cache}:/var/cache/pnnx-serve"]
    for name, value in environment(container).items():
        options += ["--env", f"{name}={value}"]
    return ["run", *options, *more, "pnnx-serve", *words]


def test_the_init_container_fills_the_cache_and_reports_faulty_models(cache: Path, tmp_path: Path) -> None:
    (fills,) = pod(PLAN)["initContainers"]
    done = docker(*run(fills, cache, *fills["args"], more=("--rm",)))
    assert done.returncode == 0 and "digits" in done.stdout, done.stderr
    assert [path for path in cache.rglob("*") if path.is_file()]
    (tmp_path / "empty").mkdir()
    done = docker(*run(fills, cache, *fills["args"], more=("--rm", "--volume", f"{tmp_path}/empty:/models:ro")))
    assert (done.returncode, done.stderr) == (1, "pnnx-serve: error: the store '/models' is empty: found no model\n")


@pytest.fixture
def served(cache: Path) -> Iterator[tuple[str, str]]:
    """Provide a container and the address of its server."""
    port = unused_port()
    more = ("--detach", "--env", f"PNNX_SERVE_PORT={port}", "--env", "PNNX_SERVE_HOST=127.0.0.1")
    name = docker(*run(server(PLAN), cache, *server(PLAN)["args"], more=more)).stdout.strip()
    yield name, f"http://127.0.0.1:{port}"
    docker("rm", "--force", name)


def test_the_server_is_unprivileged_and_ends_within_its_grace_period(served: tuple[str, str]) -> None:
    name, url = served

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/health/ready", trust_env=False, timeout=30).status_code == 200
        except httpx.TransportError:
            return False

    until(is_ready)
    answer = httpx.post(
        f"{url}/infer?model=digits", content=PICTURE, headers={"content-type": "image/png"}, timeout=PATIENCE_S
    )
    assert answer.json()["predictions"][0]["label"] == "3"
    status = docker("exec", name, "cat", "/proc/1/status").stdout
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (int(found["CapBnd"], 16), int(found["CapEff"], 16), found["NoNewPrivs"]) == (0, 0, "1")
    assert found["Uid"].split() == ["10001"] * 4
    assert "Read-only file system" in docker("exec", name, "touch", "/srv/x").stderr
    docker("stop", "--time", str(pod(PLAN)["terminationGracePeriodSeconds"]), name)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
