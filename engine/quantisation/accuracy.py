"""Accuracy of a network before and after quantising, on the same labelled samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.cancellation import Progress, check_cancelled, silent
from engine.errors import InputError, ShapeError
from engine.graph import RuntimeGraph
from engine.quantisation.calibration import prepared
from engine.session import Session
from engine.tensor import Array

# Quantile of the normal distribution for an interval of 95 %.
_Z: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyChange:
    """Top-1 accuracy of two networks on the same samples.

    Args:
        samples: number of samples.
        before, after: samples that each network classifies correctly.
        lost: samples that only the first network classifies correctly.
        gained: samples that only the second network classifies correctly.
    """

    samples: int
    before: int
    after: int
    lost: int
    gained: int

    @property
    def change(self) -> float:
        """Return the accuracy after minus that before."""
        return (self.gained - self.lost) / self.samples

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the change for paired samples, by Agresti and Min.

        Source:
            Agresti, Min: Simple improved confidence intervals for comparing matched proportions (2005), "Wald + 2".
        """
        number, lost, gained = self.samples + 2, self.lost + 0.5, self.gained + 0.5
        centre = (gained - lost) / number
        reach = _Z * math.sqrt(lost + gained - (gained - lost) ** 2 / number) / number
        return max(-1.0, centre - reach), min(1.0, centre + reach)

    def describe(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "samples": self.samples,
            "before": self.before / self.samples,
            "after": self.after / self.samples,
            "lost": self.lost,
            "gained": self.gained,
            "change": self.change,
            "interval": list(self.interval),
        }


def compare_accuracy(
    before: RuntimeGraph,
    after: RuntimeGraph,
    samples: Sequence[Sequence[Array]],
    labels: Sequence[int],
    *,
    output: int = 0,
    threads: int | None = None,
    progress: Progress = silent,
) -> AccuracyChange:
    """Run two networks on labelled samples and count correct predictions: the largest score is the prediction.

    Args:
        before, after: built graphs.
        samples: inputs in graph order, one item a run.
        labels: index of the class of each sample.
        output: the output with one score for each class.
        threads: cores a run may use; None for all.
        progress: called with what is done now.

    Raises:
        InputError: there are no samples, or another number of labels, or a label is not a class.
        ShapeError: the output does not have one score for each class.
    """
    if not len(samples) or len(samples) != len(labels):
        raise InputError("labels do not fit the samples", found=f"{len(labels)} for {len(samples)} samples",
                         expected="at least one sample, and a label for each")  # fmt: skip
    right: list[tuple[bool, bool]] = []
    with prepared(before, threads, samples[0]) as first, prepared(after, threads, samples[0]) as second:
        for index, label in enumerate(labels):
            check_cancelled()
            progress("measuring accuracy", index, len(samples))
            sample = list(samples[index])
            right.append((_predict(first, sample, label, output) == label,
                          _predict(second, sample, label, output) == label))  # fmt: skip
    return AccuracyChange(
        samples=len(right),
        before=sum(one for one, _ in right),
        after=sum(other for _, other in right),
        lost=sum(one and not other for one, other in right),
        gained=sum(other and not one for one, other in right),
    )


def _predict(session: Session, sample: list[Array], label: int, output: int) -> int:
    scores = session.run(sample)[output]
    classes = scores.shape[1] if scores.ndim > 1 else 0
    if not classes or scores.size != classes:
        raise ShapeError("the output has no score for each class", found=list(scores.shape), expected="(1, classes)")
    if not 0 <= label < classes:
        raise InputError("a label is not a class", found=label, expected=f"0 to {classes - 1}")
    return int(np.argmax(scores))
