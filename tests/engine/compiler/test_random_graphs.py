"""Random graphs: machine code agrees with the reference, whatever stands beside whatever.

``python -m tests.engine.compiler.test_random_graphs COUNT SEED`` runs many more than the suite does.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import engine
from engine.compiler.assembly import memory
from tests.engine.compiler.growing import Growing, Tensor, random_inputs
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.nightly import IS_NIGHTLY

MODES: list[dict[str, Any]] = [{"threads": 1, "winograd": "auto"}, {"threads": 2, "winograd": "off"}]
TOLERANCE = {"auto": 2e-4, "off": 1e-4}
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)


def grow(seed: int, pools: Sequence[Sequence[Any]]) -> tuple[Growing, list[Tensor]]:
    """Return a graph of one to twelve operators, and its outputs, perhaps one of them twice."""
    chance = random.Random(seed)
    growing = Growing(chance, random_inputs(chance))
    wanted, made = 1 + seed % 12, 0
    for _ in range(4 * wanted):
        made += growing.grow(chance.choice(chance.choice(pools)))
        if made >= wanted:
            break
    used = {name for op in growing.operators for name in op.inputs}
    ends = [tensor for tensor in growing.tensors if tensor.name not in used] or [growing.tensors[-1]]
    outputs = chance.sample(ends, min(len(ends), chance.randint(1, 3)))
    if chance.random() < 0.3:
        outputs.append(chance.choice(growing.tensors))
    if chance.random() < 0.1:
        outputs.append(outputs[0])
    return growing, outputs


def check(seed: int, pools: Sequence[Sequence[Any]], special: Sequence[float] = ()) -> None:
    """Hold every mode's answers against the reference's, twice: the second run finds what the first left behind."""
    growing, outputs = grow(seed, pools)
    graph = growing.finished(outputs, growing.random.random() < 0.15)
    inputs = growing.feed(special)
    with np.errstate(all="ignore"):
        wanted = engine.Session(graph, backend="reference").run(inputs)
    for mode in MODES:
        session = engine.Session(graph, backend="auto", cache=None, **mode)
        # Graphs this small would hardly ever share the memory of images with borders.
        with patch.object(memory, "SHARED_SHARE", memory.SHARED_SHARE if seed % 3 == 0 else 0):
            session.prepare()
        for _ in range(2):
            with np.errstate(all="ignore"):
                found = session.run(inputs)
            for mine, theirs, tensor in zip(found, wanted, outputs, strict=True):
                hold(mine, theirs, tensor.is_exact, TOLERANCE[mode["winograd"]])


def hold(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], is_exact: bool, tolerance: float) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if is_exact or found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
    else:
        scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1200 if IS_NIGHTLY else 60, 10))
def test_random_graphs_agree_with_the_reference(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed, [KERNELS, EXACT, SMOOTH])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1600 if IS_NIGHTLY else 1040, 20))
def test_what_is_not_finite_comes_through_exact_operators(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed, [EXACT], SPECIAL)


if __name__ == "__main__":
    count, start = int(sys.argv[1]), int(sys.argv[2])
    for number in range(start, start + count):
        try:
            check(number, [KERNELS, EXACT, SMOOTH])
        except AssertionError as error:
            print(f"seed {number}: {error}")
