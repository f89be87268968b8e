"""Simpler expressions give the same values, for NaN, infinities, zeros of both signs and every dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import EngineError, TensorSpec
from engine.expression import Call, Input, Literal, Node, evaluate, format, parse
from engine.passes.support.algebra import RULES, simplified
from engine.tensor import UNKNOWN, spec_of

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e-30, 6e4, np.inf, -np.inf, np.nan]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "int32", "bool", "complex64"]


def array(dtype: str) -> np.ndarray:
    values = np.array(SPECIAL)
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind in "biu":
            return np.array([0, 1, 2, 3, 100]).astype(dtype)
        return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


SHORTER = [
    ("mul(@0,1)", "@0"),
    ("mul(1.0,@0)", "@0"),
    ("div(@0,1)", "@0"),
    ("sub(@0,0)", "@0"),
    ("add(@0,-0.0)", "@0"),
    ("pow(@0,1)", "@0"),
    ("neg(neg(@0))", "@0"),
    ("add(@0,neg(@1))", "sub(@0,@1)"),
    ("add(neg(@0),@1)", "sub(@1,@0)"),
    ("sub(@0,neg(@1))", "add(@0,@1)"),
    ("pow(@0,2)", "square(@0)"),
    ("pow(@0,3)", "mul(mul(@0,@0),@0)"),
    ("pow(@0,0.5)", "sqrt(@0)"),
    ("pow(add(@0,1),-0.5)", "rsqrt(add(@0,1))"),
    ("div(@0,8)", "mul(@0,0.125)"),
    ("div(@0,-0.5)", "mul(@0,-2.0)"),
    ("torch.float(@0)", "@0"),
    ("mul(@0,add(2,3))", "mul(@0,5)"),
    ("mul(@0,size(@1,0))", "mul(@0,11)"),
    ("mul(@0,sqrt(4))", "mul(@0,2.0)"),
    ("mul(mul(@0,1),mul(@1,1))", "mul(@0,@1)"),
]

KEPT = [
    "add(@0,0)",
    "add(@0,0.0)",
    "sub(@0,-0.0)",
    "sub(0,@0)",
    "mul(@0,0)",
    "div(1,@0)",
    "div(@0,3)",
    "div(@0,inf)",
    "pow(@0,4)",
    "pow(add(@0,1),3)",
    "pow(2,@0)",
    "torch.double(@0)",
    "sub(@0,@0)",
    "div(@0,@0)",
]


@pytest.mark.parametrize(("text", "expected"), SHORTER)
def test_an_expression_becomes_shorter(text: str, expected: str) -> None:
    x = array("float32")
    assert format(simplified(parse(text), [spec_of(x), spec_of(x)])) == expected
    assert_same(evaluate(parse(expected), [x, x]), evaluate(parse(text), [x, x]))


@pytest.mark.parametrize("text", KEPT)
def test_an_expression_stays_where_some_value_would_differ(text: str) -> None:
    x = spec_of(array("float32"))
    assert format(simplified(parse(text), [x, x])) == text


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("mul(@0,1.0)", "int64"),
        ("div(@0,1)", "int64"),
        ("mul(@0,1)", "bool"),
        ("pow(@0,2)", "float16"),
        ("mul(@0,1)", "complex64"),
    ],
)
def test_a_rule_that_would_change_a_dtype_or_rounding_does_not_apply(text: str, dtype: str) -> None:
    assert format(simplified(parse(text), [spec_of(array(dtype))])) == text


def test_what_is_computed_from_an_unknown_value_stays() -> None:
    spec = TensorSpec((2,), np.dtype(np.float32))
    tree = simplified(parse("mul(mul(@0,1),mul(@1,1))"), [spec, UNKNOWN])
    assert format(tree) == "mul(@0,mul(@1,1))"


def test_dynamic_sizes_stay_and_known_ones_become_numbers() -> None:
    spec = TensorSpec((None, 4), np.dtype(np.float32))
    tree = simplified(parse("[size(@0,0),mul(size(@0,1),2)]"), [spec])
    assert format(tree) == "[size(@0,0),8]"


def test_a_division_that_rounds_down_is_spelled_so() -> None:
    spec = TensorSpec((2,), np.dtype(np.int64))
    assert format(simplified(parse("div(@0,2)"), [spec], annotated=spec)) == "floor_divide(@0,2)"
    assert format(simplified(parse("div(@0,2)"), [spec])) == "div(@0,2)"


def test_an_expression_that_fails_is_left_to_fail_in_the_run() -> None:
    tree = parse("floor_divide(1,0)")
    assert simplified(tree, []) is tree


def test_every_function_with_a_rule_exists() -> None:
    with pytest.raises(EngineError):
        evaluate(parse("no_such_function(@0)"), [1])
    for name in RULES:
        assert parse(f"{name}(@0)" if name in ("neg",) or name.startswith("torch.") else f"{name}(@0,@1)")


literals = st.sampled_from([0, 1, 2, 3, -1, 0.5, -0.5, 0.0, -0.0, 1.0, 2.0, 4.0, -2.0, 0.125]).map(Literal)
leaves = st.one_of(st.sampled_from([Input(0), Input(1)]), literals)


def calls(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    unary = st.sampled_from(["neg", "square", "abs", "torch.float", "torch.double"])
    binary = st.sampled_from(["add", "sub", "mul", "div", "pow", "maximum"])
    return st.one_of(
        st.builds(lambda name, a: Call(name, (a,)), unary, children),
        st.builds(lambda name, a, b: Call(name, (a, b)), binary, children, children),
    )


@given(st.recursive(leaves, calls, max_leaves=8), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_any_tree_gives_the_same_values(tree: Node, first: str, second: str) -> None:
    operands = [array(first), array(second)]
    size = min(len(each) for each in operands)
    operands = [each[:size] for each in operands]
    try:
        expected = evaluate(tree, operands)
    except EngineError:
        return
    assert_same(evaluate(simplified(tree, [spec_of(each) for each in operands]), operands), expected)


def assert_same(found: Any, expected: Any) -> None:
    """Equal in kind, dtype, shape and every number, the sign of zeros included; a NaN has no sign."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        for a, b in zip(parts(found), parts(expected), strict=True):
            np.testing.assert_array_equal(a, b)
    else:
        assert repr(found) == repr(expected)


def parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, and which of them have a minus sign."""
    if values.dtype.kind in "biuc":
        return values, np.zeros(values.shape)
    wide = values.astype(np.float64)
    return wide, np.signbit(wide) & ~np.isnan(wide)
