"""Rules of operators that move elements: other shapes, parts, joins, repetitions, positions given by operands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.errors import EngineError
from engine.graph.batch.independence.operator import ABSENT, Operand, Use, aligned_items, constant_operand, per_item
from engine.graph.batch.independence.rules.table import batch_axis, broadcast, placed, rule
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value, nested
from engine.ir.dims import is_same
from engine.ir.sizes import has_sizes
from engine.layers.creation import container, creation, numbers
from engine.layers.creation.sequences import ARange
from engine.layers.indexing import indexing, scatter, selection
from engine.layers.indexing.slicing import Slice, SliceCopy, _Window
from engine.layers.linear.embedding import Embedding
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import expand, join, shape
from engine.tensor import TensorSpec, is_known, known_value

_BY_ANOTHER: Final = "indexes the batch axis by places that are not the items' own"
_BY_PLACE: Final = "computes with the item indices"


@rule(shape._Reshaping, shape.ReshapeAs, shape.Squeeze, takes_numbers=True, takes_sizes=True)
def reshaped(use: Use) -> Value:
    """Follow elements in their order: the batch axis is where each item has as many elements before and after it."""
    items, target = use.first.value, use.shape()
    axis = batch_axis(target)
    if not isinstance(items, Items) or axis is None:
        raise MixesError("gives a constant a shape that depends on the number of items")
    if items.numbers:
        raise MixesError(_BY_PLACE)
    before, lead = math.prod(use.first.shape[: items.axis]) * items.outer, math.prod(target[:axis])
    if before % lead:
        raise MixesError("merges the batch axis with others")
    return Items(axis, before // lead, is_number=items.is_number)


@rule(expand.Expand, expand.ExpandAs, takes_numbers=True, takes_sizes=True)
def expanded(use: Use) -> Value:
    """Follow axes of size 1 that are repeated, and new leading ones."""
    source, target = use.first, use.shape()
    axis = batch_axis(target)
    if source.is_items:
        if source.value.numbers and target[-1] != source.shape[-1]:
            raise MixesError(_BY_PLACE)
        return source.value
    if not source.is_shared or axis is None or source.length(axis - len(target)) != 1:
        raise MixesError("repeats a constant that differs between items")
    like = use.named.get("other")
    return Items(axis, like.value.outer if like is not None and like.is_items else 1)


@rule(expand._Tiling, takes_sizes=True)
def tiled(use: Use) -> Value:
    """Follow a tensor that is repeated along each axis."""
    source, target = use.first, use.shape()
    axis = batch_axis(target)
    if source.is_items and axis is not None:
        if not is_same(source.shape[source.value.axis], target[axis]):
            raise MixesError("repeats the batch along its axis")
        return source.value
    if not source.is_shared or axis is None:
        raise MixesError("repeats numbers that depend on the number of items")
    return Items(axis)


@rule(expand.RepeatInterleave)
def repeated(use: Use) -> Value:
    """Follow slices of an axis that are repeated in place."""
    items, layer = use.items("input"), use.layer
    if layer.dim is None:
        raise MixesError("repeats the elements of the batch as one row")
    if checked_axis(layer.dim, use.first.rank) == items.axis and math.prod(use["repeats"].shape) != 1:
        raise MixesError("repeats items differently")
    return items


def _tensors(use: Use) -> list[Operand]:
    """Return the tensors that are joined, given one by one or as a list."""
    if len(use.others) != 1 or not isinstance(use.others[0].value, (list, tuple)):
        return list(use.others)
    (given,) = use.others
    return [Operand(value, spec) for value, spec in zip(given.value, given.spec, strict=True)]


@rule(join.Cat, takes_numbers=True)
def joined(use: Use) -> Value:
    """Follow tensors concatenated along an axis."""
    tensors = _tensors(use)
    items, rank = aligned_items(tensors), tensors[0].rank
    axis = checked_axis(use.layer.dim, rank)
    if items.axis == axis:
        raise MixesError("joins tensors along the batch axis")
    columns: set[int] = set()
    start = 0
    for each in tensors if any(each.value.is_numbered for each in tensors) else ():
        own = range(each.shape[-1]) if each.value.is_number else each.value.numbers
        columns.update(start + column for column in own)
        start += each.shape[-1]
    if columns and (axis != rank - 1 or items.layout != (1, 1)):
        raise MixesError(_BY_PLACE)
    return Items(items.axis, items.outer, numbers=frozenset(columns))


@rule(join.Stack)
def stacked(use: Use) -> Value:
    """Follow tensors of one shape stacked along a new axis."""
    return aligned_items(_tensors(use))


@rule(_Window, takes_sizes=True, takes_numbers=True)
def windowed(use: Use) -> Value:
    """Follow a part of some axes, or one slice of them; for a write, the written tensor."""
    layer, copies = use.layer, isinstance(use.layer, SliceCopy)
    items = use.items("input") if not copies else use["input"].value
    axes = checked_axes(layer.dims, use["input"].rank)
    if not isinstance(items, Items):
        raise MixesError("writes items into a constant")
    if items.is_numbered:
        return _column(items, layer, axes == (use["input"].rank - 1,))
    for number, axis in enumerate(axes):
        bounds = [each[number] for each in (layer.starts, layer.ends, layer.steps, layer.selects) if each]
        if axis == items.axis:
            _check_whole(layer, number, use["input"].shape[axis])
        elif has_sizes(bounds):
            raise MixesError("takes a parameter that depends on the number of items")
    if copies:
        part = layer._window_shape(use["input"].shape)
        broadcast((placed(items, TensorSpec(part, use["input"].dtype)), use["src"]))
    return items


def _check_whole(layer: Any, number: int, length: int) -> None:
    """Check that a slice takes all of the batch axis, in its order.

    Raises:
        MixesError: it does not.
    """
    if layer._selects(number):
        raise MixesError("selects an item of the batch")
    if (layer.steps and layer.steps[number] not in (None, 1)) or not is_same(layer._length(number, length), length):
        raise MixesError("cuts the batch axis")


def _column(items: Items, layer: Any, is_last: bool) -> Items:
    """Return the abstract value of one column of index tuples, which may be the numbers of the items.

    Raises:
        MixesError: the layer does something else.
    """
    if not isinstance(layer, Slice) or not is_last or not layer._selects(0):
        raise MixesError(_BY_PLACE)
    return Items(items.axis, items.outer, is_number=items.is_number or layer.selects[0] in items.numbers)


@rule(creation.Full, creation.LikeInput, creation.NewFull, takes_sizes=True)
def created(use: Use) -> Value:
    """Follow a tensor of equal elements."""
    if not use.named.get("fill_value", ABSENT).is_shared:
        raise MixesError("fills a tensor with a number that depends on the items")
    axis = batch_axis(use.shape())
    if axis is None:
        return SHARED
    is_like = isinstance(use.layer, creation.LikeInput) and use.first.is_items
    return use.first.value if is_like else Items(axis)


@rule(ARange, takes_sizes=True)
def ranged(use: Use) -> Value:
    """Follow the numbers from 0 on, one for each item."""
    shape, dtype = use.shape(), use.results[0].dtype
    usual = {"start": 0, "step": 1}
    others = [(known_value(use[name].spec), number) for name, number in usual.items() if use[name].is_given]
    if any(has_sizes(given) or np.any(given != number) for given, number in others) or per_item(shape[0]) != 1:
        raise MixesError("counts over the batch")
    if dtype.kind not in "iuf" or dtype.itemsize < 4:
        raise MixesError("counts in a dtype that does not hold every number")
    return Items(0, is_number=True)


@rule(container.TupleConstruct, container.ListConstruct, container.SliceIndexes, container.DictConstruct,
      container.Unpack, numbers.Item, takes_numbers=True, takes_sizes=True)  # fmt: skip
def arranged(use: Use) -> Value:
    """Follow values grouped in one result, or taken out of it; other operands are keys and indices."""
    if isinstance(use.layer, (container.Unpack, numbers.Item)) and not isinstance(use.first.value, (list, tuple)):
        raise MixesError("converts the items to a number")
    given = [each.spec if is_known(each.spec) else each.value for each in use.operands]
    found = use.layer.forward(*given)
    found = nested(lambda leaf: SHARED if isinstance(leaf, (int, float, str)) or leaf is None else leaf, found)
    return found if isinstance(found, tuple) and len(use.results) > 1 else (found,)


def _looked_up(source: Operand, axis: int, index: Operand) -> Value:
    """Return the abstract value of slices of one axis that an index of any shape names, in its place.

    Raises:
        MixesError: items are read by others.
    """
    if source.is_items and source.value.is_numbered:
        raise MixesError(_BY_PLACE)
    if source.is_shared and index.is_items:
        if index.value.is_numbered:
            raise MixesError(_BY_PLACE)
        return index.value
    if source.is_items and index.is_shared:
        if source.value.axis == axis:
            raise MixesError(_BY_ANOTHER)
        return source.value
    if source.is_items and index.is_items and index.value.is_number and source.value == Items(axis):
        return _plain(index.value)
    raise MixesError("indexes items by positions of other items")


@rule(Embedding)
def embedding(use: Use) -> Value:
    """Follow rows of a table at given indices."""
    return _looked_up(use["weight"], 0, use["input"])


@rule(selection.IndexSelect, takes_numbers=True)
def index_select(use: Use) -> Value:
    """Follow slices of an axis at given indices."""
    return _looked_up(use["input"], checked_axis(use.layer.dim, use["input"].rank), use["index"])


def _elements(axis: int, source: Operand, index: Operand, *rest: Operand) -> Value:
    """Return the abstract value of elements that an index of the same rank selects along one axis, row by row."""
    given = (source, index, *(each for each in rest if each.rank))
    if not all(each.is_shared for each in rest if not each.rank):
        raise MixesError("writes a number that depends on the items")
    if source.is_shared and index.is_items and not rest and index.value.axis == axis:
        return index.value
    items = aligned_items(given)
    if items.axis == axis:
        raise MixesError(_BY_ANOTHER)
    return items


@rule(selection.Gather, selection.TakeAlongDim)
def gather_elements(use: Use) -> Value:
    """Follow elements of each row at given positions."""
    if use.layer.dim is None:
        raise MixesError("indexes the elements of the batch as one row")
    return _elements(checked_axis(use.layer.dim, use["input"].rank), *use.operands)


@rule(scatter.Scatter, scatter.ScatterReduce)
def scatter_elements(use: Use) -> Value:
    """Follow elements written into each row at given positions."""
    axis = checked_axis(use.layer.dim, use["input"].rank)
    return _elements(axis, use["input"], use["index"], use["src"])


@rule(scatter._IndexWrite)
def index_write(use: Use) -> Value:
    """Follow slices written at shared positions of an axis."""
    operands = [each for each in use.given("input", "source") if each.rank or not each.is_shared]
    items = aligned_items(operands)
    if items.axis == checked_axis(use.layer.dim, use["input"].rank):
        raise MixesError(_BY_ANOTHER)
    return items


@rule(indexing.Index, takes_numbers=True)
def index_rule(use: Use) -> Value:
    """Follow ``input[i, :, j]``: index tensors are broadcast, and their axes replace those they index."""
    return _indexed(use["input"], use["expr"])


@rule(indexing.IndexPut, takes_numbers=True)
def index_put(use: Use) -> Value:
    """Follow values written at an index: of each item at positions of its own, or at shared positions of other axes."""
    source, values, index = use["input"], use["values"], use["indices"]
    if not source.is_items or (values.is_items and values.value.is_numbered):
        raise MixesError("writes items into a constant, or their numbers")
    try:
        target = indexing.Index().infer(source.spec, index.spec)
    except EngineError:
        raise MixesError("has an index that is unknown before a run") from None
    broadcast((placed(_indexed(source, index), target), values))
    return source.value


def _indexed(source: Operand, index: Operand) -> Items:
    """Return the abstract value of what an index reads from a tensor.

    Raises:
        MixesError: items are read by others.
    """
    if source.is_items and source.value.is_numbered:
        raise MixesError(_BY_PLACE)
    slots = list(_slots(index))
    taken = [axis for axis, each in enumerate(slots) if each is not None]
    place = broadcast(Operand(_plain(each.value), each.spec) for each in slots if each is not None)
    numbered = [axis for axis in taken if _is_number(slots[axis])]
    if source.is_shared:
        if numbered or place == SHARED:
            raise MixesError(_BY_PLACE)
        return place  # type: ignore[no-any-return]
    items: Items = source.value
    if items.axis not in taken:
        if place != SHARED:
            raise MixesError("indexes items by positions of other items")
        return items
    if numbered != [items.axis] or items.layout != (1, 1):
        raise MixesError(_BY_ANOTHER)
    return place  # type: ignore[no-any-return]


def _slots(index: Operand) -> Iterator[Operand | None]:
    """Yield the tensors of an index, None for a whole axis.

    Raises:
        MixesError: one is unknown, or a mask.
    """
    if isinstance(index.spec, str):
        given = [None if each is None else constant_operand(each) for each in indexing.constant_slots(index.spec)]
    elif isinstance(index.value, (list, tuple)):
        pairs = zip(index.value, index.spec, strict=True)
        given = [None if spec is None else Operand(value, spec) for value, spec in pairs]
    else:
        raise MixesError("has an index that is unknown before a run")
    for each in given:
        if each is not None and not isinstance(each.spec, (TensorSpec, int)):
            raise MixesError("has an index that is unknown before a run")
        if each is not None and isinstance(each.spec, TensorSpec) and each.dtype.kind not in "iu":
            raise MixesError("has a result whose size is unknown before a run")
        yield each


def _plain(value: Value) -> Value:
    """Return the abstract value of an index without the fact that it holds the numbers of the items.

    Raises:
        MixesError: only some of its columns hold them.
    """
    if not isinstance(value, Items):
        return value
    if value.numbers:
        raise MixesError(_BY_PLACE)
    return replace(value, is_number=False)


def _is_number(slot: Operand | None) -> bool:
    return slot is not None and slot.is_items and slot.value.is_number
