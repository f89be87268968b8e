"""Convolutions that pad more on one side than on the other, as exporters of TensorFlow and PyTorch write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, model, node, save, value

F32 = np.dtype(np.float32)


@pytest.mark.parametrize("sizes", [(9, 8), ("h", "w")], ids=["known sizes", "dynamic sizes"])
@pytest.mark.parametrize(
    "given",
    [
        {"pads": (0, 0, 1, 1), "strides": (2, 2)},
        {"pads": (1, 2, 0, 3), "strides": (1, 2)},
        {"pads": (2, 0, 1, 0), "dilations": (2, 1)},
        {"auto_pad": "SAME_UPPER", "strides": (2, 3)},
        {"auto_pad": "SAME_LOWER", "strides": (2, 1)},
    ],
    ids=str,
)
def test_padding_of_one_side_is_compiled(given: dict[str, Any], sizes: tuple[Any, Any], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((5, 4, 3, 2)).astype(F32), "b": random.standard_normal(5).astype(F32)}
    nodes = [node("Conv", ["x", "w", "b"], ["y"], **given), node("Relu", ["y"], ["z"])]
    made = model(nodes, [value("x", ("n", 4, *sizes))], [value("z", None)], weights)
    x = random.standard_normal((2, 4, 9, 8)).astype(F32)
    graph = engine.load(save(tmp_path, made))
    for backend in ("reference", "compiled"):
        session = engine.Session(graph, backend=backend, cache=None)
        (z,) = session.run([x])
        np.testing.assert_allclose(z, expected(made, {"x": x})[0], rtol=1e-5, atol=1e-5)
    if "pads" in given or sizes == (9, 8):
        kernels = {row["kernel"] for row in session.run([x], profile=True).profile or ()}
        assert "reference" not in kernels
