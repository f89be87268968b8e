"""Products of bytes as floats: to the bit, or not at all."""

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
    """x and, if there is None among the zero points, that of x are inputs."""
    constants = {"w": weight, **{f"z{k}": zero for k, zero in enumerate(zeros) if zero is not None}}
    is_open = bool(zeros) and zeros[0] is None
    specs: dict[str, Any] = {"_x": TensorSpec(shape, U8), **({"_z0": TensorSpec((), U8)} if is_open else {})}
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *([op("pnnx.Input", "in1", "", "z0")] if is_open else []),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op(type, "product", " ".join(["x", "w", *(f"z{k}" for k, _ in enumerate(zeros))]), "y", **params),
        op("pnnx.Output", "out", "y"),
        **specs,
    )


ZERO = np.array(117, U8)


@pytest.mark.parametrize(
    ("shape", "weight", "zeros", "params"),
    [
        ((2, 3, 6, 5), coded((4, 3, 3, 3)), (ZERO, np.array(9, U8)), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
        ((1, 4, 6), coded((6, 2, 3), I8, -128, 127), (None, np.zeros(6, I8)), {"group": 2, "dilations": (2,)}),
        ((1, 2, 3, 4, 5), coded((2, 2, 2, 2, 2)), (), {"auto_pad": "VALID"}),
        ((1, 2, 4, 4), coded((3, 2, 1, 1)), (ZERO, coded((3,))), {}),
    ],
    ids=["padded", "of signals", "of volumes", "zero by filter"],
)
def test_a_convolution_of_bytes_is_one_of_floats_to_the_bit(shape: Any, weight: Any, zeros: Any, params: Any) -> None:
    graph = product("ConvInteger", shape, weight, zeros, **params)
    given = [coded(shape), *([ZERO] if zeros and zeros[0] is None else [])]
    made = applied(integer_products, graph, *given)
    assert "ConvInteger" not in types(made)
    assert f"nn.Conv{len(shape) - 2}d" in types(made)


@pytest.mark.parametrize("zeros", [(), (ZERO,), (None, np.array(3, I8)), (ZERO, coded((7,), I8, -9, 9))])
def test_a_product_of_bytes_is_a_linear_layer_to_the_bit(zeros: Any) -> None:
    graph = product("MatMulInteger", (2, 3, 40), coded((40, 7), I8, -128, 127), zeros)
    given = [coded((2, 3, 40)), *([ZERO] if zeros and zeros[0] is None else [])]
    made = applied(integer_products, graph, *given)
    assert "nn.Linear" in types(made)


def test_sums_that_float32_would_round_stay_integers() -> None:
    most = np.full((259, 2), 255, U8)
    assert_untouched(integer_products, product("MatMulInteger", (1, 259), most))
    applied(integer_products, product("MatMulInteger", (1, 257), most[:257]), np.full((1, 257), 255, U8))


def test_what_only_a_run_knows_stays_as_it_is() -> None:
    one_side = {"pads": (0, 0, 1, 1)}
    assert_untouched(integer_products, product("ConvInteger", (1, 2, 4, 4), coded((3, 2, 2, 2)), **one_side))
    rows = product("MatMulInteger", (4, 8), coded((8, 3)), (coded((4,)),))
    assert_untouched(integer_products, rows)
