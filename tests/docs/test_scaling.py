"""Tests of all commands of docs/scaling.md, here or by the test that RUN_BY names."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import ROOT, blocks, page
from tests.nightly import IS_NIGHTLY
from tests.patience import PATIENCE_S, until
from tests.ports import unused_port

KUBERNETES, KSERVE, HAPROXY = (f"tests/deploy/test_{name}.py" for name in ("kubernetes", "kserve", "haproxy"))
RAY = "tests/app/scale"
BENCHMARKS = f"{RAY}/test_benchmarks.py::test_what_is_promised_is_kept"
HERE, SIMULATION = "tests/docs/test_scaling.py", "tests/benchmarks/test_scale.py"
# Test that runs each command, some with other times, sizes and places.
# For Kubernetes and KServe, tests check the objects against the schemas instead.
RUN_BY = {
    "docker compose up": "tests/deploy/test_compose.py::test_mounts_are_the_folders_that_the_image_uses",
    "haproxy -c -f deploy/haproxy/haproxy.cfg": f"{HAPROXY}::test_haproxy_accepts_the_configuration_without_warnings",
    "SERVER_A=10.0.0.1:8000 SERVER_B=10.0.0.2:8000 haproxy -f deploy/haproxy/haproxy.cfg": (
        f"{HAPROXY}::test_requests_reach_both_servers_and_none_fails_when_one_shuts_down"
    ),
    "kubectl kustomize deploy/kubernetes/overlays/production": f"{HERE}::test_kustomize_renders_the_deployment",
    "kubectl apply --kustomize deploy/kubernetes/overlays/production": (
        f"{KUBERNETES}::test_the_newest_kubernetes_accepts_every_object"
    ),
    "kubectl apply --filename deploy/kserve/clusterservingruntime.yaml": f"{KSERVE}::test_kserve_accepts_the_object",
    "kubectl apply --filename deploy/kserve/inferenceservice.yaml": f"{KSERVE}::test_kserve_accepts_the_object",
    "kubectl logs POD -c compile": f"{KUBERNETES}::test_the_init_container_compiles_for_the_settings_of_the_server",
    "kubectl logs POD -c fetch": f"{KUBERNETES}::test_fetched_models_are_checked_against_their_digests",
    "kubectl rollout status": f"{KUBERNETES}::test_the_startup_probe_allows_time_to_compile_before_liveness",
    "pnnx-serve compile --all": f"{KUBERNETES}::test_the_init_container_compiles_for_the_settings_of_the_server",
    "pnnx-serve serve --store model_store": f"{HERE}::test_the_server_command_of_the_page_serves",
    "pnnx-serve serve --store model_store --workers 2": f"{HERE}::test_the_server_command_of_the_page_serves",
    "pnnx-serve deploy ray --store model_store": (
        f"{RAY}/test_deployment.py::test_the_command_line_deploys_on_this_machine_alone_until_it_is_told_to_stop"
    ),
    "pnnx-serve deploy ray": f"{RAY}/test_messages.py::test_a_folder_that_a_node_has_not_is_told",
    "pnnx-serve deploy ray --store s3://bucket/models --address auto --replicas 4 --cpus 2": (
        f"{RAY}/test_messages.py::test_a_cluster_that_is_full_is_told_after_the_wait_with_what_is_free"
    ),
    "pip install -e '.[ray]'": "tests/docs/test_delivery.py::test_every_package_of_an_extra_has_its_reason",
    "serve build serving:application --output-path serve.yaml": (
        f"{RAY}/test_files.py::test_what_serve_build_writes_serve_deploy_deploys"
    ),
    "serve build": f"{RAY}/test_files.py::test_what_serve_build_writes_serve_deploy_deploys",
    "serve deploy serve.yaml": f"{RAY}/test_files.py::test_what_serve_build_writes_serve_deploy_deploys",
    "serve deploy": (
        f"{RAY}/test_files.py::test_the_config_file_of_the_page_deploys_and_another_one_changes_what_runs"
    ),
    "make scale": "tests/docs/test_delivery.py::test_make_knows_the_target",
    "python -m benchmarks.rolling --updates 5": f"{HERE}::test_the_benchmark_of_the_page_runs",
    "python -m benchmarks.replicas": f"{HERE}::test_the_benchmark_of_the_page_runs",
    "python -m benchmarks.scale --requests 60000 --save scale": f"{HERE}::test_the_benchmark_of_the_page_runs",
    "python -m benchmarks.scale.page": f"{SIMULATION}::test_the_page_has_the_figures_that_were_simulated",
    "python -m benchmarks.scale.measure": f"{HERE}::test_the_benchmark_of_the_page_runs",
    **{f"python -m benchmarks.ray {name}": BENCHMARKS for name in ("overhead", "loss", "rolling", "second")},
}
# Short runs of the benchmarks, without saved results; other tests check their output.
SHORT = {
    "rolling": "--updates 1 --replicas 1 --clients 2 --hurry 10",
    "replicas": "--rounds 1 --seconds 0.5 --reach 0",
    "scale": "--only inflight --requests 300",
    "scale.measure": "--requests 2 --save {tmp}/times.json",
}
PAGES = ("docs/scaling.md", "deploy/README.md")
_COMMAND = re.compile(r"(?:pnnx-serve|serve|make|pip|kubectl|haproxy|docker|python -m) [^`]+")


def commands(name: str) -> Iterator[str]:
    """Yield the commands of a page, in blocks and in the text."""
    for block in blocks(page(name)):
        if block.language == "console":
            yield from re.findall(r"^\$ (.*)$", block.text, re.M)
    text = re.sub(r"^```.*?^```$", "", page(name), flags=re.M | re.S)
    yield from (each for each in re.findall(r"`([^`\n]+)`", text) if _COMMAND.fullmatch(each))


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_run_somewhere(name: str) -> None:
    assert [each for each in commands(name) if each not in RUN_BY] == []


def test_the_table_has_the_commands_of_the_pages_and_names_existing_tests() -> None:
    assert RUN_BY.keys() == {each for name in PAGES for each in commands(name)}
    for found in RUN_BY.values():
        file, _, test = found.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), found


@pytest.mark.parametrize("name", PAGES)
def test_files_named_in_commands_exist(name: str) -> None:
    named = {word for each in commands(name) for word in each.split() if word.startswith("deploy/")}
    assert named and [word for word in named if not (ROOT / word).exists()] == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("command", sorted(each for each in RUN_BY if each.startswith("kubectl kustomize ")))
def test_kustomize_renders_the_deployment(command: str) -> None:
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "kind: Deployment" in done.stdout, done.stderr


nightly = pytest.mark.skipif(not IS_NIGHTLY, reason="some seconds each: 'make nightly' runs these")


@nightly
@pytest.mark.parametrize("command", sorted(each for each in RUN_BY if each.startswith("pnnx-serve serve ")))
def test_the_server_command_of_the_page_serves(command: str, tmp_path: Path) -> None:
    port = unused_port()
    own = {"PNNX_SERVE_PORT": str(port), "PNNX_SERVE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "app", *shlex.split(command)[1:]]

    def is_ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health/ready", trust_env=False, timeout=30).status_code == 200
        except httpx.TransportError:
            return False

    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, **own}, stdout=subprocess.DEVNULL) as process:
        try:
            until(is_ready)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@nightly
@pytest.mark.parametrize("name", SHORT)
def test_the_benchmark_of_the_page_runs(name: str, tmp_path: Path) -> None:
    words = ["-m", f"benchmarks.{name}", *SHORT[name].format(tmp=tmp_path).split()]
    own = {"PYTHONPATH": str(ROOT), "PNNX_SERVE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
