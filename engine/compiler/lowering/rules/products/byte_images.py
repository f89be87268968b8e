"""Bytes as words that kernels multiply: some channels of a pixel, or elements of a row, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.compiler.kernels.elements import Domain, make_elements
from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32
from engine.compiler.lowering.layout.wishes import Border
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.storage import View, channels_last, row_major
from engine.ir.strided import Strided
from engine.tensor import Array, DType

BYTES: Final = (np.dtype(np.uint8), np.dtype(np.int8))
# What a word is made of, by how many of them there are; 4 of them without sign in images, with it in weights.
_PARTS: Final[dict[int, DType]] = {2: np.dtype(np.int16), 4: np.dtype(np.uint8)}
_OFFSET: Final = 128


@dataclass(frozen=True, slots=True)
class Zero:
    """A zero point: a number, or a view of what only a run knows."""

    value: int | View

    @classmethod
    def of(cls, context: Context, index: int, x: View) -> Zero:
        """The zero point of an operand."""
        value = context.argument(index)
        if isinstance(value, View):
            return cls(derived(value, value.phantom.reshape((1,) * len(x.shape))))
        return cls(int(np.asarray(0 if value is None else value).reshape(())))


@dataclass(slots=True)
class ByteImage:
    """Bytes on their way into words.

    Args:
        integers: in a word: distances from the zero point, or the bytes themselves, moved to where none is negative.

    Attributes:
        steps: what makes the words.
    """

    context: Context
    x: View
    zero: Zero
    integers: int
    steps: list[KernelStep] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """What is added to bytes so that none is negative."""
        return _OFFSET if self.x.dtype == BYTES[1] else 0

    def bordered(self, border: Border) -> View:
        """Words of an image (N, C, *S) as (N, words, *S), with what stands for zero around it."""
        n, channels, *inner = self.x.shape
        count = -(-channels // self.integers)
        is_zero = self.integers == 2 or self.zero.value == -self.moved
        if is_zero or not any(border):
            as_they_are = None if any(border) else self._as_they_are(1)
            if as_they_are is not None:
                return as_they_are
            words = channels_last((n, count, *inner), border)
            self._fill(words, 1)
            return words
        top, left, bottom, right = border
        *planes, height, width = inner if len(inner) > 1 else (1, *inner)
        rows, columns = (height + top + bottom, width + left + right)
        sizes = (rows, columns) if len(inner) > 1 else (columns,)
        whole = channels_last((n, count, *sizes))
        down, across = slice(top, top + height), slice(left, left + width)
        edges: list[tuple[slice, ...]] = [(slice(None), slice(0, left)), (slice(None), slice(left + width, None))]
        if len(inner) > 1:
            edges += [(slice(0, top), across), (slice(top + height, None), across)]
        else:
            edges = [(each,) for _, each in edges]
        for place in edges:
            self._surround(derived(whole, whole.phantom[:, :, *place]))
        words = derived(whole, whole.phantom[:, :, *((down, across) if len(inner) > 1 else (across,))])
        self._fill(words, 1)
        return words

    def rows(self) -> View:
        """Words of rows (..., K) as (..., words)."""
        as_they_are = self._as_they_are(-1)
        if as_they_are is not None:
            return as_they_are
        *lead, size = self.x.shape
        words = row_major((*lead, -(-size // self.integers)), FLOAT32)
        self._fill(words, -1)
        return words

    def shift(self, bias: View | Array | None, weights: Array, rank: int) -> list[View]:
        """What is to be added to the sums of each channel, as it broadcasts to a result of so many spatial axes.

        Args:
            weights: whose products are summed, (O, ...).
        """
        context, shape = self.context, (len(weights), *(1,) * rank)
        zero, sums = self.zero.value, weights.reshape(len(weights), -1).sum(1)
        if self.integers == 2 or (zero == -self.moved):
            if bias is None:
                return []
            view = bias if isinstance(bias, View) else context.lowering.stored(bias)
            return [derived(view, view.phantom.reshape(shape))]
        if isinstance(zero, int) and not isinstance(bias, View):
            known = (0 if bias is None else bias.reshape(-1).astype(np.int64)) - (zero + self.moved) * sums
            return [context.lowering.stored(known.astype(np.int32).reshape(shape))]
        target = row_major(shape, np.dtype(np.int32))
        operands = [context.lowering.stored(sums.astype(np.int64).reshape(shape))]
        distance: Expr = apply("add", _number(zero, operands), float(self.moved))
        tree = apply("neg", apply("mul", Operand(0), distance))
        if bias is not None:
            view = bias if isinstance(bias, View) else context.lowering.stored(bias)
            operands.append(derived(view, view.phantom.reshape(shape)))
            tree = apply("add", tree, Operand(len(operands) - 1))
        self._map(target, tree, operands, "i64")
        return [target]

    def _as_they_are(self, axis: int) -> View | None:
        """The words that bytes are already, where they lie so."""
        x = self.x
        if self.integers != 4 or self.moved or x.shape[axis] % 4 or x.offset % 4:
            return None
        others = [*zip(x.shape, x.phantom.strides, strict=True)]
        _, stride = others.pop(axis)
        if stride != 1 or any(each % 4 for size, each in others if size > 1):
            return None
        phantom = words_at(x, axis)
        return None if phantom is None else View(x.storage, phantom)

    def _fill(self, words: View, axis: int) -> None:
        """The step that stores the bytes of a tensor in words."""
        if (as_they_are := self._as_they_are(axis)) is not None:
            self.steps.append(self.context.copy(as_they_are, words))
            return
        target = derived(words, parts_of(words, self.x.shape, axis, _PARTS[self.integers]))
        operands = [self.x]
        if self.integers == 4:
            tree: Expr = apply("add", Operand(0), float(self.moved)) if self.moved else Operand(0)
        else:
            tree = apply("sub", Operand(0), _number(self.zero.value, operands))
        self._map(target, tree, operands, "float")

    def _surround(self, words: View) -> None:
        """The step that stores what stands for zero."""
        if not words.phantom.size:
            return
        shape = (words.shape[0], 4 * words.shape[1], *words.shape[2:])
        target = derived(words, parts_of(words, shape, 1, _PARTS[4]))
        operands: list[View] = []
        tree = apply("add", _number(self.zero.value, operands), float(self.moved))
        if not operands:
            operands.append(self.context.lowering.stored(np.full((1,) * len(shape), self.zero.value, np.int32)))
            tree = apply("add", Operand(0), float(self.moved))
        self._map(target, tree, operands, "float")

    def _map(self, target: View, tree: Expr, operands: Sequence[View], domain: Domain) -> None:
        shape, host = target.shape, self.context.host
        seen = [target]
        for each in operands:
            phantom = each.phantom.reshape((1,) * len(shape)) if each.phantom.size == 1 else each.phantom
            seen.append(derived(each, phantom.broadcast_to(shape)))
        kernel = make_elements(
            shape, [each.strides for each in seen], [each.dtype.name for each in seen], tree, domain, host
        )
        self.steps.append(self.context.step(kernel, *seen))


def _number(value: int | View, operands: list[View]) -> Expr | float:
    """A number, or the operand that a view becomes."""
    if isinstance(value, int):
        return float(value)
    operands.append(value)
    return Operand(len(operands) - 1)


def words_at(x: View, axis: int) -> Strided | None:
    """Memory of bytes as words along an axis."""
    axis %= len(x.shape)
    strides = list(x.phantom.strides)
    strides[axis] = FLOAT32.itemsize
    shape = list(x.shape)
    shape[axis] //= FLOAT32.itemsize
    return x.storage.part(shape, strides, x.offset, FLOAT32) if x.storage.bytes % FLOAT32.itemsize == 0 else None


def parts_of(words: View, shape: tuple[int, ...], axis: int, dtype: DType) -> Strided:
    """Memory of words as smaller integers of this shape."""
    strides = list(words.phantom.strides)
    strides[axis] = dtype.itemsize
    return words.storage.part(shape, strides, words.offset, dtype)


def words_of(weight: Array, integers: int) -> Array:
    """Weights (O, I, ...) as words (O, words, ...) of so many integers each."""
    count = -(-weight.shape[1] // integers)
    parts = np.zeros((*weight.shape[:1], *weight.shape[2:], integers * count), np.int16 if integers == 2 else np.int8)
    parts[..., : weight.shape[1]] = np.moveaxis(weight, 1, -1)
    return np.ascontiguousarray(np.moveaxis(parts.view(np.float32), -1, 1))
