"""Convolutions and products between DequantizeLinear and QuantizeLinear: of the bytes, with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.passes.quantised_products import quantised_products, quantised_windows
from tests.engine.graph.build import built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched, types

RANDOM = np.random.default_rng(4)
U8, I8, F32 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.float32)


def network(type: str, shape: Any, weight: Any, axis: int, *, bias: Any = None, scales: int = 1, step: float = 0.02,
            **params: Any) -> Any:  # fmt: skip
    constants = {
        "sx": np.array(step, F32),
        "zx": np.array(121, U8),
        "w": weight,
        "sw": RANDOM.random(scales, F32) if scales > 1 else np.array(0.03, F32),
        "zw": np.zeros(scales, I8) if scales > 1 else np.array(3, I8),
        **({} if bias is None else {"b": bias}),
    }
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op("DequantizeLinear", "dx", "x sx zx", "fx"),
        op("DequantizeLinear", "dw", "w sw zw", "fw", axis=axis),
        op(type, "it", "fx fw" if bias is None else "b fx fw" if type == "torch.addmm" else "fx fw b", "y", **params),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec(shape, U8),
    )


def coded(*shape: int, dtype: Any = U8) -> Any:
    return RANDOM.integers(0, 256, shape).astype(np.uint8).view(dtype)


@pytest.mark.parametrize("scales", [1, 6])
@pytest.mark.parametrize("bias", [None, RANDOM.random(6, F32)])
def test_a_convolution_is_one_of_bytes(scales: int, bias: Any) -> None:
    params = {"pads": (1, 1, 1, 1), "kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "group": 2,
              "auto_pad": "NOTSET"}  # fmt: skip
    net = network("Conv", (1, 4, 5, 6), coded(6, 2, 3, 3, dtype=I8), 0, bias=bias, scales=scales, **params)
    made = types(applied(quantised_windows, net, coded(1, 4, 5, 6), close=FOLDED))
    assert_untouched(quantised_products, net)
    assert "ConvInteger" in made
    assert "Conv" not in made


def test_a_convolution_of_pixels_is_one_of_bytes() -> None:
    net = network("Conv", (1, 4, 5, 6), coded(6, 4, 1, 1, dtype=I8), 0)
    assert "ConvInteger" in types(applied(quantised_products, net, coded(1, 4, 5, 6), close=FOLDED))
    assert_untouched(quantised_windows, net)


@pytest.mark.parametrize("scales", [1, 7])
def test_a_product_is_one_of_bytes(scales: int) -> None:
    net = network("torch.matmul", (2, 3, 10), coded(10, 7, dtype=I8), 1, scales=scales)
    assert "MatMulInteger" in types(applied(quantised_products, net, coded(2, 3, 10), close=FOLDED))


@pytest.mark.parametrize("type", ["F.linear", "torch.addmm"])
def test_a_linear_layer_is_one_of_bytes(type: str) -> None:
    axis = 0 if type == "F.linear" else 1
    weight = coded(*((7, 10) if axis == 0 else (10, 7)), dtype=I8)
    net = network(type, (3, 10), weight, axis, bias=RANDOM.random(7, F32), scales=7)
    made = types(applied(quantised_products, net, coded(3, 10), close=FOLDED))
    assert "MatMulInteger" in made
    assert type not in made


@pytest.mark.parametrize("channels", [3, 9])
def test_groups_of_odd_width_are_one_of_bytes(channels: int) -> None:
    net = network("Conv", (1, channels, 5, 6), coded(3, channels // 3, 3, 3, dtype=I8), 0, group=3)
    run = quantised_products if channels == 3 else quantised_windows
    assert "ConvInteger" in types(applied(run, net, coded(1, channels, 5, 6), close=FOLDED))


def test_a_volume_is_one_of_bytes() -> None:
    net = network("Conv", (1, 2, 3, 5, 6), coded(4, 2, 2, 3, 3, dtype=I8), 0, pads=(1, 0, 1, 0, 1, 1))
    assert "ConvInteger" in types(applied(quantised_windows, net, coded(1, 2, 3, 5, 6), close=FOLDED))


def test_what_has_no_such_kernel_stays_as_it_is() -> None:
    by_row = network("torch.matmul", (2, 7, 7), coded(7, 7, dtype=I8), 0, scales=7)
    assert_untouched(quantised_products, by_row)


def test_scales_whose_product_exceeds_float32_stay_as_they_are() -> None:
    assert_untouched(quantised_products, network("torch.matmul", (2, 3, 10), coded(10, 7, dtype=I8), 1, step=np.inf))
    assert_untouched(quantised_products, two_tensors((U8, U8), ((3, 10), (10, 7)), step=1e30))


def two_tensors(dtypes: Any, shapes: Any, zeros: Any = (121, 9), step: float = 0.02) -> Any:
    constants = {
        "sa": np.array(step, F32),
        "za": np.array(zeros[0], dtypes[0]),
        "sb": np.array(1.5 * step, F32),
        "zb": np.array(zeros[1], dtypes[1]),
    }
    return built(
        op("pnnx.Input", "in0", "", "a"),
        op("pnnx.Input", "in1", "", "b"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op("DequantizeLinear", "da", "a sa za", "fa"),
        op("DequantizeLinear", "db", "b sb zb", "fb"),
        op("torch.matmul", "it", "fa fb", "y"),
        op("pnnx.Output", "out", "y"),
        _a=TensorSpec(shapes[0], dtypes[0]),
        _b=TensorSpec(shapes[1], dtypes[1]),
    )


@pytest.mark.parametrize("dtype", [U8, I8])
def test_a_product_of_two_tensors_is_one_of_bytes(dtype: Any) -> None:
    net = two_tensors((U8, dtype), ((2, 3, 10), (2, 10, 7)))
    given = coded(2, 3, 10), coded(2, 10, 7, dtype=dtype)
    assert "MatMulInteger" in types(applied(quantised_products, net, *given, close=FOLDED))


@pytest.mark.parametrize(
    ("dtypes", "shapes"),
    [((I8, U8), ((3, 10), (10, 7))), ((U8, U8), ((10,), (10, 7))), ((U8, U8), ((3, 2**15 + 300), (2**15 + 300, 1)))],
)
def test_other_products_of_two_tensors_stay_as_they_are(dtypes: Any, shapes: Any) -> None:
    assert_untouched(quantised_products, two_tensors(dtypes, shapes, (1, 2)))
