"""GridSample of images and grids of different dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.combining import together
from tests.engine.onnx_files.models import expected, model, node, save, value

KINDS: dict[int, Any] = {1: np.float32, 10: np.float16, 11: np.float64, 2: np.uint8, 6: np.int32}


@together(
    ("image", KINDS),
    ("grid", [1, 10, 11]),
    ("mode", ["linear", "nearest", "cubic"]),
    ("declared", ["fixed", "open"]),
)
def test_a_grid_may_be_of_another_dtype(image: int, grid: int, mode: str, declared: str, tmp_path: Path) -> None:
    sizes = ([1, 2, 4, 5], [1, 3, 3, 2]) if declared == "fixed" else (["n", "c", "h", "w"], ["n", "a", "b", 2])
    inputs = [value("x", sizes[0], image), value("g", sizes[1], grid)]
    made = model([node("GridSample", ["x", "g"], ["y"], mode=mode)], inputs, [value("y", None, image)], opset=20)
    random = np.random.default_rng(image + grid)
    x = (random.standard_normal((1, 2, 4, 5)) * 10).astype(KINDS[image])
    feeds = {"x": x, "g": random.uniform(-1.2, 1.2, (1, 3, 3, 2)).astype(KINDS[grid])}
    path = save(tmp_path, made)
    if x.dtype.kind in "iu" and mode != "nearest":
        with pytest.raises(engine.EngineError, match="wrong dtype"):
            engine.load(path)
        return
    (found,) = engine.Session(engine.load(path), cache=None).run(feeds)
    (wanted,) = expected(made, feeds)
    assert found.dtype == x.dtype
    # The reference computes places in the grid's dtype: of float16 they are coarse.
    tolerance = 0.05 if 10 in (image, grid) else 1e-4
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
