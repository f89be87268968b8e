"""Assignments by an index that holds tensors, as functions: ``canvas[:, places] = features``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exporter.tracing.placing import untraced

_ALL = slice(None)


def split_index(index: Any, rank: int) -> tuple[Any, list[Any] | None]:
    """Split an index into one that gives a view, and the tensors that pick elements of the view.

    Args:
        index: as it stands in brackets.
        rank: the number of dimensions of what is indexed.

    Returns:
        The index of the view, and for each of its dimensions a tensor, or None where all of it is taken. There are no
        tensors where the index gives a view by itself.
    """
    parts = _parts(index)
    if all(_is_basic(part) for part in parts):
        return index, None
    parts = [part if _is_basic(part) or isinstance(part, torch.Tensor) else _constant(part) for part in parts]
    basic: list[Any] = []
    indices: list[Any] = []
    for k, part in enumerate(parts):
        if part is Ellipsis:
            taken = sum(_dimensions(other) for other in parts[:k] + parts[k + 1 :])
            basic += [_ALL] * (rank - taken)
            indices += [None] * (rank - taken)
        elif isinstance(part, torch.Tensor):
            basic += [_ALL] * _dimensions(part)
            indices.append(part)
        else:
            basic.append(part)
            indices += [] if type(part) is int else [None]
    return tuple(basic), indices


def put_at(part: Any, indices: Sequence[Any], values: Any) -> Any:
    """Return a tensor with other values at some indices, None for all of a dimension."""
    values = values if isinstance(values, torch.Tensor) else _constant(values)
    return torch.ops.aten.index_put(part, [*indices], values.to(part.dtype))


def _constant(value: Any) -> Any:
    with untraced():
        return torch.as_tensor(value)


def _parts(index: Any) -> list[Any]:
    if isinstance(index, list) and any(isinstance(each, (slice, type(None), torch.Tensor)) for each in index):
        index = tuple(index)
    return [*index] if isinstance(index, tuple) else [index]


def _is_basic(part: Any) -> bool:
    return part is None or part is Ellipsis or type(part) in (int, slice)


def _dimensions(part: Any) -> int:
    """The dimensions that a part of an index takes."""
    if part is None:
        return 0
    if isinstance(part, torch.Tensor) and part.dtype == torch.bool:
        return int(part.dim())
    return 1
