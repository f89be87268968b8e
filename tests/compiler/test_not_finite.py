"""An infinity or NaN stays where PyTorch has it, whatever algorithm a convolution runs by."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.graph import RuntimeGraph
from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import TensorSpec

F32 = np.dtype(np.float32)
RANDOM = np.random.default_rng(5)
WEIGHT = RANDOM.standard_normal((24, 24, 3, 3)).astype(F32)
PARAMS = {
    "in_channels": 24,
    "out_channels": 24,
    "kernel_size": (3, 3),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "groups": 1,
    "padding_mode": "zeros",
    "bias": False,
}


@pytest.fixture(scope="module")
def network() -> RuntimeGraph:
    weight = Attribute(shape=WEIGHT.shape, dtype=F32, data=WEIGHT, code="f32")
    operators = (
        Operator("pnnx.Input", "in", (), ("0",)),
        Operator("nn.Conv2d", "conv", ("0",), ("1",), params=PARAMS, attributes={"weight": weight}),
        Operator("nn.ReLU", "relu", ("1",), ("2",)),
        Operator("pnnx.Output", "out", ("2",), ()),
    )
    source = Graph(operators=operators, annotations={"0": TensorSpec((1, 24, 20, 20), F32)})
    graph = RuntimeGraph.from_source(source)
    graph.build()
    return graph


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_window(network: RuntimeGraph, number: float) -> None:
    x = RANDOM.standard_normal((1, 24, 20, 20)).astype(F32)
    x[0, 3, 9, 14] = number
    compiled, reference = Session(network, backend="compiled", cache=None), Session(network, backend="reference")
    assert {row["kernel"] for row in compiled.describe()["operators"] if row["name"] == "conv"} == {"winograd"}
    (found,), (wanted,) = compiled.run([x]), reference.run([x])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert 0 < np.count_nonzero(~np.isfinite(wanted)) <= 9 * 24


def test_the_next_run_is_not_concerned(network: RuntimeGraph) -> None:
    x = RANDOM.standard_normal((1, 24, 20, 20)).astype(F32)
    session = Session(network, backend="compiled", cache=None)
    before = session.run([x])[0]
    session.run([np.full_like(x, np.nan)])
    np.testing.assert_array_equal(session.run([x])[0], before)
