"""Convolutions and products whose weights the run computes: packed in the run, they have the kernels of stored ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe
from engine.options import Options
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.graph.build import built, op

GIVEN: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 1), "groups": 1}
# Type, input, weight, whether there is a bias, parameters.
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = [
    ("F.conv2d", (2, 3, 9, 11), (37, 3, 3, 2), True, GIVEN),
    ("F.conv2d", (1, 6, 7, 7), (8, 3, 3, 3), False, {**GIVEN, "groups": 2, "dilation": (2, 1)}),
    ("F.conv2d", (1, 5, 6, 6), (5, 1, 3, 3), True, {**GIVEN, "groups": 5}),
    ("F.conv2d", (1, 1, 1, 1), (1, 1, 1, 1), False, {**GIVEN, "stride": (1, 1), "padding": (0, 0)}),
    ("F.conv1d", (2, 4, 20), (17, 4, 5), True, {"stride": (1,), "padding": (9,), "dilation": (3,), "groups": 1}),
    ("F.conv_transpose2d", (2, 4, 5, 6), (4, 3, 4, 3), True,
     {"stride": (2, 3), "padding": (1, 0), "output_padding": (0, 0), "dilation": (1, 1), "groups": 1}),
    ("F.conv_transpose1d", (1, 6, 9), (6, 2, 3), False,
     {"stride": (1,), "padding": (1,), "output_padding": (0,), "dilation": (1,), "groups": 3}),
]  # fmt: skip


def net(
    type: str, shapes: list[tuple[int, ...]], dtype: str, given: dict[str, Any], has_bias: bool = True
) -> RuntimeGraph:
    names = ("x", "w", "b")[: len(shapes)]
    inputs = [op("pnnx.Input", f"in_{name}", "", name) for name in names]
    turned = [op("torch.neg", f"neg_{name}", name, f"{name}2") for name in names[1:]]
    labels = {"labels": ("input", "weight", "bias")[: len(shapes)]} if type.startswith("F.") else {}
    extra = {} if has_bias or not type.startswith("F.") else {"bias": None}
    core = op(type, "core", " ".join(["x", *(f"{name}2" for name in names[1:])]), "y", **given, **extra, **labels)
    specs = {f"_{name}": TensorSpec(shape, np.dtype(dtype)) for name, shape in zip(names, shapes, strict=True)}
    return built(*inputs, *turned, core, op("F.relu", "relu", "y", "z"), op("pnnx.Output", "out", "z"), **specs)


def check(graph: RuntimeGraph, shapes: list[tuple[int, ...]], dtype: str, level: str) -> None:
    random = np.random.default_rng(7)
    inputs = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    (wanted,) = Session(graph, backend="reference").run(inputs)
    for at_end in (True, False):
        compiled = CompiledGraph(graph, Options(threads=2), describe(level))
        guarded = [guarded_array(each, at_end=at_end, dtype=dtype) for each in inputs]
        (found,) = compiled.run(guarded)
        assert not compiled.builder.program([TensorSpec(x.shape, x.dtype) for x in guarded]).executable.reasons
        scale = np.abs(wanted).max() + 1
        np.testing.assert_allclose(found, wanted, rtol=0, atol=scale * (1e-13 if dtype == "float64" else 2e-6))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("type", "shape", "weight", "has_bias", "given"), CASES)
def test_convolutions_take_weights_of_the_run(
    type: str, shape: tuple[int, ...], weight: tuple[int, ...], has_bias: bool, given: dict[str, Any], level: str
) -> None:
    groups = given["groups"]
    outputs = weight[1] * groups if "transpose" in type else weight[0]
    shapes = [shape, weight, *([(outputs,)] if has_bias else [])]
    dtype = "float64" if level == LEVELS[-1] else "float32"
    check(net(type, shapes, dtype, given, has_bias), shapes, dtype, level)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [257, 1024])
def test_a_large_right_factor_is_packed_once(columns: int, dtype: str) -> None:
    shapes = [(70, 512), (512, columns)]
    check(net("torch.matmul", shapes, dtype, {}), shapes, dtype, LEVELS[0])
