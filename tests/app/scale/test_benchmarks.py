"""Tests of the commands in docs/scaling.md: requests, starts, memory; without timing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.app.scale.conftest import ROOT

pytestmark = pytest.mark.slow
# What a command says, as far as it holds on a machine that others use as well.
PROMISED = {
    "loss": ("'lost': 0",),
    "rolling": ("'failed': 0, 'lost': 0",),
    "second": ("'compiled by the third': 0",),
    "overhead": ("in the proxy", "in the replica", "Serialised"),
}


@pytest.mark.parametrize("command", PROMISED)
def test_what_is_promised_is_kept(command: str) -> None:
    if not os.environ.get("WITH_RAY"):
        pytest.skip("Ray takes memory and minutes: 'make scale' runs this")
    pytest.importorskip("ray", reason="Ray is not installed; see 'make scale'")
    environ = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ray", command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.replace('"', "'")
    assert [each for each in PROMISED[command] if each not in said] == [], said
