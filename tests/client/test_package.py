"""Tests that the client is a small distribution of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pnnx_client

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]


def test_the_client_depends_on_httpx_and_numpy_only() -> None:
    assert {re.split(r"\W", each)[0] for each in PROJECT["dependencies"]} == {"httpx", "numpy"}


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == pnnx_client.__version__


def test_the_package_contains_the_licence() -> None:
    assert (ROOT / "clients/python/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_client_imports_nothing_of_the_server() -> None:
    barred = ("engine", "app", "exporter", "ml_dtypes", "llvmlite", "fastapi", "orjson", "PIL")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'clients/python')!r})\n"
        f"for name in {barred}: sys.modules[name] = None\n"
        "import pnnx_client; print(pnnx_client.tensors.DATATYPES[-3:])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "('FP32', 'FP64', 'BYTES')"), done.stderr
