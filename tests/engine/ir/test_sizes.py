"""Slices, ranges and fractions of symbolic sizes are the numbers that Python computes, where the guards hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.expression.sizes import compute_sizes
from engine.ir.dims import Dim, ShapeEnv
from engine.ir.ratios import InexactError, Ratio, add, ceil, divide, floor, multiply, truncate
from engine.ir.sizes import holds_sizes, size_array, slice_length, specialise_sizes, step_count
from engine.ir.tables import Table

SIZE = st.integers(2, 60)
BOUND = st.none() | st.integers(-70, 70) | st.just(2**31 - 1)


def opened(size: int) -> tuple[ShapeEnv, Any]:
    env = ShapeEnv()
    return env, env.dynamic("n", size)


def at(env: ShapeEnv, value: Any, size: int) -> int | None:
    """Return what a number is for another size; None where that fails a guard."""
    found = Table(env, [value])([size])
    return None if found is None else found[0]


@given(BOUND, BOUND, st.none() | st.sampled_from([1, 2, 3, 7, -1, -2, -5]), SIZE, SIZE)
def test_a_slice_has_the_length_that_numpy_gives_it(start: Any, stop: Any, step: Any, now: int, later: int) -> None:
    env, n = opened(now)
    piece = slice(start, stop, step)
    found = slice_length(piece, n)
    assert at(env, found, now) == len(range(now)[piece])
    assert at(env, found, later) in (None, len(range(later)[piece]))
    assert slice_length(piece, later) == len(range(later)[piece])


@given(st.integers(-9, 9), st.integers(1, 9), SIZE, SIZE)
def test_a_symbolic_bound_is_one_of_a_slice(shift: int, step: int, now: int, later: int) -> None:
    env, n = opened(now)
    found = slice_length(slice(n // 2 + shift, n - shift, step), n + 3)
    for size in (now, later):
        expected = len(range(size + 3)[size // 2 + shift : size - shift : step])
        assert at(env, found, size) in (None, expected)
    assert at(env, found, now) is not None


@given(st.sampled_from([0.5, 2.0, 1.5, 0.25, 3.0]), st.sampled_from([0.0, 0.5, -1.25]), SIZE, SIZE)
def test_fractions_of_sizes_are_rounded_as_floats_are(factor: float, added: float, now: int, later: int) -> None:
    env, n = opened(now)
    number = add(multiply(n, factor, 24), added, 24)
    assert isinstance(number, Ratio) and isinstance(number, float)
    for rounded, expected in ((floor, math.floor), (ceil, math.ceil), (truncate, math.trunc)):
        found = rounded(number)
        for size in (now, later):
            assert at(env, found, size) in (None, expected(size * factor + added))
        assert at(env, found, now) is not None


def test_what_a_float_does_not_hold_is_for_the_number_alone() -> None:
    env, n = opened(12)
    for compute in (lambda: multiply(n, 0.3, 24), lambda: divide(n, 3, 24), lambda: multiply(2**24, n, 24)):
        with pytest.raises(InexactError):
            compute()
    assert float(divide(n, 8, 24)) == 1.5
    assert at(env, 0, 13) is None


@given(st.integers(-5, 5), st.sampled_from([1, 2, -1, 0.5, 2.5]), SIZE, SIZE)
def test_steps_are_counted_as_numpy_counts_them(start: int, step: float, now: int, later: int) -> None:
    env, n = opened(now)
    found = step_count(start, n, step)
    for size in (now, later):
        assert max(at(env, found, size) or 0, 0) == len(np.arange(start, size, step))


def test_arrays_without_a_symbolic_size_are_numbers() -> None:
    _, n = opened(12)
    array = size_array([n, 3, n - n])
    assert holds_sizes(array) and array.dtype == np.object_
    assert size_array([n - n, 3]).dtype == np.int64
    assert not holds_sizes(np.array(["text"], np.object_))
    difference = compute_sizes("sub", (array, size_array([n, 1, 0])))
    assert difference.dtype == np.int64 and difference.tolist() == [0, 2, 0]
    assert specialise_sizes(array).tolist() == [12, 3, 0]


def test_the_strictest_bound_of_a_size_is_kept() -> None:
    env, n = opened(100)
    assert n // 4 >= 1 and n // 16 != 0 and n // 8 >= 1
    assert [str(env.text_of(terms)) for _, terms in env.guards] == ["n - 16"]
    assert n > 9  # by the guard that there is
    assert len(env.guards) == 1
    assert at(env, 1, 16) == 1 and at(env, 1, 15) is None


def test_levels_of_a_pyramid_record_one_guard() -> None:
    env, n = opened(96)
    half, quarter, eighth = n // 2, n // 4, n // 8
    assert quarter == 2 * eighth and half == 2 * quarter and n == 2 * half and half == 2 * quarter
    assert len(env.guards) == 1
    for size in range(2, 100):
        assert (at(env, 1, size) is None) == (size % 8 != 0)


def test_the_smaller_of_two_sizes_is_one_of_them_where_it_is_compared_with_it() -> None:
    env, n = opened(100)
    piece = slice_length(slice(0, 512), n)
    assert isinstance(piece, Dim) and not env.guards
    assert piece == n
    assert at(env, piece, 512) == 512 and at(env, piece, 513) is None
