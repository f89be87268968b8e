"""Memory of a model: a process of its own answers twice, and the table has its size."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import footprint
from benchmarks.files import Files
from benchmarks.memory import rollup

MODEL = Path(__file__).parents[2] / "model_store" / "digits" / "1"
MACHINE = {"processor": "P", "python": "3", "commit": "c", "date": "d", "engines": {"ours": "us", "ncnn": "them"}}


def test_a_process_says_what_it_has() -> None:
    found = rollup()
    assert found["rss"] >= found["anonymous"] > 0 and found["peak"] >= found["rss"] // 2 and found["pss"] > 0


def test_a_network_is_answered_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    for kind in ("param", "bin"):
        shutil.copy(MODEL / f"model.pnnx.{kind}", getattr(files, kind))
    np.save(files.input(1), np.zeros((1, 1, 16, 16), np.float32))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert footprint.main(["--one", "ours", "--folder", str(tmp_path)]) == 0
    answered, found = capsys.readouterr().out.splitlines()
    assert answered == "answered" and json.loads(found)["rss"] > 0
    footprint._kept.clear()


def test_the_table_compares_with_the_smallest_rival() -> None:
    sizes = dict.fromkeys(("pss", "anonymous", "file", "shared", "peak"), 1_000_000)
    rows = [
        {"network": "net", "engine": "ours", "start": "cold", "rss": 90_000_000, **sizes},
        {"network": "net", "engine": "ncnn", "start": "", "rss": 60_000_000, **sizes},
        {"network": "net", "engine": "openvino", "start": "", "failure": "no such file"},
    ]
    lines = footprint.report(rows, MACHINE).splitlines()
    assert [line.split("|")[2].strip() for line in lines[-3:]] == ["90", "60", "–"]
    assert [line.split("|")[-2].strip() for line in lines[-3:]] == ["1.50", "", ""]
