"""Convolutions in tile registers of AMX, on an emulation of its instructions, and as machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import Host, describe, detect
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import assembly
from engine.compiler.codegen.tile_permission import may_use_tiles
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.matrix_conv import MatrixConv, configuration, in_tiles
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.options import Options
from engine.tensor import BFLOAT16
from tests.engine.compiler.kernels.convolution.emulated_tiles import emulated_host, with_tiles
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import dense, run
from tests.engine.graph.build import F32, built, op

__all__ = ["emulated_host"]
RANDOM = np.random.default_rng(11)
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)


def kernel(host: Host, words: Words, size: tuple[int, int], channels: tuple[int, int], **others: Any) -> Conv:
    """Return the kernel that is chosen for a window of 3 x 2 pixels and a stride of 1 x 2."""
    (rows, columns), count, groups = size, ARITHMETIC[words].numbers, others.get("groups", 1)
    conv = Conv(
        batch=2,
        rows=rows,
        columns=columns,
        in_channels=channels[0] // groups // count,
        out_channels=channels[1] // groups,
        groups=groups,
        kernel=(3, 2),
        stride=(1, 2),
        dilation=(1, 1),
        source=dense(rows + 2, 2 * columns, channels[0] // count),
        target=dense(rows, columns, channels[1]),
        tile=choose_tile(host, rows, columns, channels[1] // groups),
        host=host,
        epilogue=Epilogue(apply("mul", apply("whole_sum", Operand(0)), 0.5) if words == "int8" else Operand(0)),
        words=words,
    )
    return in_tiles(conv)


SIZES = [
    ((2, 40), (32, 33), 1),
    ((3, 17), (64, 16), 1),
    ((3, 9), (24, 40), 1),
    ((1, 16), (128, 64), 2),
    ((5, 33), (20, 48), 1),
]


@pytest.mark.parametrize(("size", "channels", "groups"), SIZES)
@pytest.mark.parametrize("words", ["int8", "bfloat16"])
def test_sums_are_those_of_the_convolution(
    emulated_host: Host, words: Words, size: tuple[int, int], channels: tuple[int, int], groups: int
) -> None:
    code, own = kernel(emulated_host, words, size, channels, groups=groups), ARITHMETIC[words]
    assert isinstance(code, MatrixConv)
    low, high = (0, 256) if words == "int8" else (-8, 8)
    image = RANDOM.integers(low, high, (2, size[0] + 2, 2 * size[1], channels[0])).astype(np.float32)
    filters = RANDOM.integers(-128 if words == "int8" else -8, 8, (channels[1], channels[0] // groups, 3, 2))
    bias = RANDOM.integers(-999, 999, channels[1]).astype(np.float32)
    stored = image.astype(U8) if words == "int8" else (image.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    weight = filters.astype(I8) if words == "int8" else filters.astype(np.float32).astype(own.weight)
    result = guarded_array(np.full((2, *size, channels[1]), np.nan, np.float32))
    run(code, "avx512", [guarded_array(stored.view(np.float32)), guarded_array(code.pack(weight, bias)), result])
    sums = convolved(image, filters, bias, (1, 2), (1, 1), groups)
    np.testing.assert_array_equal(result, sums * (0.5 if words == "int8" else 1))


@pytest.mark.parametrize(
    ("shape", "filters", "params"),
    [
        ((2, 32, 9, 11), (24, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 64, 7, 7), (40, 64, 1, 1), {}),
        ((1, 64, 50), (20, 64, 3), {"pads": (2, 0), "dilations": (2,)}),
    ],
    ids=["windows", "pixels", "signals"],
)
@pytest.mark.parametrize("zero", [0, 77])
def test_quantised_convolutions_are_exact(
    emulated_host: Host, shape: Any, filters: Any, params: Any, zero: int
) -> None:
    constants = {"w": RANDOM.integers(-128, 128, filters).astype(I8), "zx": np.array(zero, U8), "zw": np.zeros(1, I8),
                 "b": RANDOM.integers(-9999, 9999, filters[0]).astype(np.int32)}  # fmt: skip
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op("ConvInteger", "it", "x w zx zw b", "y", as_float=True, **params),
        op("pnnx.Expression", "then", "y", "z", expr="mul(@0,0.25)"),
        op("pnnx.Output", "out0", "z"),
        _x=TensorSpec(shape, U8),
    )
    given = [RANDOM.integers(0, 256, shape).astype(U8)]
    (wanted,) = Session(graph, backend="reference").run(given)
    (found,) = CompiledGraph(graph, Options(threads=2), emulated_host).run(given)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", [17, 64])
def test_linear_layers_in_bfloat16_multiply_in_tiles(emulated_host: Host, rows: int) -> None:
    weight = RANDOM.integers(-8, 8, (48, 64)).astype(F32)
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "it", "x", "y", in_features=64, out_features=48, bias=False, weight=weight),
        op("nn.ReLU", "relu", "y", "z"),
        op("pnnx.Output", "out0", "z"),
        _x=TensorSpec((rows, 64), F32),
    )
    x = RANDOM.integers(-8, 8, (rows, 64)).astype(F32)
    (found,) = CompiledGraph(graph, Options(threads=2, precision="bf16"), emulated_host).run([x])
    np.testing.assert_array_equal(found, np.maximum(x @ weight.T, 0))


def test_machine_code_has_the_instructions() -> None:
    host = with_tiles(describe("avx512"))
    for words, name in (("int8", "tdpbusd"), ("bfloat16", "tdpbf16ps")):
        module = Module()
        kernel(host, words, (2, 40), (32, 32)).write(module)
        text = assembly(str(module), host)
        found = {
            each: text.count(f"\t{each}") for each in ("ldtilecfg", "tileloadd", "tilestored", name, "tilerelease")
        }
        # Four tiles of sums begin with the bias; a step loads two segments and two vectors of weights.
        assert found == {"ldtilecfg": 1, "tileloadd": 8, "tilestored": 4, name: 4, "tilerelease": 1}


def test_a_configuration_has_bytes_and_rows_of_every_register() -> None:
    content = configuration([(16, 16), (3, 5)])
    assert len(content) == 64
    assert content[0] == 1
    assert [*content[16:20]] == [64, 0, 20, 0]
    assert [*content[48:50]] == [16, 3]
    assert sum(content) == 1 + 64 + 20 + 16 + 3


@pytest.mark.parametrize(
    ("words", "size", "channels"),
    [
        ("float", (2, 40), (32, 32)),
        ("int8", (1, 1), (128, 64)),
        ("int8", (2, 40), (4 * 17, 32)),
        ("int8", (2, 40), (64, 2)),
    ],
    ids=["float32", "one pixel", "a prime number of words", "two channels"],
)
def test_few_products_a_tile_stay_in_vectors(words: Words, size: tuple[int, int], channels: tuple[int, int]) -> None:
    assert type(kernel(with_tiles(describe("avx512")), words, size, channels)) is Conv


def test_without_the_instructions_nothing_changes() -> None:
    assert type(kernel(describe("avx512"), "int8", (2, 40), (32, 32))) is Conv


def test_the_system_decides() -> None:
    asked: list[tuple[int, ...]] = []

    def syscall(number: Any, request: Any, argument: Any) -> int:
        asked.append((number.value, request.value))
        if request.value == 0x1022:
            argument._obj.value = 1 << 18
        return 0

    assert may_use_tiles(syscall)
    assert asked == [(158, 0x1023), (158, 0x1022)]
    assert not may_use_tiles(lambda *_: -1)
    assert not may_use_tiles(lambda *_: 0)
    assert "+amx" not in detect().features or may_use_tiles()
