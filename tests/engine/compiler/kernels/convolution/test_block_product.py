"""Products with weights of a few bits in blocks, against sums in float64, between guard pages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.block_product import BlockProduct
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

RANDOM = np.random.default_rng(5)


def check(
    level: str,
    rows: int,
    terms: int,
    outputs: int,
    bits: int = 4,
    block: int = 32,
    *,
    has_zeros: bool = False,
    gap: int = 0,
    tail: bool = False,
    x: Array | None = None,
) -> None:
    """Run a kernel whose rows, weights and result end at a guard page; rows lie ``gap`` floats apart."""
    blocks, out = -(-terms // block), Strides(0, 0, outputs)
    codes = RANDOM.integers(0, 1 << bits, (outputs, blocks * block), np.uint8)
    scales = RANDOM.random((outputs, blocks), np.float32) + 0.5
    zeros = RANDOM.integers(0, 1 << bits, (outputs, blocks)).astype(np.uint8) if has_zeros else None
    image = RANDOM.standard_normal((rows, terms + gap), np.float32)
    if x is not None:
        image[:, :terms] = x
    bias, other = (RANDOM.standard_normal(shape, np.float32) for shape in ((outputs,), (rows, outputs)))
    plain = Conv(
        batch=1,
        rows=1,
        columns=rows,
        in_channels=terms,
        out_channels=outputs,
        groups=1,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        source=Strides(0, 0, terms + gap),
        target=out,
        tile=ConvTile(1, 1, 1),
        host=describe(level),
        epilogue=Epilogue(apply("add", apply("relu", Operand(0)), Operand(1)), (out,)) if tail else Epilogue(),
    )
    kernel = BlockProduct.of(plain, bits, block, has_zeros=has_zeros)
    stored = sum(codes[:, k :: 8 // bits] << np.uint8(bits * k) for k in range(8 // bits))
    packed = kernel.pack(kernel.lines(np.asarray(stored).reshape(outputs, blocks, -1), scales, zeros), bias)
    result = guarded_array(np.full((rows, outputs), np.nan, np.float32))
    flat = guarded_array(image.reshape(-1)[: image.size - gap])
    run(kernel, level, [flat, guarded_array(packed), result, *([guarded_array(other)] if tail else [])])
    middle = np.float64(1 << (bits - 1)) if zeros is None else zeros.astype(np.float64).repeat(block, 1)
    weight = ((codes - middle) * scales.repeat(block, 1))[:, :terms]
    with np.errstate(invalid="ignore"):
        wanted = image[:, :terms].astype(np.float64) @ weight.T + bias
    wanted = np.maximum(wanted, 0) + other if tail else wanted
    size = np.abs(weight).max() * terms**0.5
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-6 * size)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 128, 256])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_of_any_width_in_any_blocks(level: str, bits: int, block: int, has_zeros: bool) -> None:
    check(level, 1, 2 * block + 5, 35, bits, block, has_zeros=has_zeros)
    check(level, 7, block + 7, 19, bits, block, has_zeros=has_zeros)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
def test_any_number_of_rows(level: str, rows: int) -> None:
    check(level, rows, 100, 70, tail=True, gap=5, has_zeros=rows % 2 == 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("outputs", [1, 5, 16, 17, 64, 200])
@pytest.mark.parametrize("terms", [1, 3, 31, 33, 64])
def test_any_number_of_terms_and_outputs(level: str, terms: int, outputs: int) -> None:
    check(level, 2, terms, outputs)


@given(data=st.data())
def test_whatever_the_geometry(data: st.DataObject) -> None:
    level, bits = data.draw(st.sampled_from(LEVELS)), data.draw(st.sampled_from([2, 4, 8]))
    rows, terms, outputs = (data.draw(st.integers(1, most)) for most in (17, 90, 90))
    block = data.draw(st.sampled_from([16, 32, 48, 64]))
    flags = {name: data.draw(st.booleans()) for name in ("has_zeros", "tail")}
    check(level, rows, terms, outputs, bits, block, gap=data.draw(st.integers(0, 3)), **flags)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [1, 4])
def test_values_that_are_not_finite(level: str, rows: int) -> None:
    x = np.zeros((rows, 40), np.float32)
    x[0, 3], x[-1, 39] = np.inf, np.nan
    check(level, rows, 40, 20, x=x, has_zeros=True)
