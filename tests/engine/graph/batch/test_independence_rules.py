"""The rules by themselves: each asks only for operands that its layers have."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from engine import TensorSpec
from engine.graph.batch.independence import prove
from engine.graph.batch.independence.operator import ABSENT, Operand, Use, operand_names
from engine.graph.batch.independence.rules import table
from engine.graph.batch.independence.rules.table import Rule
from engine.graph.batch.independence.values import SHARED, Items, MixesError
from engine.ir.dims import ShapeEnv
from engine.layers.definition.layer import Layer
from engine.layers.linear.linear import Linear
from tests.engine.graph.build import F32

assert prove  # importing it registers the rules
CALLS = ("use.given", "use.items")
RULES = sorted(set(table._RULES.values()), key=lambda rule: rule.__qualname__)


def names_in(rule: Rule) -> Iterator[str]:
    """Operand names that the source of a rule has, or that it was made with."""
    made_with = inspect.getclosurevars(rule).nonlocals
    yield from (*made_with.get("names", ()), *made_with.get("ranks", ()))
    for part in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(rule)))):
        if (
            isinstance(part, ast.Subscript)
            and ast.unparse(part.value) == "use"
            and isinstance(part.slice, ast.Constant)
        ):
            yield part.slice.value
        if isinstance(part, ast.Call) and ast.unparse(part.func) in CALLS:
            yield from (each.value for each in part.args if isinstance(each, ast.Constant))


def layers_of(rule: Rule) -> set[type[Layer]]:
    """Layers of a rule, those derived from them included."""
    found = {layer for layer, each in table._RULES.items() if each is rule}
    while more := {sub for layer in found for sub in layer.__subclasses__()} - found:
        found |= more
    return {layer for layer in found if hasattr(layer, "forward")}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_names_operands_that_a_layer_of_it_has(rule: Rule) -> None:
    known = {name for layer in layers_of(rule) for name in operand_names(layer)}
    assert set(names_in(rule)) <= known


def operand(value: object, *shape: int) -> Operand:
    return Operand(value, TensorSpec(shape, F32))


def test_an_operand_that_a_layer_does_not_have_cannot_be_asked_for() -> None:
    use = Use(layer=Linear(), named={"input": operand(Items(0), 7, 4)}, results=())
    assert use["bias"] == ABSENT
    with pytest.raises(KeyError, match="Linear has no operand 'wieght'"):
        use["wieght"]


def test_numbers_that_depend_on_how_many_items_there_are_need_a_rule_for_them() -> None:
    count = np.array(ShapeEnv().dynamic("n", 7), np.object_)
    steps = Operand(SHARED, TensorSpec((), np.dtype(np.int64), value=count))
    for function in RULES:
        use = Use(layer=Linear(), named={"input": operand(SHARED, 7, 4), "weight": steps}, results=())
        if function in table._TAKES_SIZES:
            table.check_numbers(function, use)
        else:
            with pytest.raises(MixesError, match="computes with the number of items"):
                table.check_numbers(function, use)
