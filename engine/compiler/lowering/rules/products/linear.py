"""Linear layers: the direct convolution's kernel on rows instead of pixels."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.convolution.matrix_conv import in_tiles
from engine.compiler.kernels.kernel import Strides
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, dots_of, flat_filters
from engine.compiler.lowering.rules.products.bfloat16 import as_bfloat16, prefers_bfloat16
from engine.compiler.lowering.steps import KernelStep, Lowered, dense_strides
from engine.compiler.storage import View, is_aliasing, spaced_rows
from engine.ir.dims import hint
from engine.ir.strided import Strided
from engine.tensor import Array

# Rows and columns from which a copy pays.
SPACED_ROWS, SPACED_COLUMNS = 8, 64


def linear(
    context: Context, x: View, weight: Array, bias: Array | None, index: int = 0, *, is_split: bool = False
) -> Lowered:
    """Lower x @ weight.T + bias for a weight (O, I) and a bias (O,), as the result of this number.

    Args:
        is_split: whether O is several dimensions of the result.
    """
    rows, copies = context.rows(x)

    def as_image(array: Strided) -> Strided:
        return rows_as_image(array.reshape(-1, len(weight)) if is_split else array)

    result = context.fuse(as_image, is_image=False, index=index)
    return result.lowered(*copies, *linear_steps(context, result, rows, weight, bias))


def spaced(context: Context, rows: View, columns: int) -> tuple[View, Sequence[KernelStep]]:
    """Return rows, copied with larger distances if those of a tile would evict each other from the L1 cache."""
    count, terms = hint(rows.shape[-2:])
    is_worth = count >= SPACED_ROWS and hint(columns) >= SPACED_COLUMNS and terms > 1
    if not is_worth or rows.strides[-1] != 1 or not is_aliasing(rows):
        return rows, ()
    copied = spaced_rows(rows.shape, rows.dtype)
    return copied, [context.copy(rows, copied)]


def linear_steps(
    context: Context, result: Result, rows: View, weight: Array, bias: Array | None
) -> Sequence[KernelStep]:
    """Return the steps of a linear layer, with its rows in the order and precision that suits its kernel."""
    if prefers_bfloat16(context, weight.shape[1], len(weight)):
        words, rounding = as_bfloat16(context, rows)
        return *rounding, linear_step(context, result, words, weight, bias, words="bfloat16")
    rows, spacing = spaced(context, rows, len(weight))
    return *spacing, linear_step(context, result, rows, weight, bias)


def linear_step(
    context: Context,
    result: Result,
    rows: View,
    weight: Array,
    bias: Array | None,
    *,
    words: Words = "float",
) -> KernelStep:
    """Return the step of a 1x1 convolution of a row of pixels, to a result seen by rows_as_image().

    Args:
        rows: of words.
        words: what they hold; ``weight`` is of numbers.
    """
    filters = weight[:, :, None, None, None]
    parameters = ConvParameters(kernel=(1, 1), words=words)
    source, target = Strides(0, 0, rows.strides[0]), dense_strides(result.image)
    plain = direct(context, result, parameters, filters, source, target)
    kernel = dots_of(context, plain) or in_tiles(plain)
    packed = context.lowering.packed(kernel.packing, (filters, bias), lambda: kernel.pack(flat_filters(filters), bias))
    return result.step(kernel, [rows, packed])


def rows_as_image(array: Strided) -> Strided:
    """View (..., O) as (1, O, 1, rows)."""
    return array.reshape(-1, array.shape[-1]).transpose()[None, :, None, :]
