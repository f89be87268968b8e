"""Operators in every version of their schema, with every subset of their optional operands and results.

`make test` holds a sample against what onnxruntime, or ONNX's reference where that has no kernel, answered when it was
recorded (tests/data/onnx/record_operators.py). The nightly run asks onnxruntime itself, of everything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.nightly import IS_NIGHTLY

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from tests.engine.onnx_files.operators.example import MAKERS
from tests.engine.onnx_files.operators.running import (
    UNTOLD,
    Call,
    answer,
    calls,
    difference,
    model,
    of_engine,
    sample,
    versions,
)

RECORDED: Final = Path(__file__).parents[2] / "data/onnx/operators.npz"
OPERATORS: Final = [key for key in sorted(versions()) if key in MAKERS]


def _recorded() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    with np.load(RECORDED) as archive:
        for name in archive.files:  # in the order of the results
            found.setdefault(name.rpartition("#")[0], []).append(archive[name])
    return found


ANSWERS: Final = _recorded()


def _id(key: tuple[str, str]) -> str:
    return ".".join(filter(None, key))


def test_every_operator_that_is_translated_has_examples() -> None:
    from engine.onnx.translation.registry import MICROSOFT, known_types

    translated = {(domain, type) for domain in ("", MICROSOFT) for type in known_types(domain)}
    assert translated - MAKERS.keys() == UNTOLD & translated


@pytest.mark.parametrize("operator", OPERATORS, ids=_id)
def test_a_sample_gives_what_was_recorded(operator: tuple[str, str], tmp_path: Path) -> None:
    wrong: dict[str, str] = {}
    for call in sample(*operator):
        if (wanted := ANSWERS.get(call.key)) is None:
            continue
        proto, feeds = model(call.example, call.names), call.example.feeds()
        found = of_engine(proto, feeds, tmp_path, as_pair=call.leaves_out and call.fits_a_pair)
        if problem := difference(found, wanted, call.example.steps):
            wrong[str(call)] = problem
    assert not wrong


@pytest.mark.skipif(not IS_NIGHTLY, reason="for make nightly")
@pytest.mark.parametrize("operator", OPERATORS, ids=_id)
def test_everything_gives_what_onnxruntime_gives(operator: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    wrong: dict[str, str] = {}
    for call in calls(*operator):
        wrong.update(_faults(call, tmp_path))
    assert not wrong


def _faults(call: Call, folder: Path) -> dict[str, str]:
    """Yield the faults of the engine's results: as layers, as machine code, as a pair, with dynamic sizes."""
    example, feeds = call.example, call.example.feeds()
    proto, opened = (model(example, call.names, is_dynamic=is_dynamic) for is_dynamic in (False, True))
    wanted = answer(call, proto, feeds)
    if isinstance(wanted, str):
        return {}
    found = {
        "reference": of_engine(proto, feeds, folder),
        "compiled": of_engine(proto, feeds, folder, "compiled"),
        "pair": of_engine(proto, feeds, folder, as_pair=call.fits_a_pair),
        "open": of_engine(opened, feeds, folder),
    }
    # What has no kernel says so, and so does what needs a size that is known; a pair has fewer dtypes.
    allowed = {"compiled": "CompileError", "open": "UnsupportedOperatorError", "pair": "no such dtype"}
    faults = {}
    for way, each in found.items():
        if isinstance(each, str) and way in allowed and allowed[way] in each:
            continue
        if problem := difference(each, wanted, example.steps):
            faults[f"{call}, {way}"] = problem
    return faults
