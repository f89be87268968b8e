"""Copies between views; some are transpositions."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.map import make_map, merge_loops
from engine.compiler.kernels.transposing.transpose import Repeat, Transpose
from engine.compiler.lowering.steps import KernelStep, kernel_step
from engine.compiler.storage import FLOAT32, View

# Bytes of elements that kernels copy.
WORDS = (1, 2, 4, 8, 16)


def copy(source: View, target: View, operators: Sequence[str], host: Host) -> KernelStep:
    """The step that copies a view to another of its shape and dtype; elements of several words as so many."""
    if source.dtype.itemsize < FLOAT32.itemsize:
        names = [f"int{8 * source.dtype.itemsize}"] * 2
        small = make_elements(source.shape, [target.strides, source.strides], names, Operand(0), "i64", host)
        return kernel_step(small, (target, source), operators)
    views = source, target = as_words(source), as_words(target)
    kernel: Kernel | None = make_transpose(source.shape, source.strides, target.strides, host)
    if kernel is None:
        views = target, source
        kernel = make_map(source.shape, target.strides, [source.strides], Operand(0), host)
    return kernel_step(kernel, views, operators)


def convert(source: View, target: View, operators: Sequence[str], host: Host) -> KernelStep:
    """The step that copies a view of floats to another of its shape, each rounded to the nearest there is."""
    dtypes = [view.dtype.name for view in (target, source)]
    kernel = make_elements(source.shape, [target.strides, source.strides], dtypes, Operand(0), "float", host)
    return kernel_step(kernel, (target, source), operators)


def as_words(view: View) -> View:
    """A view of elements of 4, 8 or 16 bytes as one of float32, along a further dimension where they are larger."""
    if view.dtype == FLOAT32:
        return view
    words = view.dtype.itemsize // FLOAT32.itemsize
    shape, strides = (*view.shape, words), (*view.phantom.strides, FLOAT32.itemsize)
    phantom = view.storage.part(shape, strides, view.offset, FLOAT32)
    return View(view.storage, phantom if words > 1 else phantom[..., 0])


def make_transpose(shape: Sequence[int], source: Sequence[int], target: Sequence[int], host: Host) -> Transpose | None:
    """The transposition a copy is; None where one dimension is contiguous on both sides, or none is on one of them."""
    loops = merge_loops(shape, [target, source])
    rows = [k for k, (_, strides) in enumerate(loops) if strides[0] == 1]
    columns = [k for k, (_, strides) in enumerate(loops) if strides[1] == 1]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    (row, (_, source_row)), (column, (target_column, _)) = loops[rows[0]], loops[columns[0]]
    rest = [loop for k, loop in enumerate(loops) if k not in (rows[0], columns[0])]
    if source_row < 1 or target_column < 1 or any(min(strides) < 0 for _, strides in rest):
        return None
    return Transpose(
        repeats=tuple(Repeat(size, strides[1], strides[0]) for size, strides in rest),
        rows=row,
        columns=column,
        source_row=source_row,
        target_column=target_column,
        host=host,
    )
