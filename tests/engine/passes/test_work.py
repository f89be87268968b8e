"""Costs of reading, simplifying and lowering an expression grow at most linearly with its size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.expression import parse
from engine.passes import optimise
from tests.engine.graph.build import INPUT, built, op

SHAPES: dict[str, Callable[[int], str]] = {
    "deep": lambda n: "add(" * n + "@0" + ",1.5)" * n,
    "deep of itself": lambda n: "add(" * n + "@0" + ",@0)" * n,
    "simplified": lambda n: "mul(neg(sub(" * n + "@0" + ",neg(@0))),2)" * n,
    "repeated": lambda n: "[" + ",".join(["tanh(" * 20 + "@0" + ")" * 20] * n) + "]",
    "constant": lambda n: "add(" * n + "mul(@0,@1)" + ",@1)" * n,
    "sizes": lambda n: "add(" * n + "size(@0,0)" + ",1)" * n,
}


def expression(text: str) -> RuntimeGraph:
    return built(
        INPUT,
        op("pnnx.Attribute", "stored", "", "c", data=np.ones(3, np.float32)),
        op("pnnx.Expression", "it", "0 c", "1", expr=text),
        op("pnnx.Output", "out", "1"),
        _0=(2, 3),
    )


def calls_of(work: Callable[[], Any]) -> int:
    """Return the number of Python function calls of a function."""
    count = 0

    def counting(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_much_text_is_no_more_than_twice_as_much_work(shape: str) -> None:
    one, two = (calls_of(lambda n=n: optimise(expression(SHAPES[shape](n)))) for n in (60, 120))  # type: ignore[misc]
    assert two < 2.3 * one


def test_equal_trees_are_told_without_a_walk() -> None:
    text = SHAPES["deep"](1_500)
    tree, again = parse(text), parse(f"{text} ")
    assert tree is not again
    assert calls_of(lambda: tree == again) == 2  # the lambda and __eq__


@pytest.mark.parametrize(
    "text",
    [
        "pow(" * 60 + "@0" + ",7)" * 60,  # a product that names its base three times
        "tanh(" * 350 + "@0" + ")" * 350,
        SHAPES["simplified"](300),
    ],
    ids=["powers", "deep", "simplified"],
)
def test_what_no_kernel_can_carry_is_left_to_the_reference(text: str) -> None:
    session = Session(expression(text), backend="auto", cache=None)
    session.prepare()
    (row,) = [each for each in session.describe()["operators"] if each["name"] == "it"]
    assert row.get("kernel") == "reference" or session.compile_failure
    x = np.full((2, 3), 0.5, np.float32)
    (wanted,) = Session(expression(text), backend="reference").run([x])
    np.testing.assert_array_equal(session.run([x])[0], wanted)
