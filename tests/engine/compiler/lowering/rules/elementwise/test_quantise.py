"""Bytes for floats and floats for bytes: to the bit what the reference makes of them, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe
from engine.options import Options
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import numbers
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import onnx as recurrent
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(5)
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)
# Halves between two codes, both ends, and what is no number.
AWKWARD = np.array([0.25, -0.25, 0.75, 1e30, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0, 63.5, -64.5], F32)


def graph(type: str, x: Any, constants: dict[str, Any], outputs: str = "y", **given: Any) -> Any:
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op(type, "it", " ".join(["x", *constants]), outputs, **given),
        *(op("pnnx.Output", f"out_{name}", name) for name in outputs.split()),
        _x=TensorSpec(x.shape, x.dtype),
    )


def check(net: Any, x: Any, level: str) -> None:
    wanted = Session(net, backend="reference").run([x])
    for found, each in zip(CompiledGraph(net, Options(threads=2), describe(level)).run([x]), wanted, strict=True):
        assert found.dtype == each.dtype
        np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("zero", "axis"), [(None, None), (U8, None), (I8, None), (I8, 0), (U8, 1)])
def test_floats_become_bytes(level: str, zero: Any, axis: int | None) -> None:
    x = np.concatenate([AWKWARD, RANDOM.standard_normal(38).astype(F32) * 60]).reshape(2, 25)
    shape = () if axis is None else (x.shape[axis],)
    constants = {"s": np.full(shape, 0.5, F32)}
    if zero is not None:
        constants["z"] = RANDOM.integers(1, 9, shape).astype(zero)
    check(graph("QuantizeLinear", x, constants, **({} if axis is None else {"axis": axis})), x, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [U8, I8])
def test_bytes_become_floats(level: str, dtype: Any) -> None:
    x = np.arange(256).astype(np.uint8).view(dtype).reshape(4, 64)
    constants = {"s": RANDOM.random(4).astype(F32), "z": RANDOM.integers(0, 99, 4).astype(dtype)}
    check(graph("DequantizeLinear", x, constants, axis=0), x, level)
    check(graph("DequantizeLinear", x, {"s": np.array(0.3, F32)}), x, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "x",
    [RANDOM.standard_normal((3, 5, 7)).astype(F32), np.zeros((2, 3), F32), np.full((1, 1), -4, F32), AWKWARD,
     np.array([1, np.nan], F32), RANDOM.random(70).astype(F32) + 3],
    ids=["any", "nothing", "one", "awkward", "no number", "above"],
)  # fmt: skip
def test_a_run_chooses_the_scale(level: str, x: Any) -> None:
    check(graph("DynamicQuantizeLinear", x, {}, "y s z"), x, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("batch", "direction"), [(1, "bidirectional"), (2, "reverse")])
def test_a_recurrence_rounds_what_it_multiplies(level: str, batch: int, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    results = {"y": (7, ways, batch, 32), "yh": (ways, batch, 32), "yc": (ways, batch, 32)}
    plain = recurrent("LSTM", (7, batch, 5), 32, results, direction=direction, has_states=True)
    operators = [op("DynamicQuantizeLSTM", each.name, " ".join(each.inputs), " ".join(each.outputs), **each.params)
                 if each.type == "LSTM" else each for each in plain.source.operators]  # fmt: skip
    net = built(*operators, **{f"_{name}": spec for name, spec in plain.source.annotations.items()})
    given = [numbers(0, 7, batch, 5), numbers(1, ways, batch, 32), numbers(2, ways, batch, 32)]
    wanted = Session(net, backend="reference").run(given)
    compiled = CompiledGraph(net, Options(threads=2), describe(level))
    for found, each in zip(compiled.run(given), wanted, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-5)
    (exact,) = Session(plain, backend="reference").run(given)[:1]
    assert np.abs(wanted[0] - exact).max() > 1e-4
