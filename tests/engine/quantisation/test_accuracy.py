"""Accuracy on labelled samples: counts, and the confidence interval of a paired change."""

from __future__ import annotations

import numpy as np
import pytest

from engine import AccuracyChange, RuntimeGraph, TensorSpec, compare_accuracy
from engine.errors import InputError, ShapeError
from tests.engine.graph.build import built, op


def scaled(factor: float, shape: tuple[int, ...] = (1, 3)) -> RuntimeGraph:
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("pnnx.Expression", "scale", "x", "y", expr=f"mul(@0,{factor})"),
        op("pnnx.Output", "out0", "y"),
        _x=TensorSpec(shape, np.dtype(np.float32)),
    )


def change(samples: int, lost: int, gained: int) -> AccuracyChange:
    return AccuracyChange(samples=samples, before=samples, after=samples, lost=lost, gained=gained)


def test_predictions_of_both_networks_are_counted_in_pairs() -> None:
    rows = [[3, 1, 2], [0, 5, 1], [1, 2, 9], [4, 3, 2]]
    samples = [[np.array([row], np.float32)] for row in rows]
    # The second network finds the smallest: 1, 0, 0, 2.
    found = compare_accuracy(scaled(1), scaled(-1), samples, [0, 0, 2, 1])
    assert found == AccuracyChange(samples=4, before=2, after=1, lost=2, gained=1)
    assert found.change == -0.25


@pytest.mark.parametrize(("samples", "lost", "gained", "low", "high"), [
    (1600, 150, 86, -0.0588, -0.0212),  # approval of the prime minister, Agresti's book: 0.02 to 0.06
    (100, 0, 0, -0.0192, 0.0192),       # (0.5 + 0.5) / 102**2, a root, times 1.96
    (1, 1, 0, -1.0, 0.5101),            # -1/3 -+ 1.96 * sqrt(2 - 1/3) / 3, cut at -1
])  # fmt: skip
def test_the_interval_is_that_of_paired_proportions(
    samples: int, lost: int, gained: int, low: float, high: float
) -> None:
    assert change(samples, lost, gained).interval == pytest.approx((low, high), abs=2e-3)


def test_labels_that_do_not_fit_are_refused() -> None:
    sample = [np.zeros((1, 3), np.float32)]
    with pytest.raises(InputError, match=r"found 1 for 2 samples"):
        compare_accuracy(scaled(1), scaled(1), [sample, sample], [0])
    with pytest.raises(InputError, match="at least one sample"):
        compare_accuracy(scaled(1), scaled(1), [], [])
    for label in (-1, 3):
        with pytest.raises(InputError, match=f"a label is not a class: found {label}, expected 0 to 2"):
            compare_accuracy(scaled(1), scaled(1), [sample], [label])
    with pytest.raises(ShapeError, match="no score for each class"):
        compare_accuracy(scaled(1, (2, 3)), scaled(1, (2, 3)), [[np.zeros((2, 3), np.float32)]], [0])
