"""Operators that move elements in ways that strides cannot describe: gathers whose indices are known before the run.

The layer itself gives the indices: it runs twice on operands whose elements are numbered, from two different numbers
on. Elements that are equal in both runs are fill values of the layer. Other rules fall back to this one, for their
ranks or dtypes.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.indexing.gather import ELEMENTS
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.indexing.gather import Slot, gather_step
from engine.compiler.lowering.rules.registry import FALLBACKS, KERNEL_RULES
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.errors import EngineError
from engine.layers.convolution.fold import Unfold
from engine.layers.convolution.pad import Pad
from engine.layers.definition.layer import Layer
from engine.layers.indexing import masking, selection, slicing
from engine.layers.shape import diagonal, expand, join, permute, shape
from engine.layers.signal.fourier import Shift
from engine.layers.vision import shuffle
from engine.promotion import Category, dtype_category
from engine.tensor import Array, DType, dtype_name

# Most elements with a table of indices.
_MAX_ELEMENTS = 2**20
MOVES_FIRST: tuple[type[Layer], ...] = (
    Pad, Unfold, Shift, diagonal.DiagonalEmbed, expand.Repeat, expand.RepeatInterleave, expand.Tile,
    masking.Triangle, permute.Flip, permute.Roll, selection.IndexSelect, selection.Take,
    selection.TakeAlongDim, shape.AsStrided, shuffle.ChannelShuffle, shuffle.PixelShuffle, shuffle.PixelUnshuffle,
    slicing.Windows,
)  # fmt: skip
"""Layers that move the elements of their first operand; their other operands are known."""
MOVES_ALL: tuple[type[Layer], ...] = (
    diagonal.DiagonalScatter, join.BlockDiagonal, join.CartesianProduct, join.Cat, join.ColumnStack, join.Stack,
    join.StackedRows, slicing.SliceCopy, slicing.SliceScatter,
)  # fmt: skip
"""Layers that move the elements of all their operands."""


def lower_constant_gather(context: Context) -> Lowered:
    """Lower a gather from the operands, which are concatenated if there are several, or a fill value."""
    layer, spec = context.layer(Layer), context.lowering.spec(context.op.outputs[0])
    joined = context.items(0) if isinstance(layer, MOVES_ALL) and context.bound.positional else None
    arguments = joined if isinstance(joined, list) else context.arguments()
    count = len(arguments) if isinstance(layer, MOVES_ALL) else 1
    if spec is None or not spec.size or len(context.op.outputs) != 1 or context.lowering.quantises:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    moved = [context.lowering.stored(each) if isinstance(each, np.ndarray) else each for each in arguments[:count]]
    sources = [each for each in moved if isinstance(each, View)]
    if len(sources) < count or any(isinstance(each, View) for each in arguments[count:]):
        raise NotLoweredError("its operands or indices are known only at run time")
    if any(each.dtype != spec.dtype for each in sources) or spec.dtype.itemsize not in ELEMENTS:
        raise NotLoweredError(f"there is no such gather kernel for {dtype_name(spec.dtype)}")
    if spec.size + sum(each.meta.size for each in sources) > _MAX_ELEMENTS:
        raise NotLoweredError("there is no such gather kernel for so many elements")
    with np.errstate(all="ignore"):
        places, others = _places(layer, [*sources, *arguments[count:]], spec.dtype)
    if places.shape != spec.sizes:
        raise NotLoweredError("it does more than move elements")
    source, steps = _concatenated(context, sources, others)
    target = context.allocate(is_image=False) if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)
    if not target.is_row_major:
        target = row_major(spec.sizes, spec.dtype)
    index = constant(np.where(places == 0, source.meta.size, places).astype(np.int32).reshape(-1) - 1)
    flat = derived(target, target.meta.reshape(-1))
    return context.lowered(target, *steps, gather_step(context, flat, source, [0], [Slot(index, 0)]))


def _places(layer: Layer, arguments: list[object], dtype: DType) -> tuple[Array, Array]:
    """Return the number of every element of the result, 0 for a fill value, and the fill value if there is one.

    Elements that are equal when the operands are numbered from another number on are fill values.
    """
    first, second = (_numbered_result(layer, arguments, at, dtype) for at in (1, 1 + _MAX_ELEMENTS))
    is_moved = second == first + _MAX_ELEMENTS
    if not (is_moved | (first == second)).all():
        raise NotLoweredError("it does more than move elements")
    others = first[~is_moved].astype(dtype)
    if not (others == others[:1]).all():
        raise NotLoweredError("it has several fill values")
    return np.where(is_moved, first.real, 0).astype(np.int64), others[:1]


def _numbered_result(layer: Layer, arguments: list[object], first: int, dtype: DType) -> Array:
    """Return the result of a layer for operands whose elements are numbered, counting from ``first``."""
    numbered: list[object] = []
    for each in arguments:
        if isinstance(each, View):
            numbers = np.arange(first, first + each.meta.size, dtype=_counting(dtype))
            numbered.append(numbers.reshape(each.shape))
            first += each.meta.size
        else:
            numbered.append(each)
    try:
        return np.asarray(layer.forward(*numbered))
    except EngineError as error:
        raise NotLoweredError("it fails for numbered elements") from error


def _counting(dtype: DType) -> type[np.generic]:
    """Return the dtype that numbers the elements of another one, and holds every fill value of a layer.

    Those of bools are floating: a value between 0 and 1 is true.
    """
    category = dtype_category(dtype)
    if category is Category.COMPLEX:
        return np.complex128
    return np.float64 if category in (Category.FLOATING, Category.BOOL) else np.int64


def _concatenated(context: Context, sources: list[View], others: Array) -> tuple[View, list[KernelStep]]:
    """Return the elements of all operands and the fill value as a vector, and the copies this takes."""
    dtype = sources[0].dtype
    if len(sources) == 1 and not others.size and sources[0].is_row_major:
        (x,) = sources
        return derived(x, x.meta.reshape(-1)), []
    buffer = row_major([sum(each.meta.size for each in sources) + others.size], dtype)
    pieces = [*sources, *([constant(others)] if others.size else [])]
    steps, first = [], 0
    for each in pieces:
        last = first + each.meta.size
        if each.meta.size:
            steps.append(context.copy(each, derived(buffer, buffer.meta[first:last].reshape(each.shape))))
        first = last
    return buffer, steps


for _each in (*MOVES_FIRST, *MOVES_ALL):
    FALLBACKS[_each] = lower_constant_gather
    KERNEL_RULES.setdefault(_each, lower_constant_gather)  # a rule of the layer replaces it
