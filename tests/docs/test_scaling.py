"""docs/scaling.md: every command of it is run here, or by the test that is named beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, blocks, page

HAPROXY = "tests/deploy/test_haproxy.py"
# What takes a cluster or a daemon, and what is run in its place.
ELSEWHERE = {
    "docker compose up": "tests/docs/test_delivery.py",
    "kubectl apply --kustomize deploy/kubernetes/overlays/production": "tests/deploy/test_kubernetes.py",
    "kubectl apply --filename deploy/kserve/clusterservingruntime.yaml": "tests/deploy/test_kserve.py",
    "kubectl apply --filename deploy/kserve/inferenceservice.yaml": "tests/deploy/test_kserve.py",
    "haproxy -c -f deploy/haproxy/haproxy.cfg": HAPROXY,
    "SERVER_A=10.0.0.1:8000 SERVER_B=10.0.0.2:8000 haproxy -f deploy/haproxy/haproxy.cfg": HAPROXY,
    "python -m benchmarks.rolling --updates 5": "tests/benchmarks/test_rolling.py",
    "python -m benchmarks.replicas": "tests/benchmarks/test_replicas.py",
    "python -m benchmarks.scale": "tests/benchmarks/test_scale.py",
    "python -m benchmarks.scale.measure": "tests/benchmarks/test_scale.py",
    "pnnx-serve deploy ray --store model_store": "tests/app/scale/test_deployment.py",
    "pnnx-serve serve --store model_store": "tests/docs/test_delivery.py",
    "pnnx-serve serve --store model_store --workers 2": "tests/app/process/test_workers.py",
}
HERE = ("kubectl kustomize ",)


def commands(name: str) -> Iterator[str]:
    for block in blocks(page(name)):
        if block.language == "console":
            yield from re.findall(r"^\$ (.*)$", block.text, re.M)


PAGES = ("docs/scaling.md", "deploy/README.md")


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_run_somewhere(name: str) -> None:
    assert [each for each in commands(name) if each not in ELSEWHERE and not each.startswith(HERE)] == []
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_command_names_are_there(name: str) -> None:
    named = {word for each in commands(name) for word in each.split() if "/" in word}
    assert named and [word for word in named if not (ROOT / word).exists()] == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize(
    "command", sorted({each for name in PAGES for each in commands(name) if each.startswith(HERE)})
)
def test_the_command_does_what_the_page_says(command: str) -> None:
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "kind: Deployment" in done.stdout, done.stderr
