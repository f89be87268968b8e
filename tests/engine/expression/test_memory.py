"""Memory of evaluating an expression, which does not grow with its length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from engine.errors import EngineError, ShapeError
from engine.expression import Call, Input, List, Node, evaluate, infer, parse, peak_bytes
from engine.tensor import BFLOAT16, TensorSpec
from tests.engine.expression.peaks import BYTES, SHAPES, SIZE
from tests.engine.expression.strategies import steady, values
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def peaks() -> dict[str, int]:
    """Of every long expression."""
    command = [sys.executable, "-m", "tests.engine.expression.peaks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_expression_holds_a_few_values_at_once(shape: str, peaks: dict[str, int]) -> None:
    few = 9 if shape == "balanced" else 4
    assert peaks[shape] < few * BYTES


@pytest.mark.parametrize("shape", SHAPES)
def test_what_it_will_hold_is_told_from_shapes(shape: str, peaks: dict[str, int]) -> None:
    told = peak_bytes(parse(SHAPES[shape]), [TensorSpec((SIZE,), np.dtype(np.float32))])
    assert abs(told - peaks[shape]) < 2 * BYTES


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
    """Return a value that numpy can compare: it does not recognise a NaN of bfloat16."""
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
