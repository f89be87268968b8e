"""Values put back into the place of a view: the tensor that a view is of, with new values there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class _Cut:
    """A dimension that a view has a part of; ``is_one``: it has one place of it, and not the dimension."""

    dim: int
    start: int
    stop: int
    step: int
    is_one: bool = False

    def of(self, whole: Any) -> Any:
        """The part of a tensor; the dimension stays."""
        return whole[(*(slice(None),) * self.dim, slice(self.start, self.stop, self.step))]


def placed(whole: Any, view: Any, values: Any) -> Any:
    """A tensor like ``whole`` with ``values`` where a view of it lies; can be traced.

    Args:
        whole: any strided tensor.
        view: a view of it; only where it lies is looked at.
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
    """Nothing is recorded meanwhile, and sizes are plain numbers."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _places(whole: Any, view: Any) -> Any:
    """The number of each element of a view among those of the whole."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(whole.shape, whole.stride(), strict=True) if size)
    numbers = torch.zeros(span, dtype=torch.int64)
    numbers.as_strided(whole.shape, whole.stride()).copy_(torch.arange(whole.numel()).reshape(whole.shape))
    return numbers.as_strided(view.shape, view.stride(), view.storage_offset() - whole.storage_offset())


def _is_same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _cuts(whole: Any, view: Any) -> list[_Cut] | None:
    """The dimensions that a view has a part of, by its strides: right if it was made by an index."""
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
    """Values in the place of a part: first in that of all dimensions but one, in a part of that one."""
    if not cuts:
        return values
    for cut in cuts:
        if cut.is_one:
            values = values.unsqueeze(cut.dim)
    first, *others = (replace(cut, is_one=False) for cut in cuts)
    if others:
        values = _put(first.of(whole), values, others)
    return torch.slice_scatter(whole, values, first.dim, first.start, first.stop, first.step)
