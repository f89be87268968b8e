"""Tests of the Makefile, container files, dependencies and the size of the model store."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODELS = sorted(path for path in (ROOT / "model_store").iterdir() if path.is_dir())

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0] for requirement in requirements}


def rows(title: str) -> set[str]:
    """Return the first cells of the table under a heading of docs/dependencies.md."""
    section = text("docs/dependencies.md").partition(f"\n## {title}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # If make runs these tests, its flags must not reach the calls here.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def final_stage() -> str:
    return text("Dockerfile").rpartition("\nFROM ")[2]


@needs_make
@pytest.mark.parametrize(
    "target",
    [
        "serve",
        "test",
        "test-all",
        "rest",
        "nightly",
        "fuzz",
        "schema",
        "install",
        "fmt",
        "docs",
        "lint",
        "type",
        "bench",
        "image",
        "clean",
        "help",
    ],
)
def test_make_knows_the_target(target: str) -> None:
    done = make("--dry-run", target)
    assert done.returncode == 0, done.stderr


@needs_make
def test_make_serve_serves_the_model_store() -> None:
    assert "pnnx-serve serve --store model_store" in make("--dry-run", "serve").stdout


@needs_make
def test_make_reports_the_installation(tmp_path: Path) -> None:
    shown = make("--dry-run", "serve", f"VENV={tmp_path / 'venv'}").stdout
    assert 'echo "installing into ' in shown and "pip install" in shown and "--quiet" not in shown


@needs_make
@pytest.mark.parametrize("target", ["test", "schema"])
def test_make_keeps_server_packages_when_it_adds_an_extra(target: str, tmp_path: Path) -> None:
    for stamp in (".made", ".installed"):
        (tmp_path / stamp).touch()
    shown = make("--dry-run", target, f"VENV={tmp_path}").stdout
    assert "--editable" not in shown and f"--constraint {tmp_path}/server.txt" in shown


@pytest.fixture(scope="module")
def requirements() -> Callable[..., list[str]]:
    """Provide the output of .ci/requirements.py, where the project is installed."""
    pytest.importorskip("pip")
    try:
        importlib.metadata.version("pnnx-serve")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs an installed pnnx-serve")

    def run(*extra: str) -> list[str]:
        command = [sys.executable, ROOT / ".ci/requirements.py", *extra]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        return done.stdout.splitlines()

    return run


def test_constraints_are_the_installed_versions_of_all_server_packages(
    requirements: Callable[..., list[str]],
) -> None:
    kept = dict(line.split("==") for line in requirements())
    assert {"numpy", "fastapi", "starlette", "pydantic-core", "anyio"} <= kept.keys()
    assert not {"pytest", "ruff", "onnx", "pnnx-serve"} & kept.keys()
    assert kept == {name: importlib.metadata.version(name) for name in kept}


def test_the_requirements_of_an_extra_are_its_own(requirements: Callable[..., list[str]]) -> None:
    asked = requirements("test")
    expected = PROJECT["optional-dependencies"]["test"]
    assert {re.split(r"[\[<>=]", line)[0] for line in asked} == {re.split(r"[\[<>=]", line)[0] for line in expected}
    assert not any(line.startswith("numpy") for line in asked)


def test_git_ignores_the_folder_of_the_tutorial() -> None:
    folder = re.search(r"^mkdir (\w+) && cd", text("docs/tutorial.md"), re.MULTILINE)
    assert folder is not None and f"/{folder[1]}/" in text(".gitignore").splitlines()


@needs_make
def test_make_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.19\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    done = make("install", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert re.search(r"3\.11 or newer is needed.*Python 3\.8\.19", done.stderr)


def test_lowest_versions_are_those_that_were_tested() -> None:
    tried = dict(re.findall(r"([\w-]+)==([\d.]+)", text("docs/dependencies.md")))
    allowed = dict(re.match(r"([\w-]+)>=([\d.]+)", each).groups() for each in PROJECT["dependencies"])  # type: ignore[union-attr, misc]
    assert tried.keys() == allowed.keys()
    assert all(version.startswith(allowed[name]) for name, version in tried.items())


@needs_make
def test_ci_runs_make_test_and_a_fifth_of_the_rest_by_commit_hash() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert re.search(r"^make .*\btest$", text(".ci/run"), re.MULTILINE)
    assert re.search(r"^make .*\brest COMMIT=\"\$\(git .*rev-parse HEAD\)\"$", text(".ci/run"), re.MULTILINE)
    assert "--part=rest --fifth-of=c0ffee" in make("--dry-run", "rest", "COMMIT=c0ffee").stdout


@needs_make
def test_make_test_all_runs_every_part_and_enforces_the_coverage_floor() -> None:
    shown = make("--dry-run", "test-all").stdout
    assert "--part" not in shown and re.search(r"-m slipcover .*--fail-under \d+", shown)


def test_image_does_not_run_as_root() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", final_stage(), re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0 < int(user[2])


def test_image_has_a_health_check_on_readiness() -> None:
    check = re.search(r"^HEALTHCHECK (?:.*\\\n)*.*$", final_stage(), re.MULTILINE)
    assert check is not None
    assert "/health/ready" in check[0]


def test_image_starts_the_server_without_a_shell_so_that_it_gets_signals() -> None:
    assert 'ENTRYPOINT ["pnnx-serve"]' in final_stage()


def test_image_has_a_compile_cache_that_its_user_owns() -> None:
    folder = "/var/cache/pnnx-serve"
    assert f"PNNX_SERVE_CACHE_DIR={folder}" in final_stage()
    assert re.search(rf"^RUN install .*--owner=10001 .*{folder}$", final_stage(), re.MULTILINE)


@needs_make
def test_make_bench_measures_a_model() -> None:
    assert "pnnx-serve bench digits" in make("--dry-run", "bench").stdout


def test_image_installs_no_extra() -> None:
    assert not re.search(r"\[(test|export|bench)\]", text("Dockerfile"))


def test_final_stage_installs_nothing() -> None:
    assert not re.search(r"\b(pip install|apt-get|apt install)\b", final_stage())


def test_build_context_contains_exactly_what_the_image_copies() -> None:
    lines = [line for line in text(".dockerignore").splitlines() if line and not line.startswith("#")]
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text("Dockerfile"), re.MULTILINE)
        for word in line.split()
    }
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied


@pytest.mark.parametrize(
    "line",
    [
        "read_only: true",
        "tmpfs: [/tmp]",
        "cap_drop: [ALL]",
        "no-new-privileges:true",
        "./model_store:/models:ro",
        "cache:/var/cache/pnnx-serve",
        "healthcheck:",
    ],
)
def test_compose_file_contains(line: str) -> None:
    assert line in text("docker-compose.yml")


def test_compose_publishes_the_port_on_loopback_in_a_separate_file() -> None:
    assert "127.0.0.1:8000:8000" in text("docker-compose.override.yml")


def test_the_page_gives_a_reason_for_exactly_the_run_time_dependencies() -> None:
    assert rows("To run") == names(PROJECT["dependencies"])


@pytest.mark.parametrize(
    ("title", "extra"),
    [
        ("To run faster", "fast"),
        ("To serve gRPC", "grpc"),
        ("To send traces", "otel"),
        ("To serve with Ray", "ray"),
        ("To fetch stores", "remote"),
        ("To develop", "test"),
        ("To try the API", "schema"),
        ("To test what needs large packages", "scale"),
        ("To build the documentation site", "docs"),
        ("To export", "export"),
        ("To compare", "bench"),
        ("To release", "release"),
    ],
)
def test_every_package_of_an_extra_has_its_reason(title: str, extra: str) -> None:
    assert rows(title) == names(PROJECT["optional-dependencies"][extra])


def test_torch_is_not_needed_to_run() -> None:
    assert not names(PROJECT["dependencies"]) & {"torch", "pnnx", "onnxruntime", "scikit-learn"}


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_model_of_the_store_is_under_a_megabyte(model: Path) -> None:
    assert sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) < 1_000_000


def test_changelog_has_an_entry_for_this_version_or_unreleased() -> None:
    assert re.search(rf"^## \[(Unreleased|{re.escape(PROJECT['version'])})\]", text("CHANGELOG.md"), re.MULTILINE)
