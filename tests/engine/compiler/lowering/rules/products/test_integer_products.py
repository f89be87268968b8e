"""Products of bytes: to the bit what the reference makes of them, with what follows in the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.options import Options
from tests.combining import together
from tests.engine.compiler.kernels.running import HOSTS
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(9)
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)
I32 = np.dtype(np.int32)


def coded(shape: tuple[int, ...], dtype: Any = U8) -> Any:
    return RANDOM.integers(0, 256, shape).astype(np.uint8).view(dtype)


def net(type: str, x: Any, names: str, constants: dict[str, Any], inputs: dict[str, Any], **params: Any) -> Any:
    """Return the product and what is computed from its sums, both as outputs."""
    return built(
        *(op("pnnx.Input", f"in_{name}", "", name) for name in ("x", *inputs)),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op(type, "it", names, "y", **params),
        op("pnnx.Expression", "then", "y", "z", expr="mul(@0,0.25)"),
        op("nn.ReLU", "relu", "z", "out"),
        op("pnnx.Output", "out0", "out"),
        **{f"_{name}": TensorSpec(each.shape, each.dtype) for name, each in {"x": x, **inputs}.items()},
    )


def check(graph: Any, given: list[Any], *kinds: str) -> None:
    wanted = Session(graph, backend="reference").run(given)
    for host in HOSTS:
        compiled = CompiledGraph(graph, Options(threads=2), host)
        for found, each in zip(compiled.run(given), wanted, strict=True):
            np.testing.assert_array_equal(found, each)
        executable = compiled.builder.program([port.spec for port in graph.inputs]).executable
        wanted_kinds = kinds or ("conv", "grouped")
        assert "it" in {name for step in executable.steps if step.kind in wanted_kinds for name in step.operators}


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize(
    ("shape", "filters", "params"),
    [
        ((2, 3, 6, 5), (4, 3, 3, 3), {"pads": (1, 2, 1, 0), "strides": (2, 1)}),
        ((1, 8, 9), (6, 4, 3), {"group": 2, "dilations": (2,), "pads": (2, 2)}),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((1, 6, 2, 2), (5, 6, 3, 3), {"pads": (8, 8, 8, 8), "dilations": (7, 7)}),
        ((2, 3, 3, 5, 4), (5, 3, 2, 3, 3), {"pads": (1, 1, 0, 1, 1, 1)}),
        ((1, 15, 5, 6), (6, 5, 3, 3), {"group": 3, "pads": (1, 1, 1, 0)}),
        ((1, 21, 4, 5), (21, 1, 2, 2), {"group": 21, "pads": (1, 0, 0, 1)}),
    ],
    ids=["padded on one side", "of signals", "of one number", "mostly padding", "volumes", "groups", "single channels"],
)
def test_convolutions(shape: Any, filters: Any, params: Any, dtype: Any) -> None:
    x, inputs = coded(shape, dtype), {"zx": np.array(113, dtype), "b": RANDOM.integers(-(2**31), 2**31, filters[0])}
    inputs["b"] = inputs["b"].astype(I32)
    constants = {"w": coded(filters), "zw": coded((filters[0],))}
    graph = net("ConvInteger", x, "x w zx zw b", constants, inputs, as_float=True, **params)
    check(graph, [x, *inputs.values()])


@together(
    ("dtype", [U8, I8]),
    ("zero,is_stored", [(0, True), (-128, True), (77, True), (77, False)]),
    (
        "shape,filters,params",
        [
            ((1, 8, 5, 6), (17, 8, 3, 3), {"pads": (1, 1, 1, 1)}),
            ((2, 8, 5, 4), (10, 4, 1, 1), {"group": 2}),
            ((1, 15, 4, 5), (15, 5, 3, 3), {"group": 3, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
            ((1, 36, 5, 3), (72, 4, 2, 2), {"group": 9, "pads": (0, 1, 1, 0)}),
            ((1, 2, 4, 3, 3), (6, 2, 3, 2, 1), {"pads": (1, 0, 0, 1, 1, 0), "strides": (2, 1, 1)}),
            ((1, 5, 7), (4, 5, 3), {"pads": (1, 2)}),
        ],
    ),
)
def test_weights_that_are_bytes(shape: Any, filters: Any, params: Any, dtype: Any, zero: int, is_stored: bool) -> None:
    x, given = coded(shape, dtype), {"zx": np.array(zero % 256 if dtype == U8 else zero).astype(dtype)}
    bias = RANDOM.integers(-9999, 9999, filters[0]).astype(I32)
    constants = {"w": coded(filters, I8), "zw": np.zeros(filters[0], I8), "b": bias, **(given if is_stored else {})}
    inputs = {} if is_stored else given
    check(net("ConvInteger", x, "x w zx zw b", constants, inputs, as_float=True, **params), [x, *inputs.values()])


@together(
    ("dtype", [U8, I8]),
    ("zero", [0, 77]),
    (
        "shape,kernel,params",
        [
            ((1, 8, 5, 6), (3, 3), {"pads": (1, 1, 1, 1)}),
            ((2, 5, 5, 4), (1, 2), {}),
            ((1, 21, 9), (3,), {"pads": (1, 2), "strides": (2,)}),
            ((1, 8, 5), (9,), {"pads": (8, 8), "dilations": (2,), "strides": (2,)}),
            ((2, 17, 2, 1), (5, 5), {"pads": (2, 2, 2, 2)}),
        ],
    ),
)
def test_each_channel_by_itself(shape: Any, kernel: Any, params: Any, dtype: Any, zero: int) -> None:
    x, channels = coded(shape, dtype), shape[1]
    constants = {"w": coded((channels, 1, *kernel), I8), "zx": np.array(zero, dtype), "zw": np.zeros(channels, I8),
                 "b": RANDOM.integers(-9999, 9999, channels).astype(I32)}  # fmt: skip
    graph = net("ConvInteger", x, "x w zx zw b", constants, {}, as_float=True, group=channels, **params)
    check(graph, [x], "depthwise")


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (2, 3, 7), (1, 2, 5, 16)])
def test_products(shape: Any) -> None:
    x, zero = coded(shape), {"zx": np.array(255, U8)}
    for zero_of_weights in (-128, 0):
        constants = {"w": coded((shape[-1], 33), I8), "zw": np.array(zero_of_weights, I8)}
        check(net("MatMulInteger", x, "x w zx zw", constants, zero, as_float=True), [x, zero["zx"]])


def test_what_is_quantised_in_a_run_stays_where_channels_are_neighbours() -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=each)
          for name, each in {"w": coded((8, 5, 3, 3)), "zw": np.array(7, U8)}.items()),
        op("nn.Conv2d", "first", "x", "a", in_channels=5, out_channels=5, kernel_size=(1, 1), stride=(1, 1),
           padding=(0, 0), dilation=(1, 1), groups=1, bias=False, padding_mode="zeros",
           weight=RANDOM.standard_normal((5, 5, 1, 1)).astype(F32)),
        op("DynamicQuantizeLinear", "bytes", "a", "q s zx"),
        op("ConvInteger", "it", "q w zx zw", "sums", pads=(1, 1, 1, 1)),
        op("Tensor.to", "float", "sums", "f", dtype="torch.float"),
        op("pnnx.Expression", "scaled", "f s", "y", expr="mul(@0,@1)"),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec((1, 5, 6, 7), F32),
    )  # fmt: skip
    x = np.round(RANDOM.standard_normal((1, 5, 6, 7)) * 8).astype(F32)
    (wanted,) = Session(graph, backend="reference").run([x])
    (found,) = Session(graph, backend="compiled").run([x])
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02 * np.abs(wanted).max())
