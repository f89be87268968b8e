"""A few changed ONNX files, and all that ever were a finding."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.child import run
from tests.nightly import IS_NIGHTLY

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from tests.fuzz import onnx_files
from tests.fuzz.onnx_seeds import built

SEEDS = sorted((Path(__file__).parent / "seeds/onnx").glob("*.json"))


def test_changed_files_are_refused_in_words_or_run() -> None:
    cases = islice(onnx_files.cases(sorted(built()), 0), 4000 if IS_NIGHTLY else 40)
    results = list(run(onnx_files.FRONT_END, cases, onnx_files.LIMITS))
    assert [str(result) for result in results if result.is_finding] == []
    assert {result.outcome.partition(" ")[0].partition(":")[0] for result in results} >= {"ran", "refused"}


def test_what_was_once_a_finding_is_none() -> None:
    cases = [json.loads(path.read_text()) for path in SEEDS]
    found = zip(SEEDS, run(onnx_files.FRONT_END, cases, onnx_files.LIMITS), strict=True)
    assert [f"{path.name}: {result}" for path, result in found if result.is_finding] == []
