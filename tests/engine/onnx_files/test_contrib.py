"""Operators of onnxruntime's own domain give onnxruntime's answers (recorded in tests/data/onnx)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

import engine

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

RECORDED: Final = Path(__file__).parents[2] / "data/onnx/contrib.npz"

with np.load(RECORDED) as archive:
    CASES: Final = {name.partition(".")[0]: {} for name in archive.files}
    for _name in archive.files:
        CASES[_name.partition(".")[0]][_name.partition(".")[2]] = archive[_name]


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_onnxruntime_gives(tmp_path: Path, name: str) -> None:
    arrays = dict(CASES[name])
    path = tmp_path / "model.onnx"
    path.write_bytes(arrays.pop("model").tobytes())
    names = [key for key in arrays if key.startswith("y")]
    results = [arrays.pop(key) for key in names]
    outputs = engine.Session(engine.load(path), backend="reference").run(arrays)
    assert len(outputs) == len(results)
    for found, wanted in zip(outputs, results, strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # Numbers half way between two integers fall to either side, by the order in which a sum is computed.
        tolerance = 1 if wanted.dtype == np.uint8 else 1e-4
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-4, atol=tolerance)
