"""The walk over a graph: what rules are given, and what becomes of operators whose rule declines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine import pnnx
from tests.engine.graph.build import INPUT, built, op

RNG = np.random.default_rng(1)


def description(graph: engine.RuntimeGraph, *passes_off: str) -> dict[str, dict[str, Any]]:
    session = engine.Session(graph, passes_off=passes_off)
    session.prepare()
    return {row["name"]: row for row in session.describe()["operators"]}


def check(graph: engine.RuntimeGraph, *passes_off: str) -> None:
    inputs = [RNG.standard_normal(port.spec.shape, np.float32) for port in graph.inputs if port.spec is not None]
    (expected,) = engine.Session(graph, backend="reference").run(inputs)
    (found,) = engine.Session(graph, backend="compiled", passes_off=passes_off).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("consumer", "kernel"),
    [
        (op("F.softmax", "it", "0 d", "1", labels=(None, "dim")), "softmax"),
        (op("torch.sum", "it", "0 d", "1", labels=(None, "dim"), keepdim=False), "rows"),
        (op("torch.cat", "it", "0 0 d", "1", labels=(None, None, "dim")), "map"),
    ],
    ids=["softmax", "sum", "cat"],
)
def test_a_parameter_that_arrives_as_an_operand_counts(consumer: pnnx.Operator, kernel: str) -> None:
    dim = op("prim::Constant", "dim", "", "d", value=1)
    graph = built(INPUT, dim, consumer, op("pnnx.Output", "out", "1"), _0=(2, 3))
    # The passes would write it into the operator.
    assert description(graph, "constant_folding")["it"]["kernel"] == kernel
    check(graph, "constant_folding")


def test_a_residual_that_lies_in_another_order_is_added_by_a_kernel_of_its_own() -> None:
    weight = RNG.standard_normal((3, 3, 3, 3), np.float32)
    square = RNG.standard_normal((6, 6), np.float32)
    conv = op(
        "nn.Conv2d", "conv", "0", "1", bias=False, in_channels=3, out_channels=3, kernel_size=(3, 3), stride=(1, 1),
        padding=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros", weight=weight,
    )  # fmt: skip
    linear = op("nn.Linear", "linear", "0", "2", bias=False, in_features=6, out_features=6, weight=square)
    sum_ = op("pnnx.Expression", "sum", "1 2", "3", expr="add(@0,@1)")
    graph = built(INPUT, conv, linear, sum_, op("pnnx.Output", "out", "3"), _0=(2, 3, 6, 6))
    rows = description(graph)
    assert [rows[name]["kernel"] for name in ("conv", "linear", "sum")] == ["conv", "conv", "map"]
    check(graph)


@pytest.mark.parametrize(
    ("dtype", "shape", "why"),
    [("float32", (0, 3), "its result is known only at run time, has no elements, or has an unusual dtype")],
)
def test_a_map_that_is_left_to_the_reference_says_why(dtype: str, shape: tuple[int, ...], why: str) -> None:
    spec = engine.TensorSpec(shape, np.dtype(dtype))
    relus = [op("nn.ReLU", "relu", "0", "1"), op("nn.ReLU", "other", "x", "2")]
    outputs = [op("pnnx.Output", "out", "1"), op("pnnx.Output", "out2", "2")]
    second = op("pnnx.Input", "pnnx_input_1", "", "x")
    rows = description(built(INPUT, second, *relus, *outputs, _0=spec, _x=(2, 3)))
    assert (rows["relu"]["kernel"], rows["relu"]["why"]) == ("reference", why)
    assert rows["other"]["kernel"] == "map"


def test_operands_with_more_axes_than_numpy_lays_out_are_left_to_the_reference() -> None:
    graph = built(INPUT, op("torch.cumsum", "it", "0", "1", dim=0), op("pnnx.Output", "out", "1"))
    x = np.ones((3, 4, *(1,) * 62), np.int64)
    with pytest.raises(engine.CompileError, match="too many axes for machine code: found 64, expected <= 31"):
        engine.Session(graph, backend="compiled", cache=None).run([x])
    (found,) = engine.Session(graph, cache=None).run([x])
    np.testing.assert_array_equal(found, np.cumsum(x, 0))
