"""Steps that lowering rules return: kernels with the memory they touch, copies, operators left to the reference.

A rule that cannot lower an operator raises ``NotLoweredError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.kernel import Kernel, Strides
from engine.compiler.kernels.map import make_map, merge_loops
from engine.compiler.kernels.transpose import Repeat, Transpose
from engine.compiler.storage import FLOAT32, Storage, View
from engine.graph.operator import RuntimeOperator
from engine.ir.strided import Strided
from engine.tensor import DType, TensorSpec, dtype_name

FLOAT64, COMPLEX64 = np.dtype(np.float64), np.dtype(np.complex64)


class NotLoweredError(Exception):
    """Refusal of a rule to lower an operator; the text is the reason that users read."""


def computable(spec: TensorSpec | None, *dtypes: DType) -> TensorSpec:
    """Return the spec of a tensor that kernels can compute with.

    Args:
        dtypes: accepted dtypes; float32 if none is named.

    Raises:
        NotLoweredError: it has another dtype, no static shape, or no elements.
    """
    if spec is None:
        raise NotLoweredError("its shape is known only at run time")
    if spec.dtype not in (dtypes or (FLOAT32,)):
        raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
    if spec.size == 0:
        raise NotLoweredError("it has no elements")
    return spec


@dataclass(frozen=True, slots=True)
class Pointer:
    """Address for a kernel: bytes from the beginning of a storage."""

    storage: Storage
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStep:
    """Kernel to run.

    Args:
        pointers: in the kernel's order.
        operators: names of the operators it computes, the one that determines its kind first.
        bytes: read and written, each once.
        result: the pointer to what the kernel stores through its epilogue, if it has one.
    """

    kernel: Kernel
    pointers: tuple[Pointer, ...]
    operators: tuple[str, ...]
    bytes: int = 0
    result: Pointer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """Operator that its numpy layer computes.

    Args:
        inputs, outputs: a view for tensors in program memory; None for values kept by name.
        reason: why it was not lowered.
    """

    operator: RuntimeOperator
    inputs: tuple[View | None, ...]
    outputs: tuple[View | None, ...]
    reason: str


Step = KernelStep | ReferenceStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """Lowered operator, with those after it that its kernels compute too.

    Args:
        views: memory of results, by the operand's name.
        steps: what computes them, in order.
        fusions: by the name of a pass, the operators or concatenated parts that were fused.
    """

    views: Mapping[str, View]
    steps: Sequence[Step] = ()
    fusions: Mapping[str, Sequence[str]] = field(default_factory=dict)


def pointer(view: View) -> Pointer:
    """Return the address of a view's first element."""
    return Pointer(view.storage, view.offset)


def kernel_step(kernel: Kernel, views: Sequence[View], operators: Sequence[str]) -> KernelStep:
    """Return the step of a kernel that reads or writes each of these views once, in its order."""
    moved = sum(view.meta.nbytes for view in views)
    return KernelStep(kernel=kernel, pointers=tuple(map(pointer, views)), operators=tuple(operators), bytes=moved)


def image_strides(view: View) -> Strides:
    """Return the strides of a view shaped (n, c, h, w)."""
    n, c, h, w = view.strides
    return Strides(n, h, w, c)


def dense_strides(view: View) -> Strides:
    """Return the strides of a view shaped (n, c, h, w) with contiguous channels, or one channel."""
    n, _, h, w = view.strides
    return Strides(n, h, w)


# Element sizes that kernels copy, in bytes.
WORDS = (1, 2, 4, 8, 16)


def copy(source: View, target: View, operators: Sequence[str], host: Host) -> KernelStep:
    """Return the step that copies a view to another of its shape and dtype; large elements as several words."""
    if source.dtype.itemsize == 1 and (words := _in_words(source, target)) is not None:
        source, target = words
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


def _in_words(*views: View) -> tuple[View, ...] | None:
    """Return views of bytes, of one shape, as words along a dimension that is contiguous in all, or None."""
    for axis in range(len(views[0].shape)):
        if all(_lies_in_words(view, axis) for view in views):
            metas = [words_at(view, axis) for view in views]
            found = [View(view.storage, meta) for view, meta in zip(views, metas, strict=True) if meta is not None]
            return tuple(found) if len(found) == len(views) else None
    return None


def _lies_in_words(view: View, axis: int) -> bool:
    size, stride, word = view.shape[axis], view.strides[axis], FLOAT32.itemsize
    others = [step for k, step in enumerate(view.strides) if k != axis]
    return stride == 1 and size % word == 0 and view.offset % word == 0 and all(step % word == 0 for step in others)


def words_at(x: View, axis: int) -> Strided | None:
    """Return the memory of bytes as words along an axis, the last of which may have further bytes."""
    axis %= len(x.shape)
    strides = list(x.meta.strides)
    strides[axis] = FLOAT32.itemsize
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // FLOAT32.itemsize)
    return x.storage.part(shape, strides, x.offset, FLOAT32) if x.storage.bytes % FLOAT32.itemsize == 0 else None


def convert(source: View, target: View, operators: Sequence[str], host: Host, name: str = "") -> KernelStep:
    """Return the step that copies a view of floats to one of another float dtype, rounded to nearest.

    Args:
        name: of the target's dtype for the kernel.
    """
    dtypes = [name or target.dtype.name, source.dtype.name]
    kernel = make_elements(source.shape, [target.strides, source.strides], dtypes, Operand(0), "float", host)
    return kernel_step(kernel, (target, source), operators)


def as_words(view: View) -> View:
    """View elements of 4, 8 or 16 bytes as float32, with a further dimension where they are larger."""
    if view.dtype == FLOAT32:
        return view
    words = view.dtype.itemsize // FLOAT32.itemsize
    shape, strides = (*view.shape, words), (*view.meta.strides, FLOAT32.itemsize)
    meta = view.storage.part(shape, strides, view.offset, FLOAT32)
    return View(view.storage, meta if words > 1 else meta[..., 0])


def make_transpose(shape: Sequence[int], source: Sequence[int], target: Sequence[int], host: Host) -> Transpose | None:
    """Return the transposition that a copy is; None unless both sides have a contiguous dimension, not the same."""
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


def derived(view: View, meta: Strided) -> View:
    """Return the view that a view of another view's meta tensor stands for.

    Raises:
        NotLoweredError: strides cannot describe it, so numpy would copy.
    """
    found = view.derive(meta)
    if found is None:
        raise NotLoweredError("an operand's memory layout does not fit its kernels")
    return found
