"""Rules of operators that read or write at positions given by other operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.graph.batch.independence.rules.elementwise import broadcast
from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Operand, Use, constant_operand
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value
from engine.layers.indexing import indexing, scatter, selection
from engine.layers.linear.embedding import Embedding
from engine.layers.operands.axes import checked_axis
from engine.tensor import TensorSpec

_INT: Final = np.dtype(np.int64)
_BY_ANOTHER: Final = "indexes the batch axis by places that are not the items' own"


def looked_up(source: Operand, axis: int, index: Operand) -> Value:
    """Return the abstract value of slices of one axis that an index of any shape names, in its place.

    Raises:
        MixesError: items are read by others.
    """
    _check_source(source)
    if source.is_shared and index.is_items:
        return _unnumbered(index.value).at(axis + index.value.axis)
    if source.is_items and index.is_shared:
        items: Items = source.value
        if items.axis == axis:
            raise MixesError(_BY_ANOTHER)
        return items.at(items.axis + (index.rank - 1 if items.axis > axis else 0))
    if source.is_items and index.is_items and index.value.is_number and source.value == Items(axis):
        return Items(axis + index.value.axis)
    raise MixesError("indexes items by positions of other items")


def _check_source(*operands: Operand) -> None:
    """Check that what is read or written does not hold the items' numbers: they would be at other positions.

    Raises:
        MixesError: it does.
    """
    if any(each.is_items and each.value.is_numbered for each in operands):
        raise MixesError("computes with the item indices")


def _unnumbered(items: Items) -> Items:
    if items.is_numbered:
        raise MixesError("computes with the item indices")
    return items


@rule(Embedding)
def embedding(use: Use) -> Value:
    """Follow rows of a table at given indices."""
    return looked_up(use["weight"], 0, use["input"])


@rule(selection.IndexSelect, takes_numbers=True)
def index_select(use: Use) -> Value:
    """Follow slices of an axis at given indices."""
    source = use["input"]
    return looked_up(source, checked_axis(use.layer.dim, source.rank), use["index"])  # type: ignore[attr-defined]


def _elements(source: Operand, axis: int, index: Operand, *rest: Operand) -> Value:
    """Return the abstract value of elements that an index of the same rank selects along one axis, row by row."""
    given = (source, index, *(each for each in rest if each.rank))
    if not all(each.is_shared for each in rest if not each.rank):
        raise MixesError("writes a number that depends on the items")
    if source.is_shared and index.is_items and not rest and index.value.axis == axis:
        return index.value
    if not all(each.is_items for each in given):
        raise MixesError("indexes items by positions of other items")
    found = {(each.value.axis, each.value.layout) for each in given}
    if len(found) > 1 or len({each.rank for each in given}) > 1:
        raise MixesError("combines operands that hold the batch along different axes")
    if source.value.axis == axis:
        raise MixesError(_BY_ANOTHER)
    return source.value


@rule(selection.Gather, selection.TakeAlongDim)
def gather_elements(use: Use) -> Value:
    """Follow elements of each row at given positions."""
    dim: int | None = use.layer.dim  # type: ignore[attr-defined]
    index = use.find("index", "indices")
    if dim is None:
        raise MixesError("indexes the elements of the batch as one row")
    return _elements(use["input"], checked_axis(dim, use["input"].rank), index)


@rule(scatter.Scatter, scatter.ScatterReduce)
def scatter_elements(use: Use) -> Value:
    """Follow elements written into each row at given positions."""
    axis = checked_axis(use.layer.dim, use["input"].rank)  # type: ignore[attr-defined]
    return _elements(use["input"], axis, use["index"], use["src"])


@rule(scatter._IndexWrite)
def index_write(use: Use) -> Value:
    """Follow slices written at shared positions of an axis."""
    axis = checked_axis(use.layer.dim, use["input"].rank)  # type: ignore[attr-defined]
    use.only("input", "source")
    items, source = use.batch("input"), use["source"]
    if items.axis == axis:
        raise MixesError(_BY_ANOTHER)
    if source.is_items and source.value != items or not (source.is_items or (source.is_shared and not source.rank)):
        raise MixesError("writes slices that do not hold the batch along the same axis")
    return items


@rule(indexing.Index, takes_numbers=True)
def index_rule(use: Use) -> Value:
    """Follow ``input[i, :, j]``: index tensors are broadcast, and their axes replace those they index."""
    return _target(use["input"].rank, *_indexed(use["input"], use["expr"]))


@rule(indexing.IndexPut, takes_numbers=True)
def index_put(use: Use) -> Value:
    """Follow values written at an index: of each item at positions of its own, or at shared positions of other axes."""
    source, values = use["input"], use["values"]
    _check_source(values)
    if not source.is_items:
        raise MixesError("writes items into a constant")
    items, lead, place, (width, taken) = _indexed(source, use["indices"])
    target = _target(source.rank, items, lead, place, (width, taken))
    rank = width + source.rank - len(taken)
    shown = Operand(target, (TensorSpec((1,) * rank, source.spec.dtype),) * len(source.specs))
    if broadcast((shown, values)) != target:
        raise MixesError("combines operands that hold the batch along different axes")
    return source.value


def _target(rank: int, items: Items | None, lead: int, place: Items | None, index: tuple[int, Sequence[int]]) -> Items:
    """Return the abstract value of what an index reads from a tensor of a rank, as ``_indexed`` describes it."""
    width, taken = index
    if place is not None:
        return place.at(lead + place.axis)
    if items is None:
        raise MixesError("indexes items by positions of other items")
    rest = [axis for axis in range(rank) if axis not in taken].index(items.axis)
    return items.at(rest if rest < lead else rest + width)


def _indexed(source: Operand, index: Operand) -> tuple[Items | None, int, Items | None, tuple[int, Sequence[int]]]:
    """Describe how an index reads a tensor.

    Returns:
        The abstract value of the tensor if the index leaves its batch axis alone; the position of the index's axes in
        the result; the abstract value of the index if it holds the batch; its rank, and the axes it covers.
    """
    _check_source(source)
    slots = _slots(index)
    if any(each is not None and getattr(each.spec, "dtype", _INT).kind not in "iu" for each in slots):
        raise MixesError("has a result whose size is unknown before a run")
    taken = [axis for axis, each in enumerate(slots) if each is not None]
    lead = taken[0] if taken and taken[-1] - taken[0] + 1 == len(taken) else 0
    given = [each for each in slots if each is not None]
    width = max((each.rank for each in given), default=0)
    place = broadcast([Operand(_plain(each.value), each.specs) for each in given])
    numbered = [axis for axis in taken if _is_number(slots[axis])]
    if source.is_shared:
        if numbered or place == SHARED:
            raise MixesError("computes with the item indices")
        return None, lead, place, (width, taken)
    items: Items = source.value
    if items.axis not in taken:
        if place != SHARED:
            raise MixesError("indexes items by positions of other items")
        return items, lead, None, (width, taken)
    if numbered != [items.axis] or items.layout != (1, 1):
        raise MixesError(_BY_ANOTHER)
    return None, lead, place, (width, taken)


def _slots(index: Operand) -> list[Operand | None]:
    if isinstance(index.spec, str):
        return [None if each is None else constant_operand(each) for each in indexing.constant_slots(index.spec)]
    if not isinstance(index.value, (list, tuple)):
        raise MixesError("has an index that is unknown before a run")
    rows = zip(index.value, *index.specs, strict=True)
    found = [None if specs[0] is None else Operand(value, tuple(specs)) for value, *specs in rows]
    if any(each is not None and not isinstance(each.spec, (TensorSpec, int)) for each in found):
        raise MixesError("has an index that is unknown before a run")
    return found


def _plain(value: Value) -> Value:
    """Return the abstract value of an index without the fact that it holds the numbers of the items.

    Raises:
        MixesError: only some of its columns hold them.
    """
    if not isinstance(value, Items):
        return value
    if value.numbers:
        raise MixesError("computes with the item indices")
    return Items(value.axis, value.outer, value.inner)


def _is_number(slot: Operand | None) -> bool:
    return slot is not None and isinstance(slot.value, Items) and slot.value.is_number
