"""Slices of ONNX whose bounds lie outside the axis."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value

X = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [
        # The specification clips a start to the axis, where numpy finds nothing; onnxruntime agrees.
        (-9, -(2**31), -1, [0]),
        (-9, -6, -2, [0]),
        (-9, 3, 2, [0, 2]),
        (9, -(2**63), -2, [4, 2, 0]),
        (2**63 - 1, 0, -1, [4, 3, 2, 1]),
    ],
)
def test_a_start_outside_of_the_axis_is_its_nearest_element(
    tmp_path: Path, start: int, end: int, step: int, wanted: list[int], backend: Literal["reference", "auto"]
) -> None:
    bounds = {"s": np.array([start]), "e": np.array([end]), "a": np.array([1]), "t": np.array([step])}
    proto = model([node("Slice", ["x", *bounds], ["y"])], [value("x", [3, 5])], [value("y", None)], bounds)
    session = engine.Session(engine.load(save(tmp_path, proto)), backend=backend, cache=None)
    (found,) = session.run([X])
    assert np.array_equal(found, X[:, wanted])
