"""Resolution of ``"torch.as_strided"``, whose strides count in the storage that a view shares with its base tensor.

A transposed tensor keeps its memory layout, and the strides (of Longformer's windows, for example) depend on
that. A file does not describe storage, but views can be followed: where an input's layout differs from its shape, the
operator is given the tensor whose storage it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Final

from engine.pnnx import Graph, Operator
from engine.tensor import Shape, TensorSpec

_RESHAPES: Final = frozenset(
    (
        "Tensor.reshape",
        "Tensor.reshape_as",
        "Tensor.unflatten",
        "Tensor.view",
        "Tensor.view_as",
        "torch.flatten",
        "torch.squeeze",
        "torch.unsqueeze",
    )
)
_MOST: Final = 64
"""Longest chain of views that is followed; real models have four or five in a row."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Layout of a tensor: the operand that owns the storage, and the strides between elements."""

    operand: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_in_order(self) -> bool:
        pairs = zip(self.shape, self.strides, _in_order(self.shape), strict=True)
        return all(size == 1 or step == own for size, step, own in pairs)


def over_storage(source: Graph) -> Graph:
    """Return the graph with every ``"torch.as_strided"`` reading the operand that owns the storage."""
    if not any(op.type == "torch.as_strided" for op in source.operators):
        return source
    makers = {name: op for op in source.operators for name in op.outputs}
    operators = [_over_storage(op, makers, source.annotations) for op in source.operators]
    return replace(source, operators=operators)


def _over_storage(op: Operator, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]) -> Operator:
    if op.type != "torch.as_strided" or not op.inputs:
        return op
    place = _place(op.inputs[0], makers, annotations)
    if place is None or place.is_in_order:
        return op
    return replace(op, inputs=(place.operand, *op.inputs[1:]))


def _place(name: str, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]) -> _Place | None:
    """Return the layout of an operand; None where a shape is unknown, or views are too many."""
    views: list[tuple[str, Operator]] = []
    while (maker := makers.get(name)) is not None and _is_view(maker):
        if len(views) == _MOST:
            return None
        views.append((name, maker))
        name = maker.inputs[0]
    shape = _sizes(name, annotations)
    place = None if shape is None else _Place(name, shape, _in_order(shape))
    for result, op in reversed(views):
        shape = _sizes(result, annotations)
        if place is None or shape is None:
            return None
        place = _viewed(op, place, result, shape)
    return place


def _is_view(op: Operator) -> bool:
    return bool(op.inputs) and len(op.outputs) == 1 and (op.type in _RESHAPES or op.type in _PERMUTED)


def _sizes(name: str, annotations: Mapping[str, TensorSpec]) -> tuple[int, ...] | None:
    spec = annotations.get(name)
    sizes: Shape | None = None if spec is None else spec.shape
    if sizes is None or any(size is None or size < 1 for size in sizes):
        return None
    return tuple(size for size in sizes if size is not None)


def _viewed(op: Operator, place: _Place, result: str, shape: tuple[int, ...]) -> _Place | None:
    """Return the layout of a view of a tensor; a reshape that no strides can express is a copy."""
    if op.type in _RESHAPES:
        strides = _split(place, shape)
        return _Place(result, shape, _in_order(shape)) if strides is None else _Place(place.operand, shape, strides)
    order = _PERMUTED[op.type](op, len(place.shape))
    if sorted(order) != list(range(len(place.shape))) or tuple(place.shape[axis] for axis in order) != shape:
        return None
    return _Place(place.operand, shape, tuple(place.strides[axis] for axis in order))


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return contiguous strides."""
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()


def _split(place: _Place, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides of the same elements in another shape, None if impossible. Source: torch's computeStride."""
    runs = _runs(place)
    strides: list[int] = []
    for size in reversed(shape):
        if size == 1:
            strides.append(1)
            continue
        while runs and runs[-1][0] == 1:
            runs.pop()
        if not runs or runs[-1][0] % size:
            return None
        count, step = runs.pop()
        strides.append(step)
        runs.append((count // size, step * size))
    return tuple(reversed(strides)) if all(count == 1 for count, _ in runs) else None


def _runs(place: _Place) -> list[tuple[int, int]]:
    """Return counts and steps of the longest evenly spaced runs of elements."""
    runs: list[tuple[int, int]] = []
    for size, step in zip(place.shape, place.strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * step:
            runs[-1] = (runs[-1][0] * size, step)
        else:
            runs.append((size, step))
    return runs


def _permute(op: Operator, rank: int) -> list[int]:
    dims = op.params.get("dims")
    return [dim % rank for dim in dims if isinstance(dim, int)] if isinstance(dims, tuple) and rank else []


def _transpose(op: Operator, rank: int) -> list[int]:
    first, second = op.params.get("dim0"), op.params.get("dim1")
    order = list(range(rank))
    if isinstance(first, int) and isinstance(second, int) and rank:
        order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return order


def _reverse(op: Operator, rank: int) -> list[int]:
    return list(range(rank))[::-1]


_PERMUTED: Final = {
    "Tensor.permute": _permute,
    "torch.permute": _permute,
    "torch.t": _reverse,
    "torch.transpose": _transpose,
}
