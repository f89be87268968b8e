"""Graphs of 16-bit floats as machine code: the reference's answers, in their dtype."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, TensorSpec
from engine.compiler.upcast import upcast
from engine.memory.blocks import disk_block, is_mapped, release
from engine.pnnx import Attribute
from engine.tensor import BFLOAT16, DType
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.engine.compiler.test_random_graphs import grow
from tests.engine.graph.build import F32, INPUT, built, conv, op

FLOAT16 = np.dtype(np.float16)
TOLERANCE = {FLOAT16: 1e-2, BFLOAT16: 8e-2}
both = pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)


def as_low_precision(graph: RuntimeGraph, dtype: DType, *, announces: bool = True) -> RuntimeGraph:
    """Return a float32 graph in a 16-bit float; only its weights where the file does not declare dtypes."""

    def attribute(each: Attribute) -> Attribute:
        return Attribute(each.shape, dtype, each.data.astype(dtype)) if each.dtype == F32 else each

    source = graph.source
    operators = [
        dataclasses.replace(each, attributes={name: attribute(data) for name, data in each.attributes.items()})
        for each in source.operators
    ]
    annotations = {
        name: TensorSpec(spec.shape, dtype) if announces and spec.dtype == F32 else spec
        for name, spec in source.annotations.items()
    }
    result = RuntimeGraph.from_source(dataclasses.replace(source, operators=operators, annotations=annotations))
    result.build()
    return result


def network(**batch: Any) -> RuntimeGraph:
    return built(
        INPUT,
        conv("first", "0", "1", (3, 16), padding=(1, 1)),
        op("nn.SiLU", "silu", "1", "2"),
        conv("second", "2", "3", (16, 16), padding=(1, 1)),
        op("pnnx.Expression", "sum", "3 2", "4", expr="add(@0,@1)"),
        op("nn.AdaptiveAvgPool2d", "mean", "4", "5", output_size=(1, 1)),
        op("torch.flatten", "flat", "5", "6", start_dim=1, end_dim=-1),
        op("F.softmax", "soft", "6", "7", dim=-1),
        op("pnnx.Output", "out_0", "7"),
        op("pnnx.Output", "out_1", "4"),
        **(batch or {"_0": (1, 3, 9, 11)}),
    )


def hold(net: RuntimeGraph, inputs: list[np.ndarray], dtype: DType, **options: Any) -> dict[str, str]:
    """Return the kernels of operators whose answers are the reference's within a few roundings."""
    session = engine.Session(net, cache=None, **options)
    session.prepare()
    with np.errstate(all="ignore"):
        wanted = engine.Session(net, backend="reference").run(inputs)
        for found in (session.run(inputs), session.run(inputs)):
            assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted]
            for mine, theirs in zip(found, wanted, strict=True):
                if theirs.dtype.kind in "biu":
                    np.testing.assert_array_equal(mine, theirs)
                    continue
                x, y = mine.astype(np.float64), theirs.astype(np.float64)
                scale = max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0)))
                np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE[dtype] * scale)
    return {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}


@both
def test_a_network_has_the_kernels_of_float32(dtype: DType) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 11)).astype(dtype)
    kernels = hold(as_low_precision(network(), dtype), [x], dtype, threads=2)
    assert "reference" not in kernels.values()


@both
def test_weights_alone(dtype: DType) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 11)).astype(F32)
    kernels = hold(as_low_precision(network(), dtype, announces=False), [x], dtype)
    assert "reference" not in kernels.values()


@both
def test_dynamic_sizes(dtype: DType) -> None:
    net = as_low_precision(network(_0=(None, 3, None, None)), dtype)
    session = engine.Session(net, backend="compiled", cache=None)
    for shape in ((1, 3, 8, 8), (2, 3, 9, 5), (1, 3, 8, 8)):
        x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
        wanted = engine.Session(net, backend="reference").run([x])
        for mine, theirs in zip(session.run([x]), wanted, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine.astype(F32), theirs.astype(F32), atol=8 * TOLERANCE[dtype])


@both
def test_wide_weights_that_stay_take_no_memory(dtype: DType) -> None:
    weight = np.random.default_rng(2).standard_normal((512, 300)).astype(F32)
    layer = op("nn.Linear", "linear", "0", "1", in_features=300, out_features=512, bias=False, weight=weight)
    net = as_low_precision(built(INPUT, layer, op("pnnx.Output", "out", "1"), _0=(None, 300)), dtype)
    (kept,) = (each.attributes["weight"].data for each in upcast(net, is_kept=True).operators if each.attributes)
    np.testing.assert_array_equal(kept, weight.astype(dtype).astype(F32))
    assert (
        is_mapped(kept) or disk_block(lambda: iter([weight]), weight.nbytes) is None
    )  # no disk that may be written to
    release(kept)
    np.testing.assert_array_equal(kept, weight.astype(dtype).astype(F32))
    session = engine.Session(net, backend="compiled", cache=None)
    for count in (3, 7):
        x = np.random.default_rng(count).standard_normal((count, 300)).astype(dtype)
        (found,), (wanted,) = session.run([x]), engine.Session(net, backend="reference").run([x])
        np.testing.assert_allclose(found.astype(F32), wanted.astype(F32), atol=64 * TOLERANCE[dtype])


@both
def test_what_outgrows_16_bits_on_the_way_is_infinite(dtype: DType) -> None:
    texts = ("mul(@0,300.0)", "mul(@0,300.0)", "div(@0,300.0)")
    steps = [op("pnnx.Expression", f"e{k}", str(k), str(k + 1), expr=text) for k, text in enumerate(texts)]
    net = as_low_precision(built(INPUT, *steps, op("pnnx.Output", "out", "3"), _0=(1, 5)), dtype)
    x = np.array([[1, -1, 0.5, np.nan, np.inf]], dtype)
    hold(net, [x], dtype)
    (found,) = engine.Session(net, cache=None).run([x])
    assert np.isinf(found.astype(F32)[0, 0]) == (dtype == FLOAT16)


@both
def test_operators_that_mean_something_else_in_float32_are_left_among_casts(dtype: DType) -> None:
    operators = [
        op("torch.eq", "eq", "0", "1", other=0.1),
        op("torch.nan_to_num", "finite", "0", "2"),
        op("nn.Tanhshrink", "shrunk", "2", "3"),
        op("nn.ReLU", "relu", "3", "4"),
        op("torch.lt", "less", "0 4", "5"),
    ]
    outputs = [op("pnnx.Output", f"out_{k}", name) for k, name in enumerate("12345")]
    net = as_low_precision(built(INPUT, *operators, *outputs, _0=(2, 4)), dtype)
    x = np.array([[0.1, 0.45, np.inf, -np.inf], [np.nan, -0.45, 3, 0]], dtype)
    hold(net, [x], dtype)


@both
def test_what_is_cast_and_cast_back_is_rounded(dtype: DType) -> None:
    name = {"float16": "torch.half", "bfloat16": "torch.bfloat16"}[str(dtype)]
    graph = built(
        INPUT,
        op("Tensor.to", "narrow", "0", "1", dtype=name),
        op("Tensor.to", "wide", "1", "2", dtype="torch.float"),
        op("nn.ReLU", "relu", "2", "3"),
        op("pnnx.Output", "out_0", "3"),
        _0=(3, 50),
    )
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(F32)
    (y,) = engine.Session(graph, backend="compiled", cache=None).run([x])
    np.testing.assert_array_equal(y, np.maximum(x.astype(dtype).astype(F32), 0))


@both
def test_inputs_are_outputs_and_constants_are_returned(dtype: DType) -> None:
    names = ["0", "1", "0"]
    net = built(
        INPUT,
        op("pnnx.Attribute", "kept", "", "1", data=np.arange(6, dtype=F32).reshape(2, 3)),
        op("pnnx.Expression", "sum", "0 1", "2", expr="add(@0,@1)"),
        *(op("pnnx.Output", f"out_{k}", name) for k, name in enumerate([*names, "2"])),
        _0=(2, 3),
    )
    hold(as_low_precision(net, dtype), [np.ones((2, 3), dtype)], dtype)


@both
@pytest.mark.parametrize("first", [0, 3])
def test_random_graphs(first: int, dtype: DType) -> None:
    for seed in range(first, first + 3):
        check(seed, dtype)


def check(seed: int, dtype: DType) -> None:
    """Hold a random graph against the reference. Numbers whose order decides come from one rounding only."""
    growing, outputs = grow(seed, [KERNELS, EXACT, SMOOTH])
    net = as_low_precision(growing.finished(outputs, False), dtype)
    inputs = [each.astype(dtype) if each.dtype == F32 else each for each in growing.feed(())]
    hold(net, inputs, dtype, threads=1 + seed % 2)
