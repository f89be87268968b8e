"""Batch normalisation by the statistics of what it is given: of stored weights, and of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, model, node, save, value

NAMES = ("scale", "bias", "mean", "var")


def statistics(channels: int) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {name: random.uniform(0.5, 2, channels).astype(np.float32) for name in NAMES}


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_standardised_weights_of_a_convolution_are_computed_when_the_file_is_read(backend: Any, tmp_path: Path) -> None:
    """As timm's StdConv2d is exported: NF-ResNet, NFNet, BiT."""
    random = np.random.default_rng(0)
    nodes = [
        node("Reshape", ["raw", "flat"], ["rows"]),
        node("BatchNormalization", ["rows", *NAMES], ["even", "m", "v"], training_mode=1, epsilon=1e-6),
        node("Reshape", ["even", "whole"], ["w"]),
        node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = {
        "raw": random.standard_normal((8, 3, 3, 3), np.float32), "flat": np.array([1, 8, -1]),
        "whole": np.array([8, 3, 3, 3]), **statistics(8),
    }  # fmt: skip
    made = model(nodes, [value("x", [1, 3, 8, 8])], [value("y", None)], weights)
    graph = engine.load(save(tmp_path, made))
    assert [op.type for op in graph.operators] == ["pnnx.Input", "nn.Conv2d", "pnnx.Output"]
    x = random.standard_normal((1, 3, 8, 8), np.float32)
    (y,) = engine.Session(graph, backend=backend, cache=None).run([x])
    np.testing.assert_allclose(y, expected(made, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", [("y",), ("y", "m", "v"), ("y", "", "v")], ids=str)
@pytest.mark.parametrize("size", ["fixed", "open"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3), (2, 3, 7)], ids=str)
def test_a_batch_has_statistics_of_its_own(outputs: Any, size: str, shape: Any, tmp_path: Path) -> None:
    norm = node("BatchNormalization", ["x", *NAMES], outputs, training_mode=1, momentum=0.8)
    declared = shape if size == "fixed" else [f"d{k}" if k != 1 else 3 for k in range(len(shape))]
    used = [value(name, None) for name in outputs if name]
    made = model([norm], [value("x", declared)], used, statistics(3))
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    found = engine.Session(engine.load(save(tmp_path, made)), cache=None).run([x])
    full = model(
        [node("BatchNormalization", ["x", *NAMES], ("y", "m", "v"), training_mode=1, momentum=0.8)],
        [value("x", declared)], [value(name, None) for name in "ymv"], statistics(3),
    )  # fmt: skip
    wanted = dict(zip("ymv", expected(full, {"x": x}), strict=True))
    for name, each in zip([name for name in outputs if name], found, strict=True):
        np.testing.assert_allclose(each, wanted[name], rtol=1e-5, atol=1e-5)
