"""A graph from ONNX is saved as a pair of core operators, which loads and gives the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from tests.engine.onnx_files.operators.example import MAKERS
from tests.engine.onnx_files.operators.running import difference, model, of_engine, sample, versions

OPERATORS: Final = [key for key in sorted(versions()) if key in MAKERS]
# A pair has fewer dtypes than ONNX.
NO_DTYPE: Final = ("no such dtype", "cannot express the dtype")


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda key: ".".join(filter(None, key)))
def test_a_saved_pair_gives_the_same_answers(operator: tuple[str, str], tmp_path: Path) -> None:
    wrong: dict[str, str] = {}
    for call in sample(*operator):
        proto, feeds = model(call.example, call.names), call.example.feeds()
        before = of_engine(proto, feeds, tmp_path)
        if not call.fits_a_pair or isinstance(before, str):
            continue
        after = of_engine(proto, feeds, tmp_path, as_pair=True)
        if isinstance(after, str) and any(each in after for each in NO_DTYPE):
            continue
        if problem := difference(after, before):
            wrong[str(call)] = problem
    assert not wrong
