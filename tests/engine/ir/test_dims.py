"""Symbolic sizes: expressions have the values that Python computes, and guards stand for exactly what was decided."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir.dims import Dim, ShapeEnv, hint, is_same, is_symbolic, largest, smallest, specialise
from engine.ir.tables import Table

NAMES = ("a", "b", "c")
SIZES = st.lists(st.integers(2, 500), min_size=3, max_size=3)
NUMBERS = st.integers(-8, 64)
ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
]
COMPARISONS: list[Callable[[Any, Any], bool]] = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
Tree = Any


def trees() -> st.SearchStrategy[Tree]:
    """Expressions over three sizes: a name, a number, or (function, left, right)."""
    functions = st.sampled_from([*ARITHMETIC, largest, smallest])
    leaves = st.one_of(st.sampled_from(NAMES), NUMBERS)
    return st.recursive(leaves, lambda inner: st.tuples(functions, inner, inner), max_leaves=8)


def value(tree: Tree, sizes: dict[str, int]) -> int:
    """The value of an expression, whatever stands for the sizes."""
    if isinstance(tree, tuple):
        function, left, right = tree
        found: int = function(value(left, sizes), value(right, sizes))
        return found
    return sizes[tree] if isinstance(tree, str) else tree


def numbers(env: ShapeEnv, values: list[int], sizes: list[int]) -> list[int] | None:
    """The values for other sizes; None where a guard fails."""
    found = Table(env, values)(sizes)
    return None if found is None else found.tolist()


def opened(values: list[int]) -> tuple[ShapeEnv, dict[str, int]]:
    sizes = ShapeEnv()
    return sizes, {name: sizes.dynamic(name, number) for name, number in zip(NAMES, values, strict=True)}


@given(trees(), SIZES, SIZES)
def test_an_expression_has_the_value_that_python_computes(tree: Tree, now: list[int], later: list[int]) -> None:
    sizes, dims = opened(now)
    try:
        found, expected = value(tree, dims), value(tree, dict(zip(NAMES, now, strict=True)))
    except ZeroDivisionError:
        return
    assert hint(found) == expected
    try:
        expected = value(tree, dict(zip(NAMES, later, strict=True)))
        assert numbers(sizes, [found], later) == [expected]
    except ZeroDivisionError:
        return
    assert not sizes.guards  # arithmetic decides nothing


@given(trees(), trees(), st.sampled_from(COMPARISONS), SIZES, SIZES)
def test_sizes_that_pass_the_guards_decide_a_comparison_alike(
    left: Tree, right: Tree, compare: Callable[[Any, Any], bool], now: list[int], later: list[int]
) -> None:
    sizes, dims = opened(now)
    both = [dict(zip(NAMES, each, strict=True)) for each in (now, later)]
    try:
        a, b = value(left, dims), value(right, dims)
        found = compare(a, b)
        expected, others = (compare(value(left, each), value(right, each)) for each in both)
        table = numbers(sizes, [], later)
    except ZeroDivisionError:
        return
    assert found == expected
    if sizes.guards:
        assert (table is not None) == (others == expected)
    else:
        assert table == [] and others == expected


@given(trees(), SIZES)
def test_bounds_hold_for_every_size(tree: Tree, now: list[int]) -> None:
    sizes, dims = opened([7, 7, 7])
    try:
        found = value(tree, dims)
        number = value(tree, dict(zip(NAMES, now, strict=True)))
    except ZeroDivisionError:
        return
    if isinstance(found, Dim):
        least, most = sizes.bounds_of(found.terms)
        assert (least is None or least <= number) and (most is None or number <= most)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda h, w: h * 4 // 4, lambda h, w: h),
        (lambda h, w: h * w, lambda h, w: w * h),
        (lambda h, w: h * w * 12 // (w * 3), lambda h, w: h * 4),
        (lambda h, w: (h + 1) * w // (h + 1), lambda h, w: w),
        (lambda h, w: -(-h // 8), lambda h, w: (h + 7) // 8),
        (lambda h, w: (h + 1) // 2 // 2, lambda h, w: (h + 1) // 4),
        (lambda h, w: (2 * h + 1) // 2, lambda h, w: h),
        (lambda h, w: (h - 1) // 2 + 1, lambda h, w: (h + 1) // 2),
        (lambda h, w: h * w % w, lambda h, w: 0),
        (lambda h, w: largest(h * w, h), lambda h, w: h * w),
        (lambda h, w: largest(h, w), lambda h, w: largest(w, h)),
        (lambda h, w: math.prod([h, 3, w]) // h, lambda h, w: 3 * w),
    ],
)
def test_equal_expressions_are_equal_without_a_guard(left: Any, right: Any) -> None:
    sizes, (h, w, _) = (found := opened([224, 96, 5]))[0], found[1].values()
    assert left(h, w) == right(h, w)
    assert not sizes.guards


@pytest.mark.parametrize(
    "decided",
    [
        lambda h, w: h > 0,
        lambda h, w: h + w >= 4,
        lambda h, w: h * w - h >= 0,
        lambda h, w: h != 1,
        lambda h, w: h not in (0, 1),
        lambda h, w: 2 * h != 7,
        lambda h, w: None not in (h, w),
        lambda h, w: (h % 8) < 8,
        lambda h, w: h < math.inf,
        lambda h, w: h >= 1.5,
    ],
)
def test_what_holds_for_all_dynamic_sizes_needs_no_guard(decided: Any) -> None:
    sizes, dims = opened([224, 96, 5])
    assert decided(dims["a"], dims["b"])
    assert not sizes.guards


def test_asking_for_the_number_makes_it_a_guard() -> None:
    for ask in (int, float, range, operator.index, specialise):
        sizes, dims = opened([6, 7, 8])
        ask(dims["a"])
        assert numbers(sizes, [], [6, 9, 9]) == []
        assert numbers(sizes, [], [7, 7, 8]) is None


def test_a_heuristic_records_nothing() -> None:
    sizes, dims = opened([6, 7, 8])
    assert hint((dims["a"], [dims["b"] * 2])) == (6, [14])
    assert is_symbolic((1, [dims["a"]])) and not is_symbolic((1, [2]))
    assert f"{dims['a'] * 2 + 1}" == "a*2 + 1" and f"{dims['a']:,}" == "6"
    assert not sizes.guards


def test_zero_and_one_are_not_opened() -> None:
    sizes = ShapeEnv()
    assert [sizes.dynamic("n", number) for number in (0, 1)] == [0, 1]
    assert isinstance(sizes.dynamic("n", 2), Dim)
    assert numbers(sizes, [], [1]) is None


def test_sizes_of_different_graphs_are_different() -> None:
    first, second = ShapeEnv().dynamic("n", 4), ShapeEnv().dynamic("n", 4)
    assert first != second and {first: 1}.get(second) is None


@pytest.mark.parametrize(
    "decided",
    [
        lambda a, b: 2 * (a // 2) <= a,
        lambda a, b: a - a // 16 * 16 != 16,
        lambda a, b: (a // 2) - (a // 4) * 2 >= 0,
        lambda a, b: ((a + 2) // 4) * 2 <= a // 2 + 1,
        lambda a, b: 2 * ((a + 1) // 2 - 1) < a,
        lambda a, b: b * (2 * (a // 2)) <= a * b,
        lambda a, b: 6 * smallest(4, a // 6) <= a,
        lambda a, b: 6 * largest(1, a // 6) + 6 > a,
        lambda a, b: smallest(16, -(-a // 3)) <= 16,
        lambda a, b: (a // 32) * (b // 32) * 12 % 16 != 16,
        lambda a, b: (a // 32) * (b // 32) * 12 - (a // 32) * (b // 32) * 12 // 16 * 16 != 16,
    ],
)
def test_quotients_are_ordered_without_a_guard(decided: Callable[[Any, Any], bool]) -> None:
    sizes, dims = opened([64, 48, 7])
    assert decided(dims["a"], dims["b"])
    assert not sizes.guards


def test_sizes_that_a_guard_makes_equal_are_equal_in_all_that_follows() -> None:
    sizes, dims = opened([64, 48, 7])
    a = dims["a"]
    assert a // 8 == 2 * (a // 16)
    guards = dict(sizes.guards)
    assert (a // 8 + 1) // 2 == a // 16
    assert is_same(3 * (a // 8), 6 * (a // 16))
    assert (a // 8) % 2 == 0
    assert a // 8 * 2 >= a // 16
    assert sizes.guards == guards
    assert numbers(sizes, [a // 8], [64, 2, 2]) == [8]
    assert numbers(sizes, [a // 8], [72, 2, 2]) is None


def test_guards_of_a_pyramid_join_from_the_inside_out() -> None:
    sizes, dims = opened([64, 48, 7])
    a = dims["a"]
    for level in (8, 4, 2, 1):
        assert a // level == 16 // level * (a // 16)
    assert len(sizes.guards) == 1
    assert all((numbers(sizes, [], [each, 2, 2]) is not None) == (each % 16 == 0) for each in range(2, 70))


@given(st.lists(st.tuples(trees(), trees()), min_size=1, max_size=4), SIZES, SIZES)
def test_sizes_that_pass_several_guards_decide_each_alike(
    pairs: list[tuple[Tree, Tree]], now: list[int], later: list[int]
) -> None:
    sizes, dims = opened(now)
    found: list[bool] = []
    for left, right in pairs:
        try:
            difference = value(left, dims) - value(right, dims)
            found += [difference == 0, difference >= 0]
        except ZeroDivisionError:
            return
    try:
        is_right = numbers(sizes, [], later) is not None
        other = dict(zip(NAMES, later, strict=True))
        expected = [value(left, other) - value(right, other) for left, right in pairs]
    except ZeroDivisionError:
        return
    if is_right or later == now:
        assert found == [each for difference in expected for each in (difference == 0, difference >= 0)]


@pytest.mark.parametrize(
    "grow",
    [
        lambda x, n: x * x,
        lambda x, n: x * (n + 1),
        lambda x, n: (x * 3 + 1) // 2,
        lambda x, n: (x * 3 + 1) % (n * 5),
        lambda x, n: largest(x, n * 7) * 3 // 2,
    ],
)
def test_expressions_do_not_grow_without_end(grow: Any) -> None:
    sizes, dims = opened([6, 7, 8])
    n = x = dims["a"] + dims["b"] * dims["c"]
    expected = count = 62
    for _ in range(200):
        x, expected = grow(x, n), grow(expected, count)
        assert hint(x) == expected
        if expected > 1 << 200:
            break
    assert numbers(sizes, [x], [6, 7, 8]) == [expected]
