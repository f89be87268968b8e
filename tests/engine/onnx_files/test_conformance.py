"""ONNX's own backend tests: one case of every operator here, all of them in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from docs.generate_onnx_conformance import FOLDERS, REASONS, Case, cases, fault, stored_cases
from tests.nightly import IS_NIGHTLY


def of_nodes() -> Iterator[Case]:
    seen: set[str] = set()
    for case in cases():
        if case.kind == "node" and (IS_NIGHTLY or case.operator not in seen) and not case.is_training:
            seen.add(case.operator)
            yield case


def test_a_case_of_every_operator_passes(tmp_path: Path) -> None:
    wrong = {case.name: fault(case, tmp_path) for case in of_nodes() if case.operator not in REASONS}
    assert len(wrong) > 150
    assert not {name: problem for name, problem in wrong.items() if problem is not None}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_stored_case_passes(tmp_path: Path, folder: str) -> None:
    wrong = {case.name: fault(case, tmp_path) for case in stored_cases(folder) if not case.is_training}
    assert wrong and not {name: problem for name, problem in wrong.items() if problem is not None}
