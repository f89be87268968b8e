"""What lowering makes: kernels with the memory they touch, and operators left to their reference layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.compiler.kernels.kernel import Kernel, Strides
from engine.compiler.storage import Storage, View
from engine.graph.operator import RuntimeOperator


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address a kernel is given: bytes after the beginning of a storage."""

    storage: Storage
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStep:
    """A kernel to run.

    Args:
        pointers: in the kernel's order.
        operators: names of the operators it computes, the one that gave it its kind first.
        bytes: read and written, each once.
    """

    kernel: Kernel
    pointers: tuple[Pointer, ...]
    operators: tuple[str, ...]
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """An operator that its numpy layer computes.

    Args:
        inputs, outputs: a view for tensors that lie in memory of the program; None for values kept by name.
        reason: why it was not lowered.
    """

    operator: RuntimeOperator
    inputs: tuple[View | None, ...]
    outputs: tuple[View | None, ...]
    reason: str


Step = KernelStep | ReferenceStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What becomes of an operator, and of those after it that its kernels compute along.

    Args:
        views: where results lie, by the operand's name.
        steps: what computes them, in order.
        fusions: by the name of a pass, what joined: operators, or parts of a concatenation.
    """

    views: Mapping[str, View]
    steps: Sequence[Step] = ()
    fusions: Mapping[str, Sequence[str]] = field(default_factory=dict)


def pointer(view: View) -> Pointer:
    """The address of a view's first element."""
    return Pointer(view.storage, view.offset)


def kernel_step(kernel: Kernel, views: Sequence[View], operators: Sequence[str]) -> KernelStep:
    """A kernel that reads or writes each of these views once, in its order."""
    moved = sum(view.phantom.nbytes for view in views)
    return KernelStep(kernel=kernel, pointers=tuple(map(pointer, views)), operators=tuple(operators), bytes=moved)


def image_strides(view: View) -> Strides:
    """The strides of a view shaped (n, c, h, w)."""
    n, c, h, w = view.strides
    return Strides(n, h, w, c)


def dense_strides(view: View) -> Strides:
    """The strides of a view shaped (n, c, h, w) whose channels are side by side, also where there is one."""
    n, _, h, w = view.strides
    return Strides(n, h, w)
