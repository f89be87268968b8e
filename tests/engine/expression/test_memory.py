"""What evaluating an expression holds at once does not grow with its length."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from engine.errors import EngineError, ShapeError
from engine.expression import Call, Input, List, Node, evaluate, infer, parse, peak_bytes
from engine.tensor import BFLOAT16, TensorSpec
from tests.engine.expression.strategies import steady, values

SIZE = 1 << 16
BYTES = 4 * SIZE
TURNS = 60


def _balanced(depth: int) -> str:
    return "sin(@0)" if depth == 0 else f"add({_balanced(depth - 1)},{_balanced(depth - 1)})"


SHAPES = {
    "leaning left": "add(" * TURNS + "sin(@0)" + ",cos(@0))" * TURNS,
    "leaning right": "add(sin(@0)," * TURNS + "cos(@0)" + ")" * TURNS,
    "leaning by turns": "add(sin(@0),add(" * TURNS + "cos(@0)" + ",tanh(@0)))" * TURNS,
    "one after the other": "sin(" * TURNS + "@0" + ")" * TURNS,
    "of one operand": "mul(@0," * TURNS + "@0" + ")" * TURNS,
    "balanced": _balanced(6),
    "widths of sums": "[" + ",".join(["size(add(sin(@0),cos(@0)),0)"] * TURNS) + "]",
}


def peak_of(tree: Node, operands: list[object]) -> int:
    """Bytes that were allocated at once while an expression was evaluated: the least of a few times.

    What other threads of the process allocate meanwhile, which an earlier test may have left behind, is counted too.
    """
    evaluate(tree, operands)
    return min(_traced(tree, operands) for _ in range(5))


def _traced(tree: Node, operands: list[object]) -> int:
    tracemalloc.start()
    try:
        evaluate(tree, operands)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_expression_holds_a_few_values_at_once(shape: str) -> None:
    tree, x = parse(SHAPES[shape]), np.linspace(0, 1, SIZE, dtype=np.float32)
    few = 9 if shape == "balanced" else 4
    assert peak_of(tree, [x]) < few * BYTES


@pytest.mark.parametrize("shape", SHAPES)
def test_what_it_will_hold_is_told_from_shapes(shape: str) -> None:
    tree, x = parse(SHAPES[shape]), np.linspace(0, 1, SIZE, dtype=np.float32)
    told = peak_bytes(tree, [TensorSpec(x.shape, x.dtype)])
    assert abs(told - peak_of(tree, [x])) < 2 * BYTES


def test_lists_are_held_with_all_they_hold() -> None:
    tree = List(tuple(Call("sin", (Input(0),)) for _ in range(10)))
    assert peak_bytes(tree, [TensorSpec((SIZE,), np.dtype(np.float32))]) == 10 * BYTES


@pytest.mark.parametrize("text", ["size(add(@0,@1),0)", "[size(mul(sin(add(@0,@1)),2)),1]"])
def test_a_tensor_on_the_way_that_no_memory_could_hold_is_refused_before_it_is_made(text: str) -> None:
    wide, high = TensorSpec((1, 1 << 24), np.dtype(np.float32)), TensorSpec((1 << 24, 1), np.dtype(np.float32))
    with pytest.raises(ShapeError, match="too large"):
        infer(parse(text), [wide, high])


def _one_by_one(node: Node, operands: list[object]) -> object:
    """Arguments from left to right, each by itself."""
    if isinstance(node, Call):
        return evaluate(
            Call(node.function, tuple(Input(place) for place in range(len(node.args)))),
            [_one_by_one(each, operands) for each in node.args],
        )
    return evaluate(node, operands)


def _comparable(value: object) -> Any:
    """numpy takes no NaN of bfloat16 for one."""
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == BFLOAT16 else value


@given(tree=values)
@steady
def test_the_order_changes_no_value(tree: Node) -> None:
    operands: list[object] = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 1), np.int64), 3, 0.5]
    try:
        wanted = _one_by_one(tree, operands)
    except EngineError:
        with pytest.raises(EngineError):
            evaluate(tree, operands)
    else:
        found = evaluate(tree, operands)
        assert type(found) is type(wanted)
        np.testing.assert_array_equal(_comparable(found), _comparable(wanted))
