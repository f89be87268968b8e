"""Ranges of values from streaming histograms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quantisation.histogram import LEVELS, Affine, Histogram

RANDOM = np.random.default_rng(5)


def affine(*tensors: np.ndarray) -> Affine:
    histogram = Histogram()
    for each in tensors:
        histogram.add(each)
    return histogram.affine()


def restored(values: np.ndarray, scale: np.float32, zero_point: np.uint8) -> np.ndarray:
    """Values after a round trip through bytes, by the definition."""
    q = np.clip(np.rint(values / scale) + float(zero_point), 0, LEVELS)
    return (q - float(zero_point)) * scale


def mean_squared_error(values: np.ndarray, found: Affine) -> float:
    return float(np.square(values - restored(values, *found)).mean())


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_zero_is_represented_exactly_and_the_scale_is_positive(values: list[float]) -> None:
    scale, zero_point = affine(np.array(values, np.float32))
    assert scale > 0
    assert restored(np.zeros(1), scale, zero_point) == 0


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_evenly_spread_values_keep_their_whole_range(low: float, high: float) -> None:
    scale, zero_point = affine(np.linspace(-low, high, 5000, dtype=np.float32))
    assert scale == pytest.approx((low + high) / LEVELS, rel=0.02)
    assert zero_point == pytest.approx(low / scale, abs=1)


def test_the_range_has_nearly_the_least_error_of_all_ranges() -> None:
    values = RANDOM.standard_t(3, 200_000).astype(np.float32)
    errors = []
    for threshold in np.linspace(1, np.abs(values).max(), 300):
        low, high = max(values.min(), -threshold), min(values.max(), threshold)
        scale = np.float32((high - low) / LEVELS)
        errors.append(mean_squared_error(values, Affine(scale, np.uint8(np.rint(-low / scale)))))
    assert min(errors) < 0.8 * errors[-1]
    assert mean_squared_error(values, affine(values)) < 1.05 * min(errors)


def test_the_short_tail_of_a_one_sided_distribution_is_kept() -> None:
    x = RANDOM.standard_normal(100_000).astype(np.float32) * 4
    silu = x / (1 + np.exp(-x))
    scale, zero_point = affine(silu)
    assert -float(zero_point) * scale <= silu.min() + scale


def test_samples_one_after_the_other_give_nearly_the_range_of_all_at_once() -> None:
    tensors = [RANDOM.standard_normal(3000).astype(np.float32) * size for size in (0.01, 5, 0.3, 2, 40, 1)]
    one_by_one, at_once = affine(*tensors), affine(np.concatenate(tensors))
    assert one_by_one.scale == pytest.approx(at_once.scale, rel=0.1)


def test_a_tensor_of_zeros_or_of_nothing_has_a_scale() -> None:
    assert affine(np.zeros(3, np.float32)) == affine(np.zeros(0, np.float32)) == (1, 0)


@pytest.mark.parametrize("size", [1e-45, 1e-41, 1e-37, 1e37])
def test_values_as_small_or_large_as_float32_has_them_are_counted(size: float) -> None:
    values = np.array([0, 1, -1, 0.5], np.float32) * np.float32(size)
    with np.errstate(all="raise", under="ignore"):
        found = affine(values, np.zeros(3, np.float32))
    assert np.abs(restored(values, *found) - values).max() <= max(0.01 * size, 1e-45)
