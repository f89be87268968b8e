"""Values written into a view, or at an index (``canvas[:, places] = features``): the base tensor with new values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class _Cut:
    """A dimension of which a view covers a part; with ``is_one`` a single index, and the dimension is gone."""

    dim: int
    start: int
    stop: int
    step: int
    is_one: bool = False

    def of(self, whole: Any) -> Any:
        """Return the part of a tensor; the dimension stays."""
        return whole[(*(slice(None),) * self.dim, slice(self.start, self.stop, self.step))]


def placed(whole: Any, view: Any, values: Any) -> Any:
    """Return a tensor like ``whole`` with ``values`` at the elements of a view of it; can be traced.

    Args:
        whole: any strided tensor.
        view: a view of it; only its location is used.
        values: of the view's shape.
    """
    with untraced():
        places, numbers = _places(whole, view), torch.arange(whole.numel()).reshape(whole.shape)
        cuts = _cuts(whole, view)
        is_part = cuts is not None and _is_same(_part(numbers, cuts), places)
        order = sorted(range(view.dim()), key=lambda dim: -view.stride(dim))
        is_turned = _is_same(places.permute(order), numbers)
        is_whole = _is_same(places.flatten(), numbers.flatten())
    if cuts is not None and is_part:
        return _put(whole, values, cuts)
    if is_turned:
        return values.permute(order)
    if is_whole:
        return values.reshape_as(whole)
    return whole.reshape(-1).scatter(0, places.flatten(), values.reshape(-1)).reshape_as(whole)


@contextmanager
def untraced() -> Iterator[None]:
    """Record nothing while the block runs, so that sizes are plain numbers."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _places(whole: Any, view: Any) -> Any:
    """Return the index of each element of a view among those of the whole."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(whole.shape, whole.stride(), strict=True) if size)
    numbers = torch.zeros(span, dtype=torch.int64)
    numbers.as_strided(whole.shape, whole.stride()).copy_(torch.arange(whole.numel()).reshape(whole.shape))
    return numbers.as_strided(view.shape, view.stride(), view.storage_offset() - whole.storage_offset())


def _is_same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _cuts(whole: Any, view: Any) -> list[_Cut] | None:
    """Return the dimensions that a view covers in part, by its strides; correct if it was made by an index."""
    cuts, at, offset = [], 0, view.storage_offset() - whole.storage_offset()
    for dim, (size, stride) in enumerate(zip(whole.shape, whole.stride(), strict=True)):
        stride = max(stride, 1)
        start, offset = divmod(offset, stride)
        left = view.dim() - at
        if left < whole.dim() - dim and (not left or view.stride(at) % stride or view.shape[at] > size):
            cuts.append(_Cut(dim, start, start + 1, 1, is_one=True))
            continue
        if not left:
            return None
        count, step = view.shape[at], max(view.stride(at) // stride, 1)
        if count != size:
            cuts.append(_Cut(dim, start, start + (count - 1) * step + 1, step))
        at += 1
    return cuts if at == view.dim() else None


def _part(whole: Any, cuts: Sequence[_Cut]) -> Any:
    for cut in reversed(cuts):
        whole = cut.of(whole)
        if cut.is_one:
            whole = whole.squeeze(cut.dim)
    return whole


def _put(whole: Any, values: Any, cuts: Sequence[_Cut]) -> Any:
    """Put values in place of a part: first for all dimensions but one, then for a part of that one."""
    if not cuts:
        return values
    for cut in cuts:
        if cut.is_one:
            values = values.unsqueeze(cut.dim)
    first, *others = (replace(cut, is_one=False) for cut in cuts)
    if others:
        values = _put(first.of(whole), values, others)
    return torch.slice_scatter(whole, values, first.dim, first.start, first.stop, first.step)


_ALL = slice(None)


def split_index(index: Any, rank: int) -> tuple[Any, list[Any] | None]:
    """Split an index into one that gives a view, and the tensors that pick elements of the view.

    Args:
        index: as in brackets.
        rank: number of dimensions of the indexed tensor.

    Returns:
        The index of the view, and for each of its dimensions a tensor, or None for the whole dimension. There are no
        tensors if the index alone gives a view.
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
    """Return the number of dimensions that a part of an index covers."""
    if part is None:
        return 0
    if isinstance(part, torch.Tensor) and part.dtype == torch.bool:
        return int(part.dim())
    return 1
