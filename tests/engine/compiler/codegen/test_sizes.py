"""Code with dynamic sizes is reused only for sizes it is correct for."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.ir import GuardedTable, Sizes, is_dynamic
from engine.compiler.codegen.ir.sizes import larger, smaller
from engine.ir.dims import ShapeEnv

NUMBERS = st.integers(2, 10**6)
OPERATIONS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, smaller, larger)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.lists(st.tuples(st.sampled_from(OPERATIONS), st.booleans()), max_size=6))
def test_arithmetic_gives_what_the_code_reads_for_any_other_sizes(
    a: int, b: int, c: int, d: int, steps: list[tuple[object, bool]]
) -> None:
    def computed(first: int, second: int) -> int:
        result = first
        for step, is_reflected in steps:
            result = step(second, result) if is_reflected else step(result, second)  # type: ignore[operator]
        return result

    sizes = Sizes()
    try:
        found, expected, other = computed(sizes.dynamic(a), sizes.dynamic(b)), computed(a, b), computed(c, d)
    except ZeroDivisionError:
        return
    if not steps:
        found = found + 0
    assert found.text == "%size.0"  # type: ignore[attr-defined]
    for each in (sizes, GuardedTable(sizes)):
        assert each.numbers([a, b]) == [expected] and each.numbers([c, d]) == [other]
    assert not sizes.guards


@pytest.mark.parametrize(
    ("ask", "same", "others"),
    [
        (lambda n: n > 8, [9, 100], [8, 2]),
        (lambda n: n <= 8, [7, 8], [9]),
        (lambda n: n == 12, [12], [13]),
        (lambda n: bool(n % 4), [13, 15], [12]),
        (lambda n: range(n), [13], [12, 14]),
        (lambda n: f"{n}", [13], [12]),
        (lambda n: n / 2, [13], [12]),
        (lambda n: {n: 1}, [13], [12]),
        (lambda n: [0] * n, [13], [14]),
        (lambda n: max(n, 9), [13, 10], [8, 3]),
        (lambda n: n // (n - 10) > 1, [13, 11], [10, 30]),
    ],
)
def test_what_asks_for_a_value_is_a_guard(ask: object, same: list[int], others: list[int]) -> None:
    sizes = Sizes()
    value = 9 if same[0] == 9 else 13 if 13 in same else same[0]
    ask(sizes.dynamic(value))  # type: ignore[operator]
    assert sizes.guards
    table = GuardedTable(sizes)
    assert all(table.fits([each]) for each in [value, *same])
    assert not any(table.fits([each]) for each in others)


def test_zero_and_one_stay_what_they_are() -> None:
    sizes = Sizes()
    assert (
        [sizes.dynamic(each) for each in (0, 1)] == [0, 1]
        and is_dynamic(sizes.dynamic(2))
        and is_dynamic(sizes.dynamic_count(1))
    )
    assert sizes.pattern == [0, 1, None, None]


def test_what_is_nested_too_deeply_for_a_text_fits_nothing() -> None:
    sizes = Sizes()
    found = sizes.dynamic(7)
    for _ in range(5000):
        found = found + 1
    assert found > 8 and not GuardedTable(sizes).fits([7])


def test_code_of_a_symbolic_size_is_another_than_that_of_a_number() -> None:
    numbers, symbolic = Sizes(), Sizes()
    numbers.dynamic(9), symbolic.dynamic(ShapeEnv().dynamic("n", 9))
    assert numbers.pattern != symbolic.pattern


def test_a_dynamic_size_is_not_opened_again() -> None:
    sizes = Sizes()
    once = sizes.dynamic(9)
    assert sizes.dynamic(once) is once and sizes.values == [9]
