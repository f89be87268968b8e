"""``--json`` of the verbs that print a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from tests.app.cli.conftest import BIAS


def printed(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main([*argv, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_models(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, "models")
    assert {"model": "linear", "versions": [1], "tags": {}, "task": "tensor", "problem": None} in rows


def test_check(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "check", "linear") == [{"model": "linear", "state": "ok", "problem": None}]
    (row,) = printed(capsys, "check", "nothing", status=1)
    assert row["state"] == "error" and "no model 'nothing'" in row["problem"]


def test_run_bench_tune_compile_and_compare(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    ran = printed(capsys, "run", "linear", "--input", str(tmp_path / "x.npy"))
    assert [each["shape"] for each in ran["outputs"].values()] and ran["model"] == "linear"
    measured = printed(capsys, "bench", "linear", "--seconds", "0.05")
    assert measured["engines"]["pnnx-serve"]["runs"] > 0 and measured["kernels"]
    tuned = printed(capsys, "tune", "linear", "--batch", "1", "--threads", "1", "--seconds", "0.05")
    assert tuned["candidates"] and tuned["latency"] is not None
    (compiled,) = printed(capsys, "compile", "linear", "--cache-dir", str(tmp_path / "cache"))
    assert compiled["is_kept"] and compiled["entry_bytes"] > 0
    np.savez(tmp_path / "ref.npz", in_0=np.zeros((1, 3), np.float32), out_0=BIAS[None])
    compared = printed(capsys, "compare", "linear", "--reference", str(tmp_path / "ref.npz"))
    assert compared["diverges"] is False
