"""Every recorded sample: where its items are proved independent, a batch of them gives what each gives alone.

Any axis of any input is taken for the batch in turn. Numbers that are not finite stand in one of the items and must not
reach the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import EngineError, RuntimeGraph
from engine.graph.batch.independence import Proof, prove
from engine.graph.running.reference import execute
from engine.tensor import TensorSpec
from tests.engine.layers.samples import Sample, all_samples
from tests.nightly import IS_NIGHTLY

Axes = tuple[int | None, ...]

MOST_CHOICES = 40
ITEMS = 3
SAMPLES = all_samples()


def choices(inputs: list[np.ndarray]) -> Iterator[Axes]:
    """Axes that may hold the batch: one of each input, or none of it."""
    options = [[None, *range(each.ndim)] for each in inputs]
    for axes in itertools.islice(itertools.product(*options), MOST_CHOICES):
        if any(axis is not None for axis in axes):
            yield axes


def batch(inputs: list[np.ndarray], axes: Axes, special: float | None) -> list[np.ndarray]:
    """Items that differ, made of the sample's own; one of them has a special value."""
    random = np.random.default_rng(0)
    made = []
    for array, axis in zip(inputs, axes, strict=True):
        if axis is None:
            made.append(array)
            continue
        picked = np.moveaxis(np.take(array, random.integers(0, array.shape[axis], ITEMS), axis), axis, 0).copy()
        if picked.dtype.kind == "f" and picked.size:
            picked[1] *= picked.dtype.type(1.25)
            if special is not None:
                picked[-1].reshape(-1)[:1] = special
        made.append(np.moveaxis(picked, 0, axis))
    return made


def item(inputs: list[np.ndarray], axes: Axes, number: int) -> list[np.ndarray]:
    pairs = zip(inputs, axes, strict=True)
    return [each if axis is None else np.take(each, [number], axis) for each, axis in pairs]


def check(graph: RuntimeGraph, inputs: list[np.ndarray], axes: Axes, proof: Proof) -> None:
    """Hold a batch against its items alone."""
    together = execute(graph.plan, inputs)
    for number in range(ITEMS):
        alone = execute(graph.plan, item(inputs, axes, number))
        for whole, one, axis in zip(together, alone, proof.outputs, strict=True):
            size = 0 if axis is None else whole.shape[axis] // ITEMS
            own = whole if axis is None else np.take(whole, range(number * size, (number + 1) * size), axis)
            if own.dtype.kind in "fcV":
                own, one = own.astype(np.complex128), one.astype(np.complex128)
                np.testing.assert_allclose(own, one, rtol=1e-5, atol=1e-6, equal_nan=True)
            else:
                np.testing.assert_array_equal(own, one)


def proved(sample: Sample, folder: Path) -> int:
    """Check all claims about a sample; how many there are."""
    graph = RuntimeGraph(*sample.extract(folder))
    graph.init()
    graph.build()
    inputs = sample.sets[0].inputs
    specs = [TensorSpec(each.shape, each.dtype) for each in inputs]
    count = 0
    for axes in choices(inputs):
        if any(axis is not None and not each.shape[axis] for each, axis in zip(inputs, axes, strict=True)):
            continue
        proof = prove(graph, specs, axes)
        if proof.reason is not None:
            continue
        count += 1
        for special in (None, np.nan, np.inf):
            try:
                check(graph, batch(inputs, axes, special), axes, proof)
            except EngineError as error:  # the values are refused, of an item by itself as well
                with pytest.raises(EngineError):
                    for number in range(ITEMS):
                        execute(graph.plan, item(batch(inputs, axes, special), axes, number))
                assert error.problem
    return count


@pytest.mark.parametrize("sample", SAMPLES if IS_NIGHTLY else SAMPLES[::9], ids=lambda sample: sample.id)
def test_what_is_proved_holds(sample: Sample, tmp_path: Path) -> None:
    proved(sample, tmp_path)
