"""Random graphs of open sizes: cut at every waist, their programs answer as the reference does.

``python -m tests.engine.compiler.test_random_endings COUNT SEED`` runs many more than the suite does.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

import engine
from engine.compiler.assembly import memory
from engine.compiler.builder import Builder
from engine.compiler.lowering.endings import Endings
from engine.compiler.runtime.instance import NotFiniteError
from engine.errors import EngineError
from engine.graph.waists import Narrowing
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.growing import Growing, random_inputs
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.engine.compiler.test_random_graphs import hold
from tests.engine.compiler.used_memory import among_others

ROUNDS = 4


def grow(seed: int) -> Growing:
    """A row of operators, for each grows from a late tensor more often than from an early one."""
    chance = random.Random(seed)
    growing = Growing(chance, random_inputs(chance)[:1])
    made, wanted = 0, 4 + seed % 10
    for _ in range(4 * wanted):
        made += growing.grow(chance.choice(chance.choice([KERNELS, KERNELS, EXACT, SMOOTH])))
        if made >= wanted:
            break
    return growing


def opened(growing: Growing) -> tuple[engine.RuntimeGraph, list[TensorSpec]]:
    """A graph whose last dimensions are open, and specs of three sizes each of which some operator may refuse."""
    graph = growing.finished(growing.tensors[-1:], False)
    (given,) = growing.inputs
    count = min(2, given.rank - 1)
    spec = TensorSpec((*given.shape[: given.rank - count], *(None,) * count), given.dtype)
    source = replace(graph.source, annotations={given.name: spec})
    result = engine.RuntimeGraph.from_source(source)
    result.build()
    sizes = [tuple(dim + more for dim in given.shape[given.rank - count :]) for more in (0, 1, 3)]
    return result, [TensorSpec((*given.shape[: given.rank - count], *size), given.dtype) for size in sizes]


def accepted(builder: Builder, reference: engine.Session, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Those of some specs that all operators accept, with code for each."""
    found = []
    for spec in specs:
        try:
            reference.run([number_of(spec)])
            builder.program([spec], cores=1)
        except EngineError:
            continue
        found.append(spec)
    return found


def number_of(spec: TensorSpec) -> Array:
    chance = np.random.default_rng(sum(spec.sizes))
    if spec.dtype.kind == "f":
        return chance.standard_normal(spec.sizes).astype(spec.dtype)
    return chance.integers(0, 2, spec.sizes).astype(spec.dtype)


def check(seed: int) -> Counter[str]:
    """Hold programs with endings against the reference; how many there were, and how many were without."""
    growing, seen = grow(seed), Counter[str]()
    try:
        graph, specs = opened(growing)
    except EngineError:  # values of the file decide, and there are none
        return seen
    builder, reached = Builder(graph, Options(cache=None)), Endings.reached
    reference = engine.Session(graph, backend="reference")

    def counted(self: Endings, lowering, number: int) -> bool:  # type: ignore[no-untyped-def]
        found = reached(self, lowering, number)
        seen["ended"] += found
        return found

    share = memory.SHARED_SHARE if seed % 3 == 0 else 0
    with (
        patch.object(Narrowing, "is_worth", lambda self, shape: True),
        patch.object(Endings, "reached", counted),
        patch.object(memory, "SHARED_SHARE", share),
        np.errstate(all="ignore"),
    ):
        for spec in accepted(builder, reference, specs) * ROUNDS:
            program = builder.known_program([spec])
            x = number_of(spec)
            if program is None:
                continue
            seen["programs"] += 1
            try:
                found = among_others(program).run([x])
            except NotFiniteError:
                continue
            for mine, theirs in zip(found, reference.run([x]), strict=True):
                hold(mine, theirs, growing.tensors[-1].is_exact, 2e-4)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_graphs_cut_at_every_waist_agree_with_the_reference(first: int) -> None:
    seen = sum((check(seed) for seed in range(first, first + 10)), Counter())
    assert 0 < seen["ended"] < seen["programs"]


if __name__ == "__main__":
    count, start = int(sys.argv[1]), int(sys.argv[2])
    total: Counter[str] = Counter()
    for each in range(start, start + count):
        try:
            total += check(each)
        except Exception as error:
            print(f"seed {each}: {type(error).__name__}: {error}")
    print(dict(total))
