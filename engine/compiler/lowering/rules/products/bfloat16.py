"""Factors of products as words of two bfloat16, where the session's precision or the operator allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.compiler.kernels.functions.half import FACTOR
from engine.compiler.kernels.products.arithmetic import ARITHMETIC
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image
from engine.compiler.lowering.layout import Border
from engine.compiler.lowering.rounded_stores import RoundingStep
from engine.compiler.lowering.steps import KernelStep, convert, derived
from engine.compiler.storage import FLOAT32, View, channels_last, paired, spaced_rows
from engine.ir.strided import Strided
from engine.tensor import BFLOAT16, DType

# Columns of a result from which its factor is worth converting.
_LEAST_COLUMNS: Final = 32


def prefers_bfloat16(context: Context, terms: int, columns: int) -> bool:
    """Return whether products of this many terms, for this many results each, are computed with bfloat16."""
    is_allowed = context.lowering.options.precision != "float32" or context.op.allows_bfloat16
    is_whole = terms % ARITHMETIC["bfloat16"].numbers == 0
    has_kernel = context.host.has_bfloat16 and context.dtype == FLOAT32
    return is_allowed and has_kernel and is_whole and columns >= _LEAST_COLUMNS


def as_bfloat16(context: Context, rows: View) -> tuple[View, Sequence[KernelStep]]:
    """Return rows (..., terms) as rows of words, and the step that rounds them."""
    if (words := paired(rows, -1)) is not None:
        return words, [_rounded(context, rows, words, -1, is_paired=True)]
    words = spaced_rows((*rows.shape[:-1], rows.shape[-1] // ARITHMETIC["bfloat16"].numbers))
    return words, [_rounded(context, rows, words, -1)]


def image_as_bfloat16(context: Context, x: View, border: Border) -> tuple[View, Sequence[KernelStep]]:
    """Return a tensor (N, C, *S) as an image of words with a border of zeros, and the step that rounds it."""
    steps: list[KernelStep] = []
    if x.shape[1] % ARITHMETIC["bfloat16"].numbers:
        x = _with_zero_channel(context, x, border, steps)
    words, is_paired = paired(x, 1) if x.has_border(border) else None, True
    if words is None:
        channels, is_paired = x.shape[1] // ARITHMETIC["bfloat16"].numbers, False
        words = channels_last((x.shape[0], channels, *x.shape[2:]), border)
    return derived(words, as_image(words.meta)), [*steps, _rounded(context, x, words, 1, is_paired=is_paired)]


def _with_zero_channel(context: Context, x: View, border: Border, steps: list[KernelStep]) -> View:
    """Return a copy of an image with a further channel of zeros, and add the step that makes it."""
    n, channels, *sizes = x.shape
    wide = channels_last((n, channels + 1, *sizes), border, zeros=1)
    steps.append(context.copy(x, derived(wide, wide.meta[:, :channels])))
    return wide


def _rounded(context: Context, x: View, words: View, axis: int, *, is_paired: bool = False) -> KernelStep:
    """Return the step that rounds a tensor to words; to ``paired`` ones the kernel before may do it instead."""
    target = derived(words, parts_of(words, x.shape, axis, BFLOAT16))
    step = convert(x, target, [context.op.name], context.host, FACTOR)
    if is_paired:
        context.lowering.roundings.append(RoundingStep(step, x.storage, words.storage))
    return step


def parts_of(words: View, shape: tuple[int, ...], axis: int, dtype: DType) -> Strided:
    """Return the memory of words as narrower numbers of this shape."""
    strides = list(words.meta.strides)
    strides[axis] = dtype.itemsize
    return words.storage.part(shape, strides, words.offset, dtype)
