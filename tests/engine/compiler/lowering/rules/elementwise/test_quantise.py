"""Bytes for floats and floats for bytes: to the bit what the reference makes of them, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe, detect
from engine.options import Options
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import numbers, rounded
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
    operators = [rounded(each, "all") if each.type == "nn.LSTM" else each for each in plain.source.operators]
    net = built(*operators, **{f"_{name}": spec for name, spec in plain.source.annotations.items()})
    given = [numbers(0, 7, batch, 5), numbers(1, ways, batch, 32), numbers(2, ways, batch, 32)]
    wanted = Session(net, backend="reference").run(given)
    compiled = CompiledGraph(net, Options(threads=2), describe(level))
    for found, each in zip(compiled.run(given), wanted, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-5)
    (exact,) = Session(plain, backend="reference").run(given)[:1]
    assert 1e-4 < np.abs(wanted[0] - exact).max() < 0.03


HOSTS = [*map(describe, LEVELS), detect()]
ROUNDED = {"s": np.array(0.043, F32), "z": np.array(97, U8)}
SIGNED = {"s": np.array(0.043, F32), "z": np.array(-20, I8)}


def after(*operators: Any, given: dict[str, Any], codes: dict[str, Any] = ROUNDED, **constants: Any) -> Any:
    """Return a graph of operators that make y, and of y rounded to bytes."""
    return built(
        *(op("pnnx.Input", f"in_{name}", "", name) for name in given),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in {**codes, **constants}.items()),
        *operators,
        op("QuantizeLinear", "round", "y s z", "out"),
        op("pnnx.Output", "end", "out"),
        **{f"_{name}": TensorSpec(each.shape, each.dtype) for name, each in given.items()},
    )


def rounded_by(net: Any, given: dict[str, Any], host: Any) -> tuple[Any, set[str]]:
    """Return the bytes, and the kernels with their operators."""
    compiled = CompiledGraph(net, Options(threads=2), host)
    (found,) = compiled.run([*given.values()])
    executable = compiled.builder.program([port.spec for port in net.inputs]).executable
    return found, {f"{step.kind} {' '.join(step.operators)}" for step in executable.steps if step.kind != "copy"}


CONV = {"bias": False, "dilation": (1, 1), "groups": 1, "kernel_size": (3, 3), "padding": (1, 1),
        "padding_mode": "zeros", "stride": (1, 1)}  # fmt: skip
POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": False}
PRODUCERS = {
    "conv": (op("nn.Conv2d", "it", "x", "y", in_channels=7, out_channels=19, weight=RANDOM.random((19, 7, 3, 3), F32),
                **CONV), (1, 7, 9, 11)),
    "depthwise": (op("nn.Conv2d", "it", "x", "y", in_channels=37, out_channels=37,
                     weight=RANDOM.random((37, 1, 3, 3), F32), **{**CONV, "groups": 37}), (2, 37, 5, 6)),
    "winograd": (op("nn.Conv2d", "it", "x", "y", in_channels=64, out_channels=66,
                    weight=RANDOM.random((66, 64, 3, 3), F32) / 10, **CONV), (1, 64, 24, 23)),
    "pool": (op("nn.AvgPool2d", "it", "x", "y", count_include_pad=True, divisor_override=None, **POOL), (1, 21, 9, 7)),
    "global_average": (op("nn.AdaptiveAvgPool2d", "it", "x", "y", output_size=(1, 1)), (2, 21, 5, 6)),
    "softmax": (op("F.softmax", "it", "x", "y", dim=-1), (3, 5, 29)),
    "softmax of long rows": (op("F.softmax", "it", "x", "y", dim=-1), (3, 1021)),
    "softmax of short rows": (op("F.softmax", "it", "x", "y", dim=-1), (3, 5, 3)),
    "layer_norm": (op("F.layer_norm", "it", "x", "y", normalized_shape=(45,), eps=1e-5), (7, 45)),
    "product": (op("torch.matmul", "it", "x x", "y"), (3, 13, 13)),
    "map": (op("nn.GELU", "it", "x", "y", approximate="none"), (5, 67)),
}  # fmt: skip


@pytest.mark.parametrize("codes", [ROUNDED, SIGNED], ids=["uint8", "int8"])
@pytest.mark.parametrize("name", PRODUCERS)
def test_a_kernel_of_floats_stores_bytes(name: str, codes: dict[str, Any]) -> None:
    operator, shape = PRODUCERS[name]
    given = {"x": RANDOM.standard_normal(shape).astype(F32)}
    net = after(operator, given=given, codes=codes)
    (wanted,) = Session(net, backend="reference").run([*given.values()])
    for host in HOSTS:
        found, kernels = rounded_by(net, given, host)
        assert any(each.startswith(name.split()[0]) and each.endswith("it round") for each in kernels), kernels
        assert found.dtype == codes["z"].dtype
        distances = np.abs(found.astype(int) - wanted)
        assert distances.max() <= 1
        assert np.mean(distances > 0) < 0.02


def test_bytes_are_added_in_the_kernel_that_rounds_the_sum() -> None:
    """The second operand is dequantised where it is read; what is rounded in between is rounded in registers."""
    given = {"x": RANDOM.standard_normal((1, 21, 6, 5)).astype(F32), "q": RANDOM.integers(0, 256, (1, 21, 6, 5), U8)}
    scales = {"sq": np.array(0.02, F32), "zq": np.array(128, U8)}
    net = after(
        op("nn.MaxPool2d", "pool", "x", "p", kernel_size=(1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
           ceil_mode=False, return_indices=False),
        op("QuantizeLinear", "first", "p s z", "pq"),
        op("DequantizeLinear", "second", "pq s z", "pf"),
        op("DequantizeLinear", "other", "q sq zq", "qf"),
        op("pnnx.Expression", "sum", "pf qf", "t", expr="add(@0,@1)"),
        op("nn.ReLU", "relu", "t", "y"),
        given=given, **scales,
    )  # fmt: skip
    (wanted,) = Session(net, backend="reference").run([*given.values()])
    for host in HOSTS:
        found, kernels = rounded_by(net, given, host)
        np.testing.assert_array_equal(found, wanted)
        assert "pool pool first second relu round" in kernels
        assert not any(each.startswith("map") for each in kernels if "out" not in each), kernels


def test_what_is_dequantised_for_other_kernels_is_computed_once() -> None:
    given = {"q": RANDOM.integers(0, 256, (5, 40), U8)}
    net = after(
        op("DequantizeLinear", "floats", "q s z", "f"),
        op("F.softmax", "soft", "f", "a", dim=-1),
        op("torch.cumsum", "sums", "f", "b", dim=1),
        op("pnnx.Expression", "sum", "a b f", "y", expr="add(add(@0,@1),@2)"),
        given=given,
    )
    (wanted,) = Session(net, backend="reference").run([*given.values()])
    for host in HOSTS:
        found, kernels = rounded_by(net, given, host)
        assert np.abs(found.astype(int) - wanted).max() <= 1
        assert [each for each in kernels if "floats" in each] == ["map floats"]


@pytest.mark.parametrize("axis", [1, 2])
def test_bytes_are_joined(axis: int) -> None:
    given, weight = {"x": RANDOM.standard_normal((1, 16, 6, 5)).astype(F32)}, RANDOM.random((16, 16, 3, 3), F32)
    net = built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in ROUNDED.items()),
        op("nn.Conv2d", "conv", "x", "a", in_channels=16, out_channels=16, weight=weight, **CONV),
        op("QuantizeLinear", "first", "a s z", "p"),
        op("QuantizeLinear", "second", "x s z", "q"),
        op("torch.cat", "join", "p q", "y", dim=axis),
        op("pnnx.Output", "end", "y"),
        _x=TensorSpec((1, 16, 6, 5), F32),
    )  # fmt: skip
    (wanted,) = Session(net, backend="reference").run([*given.values()])
    for host in HOSTS:
        found, _ = rounded_by(net, given, host)
        assert np.abs(found.astype(int) - wanted).max() <= 1


def test_a_dequantised_output_is_computed() -> None:
    given = RANDOM.integers(0, 256, (5, 40), U8)
    for level in LEVELS:
        check(graph("DequantizeLinear", given, ROUNDED), given, level)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("dtype", [U8, I8])
def test_functions_of_bytes_are_tables(host: Any, dtype: Any) -> None:
    given = {"x": RANDOM.standard_normal((3, 5, 37)).astype(F32)}
    codes = {"s": np.array(0.02, F32), "z": np.array(120 if dtype == U8 else -8, dtype)}
    net = after(
        op("QuantizeLinear", "round_x", "x s z", "q"),
        op("DequantizeLinear", "floats", "q s z", "f"),
        op("F.sigmoid", "it", "f", "g"),
        op("QuantizeLinear", "round_g", "g s z", "r"),
        op("DequantizeLinear", "weights", "r s z", "h"),
        op("pnnx.Expression", "product", "f h", "y", expr="mul(@0,@1)"),
        given=given,
        codes=codes,
    )
    found, kernels = rounded_by(net, given, host)
    np.testing.assert_array_equal(found, Session(net, backend="reference").run([given["x"]])[0])
    assert "byte_table it round_g weights product round" in kernels


@pytest.mark.parametrize("host", HOSTS)
def test_joined_bytes_are_written_in_place(host: Any) -> None:
    given = {name: RANDOM.standard_normal((1, 6, 5, 4)).astype(F32) for name in ("a", "b")}
    net = built(
        *(op("pnnx.Input", f"in_{name}", "", name) for name in given),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in ROUNDED.items()),
        *(op("QuantizeLinear", f"round_{name}", f"{name} s z", f"q{name}") for name in given),
        op("torch.cat", "it", "qa qb", "q", dim=1),
        op("DequantizeLinear", "floats", "q s z", "y"),
        op("nn.AvgPool2d", "pool", "y", "out", count_include_pad=True, divisor_override=None, **POOL),
        op("pnnx.Output", "end", "out"),
        **{f"_{name}": TensorSpec(each.shape, each.dtype) for name, each in given.items()},
    )
    found, kernels = rounded_by(net, given, host)
    np.testing.assert_allclose(found, Session(net, backend="reference").run([*given.values()])[0], rtol=1e-6)
    assert not any(each.endswith(" it") for each in kernels)
