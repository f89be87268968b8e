"""Convolutions of small integers give exact sums at every processor level, and read nothing beyond their operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compiler.codegen.host import Host, describe
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import assemble
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.grouped import GroupedConv, choose_grouped_tile
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.quantising import quantised
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import HOST_NAMES, HOSTS, dense, run


def kernel(
    host: Host,
    size: tuple[int, int],
    channels: tuple[int, int],
    groups: int,
    words: Words,
    *,
    has_shift: bool,
) -> Conv:
    rows, columns = size
    shift, integers = (Strides(0, 0, 0, 1),) if has_shift else (), ARITHMETIC[words].numbers
    total = apply("shifted_sum", Operand(0), Operand(1)) if has_shift else apply("whole_sum", Operand(0))
    return Conv(
        batch=2,
        rows=rows,
        columns=columns,
        in_channels=channels[0] // groups // integers,
        out_channels=channels[1] // groups,
        groups=groups,
        kernel=(2, 3),
        stride=(1, 2),
        dilation=(1, 1),
        source=dense(rows + 1, 2 * columns + 1, channels[0] // integers),
        target=dense(rows, columns, channels[1]),
        tile=choose_tile(host, rows, columns, channels[1] // groups),
        host=host,
        epilogue=Epilogue(apply("mul", total, 0.5), shift),
        words=words,
    )


@pytest.mark.parametrize("host", HOSTS, ids=HOST_NAMES)
@pytest.mark.parametrize(
    ("size", "channels", "groups"),
    [((1, 1), (2, 1), 1), ((5, 7), (6, 20), 1), ((3, 9), (8, 37), 1), ((4, 4), (12, 9), 3), ((2, 31), (40, 65), 1)],
)
@pytest.mark.parametrize("has_shift", [False, True])
def test_sums_are_exact(
    host: Host, size: tuple[int, int], channels: tuple[int, int], groups: int, has_shift: bool
) -> None:
    random, code = np.random.default_rng(7), kernel(host, size, channels, groups, "int16", has_shift=has_shift)
    image = random.integers(-255, 256, (2, size[0] + 1, 2 * size[1] + 1, channels[0])).astype(np.int16)
    weight = random.integers(-255, 256, (channels[1], 2, 3, channels[0] // groups)).astype(np.int16)
    shift = random.integers(-(2**31), 2**31, channels[1]).astype(np.int32)
    image[0, 0], weight[0] = -32768, 32767
    result = guarded_array(np.full((2, *size, channels[1]), np.nan, np.float32))
    arguments = [
        guarded_array(image.view(np.float32)),
        guarded_array(code.pack(weight.transpose(0, 3, 1, 2), None)),
        result,
    ]
    run(code, host.name, [*arguments, *([guarded_array(shift.view(np.float32))] if has_shift else [])])
    sums = convolved(image, weight.transpose(0, 3, 1, 2), shift if has_shift else np.zeros(1), (1, 2), (1, 1), groups)
    wrapped = sums.astype(np.int64).astype(np.int32)
    np.testing.assert_array_equal(result, wrapped.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize("has_shift", [False, True])
def test_other_processors_have_code_of_their_own(has_shift: bool) -> None:
    code, module = kernel(describe("neon"), (3, 5), (6, 9), 1, "int16", has_shift=has_shift), Module()
    code.emit(module)
    assert "llvm.x86" not in str(module)
    assert assemble(str(module), describe("neon"))


@pytest.mark.parametrize("host", [host for host in HOSTS if host.has_vnni], ids=lambda host: host.name)
@pytest.mark.parametrize(
    ("size", "channels", "groups"),
    [((1, 1), (4, 1), 1), ((5, 7), (12, 21), 1), ((3, 9), (8, 37), 1), ((4, 4), (24, 9), 3), ((2, 31), (40, 65), 1)],
)
def test_sums_of_bytes_are_exact(host: Host, size: tuple[int, int], channels: tuple[int, int], groups: int) -> None:
    random, code = np.random.default_rng(8), kernel(host, size, channels, groups, "int8", has_shift=True)
    image = random.integers(0, 256, (2, size[0] + 1, 2 * size[1] + 1, channels[0])).astype(np.uint8)
    weight = random.integers(-128, 128, (channels[1], 2, 3, channels[0] // groups)).astype(np.int8)
    shift = random.integers(-(2**20), 2**20, channels[1]).astype(np.int32)
    image[0], weight[0] = 255, -128
    result = guarded_array(np.full((2, *size, channels[1]), np.nan, np.float32))
    given = [image.view(np.float32), code.pack(weight.transpose(0, 3, 1, 2), None), shift.view(np.float32)]
    run(code, host.name, [*map(guarded_array, given[:2]), result, guarded_array(given[2])])
    sums = convolved(image, weight.transpose(0, 3, 1, 2), shift, (1, 2), (1, 1), groups)
    np.testing.assert_array_equal(result, sums.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize("host", HOSTS, ids=HOST_NAMES)
@pytest.mark.parametrize(("size", "channels"), [((1, 1), (2, 1)), ((5, 7), (6, 20)), ((3, 9), (8, 37))])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_bytes_are_stored_and_added(host: Host, size: tuple[int, int], channels: tuple[int, int], dtype: str) -> None:
    random, code = np.random.default_rng(9), kernel(host, size, channels, 1, "int16", has_shift=False)
    low, high = (0.0, 255.0) if dtype == "uint8" else (-128.0, 127.0)
    total = apply("add", apply("mul", apply("whole_sum", Operand(0)), 1 / 64), apply("mul", Operand(1), 0.5))
    tree = quantised(total, Number(0.75), Number(3.0), low, high)
    code = replace(code, epilogue=Epilogue(tree, (dense(*size, channels[1]),), (dtype, "int8")))
    image = random.integers(-255, 256, (2, size[0] + 1, 2 * size[1] + 1, channels[0])).astype(np.int16)
    weight = random.integers(-9, 9, (channels[1], 2, 3, channels[0])).astype(np.int16)
    other = random.integers(-128, 128, (2, *size, channels[1])).astype(np.int8)
    result = guarded_array(np.zeros(other.shape, dtype), dtype=dtype)
    packed = guarded_array(code.pack(weight.transpose(0, 3, 1, 2), None))
    run(code, host.name, [guarded_array(image.view(np.float32)), packed, result, guarded_array(other, dtype="int8")])
    sums = convolved(image, weight.transpose(0, 3, 1, 2), np.zeros(1), (1, 2), (1, 1), 1)
    exact = (sums / 64 + other * 0.5).astype(np.float32) / np.float32(0.75)
    np.testing.assert_array_equal(result, np.clip(np.rint(exact) + 3, low, high))


@pytest.mark.parametrize("host", HOSTS, ids=HOST_NAMES)
@pytest.mark.parametrize(
    ("words", "groups", "width", "outputs"), [("int16", 7, 6, 2), ("int8", 9, 8, 4), ("int8", 5, 4, 3)]
)
def test_groups_share_vectors(host: Host, words: Words, groups: int, width: int, outputs: int) -> None:
    random, own = np.random.default_rng(10), ARITHMETIC[words]
    low, high = (0, 256) if words == "int8" else (-255, 256)
    image = random.integers(low, high, (2, 5, 7, groups * width)).astype(own.image)
    weight = random.integers(-128, 128, (groups * outputs, 2, 3, width)).astype(own.weight)
    image[0], weight[0] = high - 1, -128
    code = GroupedConv(
        batch=2,
        rows=4,
        columns=3,
        in_channels=width // own.numbers,
        out_channels=groups * outputs,
        outputs=outputs,
        groups=1,
        kernel=(2, 3),
        stride=(1, 2),
        dilation=(1, 1),
        source=dense(5, 7, groups * width // own.numbers),
        target=dense(4, 3, groups * outputs),
        tile=choose_grouped_tile(host, 4, 3, (2, 3), 2, 1, width // own.numbers),
        host=host,
        epilogue=Epilogue(apply("whole_sum", Operand(0))),
        words=words,
    )
    filters = weight.transpose(0, 3, 1, 2)
    result = guarded_array(np.full((2, 4, 3, groups * outputs), np.nan, np.float32))
    run(code, host.name, [*map(guarded_array, [image.view(np.float32), code.pack(filters, None)]), result])
    np.testing.assert_array_equal(result, convolved(image, filters, np.zeros(1), (1, 2), (1, 1), groups))
