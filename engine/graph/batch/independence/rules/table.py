"""Rules by the layer they are for, and the rules that many layers share.

Shapes are inferred with a symbolic number of items, so a rule need not say where the batch axis of a result is. It
checks that the operator does not combine slices of different items, and returns the order of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from engine.graph.batch.independence.operator import Operand, Use, common_items
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value, leaves
from engine.ir.dims import is_symbolic
from engine.layers.definition.layer import Layer

Rule: TypeAlias = Callable[[Use], Value]
"""Rule that gives the outputs of an operator: one value for all, or a tuple with one each; raises MixesError.

Of ``Items`` only the order of the items counts; the axis, and the inner size, follow from the shape.
"""
Axes: TypeAlias = Callable[[Any, int], Iterable[int]]
"""The axes along which a layer combines or moves the elements of an operand of a rank."""

_RULES: Final[dict[type[Layer], Rule]] = {}
_TAKES_NUMBERS: Final[set[Rule]] = set()
_TAKES_SIZES: Final[set[Rule]] = set()


def rule(*layers: type[Layer], takes_numbers: bool = False, takes_sizes: bool = False) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a function as the rule of these layers and of derived ones.

    Args:
        takes_numbers: whether the rule handles operands that hold the items' numbers.
        takes_sizes: whether it handles numbers that depend on the number of items.
    """

    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(layers, function))
        if takes_numbers:
            _TAKES_NUMBERS.add(function)
        if takes_sizes:
            _TAKES_SIZES.add(function)
        return function

    return add


def rule_for(layer: Layer) -> Rule | None:
    """Return the rule of a layer, or of the nearest class it is derived from."""
    return next((_RULES[each] for each in type(layer).__mro__ if each in _RULES), None)


def check_numbers(function: Rule, use: Use) -> None:
    """Check that an operator on the items' numbers, or on the number of items, has a rule for them.

    Raises:
        MixesError: it has none.
    """
    given = (*use.operands, *use.parameters.values())
    if function not in _TAKES_SIZES and any(each.has_sizes for each in given):
        raise MixesError("computes with the number of items")
    flat = [leaf for each in use.operands for leaf in leaves(each.value)]
    if function not in _TAKES_NUMBERS and any(isinstance(leaf, Items) and leaf.is_numbered for leaf in flat):
        raise MixesError("computes with the item indices")


def rows(axes: Axes, *names: str, verb: str = "works along") -> Rule:
    """Return the rule of layers that work along some axes, equally for every position on the others.

    Args:
        axes: counted from the front.
        names: operands that hold the batch, by default the first one; all others are weights or parameters.
        verb: what a layer does to the batch axis if that is one of them.
    """

    def follow(use: Use) -> Value:
        operands = use.given(*names)
        items = common_items(operands)
        if any(each.value.axis in axes(use.layer, each.rank) for each in operands):
            raise MixesError(f"{verb} the batch axis")
        return items

    return follow


def broadcast(operands: Iterable[Operand], *, core: int = 0) -> Value:
    """Return the abstract value of an element-wise result of operands.

    Args:
        core: number of last axes that are not computed element by element.

    Raises:
        MixesError: the batch lies along different axes, or a shared operand has more than one slice along it.
    """
    given = [each for each in operands if each.is_given]
    items = [each for each in given if each.is_items]
    rest = [each for each in given if not each.is_items]
    if not all(each.is_shared for each in rest):
        raise MixesError("computes with the number of items, or with a list of tensors")
    if not items:
        return SHARED
    found = common_items(items)
    places = {each.value.axis - each.rank for each in items}
    if len(places) > 1:
        raise MixesError("combines operands that hold the batch along different axes")
    (place,) = places
    if place >= -core:
        raise MixesError("works along the batch axis")
    if any(each.length(place) != 1 for each in rest):
        raise MixesError("has a constant that differs between items")
    return found


def elementwise(use: Use) -> Value:
    """Follow results whose elements depend on the elements at the same position."""
    return broadcast(use.operands)


def of_matrices(use: Use) -> Value:
    """Follow a function of pairs of matrices, whose leading axes are broadcast."""
    return broadcast(use.operands, core=2)


def contracted(first: str, second: str, added: str | None = None) -> Rule:
    """Return the rule of products of matrices: a result that sums over the batch axis has none.

    Args:
        first, second: the names of the factors.
        added: the name of an operand that is added to the product, broadcast.
    """

    def follow(use: Use) -> Value:
        use.given(first, second, *([added] if added else []))
        factors = use[first], use[second]
        held = [each for each in factors if each.is_items]
        items = common_items(held)
        if any(each.value.axis < each.rank - 2 for each in held):
            broadcast(factors, core=2)
        elif len(held) > 1:
            raise MixesError("multiplies items by items")
        if added:
            broadcast((placed(items, use.results[0]), use[added]))
        return items

    return follow


def placed(items: Items, spec: Any) -> Operand:
    """Return an operand with the items in the order of others, along the axis that its description has.

    Raises:
        MixesError: its shape does not depend on the number of items.
    """
    axis = batch_axis(spec.shape)
    if axis is None:
        raise MixesError("reduces the batch axis")
    return Operand(replace(items, axis=axis), spec)


def batch_axis(shape: Sequence[Any]) -> int | None:
    """Return the first axis whose size depends on the number of items."""
    return next((axis for axis, size in enumerate(shape) if is_symbolic(size)), None)


def none(layer: Any, rank: int) -> Sequence[int]:
    """Return no axes: elements are computed alone, or the axes have another order or size."""
    return ()


def but_first(layer: Any, rank: int) -> Sequence[int]:
    """Return all axes but the first."""
    return range(1, rank)
