"""Products of bytes as what has a kernel: to the bit, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, TensorSpec
from engine.passes.integer_products import integer_products
from tests.engine.graph.build import built, op
from tests.engine.passes.applying import applied, assert_untouched, types

RANDOM = np.random.default_rng(3)
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)


def coded(shape: tuple[int, ...], dtype: Any = U8, low: int = 0, high: int = 255) -> Any:
    return RANDOM.integers(low, high + 1, shape).astype(dtype)


def product(type: str, shape: tuple[int, ...], weight: Any, zeros: tuple[Any, ...] = (), **params: Any) -> RuntimeGraph:
    """Return a product with input x and, if the first zero point is None, with that as an input."""
    constants = {"w": weight, **{f"z{k}": zero for k, zero in enumerate(zeros) if zero is not None}}
    is_dynamic = bool(zeros) and zeros[0] is None
    specs: dict[str, Any] = {"_x": TensorSpec(shape, U8), **({"_z0": TensorSpec((), U8)} if is_dynamic else {})}
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *([op("pnnx.Input", "in1", "", "z0")] if is_dynamic else []),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op(type, "product", " ".join(["x", "w", *(f"z{k}" for k, _ in enumerate(zeros))]), "y", **params),
        op("pnnx.Output", "out", "y"),
        **specs,
    )


ZERO = np.array(117, U8)


def made_of(graph: RuntimeGraph, *given: Any) -> list[str]:
    """The operators that a pass makes of it, by type; the answers are the same to the bit."""
    return types(applied(integer_products, graph, *given))


@pytest.mark.parametrize(
    ("shape", "weight", "zeros", "params"),
    [
        ((2, 3, 6, 5), coded((4, 3, 3, 3)), (ZERO, np.array(9, U8)), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
        ((1, 4, 6), coded((6, 2, 3), I8, -128, 127), (None, np.zeros(6, I8)), {"group": 2, "dilations": (2,)}),
        ((1, 2, 4, 4), coded((3, 2, 1, 1)), (ZERO, coded((3,))), {"pads": (0, 1, 1, 0)}),
        ((1, 2, 3, 4, 5), coded((2, 2, 2, 2, 2)), (ZERO,), {"auto_pad": "VALID"}),
        ((1, 9, 4, 4), coded((3, 3, 2, 2)), (ZERO,), {"group": 3}),
    ],
    ids=["padded", "of signals", "zero by filter", "of volumes", "of groups of three"],
)
def test_a_convolution_of_bytes_makes_floats_of_its_sums(shape: Any, weight: Any, zeros: Any, params: Any) -> None:
    graph = product("ConvInteger", shape, weight, zeros, **params)
    made = applied(integer_products, graph, coded(shape), *([ZERO] if zeros and zeros[0] is None else []))
    (conv,) = (each for each in made.operators if each.type == "ConvInteger")
    assert conv.params["as_float"] is True


@pytest.mark.parametrize("zeros", [(), (ZERO,), (None, np.array(3, I8)), (ZERO, coded((7,), I8, -9, 9))])
def test_a_product_of_bytes_makes_floats_of_its_sums(zeros: Any) -> None:
    graph = product("MatMulInteger", (2, 3, 40), coded((40, 7), I8, -128, 127), zeros)
    given = [coded((2, 3, 40)), *([ZERO] if zeros and zeros[0] is None else [])]
    assert made_of(graph, *given)[-2:] == ["MatMulInteger", "Tensor.to"]


def test_a_cast_and_a_bias_before_it_join_the_product() -> None:
    weight = {"w": coded((4, 3, 1, 1)), "z": ZERO, "zw": np.array(3, U8)}
    net = built(
        op("pnnx.Input", "in0", "", "x"),
        op("pnnx.Input", "in1", "", "b"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in weight.items()),
        op("ConvInteger", "it", "x w z zw", "sums"),
        op("pnnx.Expression", "more", "sums b", "biased", expr="add(@0,@1)"),
        op("Tensor.to", "float", "biased", "y", dtype="torch.float"),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec((1, 3, 4, 4), U8),
        _b=TensorSpec((1, 4, 1, 1), np.dtype(np.int32)),
    )
    bias = np.array([2**31 - 1, -(2**31), 0, 77], np.int32).reshape(1, 4, 1, 1)
    assert made_of(net, coded((1, 3, 4, 4)), bias).count("ConvInteger") == 1
    assert "pnnx.Expression" not in made_of(net, coded((1, 3, 4, 4)), bias)


def test_sums_that_float32_would_round_stay_integers_unless_floats_are_made_of_them() -> None:
    most = np.full((259, 2), 255, U8)
    assert_untouched(integer_products, product("MatMulInteger", (1, 259), most))
    applied(integer_products, product("MatMulInteger", (1, 257), most[:257]), np.full((1, 257), 255, U8))


def test_what_only_a_run_knows_stays_as_it_is() -> None:
    same = {"auto_pad": "SAME_UPPER"}
    assert_untouched(integer_products, product("ConvInteger", (1, 2, 4, 4), coded((3, 2, 2, 2)), **same))
    rows = product("MatMulInteger", (4, 8), coded((8, 3)), (coded((4,)),))
    assert_untouched(integer_products, rows)


SCALES = {"sx": np.array(0.013, np.float32), "zx": ZERO, "sy": np.array(0.071, np.float32), "zy": np.array(101, U8)}


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("is_biased", [False, True])
def test_a_quantised_convolution_is_its_parts(group: int, is_biased: bool) -> None:
    bias = {"b": np.array([3, -70, 0, 12345, -9999, 5], np.int32)} if is_biased else {}
    channels = 12 if group < 6 else 6
    weight = coded((6, channels // group, 3, 3), I8, -128, 127)
    filters = {"w": weight, "sw": RANDOM.random(6, np.float32), "zw": np.zeros(6, I8)}
    net = _quantised("QLinearConv", (2, channels, 5, 4), filters, bias, group=group, pads=(1, 1, 1, 1))
    assert made_of(net, coded((2, channels, 5, 4)))[-1] == "QuantizeLinear"


def test_a_quantised_product_is_its_parts() -> None:
    filters = {"w": coded((40, 7)), "sw": np.array(0.002, np.float32), "zw": ZERO}
    net = _quantised("QLinearMatMul", (3, 40), filters, {})
    assert "MatMulInteger" in made_of(net, coded((3, 40)))


def _quantised(type: str, shape: Any, filters: dict[str, Any], bias: dict[str, Any], **params: Any) -> RuntimeGraph:
    constants = {**SCALES, **filters, **bias}
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op(type, "it", " ".join(["x sx zx w sw zw sy zy", *bias]), "y", **params),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec(shape, U8),
    )
