"""Products of 8-bit integers with stored weights, as words of two or four integers.

Words of two 16-bit integers hold every distance from a zero point; padding is zero. Where the host multiplies bytes and
the weights fit, words hold four bytes: what their zero point adds to each sum is subtracted again, and the padding of
an image is its zero point. Sums are 32-bit integers; a pass has checked that none is larger and that they become
floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

import numpy as np

from engine.compiler.kernels.elements import Domain
from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image, unfused
from engine.compiler.lowering.layout import BORDER_FILLS, BORDER_RULES, NO_BORDER, Border
from engine.compiler.lowering.rules.composition import Composition, elements_step
from engine.compiler.lowering.rules.convolution.conv_geometry import (
    ConvParameters,
    Span,
    border_for,
    border_of,
    depth_of,
    parameters_of,
    spans_of,
)
from engine.compiler.lowering.rules.convolution.conv_steps import as_filters, computed
from engine.compiler.lowering.rules.products.bfloat16 import parts_of
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.products.matmul import Narrow
from engine.compiler.lowering.rules.products.matmul import product as multiplied
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived, words_at
from engine.compiler.storage import FLOAT32, View, channels_last, row_major
from engine.graph.operator import RuntimeOperator
from engine.ir.dims import is_symbolic
from engine.layers.onnx.products.conv import ConvInteger, distances, windows_and_pads
from engine.layers.onnx.products.matmul import MatMulInteger, centred_columns
from engine.passes.support.byte_products import BYTES, is_depthwise, is_exact_in_float32
from engine.passes.support.facts import stored_tensor
from engine.tensor import Array, TensorSpec

_OFFSET: Final = 128
_BYTE: Final = 256


@dataclass(frozen=True, slots=True)
class Zero:
    """Zero point: a number, or a view of a run-time value."""

    value: int | View

    @classmethod
    def of(cls, context: Context, index: int, x: View) -> Zero:
        """Return the zero point of an operand."""
        value = context.argument(index)
        if isinstance(value, View):
            return cls(derived(value, value.meta.reshape((1,) * len(x.shape))))
        return cls(int(np.asarray(0 if value is None else value).reshape(())))


@dataclass(slots=True)
class ByteImage:
    """Conversion of bytes to words.

    Args:
        words: of distances from the zero point (int16, float), or of bytes shifted so that none is negative (int8).
        groups: of channels; no word has channels of two.

    Attributes:
        steps: steps that make the words.
    """

    context: Context
    x: View
    zero: Zero
    words: Words
    groups: int = 1
    steps: list[KernelStep] = field(default_factory=list)

    @property
    def numbers(self) -> int:
        """Return the numbers in a word."""
        return ARITHMETIC[self.words].numbers

    @property
    def is_centred(self) -> bool:
        """Return whether a zero point is 0 in words."""
        return self.words != "int8" or self.zero.value == -self.moved

    @property
    def moved(self) -> int:
        """Return what is added to bytes so that none is negative."""
        return _OFFSET if self.words == "int8" and self.x.dtype == BYTES[1] else 0

    def bordered(self, border: Border) -> View:
        """Return an image (N, C, *S) as words (N, words, *S), with the zero point as border."""
        n, channels, *inner = self.x.shape
        count = self.groups * -(-channels // self.groups // self.numbers)
        zero = -self.moved if self.is_centred else self.zero.value
        if isinstance(zero, int) or not any(border):
            fill = zero + self.moved if isinstance(zero, int) else 0
            as_they_are = self._as_they_are(1) if self.x.has_border(border, fill) else None
            if as_they_are is not None:
                return as_they_are
            words = channels_last((n, count, *inner), border, fill=fill)
            self._fill(words, 1)
            return words
        ends = [*zip(border[:2], border[2:], strict=True)][-len(inner) :]
        whole = channels_last((n, count, *(sum(each) + size for each, size in zip(ends, inner, strict=True))))
        self._fill_with_zero_points(whole)
        inside = [slice(before, before + size) for (before, _), size in zip(ends, inner, strict=True)]
        words = derived(whole, whole.meta[:, :, *inside])
        self._fill(words, 1)
        return words

    def rows(self) -> View:
        """Return rows (..., K) as words (..., words)."""
        as_they_are = self._as_they_are(-1)
        if as_they_are is not None:
            return as_they_are
        *lead, size = self.x.shape
        words = row_major((*lead, -(-size // self.numbers)), FLOAT32)
        self._fill(words, -1)
        return words

    def shift(self, bias: View | Array | None, weights: Array, rank: int) -> tuple[Array | None, list[View]]:
        """Return the addend of each channel's sums: known now, or as it broadcasts to a result of ``rank`` more axes.

        Args:
            weights: weights of the sums, (O, ...).
        """
        context, shape = self.context, (len(weights), *(1,) * rank)
        zero, sums = self.zero.value, weights.reshape(len(weights), -1).sum(1)
        if self.is_centred:
            if not isinstance(bias, View):
                return None if bias is None else bias.reshape(-1), []
            return None, [derived(bias, bias.meta.reshape(shape))]
        if isinstance(zero, int) and not isinstance(bias, View):
            known = (0 if bias is None else bias.reshape(-1).astype(np.int64)) - (zero + self.moved) * sums
            return known.astype(np.int32), []
        target = row_major(shape, np.dtype(np.int32))
        operands = [context.lowering.stored(sums.astype(np.int64).reshape(shape))]
        distance: Expr = apply("add", _number(zero, operands), float(self.moved))
        tree = apply("neg", apply("mul", Operand(0), distance))
        if bias is not None:
            view = bias if isinstance(bias, View) else context.lowering.stored(bias)
            operands.append(derived(view, view.meta.reshape(shape)))
            tree = apply("add", tree, Operand(len(operands) - 1))
        self._map(target, tree, operands, "i64")
        return None, [target]

    def _as_they_are(self, axis: int) -> View | None:
        """Return the bytes as words without a copy, if their memory allows it.

        Weights are 0 for what lies in the last word behind the bytes.
        """
        x = self.x
        if self.words != "int8" or self.moved or x.offset % 4:
            return None
        if self.groups > 1 and x.shape[1] // self.groups % 4:
            return None
        others = [*zip(x.shape, x.meta.strides, strict=True)]
        _, stride = others.pop(axis)
        if stride != 1 or any(each % 4 for size, each in others if size > 1):
            return None
        meta = words_at(x, axis)
        return None if meta is None else View(x.storage, meta)

    def _fill(self, words: View, axis: int) -> None:
        """Add the step that stores the bytes of a tensor in words."""
        if (as_they_are := self._as_they_are(axis)) is not None:
            self.steps.append(self.context.copy(as_they_are, words))
            return
        x = self.x
        if self.groups > 1:
            x, words = (
                derived(each, each.meta.reshape(each.shape[0], self.groups, -1, *each.shape[2:])) for each in (x, words)
            )
            axis += 1
        target = derived(words, parts_of(words, x.shape, axis, ARITHMETIC[self.words].image))
        operands = [x]
        if self.words == "int8":
            tree: Expr = apply("add", Operand(0), float(self.moved)) if self.moved else Operand(0)
        else:
            tree = apply("sub", Operand(0), _number(self.zero.value, operands))
        self._map(target, tree, operands, "float")

    def _fill_with_zero_points(self, words: View) -> None:
        """Add the step that stores the zero point everywhere."""
        shape = (words.shape[0], 4 * words.shape[1], *words.shape[2:])
        target = derived(words, parts_of(words, shape, 1, ARITHMETIC["int8"].image))
        operands: list[View] = []
        tree = apply("add", _number(self.zero.value, operands), float(self.moved))
        if not operands:
            operands.append(self.context.lowering.stored(np.full((1,) * len(shape), self.zero.value, np.int32)))
            tree = apply("add", Operand(0), float(self.moved))
        self._map(target, tree, operands, "float")

    def _map(self, target: View, tree: Expr, operands: Sequence[View], domain: Domain) -> None:
        rank = len(target.shape)
        wide = [derived(each, each.meta.reshape((1,) * rank)) if each.meta.size == 1 else each for each in operands]
        self.steps.append(elements_step(self.context, target, tree, wide, domain))


def _number(value: int | View, operands: list[View]) -> Expr | float:
    """Return a number, or the operand that a view becomes."""
    if isinstance(value, int):
        return float(value)
    operands.append(value)
    return Operand(len(operands) - 1)


_SIGNED: Final = np.iinfo(np.int8)


@kernels_for(ConvInteger, image=True)
def lower_conv_integer(context: Context) -> Lowered:
    """Lower a convolution of words, each some channels of an image."""
    node, x = context.layer(ConvInteger), _bytes(context)
    if not node.as_float or node.auto_pad not in ("NOTSET", "VALID"):
        raise NotLoweredError("there is no kernel for its integers, or its padding depends on sizes")
    weight = distances(_stored(context, 1), _zero(context), "w_zero_point", 0)
    if weight.ndim > 5:
        raise NotLoweredError("there is no kernel for its integers")
    layer, pads = windows_and_pads(node, weight.ndim - 2)
    kernel, sizes = weight.shape[2:], context.result_spec.sizes[2:]
    parameters, bias = parameters_of(layer, kernel, tuple(pads)), _bias(context, len(weight))
    zero = Zero.of(context, 2, x)
    if isinstance(zero.value, int) and not isinstance(bias, View) and _is_exact_depthwise(node, weight, bias):
        return _lower_depthwise(context, x, weight, parameters, zero.value, bias)
    depth = depth_of(layer, kernel, pads, x.shape[2:], sizes)
    parameters = replace(parameters, depth=depth)
    rows, columns = spans_of(parameters, x.shape[2:], sizes)
    parts = [*product(rows, columns)]
    # Spans and planes skip padding as if it were 0, but the zero point of bytes may differ from 0.
    words = _words(context, weight) if len(parts) == 1 and depth is None else "int16"
    image = ByteImage(context, x, zero, words, node.group)
    seen_image = image.bordered(border_of(rows, columns, x.shape[2:]))
    known, shift = image.shift(bias, _seen(weight, parts[0]), len(kernel))
    result = context.fuse(as_image, is_image=True, tree=_sum(shift), views=shift)
    parameters, filters = replace(parameters, words=words), (as_filters(weight), known)
    seen_image = derived(seen_image, as_image(seen_image.meta))
    return result.lowered(*image.steps, *computed(context, seen_image, result, parameters, parts, filters))


def _seen(weight: Array, part: tuple[Span, Span]) -> Array:
    """Return the weights of the taps that a part of an image is summed over."""
    row, column = part
    return as_filters(weight)[..., row.first : row.first + row.taps, column.first : column.first + column.taps]


def _is_exact_depthwise(node: ConvInteger, weight: Array, bias: Array | None) -> bool:
    """Return whether float32 holds all sums of a depthwise convolution."""
    return is_depthwise(weight, node.group) and is_exact_in_float32(weight, bias)


def _lower_depthwise(
    context: Context, x: View, weight: Array, parameters: ConvParameters, zero: int, bias: Array | None
) -> Lowered:
    """Lower a depthwise convolution: bytes are loaded as floats, whose sums are whole numbers and exact."""
    rows, columns = spans_of(parameters, x.shape[2:], context.result_spec.sizes[2:])
    border = border_of(rows, columns, x.shape[2:])
    seen, steps = context.image(x, border, zero % _BYTE)
    parameters, parts = replace(parameters, numbers=x.dtype.name), [*product(rows, columns)]
    sums = _seen(weight, parts[0]).reshape(len(weight), -1).sum(1)  # channels by themselves are never split into parts
    shift = (0 if bias is None else bias.reshape(-1)) - zero * sums
    filters = as_filters(weight).astype(np.float32), shift.astype(np.float32)
    result = context.fuse(as_image, is_image=True)
    seen = derived(seen, as_image(seen.meta))
    return result.lowered(*steps, *computed(context, seen, result, parameters, parts, filters))


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border:
    """Return the border that a convolution needs around unsigned bytes."""
    node, weight = op.definition, op.inputs[1].spec if len(op.inputs) > 1 else None
    zero = stored_tensor(op.inputs[2]) if len(op.inputs) > 2 else None
    if not isinstance(node, ConvInteger) or weight is None or zero is None or zero.size > 1 or x.dtype != BYTES[0]:
        return NO_BORDER
    if node.auto_pad not in ("NOTSET", "VALID") or not x.rank == y.rank == weight.rank or weight.rank not in (3, 4):
        return NO_BORDER
    layer, pads = windows_and_pads(node, weight.rank - 2)
    try:
        return border_for(parameters_of(layer, weight.sizes[2:], tuple(pads)), x.sizes[2:], y.sizes[2:])
    except NotLoweredError:
        return NO_BORDER


def _zero_point(op: RuntimeOperator) -> int:
    """Return the zero point of a convolution of unsigned bytes, if it is known."""
    zero = stored_tensor(op.inputs[2]) if len(op.inputs) > 2 else None
    return int(zero.reshape(())) if zero is not None and zero.size == 1 and zero.dtype == BYTES[0] else 0


BORDER_RULES[ConvInteger] = _wanted_border
BORDER_FILLS[ConvInteger] = _zero_point


@kernels_for(MatMulInteger)
def lower_matmul_integer(context: Context) -> Lowered:
    """Lower a matrix product of words, each some elements of a row."""
    node, x = context.layer(MatMulInteger), _bytes(context)
    if isinstance(context.argument(1), View):
        return _lower_computed(context, node, x, _bytes(context, 1))
    weight = _stored(context, 1)
    if not node.as_float or weight.ndim != 2 or len(x.shape) < 2:
        raise NotLoweredError("there is no kernel for its integers")
    columns = centred_columns(weight, _zero(context), "b_zero_point").T
    image = ByteImage(context, x, Zero.of(context, 2, x), _words(context, columns))
    words = image.rows()
    rows = derived(words, words.meta.reshape(-1, words.shape[-1]))
    bias, shift = image.shift(None, columns, 0)
    result = context.fuse(rows_as_image, is_image=False, tree=_sum(shift), views=shift)
    step = linear_step(context, result, rows, columns, bias, words=image.words)
    return result.lowered(*image.steps, step)


def _lower_computed(context: Context, node: MatMulInteger, left: View, right: View) -> Lowered:
    """Lower a product of two tensors that are computed."""
    zeros = [
        zero for k, each in enumerate((left, right)) if isinstance(zero := Zero.of(context, 2 + k, each).value, int)
    ]
    if not node.as_float or left.dtype != BYTES[0] or len(zeros) < 2 or min(len(left.shape), len(right.shape)) < 2:
        raise NotLoweredError("there is no kernel for its integers")
    if is_symbolic((left.shape[-1], right.shape[-1])):
        return _as_floats(context, (left, right), zeros)
    narrow = Narrow("int8", right.dtype.name, (zeros[0], zeros[1]))
    return multiplied(context, left, right, unfused(context.op, tree=_sum([])), narrow=narrow)


def _as_floats(context: Context, factors: Sequence[View], zeros: Sequence[int]) -> Lowered:
    """Lower a product of dynamic sizes, for which there are only kernels of floats."""
    composition, floats = Composition(context), []
    for each, zero in zip(factors, zeros, strict=True):
        floats.append(row_major(each.shape, FLOAT32))
        composition.typed(floats[-1], apply("sub", Operand(0), float(zero)), each)
    lowered = multiplied(context, floats[0], floats[1], unfused(context.op))
    return replace(lowered, steps=[*composition.steps, *lowered.steps])


def _sum(shift: Sequence[View]) -> Expr:
    """Return the sum that a word holds as a float, with what is added to it."""
    return apply("shifted_sum", Operand(0), Operand(1)) if shift else apply("whole_sum", Operand(0))


def _words(context: Context, weights: Array) -> Words:
    """Return the words for weights (O, I, ...): without VNNI, the products of a window repay the copy to 16 bits."""
    fits, host = weights.min() >= _SIGNED.min and weights.max() <= _SIGNED.max, context.host
    is_fast = host.has_vnni or (host.multiplies_pairs and math.prod(weights.shape[2:]) == 1)
    return "int8" if fits and is_fast else "int16"


def _bytes(context: Context, index: int = 0) -> View:
    x = context.elements(index)
    if x.dtype not in BYTES:
        raise NotLoweredError("there is no kernel for its integers")
    return x


def _stored(context: Context, index: int) -> Array:
    value = context.argument(index)
    if not isinstance(value, np.ndarray):
        raise NotLoweredError("its weights are not constant")
    return value


def _zero(context: Context) -> Array | int:
    """Return the zero points of the weights."""
    value = context.argument(3)
    return value if isinstance(value, np.ndarray | int) else _stored(context, 3)


def _bias(context: Context, channels: int) -> View | Array | None:
    bias = context.argument(4)
    if bias is None:
        return None
    if not isinstance(bias, View | np.ndarray) or bias.dtype != np.int32 or math.prod(bias.shape) != channels:
        raise NotLoweredError("there is no kernel for its bias")
    return bias
