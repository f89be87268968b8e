"""Rules by the layer they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from engine.graph.batch.independence.use import Use, has_sizes
from engine.graph.batch.independence.values import Items, MixesError, Value, leaves
from engine.layers.definition.layer import Layer

Rule: TypeAlias = Callable[[Use], Value]
"""Rule that gives the outputs of an operator: one value for all, or a tuple with one each; raises MixesError."""

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
    if function not in _TAKES_SIZES and any(has_sizes(each.value) for each in given):
        raise MixesError("computes with the number of items")
    flat = [leaf for each in use.operands for leaf in leaves(each.value)]
    if function not in _TAKES_NUMBERS and any(isinstance(leaf, Items) and leaf.is_numbered for leaf in flat):
        raise MixesError("computes with the item indices")


def kept(items: Items, axes: tuple[int, ...], verb: str) -> Items:
    """Return the abstract value of an operand after an operator worked along some axes.

    Raises:
        MixesError: the batch lies along one of them.
    """
    if items.axis in axes:
        raise MixesError(f"{verb} the batch axis")
    return items


def moved(items: Items, source: int, target: int) -> Items:
    """Return the abstract value with its axis moved for a tensor of another rank, counted from the end."""
    return items.at(items.axis + target - source)
