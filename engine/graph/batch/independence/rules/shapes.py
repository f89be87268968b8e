"""Rules of operators that move elements: other shapes, other orders of axes, parts, joins and repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from engine.graph.batch.independence.rules.table import kept, moved, rule
from engine.graph.batch.independence.use import COUNTS, Operand, Use, has_sizes
from engine.graph.batch.independence.values import SHARED, SIZES, Items, MixesError, Value, nested
from engine.layers.convolution.pad import Pad
from engine.layers.creation import container, creation, numbers
from engine.layers.creation.matrices import OneHot
from engine.layers.creation.sequences import ARange
from engine.layers.indexing.masking import _Triangle
from engine.layers.indexing.slicing import Narrow, Select, Slice, SliceCopy, Windows, _Window
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import diagonal, expand, join, permute, shape, split
from engine.layers.signal.fourier import _Shift
from engine.layers.vision import shuffle

_TO_THE_END: Final = 2**31 - 2
"""A constant bound beyond the end of any axis; exporters write 2**31 - 1 and 2**63 - 1."""


def varying(shapes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the axes whose size depends on the number of items, each with its size for one item.

    Raises:
        MixesError: a size is no multiple of the number of items.
    """
    if len({len(each) for each in shapes}) > 1:
        raise MixesError("has a result whose number of axes depends on the number of items")
    found = []
    for axis, dims in enumerate(zip(*shapes, strict=True)):
        if len(set(dims)) > 1:
            if any(dim != dims[0] * count for dim, count in zip(dims, COUNTS, strict=True)):
                raise MixesError("has a result whose size is not a multiple of the batch size")
            found.append((axis, dims[0]))
    return found


def only_axis(shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the one axis whose size depends on the number of items, and its size for one.

    Raises:
        MixesError: there is not exactly one.
    """
    found = varying(shapes)
    if len(found) != 1:
        raise MixesError("has a result that does not hold the batch along one axis")
    return found[0]


def made(use: Use) -> Value:
    """Return the abstract value of a tensor of equal elements, whose size may depend on the number of items."""
    shapes = use.result_shapes()
    if not varying(shapes):
        return SHARED
    axis, inner = only_axis(shapes)
    return Items(axis, inner=inner)


@rule(
    shape._Reshaping, shape.ReshapeAs, shape.Squeeze, takes_numbers=True, takes_sizes=True,
)  # fmt: skip
def reshaped(use: Use) -> Value:
    """Follow elements in their order: the batch axis is where each item has as many elements before and after it."""
    if use.first.is_shared:
        raise MixesError("gives a constant a shape that depends on the number of items")
    items = use.batch()
    if items.numbers:
        raise MixesError("computes with the item indices")
    axis, size = only_axis(use.result_shapes())
    before = math.prod(use.first.shape[: items.axis]) * items.outer
    lead = math.prod(use.result_shapes()[1][:axis])
    if before % lead or size % (before // lead):
        raise MixesError("merges the batch axis with others")
    outer = before // lead
    return Items(axis, outer, size // outer, items.is_number)


@rule(permute._Permutation)
def permuted(use: Use) -> Value:
    """Follow axes in another order."""
    items = use.batch()
    return items.at(use.layer._order(use.first.rank).index(items.axis))  # type: ignore[attr-defined]


@rule(permute._Mirror, _Shift)
def mirrored(use: Use) -> Value:
    """Follow elements in another order along some axes, or along all as one row."""
    axes = use.layer._axes(use.first.rank) or tuple(range(use.first.rank))  # type: ignore[attr-defined]
    return kept(use.batch(), axes, "moves items along")


@rule(_Triangle)
def triangle(use: Use) -> Value:
    """Follow a part of every matrix set to zero."""
    use.only("input")
    rank = use.first.rank
    return kept(use.batch("input"), (rank - 2, rank - 1), "blanks out a part of")


@rule(diagonal.Diagonal)
def diagonals(use: Use) -> Value:
    """Follow two axes that become their diagonal, which comes last."""
    items = use.batch()
    plane = use.layer._plane(use.first.rank)  # type: ignore[attr-defined]
    kept(items, plane, "takes a diagonal across")
    return items.at(items.axis - sum(axis < items.axis for axis in plane))


@rule(diagonal.DiagonalEmbed)
def embedded(use: Use) -> Value:
    """Follow the last axis, which becomes the diagonal of two new ones."""
    items, rank = use.batch(), use.first.rank
    kept(items, (rank - 1,), "spreads")
    layer: Any = use.layer
    plane = checked_axes((layer.dim1, layer.dim2), rank + 1)
    return items.at([axis for axis in range(rank + 1) if axis not in plane][items.axis])


@rule(expand.Expand, expand.ExpandAs, takes_numbers=True, takes_sizes=True)
def expanded(use: Use) -> Value:
    """Follow axes of size 1 that are repeated, and new leading ones."""
    source = use.first
    rank = len(use.result_shapes()[1])
    if source.is_items:
        if use.batch().numbers and use.result_shapes()[1][-1] != source.shape[-1]:
            raise MixesError("computes with the item indices")
        return moved(use.batch(), source.rank, rank)
    if not source.is_shared:
        raise MixesError("repeats numbers that depend on the number of items")
    axis, inner = only_axis(use.result_shapes())
    place = axis - rank
    if source.rank >= -place and source.shape[place] != 1:
        raise MixesError("repeats a constant that differs between items")
    like = use.find("other")
    return Items(axis, *like.value.layout) if like.is_items else Items(axis, inner=inner)


@rule(expand._Tiling, takes_sizes=True)
def tiled(use: Use) -> Value:
    """Follow a tensor that is repeated along each axis."""
    source, shapes = use.first, use.result_shapes()
    axis, size = only_axis(shapes)
    rank = len(shapes[1])
    if source.is_items:
        items = moved(use.batch(), source.rank, rank)
        if items.axis != axis or size != items.outer * items.inner:
            raise MixesError("repeats the batch along its axis")
        return items
    if not source.is_shared:
        raise MixesError("repeats numbers that depend on the number of items")
    return Items(axis, inner=size)


@rule(expand.RepeatInterleave)
def repeated(use: Use) -> Value:
    """Follow slices of an axis that are repeated in place."""
    use.only("input")
    items, layer = use.batch("input"), use.layer
    if layer.dim is None:  # type: ignore[attr-defined]
        raise MixesError("repeats the elements of the batch as one row")
    if checked_axis(layer.dim, use.first.rank) != items.axis:  # type: ignore[attr-defined]
        return items
    repeats = use["repeats"].constant("numbers of repetitions")
    if getattr(repeats, "size", 1) != 1:
        raise MixesError("repeats items differently")
    return Items(items.axis, items.outer, items.inner * int(repeats))


@rule(join.Cat, takes_numbers=True)
def joined(use: Use) -> Value:
    """Follow tensors concatenated along an axis."""
    tensors = _listed(use)
    items = _common_items(tensors, "joins")
    rank = max(each.rank for each in tensors)
    axis = checked_axis(use.layer.dim, rank)  # type: ignore[attr-defined]
    kept(items, (axis,), "joins tensors along")
    if not any(each.is_items and each.value.is_numbered for each in tensors):
        return items
    if axis != rank - 1 or items.layout != (1, 1):
        raise MixesError("computes with the item indices")
    columns: set[int] = set()
    start = 0
    for each in tensors:
        own = range(each.shape[-1]) if each.value.is_number else each.value.numbers
        columns.update(start + column for column in own)
        start += each.shape[-1]
    return Items(items.axis, numbers=frozenset(columns))


@rule(join.Stack)
def stacked(use: Use) -> Value:
    """Follow tensors of one shape stacked along a new axis."""
    tensors = _listed(use)
    items = _common_items(tensors, "stacks")
    axis = checked_axis(use.layer.dim, tensors[0].rank + 1)  # type: ignore[attr-defined]
    return items.at(items.axis + (axis <= items.axis))


def _listed(use: Use) -> list[Operand]:
    """Return the tensors that are joined, given one by one or as a list."""
    if len(use.others) != 1 or not isinstance(use.others[0].value, (list, tuple)):
        return list(use.others)
    (given,) = use.others
    return [Operand(value, tuple(specs)) for value, *specs in zip(given.value, *given.specs, strict=True)]


def _common_items(tensors: Sequence[Operand], verb: str) -> Items:
    """Return the common abstract value of some tensors: they hold the batch along the same axis.

    Raises:
        MixesError: they do not.
    """
    values = [each.value for each in tensors]
    if not values or not all(isinstance(value, Items) for value in values):
        raise MixesError(f"{verb} tensors that hold the batch with others that do not")
    if len({(value.axis, value.layout) for value in values}) > 1:
        raise MixesError(f"{verb} tensors that hold the batch along different axes")
    return values[0]  # type: ignore[no-any-return]


@rule(split._Pieces)
def pieces(use: Use) -> Value:
    """Follow an axis split into pieces, or removed."""
    items = use.batch()
    axis = checked_axis(use.layer.dim or 0, use.first.rank)  # type: ignore[attr-defined]
    kept(items, (axis,), "cuts")
    return items.at(items.axis - (axis < items.axis)) if isinstance(use.layer, split.Unbind) else items


def _column(items: Items, layer: Any, rank: int) -> Items:
    """Return the abstract value of one column of index tuples, which may be the numbers of the items.

    Raises:
        MixesError: the layer does something else.
    """
    is_column = isinstance(layer, Slice) and checked_axes(layer.dims, rank) == (rank - 1,) and layer._selects(0)
    if not is_column or items.axis == rank - 1:
        raise MixesError("computes with the item indices")
    return Items(items.axis, *items.layout, is_number=items.is_number or layer.selects[0] in items.numbers)


@rule(_Window, takes_sizes=True, takes_numbers=True)
def windowed(use: Use) -> Value:
    """Follow a part of some axes, or one slice of them; for a write, the written tensor."""
    items, layer = use.batch("input"), use.layer
    sized = [name for name, each in use.parameters.items() if has_sizes(each.value)]
    rank, removed = use["input"].rank, 0
    if items.is_numbered:
        return _column(items, layer, rank)
    if sized and (sized != ["ends"] or checked_axes(layer.dims, rank) != (items.axis,)):  # type: ignore[attr-defined]
        raise MixesError("takes a parameter that depends on the number of items")
    for number, axis in enumerate(checked_axes(layer.dims, rank)):  # type: ignore[attr-defined]
        is_selected = layer._selects(number)  # type: ignore[attr-defined]
        if axis == items.axis and (is_selected or not _is_whole(use, number)):
            raise MixesError("selects an item of the batch" if is_selected else "cuts the batch axis")
        removed += is_selected and axis < items.axis
    if not isinstance(layer, SliceCopy):
        return items.at(items.axis - removed)
    source = use["src"]
    window = len(layer._window_shape(use["input"].shape))
    if source.is_items:
        expected = moved(items.at(items.axis - removed), window, source.rank)
        if (expected.axis, expected.layout) == (source.value.axis, source.value.layout):
            return items
    place = items.axis - removed - window
    if not source.is_shared or (source.rank >= -place and source.shape[place] != 1):
        raise MixesError("writes along the batch axis")
    return items


def _is_whole(use: Use, number: int) -> bool:
    """Return whether a slice takes all of the batch axis, however long it is."""
    layer: Any = use.layer
    start = layer.starts[number] if layer.starts else None
    end = layer.ends[number] if layer.ends else None
    step = layer.steps[number] if layer.steps else None
    if start not in (None, 0) or step not in (None, 1):
        return False
    given = use.parameters.get("ends")
    if given is not None:
        return _reaches(given, number, use["input"])
    if end is None:  # not given at all, where it is no operand
        return not layer.ends
    return bool(end >= _TO_THE_END)


def _reaches(end: Operand, number: int, source: Operand) -> bool:
    """Return whether a bound that comes as an operand is the length of the batch axis, or beyond any."""
    known = end.known()
    axis = source.value.axis
    if known is None:
        return False
    bounds = [value[number] if isinstance(value, (list, tuple)) else value for value in known]
    lengths = [spec.shape[axis] for spec in source.specs]
    return all(bound == length for bound, length in zip(bounds, lengths, strict=True)) or min(bounds) >= _TO_THE_END


@rule(Select)
def selected(use: Use) -> Value:
    """Follow slices of an axis at constant indices; the axis is removed if there is one."""
    layer: Any = use.layer
    items, axis = use.batch("input"), checked_axis(layer.dim, use["input"].rank)
    if axis == items.axis:
        raise MixesError("selects an item of the batch")
    dropped = len(use.result_shapes()[1]) < use["input"].rank
    return items.at(items.axis - (dropped and axis < items.axis))


@rule(Narrow)
def axis_range(use: Use) -> Value:
    """Follow a part of an axis."""
    return kept(use.batch(), (checked_axis(use.layer.dim, use.first.rank),), "cuts")  # type: ignore[attr-defined]


@rule(Windows)
def windows(use: Use) -> Value:
    """Follow overlapping windows of an axis; a new last axis holds their elements."""
    return kept(use.batch(), (checked_axis(use.layer.dim, use.first.rank),), "cuts")  # type: ignore[attr-defined]


@rule(Pad)
def padded(use: Use) -> Value:
    """Follow padding, given for the last axis first."""
    use.only("input")
    items, layer = use.batch("input"), use.layer
    place = 2 * (use["input"].rank - 1 - items.axis)
    if any(layer.pad[place : place + 2]):  # type: ignore[attr-defined]
        raise MixesError("pads the batch axis")
    return items


@rule(
    creation.Full,
    creation.LikeInput,
    creation.NewFull,
    takes_sizes=True,
)
def created(use: Use) -> Value:
    """Follow a tensor of equal elements."""
    value = use.find("fill_value")
    if not value.is_shared:
        raise MixesError("fills a tensor with a number that depends on the items")
    if isinstance(use.layer, creation.LikeInput) and use.first.is_items:
        return use.batch()
    return made(use)


@rule(ARange, takes_sizes=True)
def ranged(use: Use) -> Value:
    """Follow the numbers from 0 on, one for each item."""
    known = {name: each.known() for name, each in use.named.items()}
    if any(value is None for value in known.values()):
        raise MixesError("takes numbers that are unknown before a run")
    first = [_number(value) for value in known.get("start") or (0,)]
    steps = [_number(value) for value in known.get("step") or (1,)]
    shapes = use.result_shapes()
    if {*first} - {0, None} or {*steps} - {1, None} or only_axis(shapes) != (0, 1):
        raise MixesError("counts over the batch")
    dtype = use.results[0][1].dtype
    if dtype.kind not in "iuf" or dtype.itemsize < 4:
        raise MixesError("counts in a dtype that does not hold every number")
    return Items(0, is_number=True)


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value


@rule(OneHot)
def one_hot(use: Use) -> Value:
    """Follow a new last axis of booleans, whose size must not depend on the values."""
    if use.layer.num_classes < 0:  # type: ignore[attr-defined]
        raise MixesError("counts the classes in the batch")
    return use.batch()


@rule(shuffle.PixelShuffle, shuffle.PixelUnshuffle)
def pixels(use: Use) -> Value:
    """Follow channels that become pixels, or back, in the last three axes."""
    rank = use.first.rank
    return kept(use.batch(), (rank - 3, rank - 2, rank - 1), "moves")


@rule(shuffle.ChannelShuffle)
def channels(use: Use) -> Value:
    """Follow channels, axis 1, in another order."""
    items = use.batch()
    if items.axis != 0:
        raise MixesError("holds the batch along another axis than the first")
    return items


@rule(numbers.Item, takes_numbers=True, takes_sizes=True)
def item(use: Use) -> Value:
    """Follow one item of a list."""
    if not isinstance(use.first.value, (list, tuple)):
        raise MixesError("converts the items to a number")
    return use.first.value[use["index"].constant("places")]


@rule(container.TupleConstruct, container.ListConstruct, container.SliceIndexes, takes_numbers=True, takes_sizes=True)
def arranged(use: Use) -> Value:
    """Follow values grouped in one result."""
    layer: Any = use.layer
    found = layer.forward(*(each.value for each in use.others))
    return (nested(lambda leaf: SHARED if isinstance(leaf, (int, str)) else leaf, found),)


@rule(container.DictConstruct, takes_numbers=True, takes_sizes=True)
def dictionary(use: Use) -> Value:
    """Follow values by key."""
    keys = [each.spec for each in use.others[::2]]
    return (dict(zip(keys, (each.value for each in use.others[1::2]), strict=True)),)


@rule(container.Unpack, takes_numbers=True, takes_sizes=True)
def unpacked(use: Use) -> Value:
    """Follow the items of a tuple or list, or the sizes of a tensor."""
    if isinstance(use.first.value, (list, tuple)):
        return tuple(use.first.value)
    if not use.first.is_items:
        raise MixesError("unpacks a value that is unknown before a run")
    return tuple(SHARED if len(set(specs)) == 1 else SIZES for specs in use.results)
