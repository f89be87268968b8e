"""Operators of ONNX files, read and written again, give the engine's answers in onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import engine
from engine.onnx_writing import to_model
from tests.engine.onnx_files.operators.example import MAKERS
from tests.engine.onnx_files.operators.running import difference, model, of_engine, of_onnxruntime, sample, versions

OPERATORS: Final = [key for key in sorted(versions()) if key in MAKERS]
# In the written file, LSTMs keep weights in int8, but do not round what these are multiplied by.
OF_OTHER_ROUNDING: Final = {"DynamicQuantizeLSTM"}
ROUNDED: Final = {"QGemm"}
"""Operators whose integers may differ by one: the written file rounds products of other factors."""


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda key: ".".join(filter(None, key)))
def test_a_written_operator_gives_our_answers(operator: tuple[str, str], is_dynamic: bool, tmp_path: Path) -> None:
    wrong: dict[str, str] = {}
    for call in sample(*operator) if operator[1] not in OF_OTHER_ROUNDING else []:
        proto, feeds = model(call.example, call.names, is_dynamic=is_dynamic), call.example.feeds()
        mine = of_engine(proto, feeds, tmp_path)
        if isinstance(mine, str):
            continue
        try:
            written = to_model(engine.load(tmp_path / "model.onnx"))
        except engine.UnsupportedOperatorError:
            continue
        used = {each.name for each in written.graph.input}
        theirs = of_onnxruntime(written, {name: value for name, value in feeds.items() if name in used})
        problem = theirs if isinstance(theirs, str) else difference(theirs, mine, operator[1] in ROUNDED)
        if problem:
            wrong[str(call)] = problem
    assert not wrong
