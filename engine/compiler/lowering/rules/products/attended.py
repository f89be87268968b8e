"""What attention is computed of: queries, keys, values and masks, heads in groups or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.stacks import derived
from engine.compiler.storage import View

BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class MaskView:
    """A mask that broadcasts to the scores, and what it does to them; see ``Mask``."""

    view: View
    kind: Literal["add", "keep", "drop"]
    fill: float = -math.inf
    is_added: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """What attention is computed of.

    Args:
        query, key, value, target: (..., L, E), (..., S, E), (..., S, V) and (..., L, V).
        masks: that broadcast to (..., L, S), in their order.
        scale: of the scores.
        is_causal: query l sees the keys 0 to l.
        is_zero: whether a query that sees no key gives zeros; else NaN.
    """

    query: View
    key: View
    value: View
    target: View
    masks: Sequence[MaskView] = ()
    scale: float
    is_causal: bool = False
    is_zero: bool = True


def mask_of(context: Context, value: View | object, kind: Literal["keep", "drop"]) -> MaskView | None:
    """An argument that is a mask, or None; ``kind`` is what booleans do: they are 0 and -inf, to be added.

    Raises:
        NotLoweredError: it is of another dtype, or empty.
    """
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = context.lowering.stored(value)
    if not isinstance(value, View) or value.phantom.size == 0:
        raise NotLoweredError("its mask is no tensor in memory")
    if value.dtype not in (context.dtype, BOOL):
        raise NotLoweredError(f"there are no kernels for masks of {value.dtype.name}")
    return MaskView(value, kind, is_added=True) if value.dtype == BOOL else MaskView(value, "add")


def in_groups(attended: Attended) -> Attended:
    """Heads as groups of those that share a key and a value."""
    heads = attended.query.shape[-3] if len(attended.query.shape) > 2 else 1
    shared = {each.shape[-3] for each in (attended.key, attended.value) if len(each.shape) > 2} - {1, heads}
    if not shared:
        return attended
    if len(shared) > 1:
        raise NotLoweredError("its keys and values come in different groups")
    (groups,) = shared

    def split(view: View) -> View:
        """(..., heads, a, b) as (..., groups, heads of a group, a, b)."""
        array = view.phantom
        if array.ndim < 3:
            return view
        if array.shape[-3] == heads:
            return derived(view, array.reshape(*array.shape[:-3], groups, -1, *array.shape[-2:]))
        return derived(view, array[..., None, :, :])

    return replace(
        attended,
        query=split(attended.query),
        key=split(attended.key),
        value=split(attended.value),
        target=split(attended.target),
        masks=tuple(replace(mask, view=split(mask.view)) for mask in attended.masks),
    )
