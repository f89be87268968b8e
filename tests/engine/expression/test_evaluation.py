"""Values agree with Python's own arithmetic, and announcements with values, for any tree."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.expression import Call, Input, List, Literal, Node, evaluate, infer, parse
from engine.tensor import DTYPES, UNKNOWN, Array, Shape, TensorSpec, spec_of
from tests.engine.expression.strategies import calls, lists, steady, values


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Python's arithmetic on integers of 64 bits."""

    def compute(*args: Any) -> Any:
        value = function(*args)
        return (value + 2**63) % 2**64 - 2**63 if isinstance(value, int) else value

    return compute


PYTHON: dict[str, Callable[..., Any]] = {
    "add": wrapped(operator.add),
    "sub": wrapped(operator.sub),
    "mul": wrapped(operator.mul),
    "neg": wrapped(operator.neg),
    "abs": wrapped(abs),
    "div": operator.truediv,
    "floor_divide": wrapped(operator.floordiv),
    "remainder": operator.mod,
    "max": lambda a, b: max(a, b) if type(a) is type(b) else max(float(a), float(b)),
    "min": lambda a, b: min(a, b) if type(a) is type(b) else min(float(a), float(b)),
}
literals = st.builds(Literal, st.one_of(st.integers(-20, 20), st.integers(-(2**40), 2**40), st.floats(-9, 9)))
arithmetic: st.SearchStrategy[Node] = st.recursive(literals, lambda args: calls(args, sorted(PYTHON)), max_leaves=12)


def by_python(node: Node) -> Any:
    if isinstance(node, Call):
        return PYTHON[node.function](*map(by_python, node.args))
    assert isinstance(node, Literal)
    return node.value


@given(tree=arithmetic)
@steady
def test_numbers_are_computed_as_python_does(tree: Node) -> None:
    try:
        expected = by_python(tree)
    except (ZeroDivisionError, OverflowError):
        assume(False)
    value: Any = evaluate(tree, [])
    assert type(value) is type(expected)
    assert (
        value == expected if isinstance(value, int) else np.isclose(value, expected, rtol=1e-12, atol=0, equal_nan=True)
    )


shapes: st.SearchStrategy[Shape] = st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0, 3), (4,)])


@st.composite
def tensors(draw: st.DrawFn) -> Array:
    shape, dtype = draw(shapes), DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    values = draw(st.lists(st.integers(-4, 4), min_size=6, max_size=6))
    return np.resize(np.array(values), [size for size in shape if size is not None]).astype(dtype)


operands = st.lists(st.one_of(tensors(), st.integers(-3, 3), st.floats(-2, 2), st.booleans()), min_size=4, max_size=4)


BY_ZERO = object()


def outcome(run: Callable[..., object], tree: Node, given: list[Any]) -> object:
    """Return the result of a run, or the class of its exception."""
    try:
        return run(tree, given)
    except EngineError as error:
        return BY_ZERO if error.problem == "integer division by zero" else type(error)


def announces(announced: object, value: object) -> bool:
    """Return whether an announcement holds for a value: a dynamic dimension is any, and UNKNOWN any number."""
    if isinstance(announced, TensorSpec):
        assert isinstance(value, np.ndarray)
        open_or_equal = all(m in (None, n) for m, n in zip(announced.shape, value.shape, strict=True))
        return open_or_equal and announced.dtype == value.dtype
    if isinstance(announced, list):
        return isinstance(value, list) and all(map(announces, announced, value))
    if announced is UNKNOWN:
        return isinstance(value, (int, float, complex))
    return Literal(announced) == Literal(value)  # type: ignore[arg-type]


@given(tree=st.one_of(values, lists), given=operands)
@steady
def test_announcements_hold_for_the_values(tree: Node, given: list[Any]) -> None:
    value = outcome(evaluate, tree, given)
    assume(value is not BY_ZERO)  # only a run can tell
    announced = outcome(infer, tree, [spec_of(operand) for operand in given])
    assert announced is value if isinstance(value, type) else announces(announced, value)


def opened(value: object) -> object:
    return TensorSpec((None,) * value.rank, value.dtype) if isinstance(value, TensorSpec) else value


@given(tree=values, given=operands)
@steady
def test_announcements_of_open_shapes_hold_for_the_values(tree: Node, given: list[Any]) -> None:
    value = outcome(evaluate, tree, given)
    assume(value is not BY_ZERO and not isinstance(value, type))
    announced = infer(tree, [opened(spec_of(operand)) for operand in given])
    assert announces(announced, value)


def test_lists_strings_and_none_pass_through() -> None:
    x = np.zeros(3)
    value = evaluate(parse("[@0,@1,None,word,[1,2.5]]"), [x, "text"])
    assert value == [x, "text", None, "word", [1, 2.5]]


def test_zero_dim_results_stay_arrays() -> None:
    value = evaluate(parse("add(@0,1)"), [np.float32(2)])
    assert isinstance(value, np.ndarray)
    assert (value.shape, value.dtype) == ((), np.float32)


def test_read_only_and_strided_operands_are_computed_with() -> None:
    x = np.arange(12.0).reshape(3, 4).T[::2]
    x.setflags(write=False)
    assert np.array_equal(evaluate(parse("sub(mul(@0,2),1)"), [x]), x * 2 - 1)  # type: ignore[arg-type]


def test_input_used_twice_is_one_value() -> None:
    tree = Call("mul", (Input(0), Input(0)))
    assert evaluate(List((tree, tree)), [3]) == [9, 9]


@given(tree=st.one_of(values, lists), given=operands, known=st.lists(st.booleans(), min_size=4, max_size=4))
@steady
def test_announcements_hold_whatever_an_unknown_operand_turns_out_to_be(
    tree: Node, given: list[Any], known: list[bool]
) -> None:
    value = outcome(evaluate, tree, given)
    assume(not isinstance(value, type) and value is not BY_ZERO)
    partly = [spec_of(operand) if is_known else UNKNOWN for operand, is_known in zip(given, known, strict=True)]
    assert may_be(infer(tree, partly), value)


def may_be(announced: object, value: object) -> bool:
    """Return whether a value may come of what is announced, where UNKNOWN is anything."""
    if isinstance(announced, list):
        return isinstance(value, list) and all(map(may_be, announced, value))
    return announced is UNKNOWN or announces(announced, value)
