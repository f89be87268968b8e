"""Results of layers are as announced, for operands of any shape and dtype that a layer does not refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import engine
from engine.layers.definition.bound import BoundLayer
from engine.tensor import TensorSpec, spec_of
from tests.engine.layers.samples import Sample, all_samples
from tests.fuzz.data import SHAPES, TYPES, changed, graph_of
from tests.nightly import IS_NIGHTLY

CHANGES = [*SHAPES, *TYPES, "number", "list", "scalar"]
# Of samples and of changes, outside `make nightly`.
EVERY_SAMPLE, EVERY_CHANGE = (1, 1) if IS_NIGHTLY else (13, 11)
MOST_ELEMENTS = 20_000


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List of the differences between what layers announce and what they compute, filled as they run."""
    forward = BoundLayer.forward
    found: list[str] = []
    held: list[BoundLayer] = []

    def compared(layer: BoundLayer, inputs: Sequence[object]) -> Any:
        result = forward(layer, inputs)
        if not held:  # infer may compute small values itself
            held.append(layer)
            found.extend(difference(layer, inputs, result))
            held.clear()
        return result

    monkeypatch.setattr(BoundLayer, "forward", compared)
    return found


def difference(layer: BoundLayer, inputs: Sequence[object], result: object) -> list[str]:
    try:
        announced = layer.infer([spec_of(each) for each in inputs])
    except engine.EngineError as error:
        return [f"{layer.layer}: refused when announced: {error}"]
    return [] if holds(announced, result) else [f"{layer.layer}: announced {announced}, computed {spec_of(result)}"]


def holds(announced: object, result: object) -> bool:
    if isinstance(announced, TensorSpec):
        found = spec_of(result)
        return (
            isinstance(found, TensorSpec)
            and found.dtype == announced.dtype
            and found.rank == announced.rank
            and all(dim in (None, size) for dim, size in zip(announced.shape, found.shape, strict=True))
        )
    if isinstance(announced, (list, tuple)):
        return (
            isinstance(result, (list, tuple)) and len(result) == len(announced) and all(map(holds, announced, result))
        )
    return True


def cases(sample: Sample, number: int) -> Iterator[list[list[Any]]]:
    """Changes of one operand, and of all of them."""
    places = [-1, *range(len(sample.sets[0].inputs))]
    every = [[[place, name]] for place in places for name in CHANGES]
    yield from every[number % EVERY_CHANGE :: EVERY_CHANGE]


def small_samples() -> list[Sample]:
    return [each for each in all_samples() if sum(np.size(x) for x in each.sets[0].inputs) <= MOST_ELEMENTS]


def test_results_are_as_announced_whatever_shapes_and_dtypes_the_operands_have(differences: list[str]) -> None:
    for number, sample in enumerate(small_samples()[::EVERY_SAMPLE]):
        try:
            session = engine.Session(graph_of(sample.id, "bare"), backend="reference")
        except engine.EngineError:  # it needs to be told what its inputs are
            continue
        for changes in cases(sample, number):
            with suppress(engine.EngineError):
                session.run(changed(sample.sets[0].inputs, changes))
        session.close()
    assert differences == []
