"""Checks that are run together: none is left out, and each that failed is named."""

from __future__ import annotations

import pytest

from tests.checking import run_all


def test_every_check_is_run_and_a_failure_names_all_that_failed() -> None:
    seen = []

    def first(value: int) -> None:
        seen.append(value)
        raise AssertionError("one")

    def second(value: int) -> None:
        seen.append(value)

    def third(value: int) -> None:
        seen.append(value)
        raise ValueError("two")

    with pytest.raises(ExceptionGroup, match="2 of 3 checks failed: first, third") as caught:
        run_all((first, second, third), 7)
    assert seen == [7, 7, 7]
    assert [type(each) for each in caught.value.exceptions] == [AssertionError, ValueError]


def test_checks_that_hold_raise_nothing() -> None:
    run_all((lambda: None, lambda: None))
