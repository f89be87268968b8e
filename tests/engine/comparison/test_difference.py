"""One value against its reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.comparison.difference import measure

F32 = np.float32
NAN, INF = float("nan"), float("inf")


def array(*values: float, dtype: object = F32) -> np.ndarray:
    return np.array(values, dtype)  # type: ignore[call-overload,no-any-return]


def test_errors_are_judged_by_the_scale_of_the_whole_value() -> None:
    near = measure(array(1000, 0.05), array(1000, 0))
    assert (near.max_abs, near.scale, near.diverges) == (pytest.approx(0.05), 1000, False)
    assert near.relative == pytest.approx(5e-5)
    assert measure(array(1, 0.05), array(1, 0)).diverges


def test_tolerances_can_be_given() -> None:
    assert measure(array(1.5), array(1), rtol=0.5, atol=0).diverges is False
    assert measure(array(1.5), array(1), rtol=0, atol=0.4).diverges is True


@pytest.mark.parametrize(("dtype", "error", "diverges"), [
    (np.float16, 5e-3, False), (np.float16, 5e-2, True), (ml_dtypes.bfloat16, 4e-2, False), (np.float64, 5e-3, True),
])  # fmt: skip
def test_half_precision_is_allowed_more(dtype: object, error: float, diverges: bool) -> None:
    assert measure(array(1 + error, dtype=dtype), array(1, dtype=dtype)).diverges is diverges


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_booleans_must_be_equal(dtype: object) -> None:
    assert not measure(array(1, 0, dtype=dtype), array(1, 0, dtype=dtype)).diverges
    assert measure(array(1, 1, dtype=dtype), array(1, 0, dtype=dtype), rtol=9, atol=9).diverges


def test_nan_and_infinities_must_stand_where_the_reference_has_them() -> None:
    assert not measure(array(NAN, INF, -INF, 1), array(NAN, INF, -INF, 1)).diverges
    for found in (array(1, NAN), array(INF, 1), array(-INF, NAN)):
        difference = measure(found, array(INF, NAN))
        assert difference.diverges
        assert difference.problem is not None and "in only one of the two" in difference.problem


def test_an_infinite_error_is_infinite() -> None:
    difference = measure(array(NAN, 2), array(3, 1))
    assert (difference.max_abs, difference.scale) == (INF, 3)
    assert difference.problem == "1 of 2 elements are NaN or infinite in only one of the two"


def test_complex_values_are_compared_by_their_planes() -> None:
    want = np.array([complex(1, INF), 2j], np.complex64)
    assert not measure(want.copy(), want).diverges
    assert measure(np.array([complex(1, INF), 3j], np.complex64), want).max_abs == 1


@pytest.mark.parametrize(("computed", "problem"), [
    (array(1, 2), "shape [2], reference [1]"),
    (array(1, dtype=np.int64), "dtype int64, reference float32"),
    (None, "the operand is not a tensor but NoneType"),
    ((array(1), array(1)), "the operand is not a tensor but tuple"),
])  # fmt: skip
def test_values_that_do_not_compare_diverge_with_the_reason(computed: object, problem: str) -> None:
    difference = measure(computed, array(1))
    assert (difference.problem, difference.diverges, difference.max_abs) == (problem, True, INF)


def test_floating_widths_compare_with_each_other() -> None:
    assert not measure(array(1, dtype=ml_dtypes.bfloat16), array(1, dtype=np.float64)).diverges


@pytest.mark.parametrize(
    ("computed", "reference"), [(3, np.array(3)), (2.5, np.array(2.5)), ([2, 3], np.array([2, 3]))]
)
def test_sizes_and_lists_of_them_are_numbers(computed: object, reference: np.ndarray) -> None:
    assert not measure(computed, reference).diverges


def test_empty_values_are_equal() -> None:
    difference = measure(np.zeros((0, 3), F32), np.zeros((0, 3), F32))
    assert (difference.max_abs, difference.relative, difference.diverges) == (0, 0, False)
