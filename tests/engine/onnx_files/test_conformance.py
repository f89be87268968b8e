"""ONNX's own backend tests: one case of every operator here, all of them in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from docs.generate_onnx_conformance import FOLDERS, REASONS, Case, cases, fault, stored_cases
from tests.nightly import IS_NIGHTLY

# Of sequences, optional values and operands of unknown rank, which have made rules of the compiler fail.
UNUSUAL = tuple(
    f"test_{name}"
    for name in (
        *("identity_sequence", "identity_opt", "loop13_seq", "loop16_seq_none", "sequence_insert_at_back"),
        *("optional_has_element_empty_optional_input", "affine_grid_3d_align_corners_expanded"),
        "batchnorm_example_training_mode",
    )
)


def of_nodes() -> Iterator[Case]:
    seen: set[str] = set()
    for case in cases():
        is_wanted = IS_NIGHTLY or case.operator not in seen or case.name in UNUSUAL
        if case.kind == "node" and is_wanted and not case.is_training and case.operator not in REASONS:
            seen.add(case.operator)
            yield case


# One test, for making the cases takes longer than running these.
def test_a_case_of_every_operator_passes_and_no_rule_of_the_compiler_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator that has no kernel is declined; a rule that raises anything else is logged as a defect."""
    wrong = {}
    for case in of_nodes():
        wrong[case.name] = fault(case, tmp_path)
        wrong[f"{case.name}, compiled"] = fault(replace(case, atol=max(case.atol, 1e-4)), tmp_path, "auto")
    assert len(wrong) > 2 * (150 + len(UNUSUAL))
    assert not {name: problem for name, problem in wrong.items() if problem is not None}
    assert not [each.getMessage() for each in caplog.records if "failed" in each.getMessage()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_stored_case_passes(tmp_path: Path, folder: str) -> None:
    wrong = {case.name: fault(case, tmp_path) for case in stored_cases(folder) if not case.is_training}
    assert wrong and not {name: problem for name, problem in wrong.items() if problem is not None}
