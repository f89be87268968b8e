"""Sessions of graphs with dynamic sizes against the reference: thirty sets of sizes, run by two threads at once.

    python -m tests.engine.compiler.dynamic.racing GROUP [FIRST [STEP [OPENINGS]]]

writes one line of JSON an opening of a graph, as ``sweeping`` does for one template. Sizes of 0 and 1 and those that
fail a guard need further templates or programs, which are compiled while the other thread runs.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

import engine
from engine.compiler.runtime import instance, memory
from engine.errors import EngineError
from engine.graph import execute
from engine.graph.running.reference import as_outputs
from engine.graph.symbolic_inputs import symbolic_specs
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.dynamic.sweeping import (
    MOST_ELEMENTS,
    REFUSALS,
    Outcome,
    are_small,
    difference,
    drawn,
    evaluated,
    guarded_bytes,
    report_all,
)
from tests.engine.compiler.kernels.guarded import guarded_array

SIZES: Final = (
    0, 1, 2, 17, 3, 64, 5, 257, 7, 8, 9, 127, 13, 1031, 15, 16, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 65, 97, 128,
    129,
)  # fmt: skip
"""None, one, primes, edges of tiles and their neighbours, small ones next to large ones."""
SETS: Final = 30
_TRIES: Final = 200

Expected = list[Array] | EngineError
Case = tuple[str, list[Array], Expected]


def race(graph: engine.RuntimeGraph, inputs: Sequence[Array]) -> Outcome | None:
    """Return what came of one session whose sizes change with every run; None without dynamic sizes or a kernel.

    Args:
        inputs: the first ones; those of other sizes have values between theirs.
    """
    cases = list(islice(_cases(graph, inputs), SETS))
    if not cases:
        return None
    _place_memory_between_guard_pages()
    instance.WORTH_WAKING = 0  # type: ignore[misc]  # small graphs run on both threads
    session = engine.Session(graph, backend="compiled", cache=None, threads=2)
    try:
        session.run(inputs)
    except EngineError as error:
        if any(each in str(error) for each in REFUSALS):
            return None
    problems: list[str] = []
    start = threading.Barrier(2)

    def run(order: Sequence[Case]) -> None:
        start.wait()
        for number, (sizes, given, expected) in enumerate(order):
            problem = _problem(session, _guarded(given, at_end=number % 2 == 0), expected)
            if problem:
                problems.append(f"{sizes}: {problem}")
                return

    threads = [threading.Thread(target=run, args=(order,)) for order in (cases, cases[::-1])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    session.close()
    return Outcome(problem="; ".join(problems), passed=sum(not isinstance(each, EngineError) for *_, each in cases))


def _cases(graph: engine.RuntimeGraph, inputs: Sequence[Array]) -> Iterator[Case]:
    """Yield sets of sizes as text, inputs of these sizes, and the reference's outputs or refusal."""
    env, opened = symbolic_specs(graph.inputs, [TensorSpec(each.shape, each.dtype) for each in inputs])
    if not env.names:
        return
    for number, draw in enumerate(islice(_draws(len(env.names)), _TRIES)):
        specs = [evaluated(spec, env, draw) for spec in opened]
        if sum(math.prod(spec.sizes) for spec in specs) > MOST_ELEMENTS:
            continue
        given = [drawn(each, spec, (number, k)) for k, (each, spec) in enumerate(zip(inputs, specs, strict=True))]
        expected: Expected
        try:
            if not are_small(graph.infer(specs)):
                continue
            with np.errstate(all="ignore"):
                expected = as_outputs(execute(graph.plan, given))
        except EngineError as error:
            expected = error
        yield str(dict(zip(env.names, draw, strict=True))), given, expected


def _draws(count: int) -> Iterator[list[int]]:
    """Yield each size for all dynamic sizes together, in turns with sets of different ones."""
    step = 0
    while True:
        for number, size in enumerate(SIZES):
            if step == 0:
                yield [size] * count
            if count > 1:
                yield [SIZES[(number + (step + 7) * (k + 1)) % len(SIZES)] for k in range(count)]
        step += 1
        if count == 1:
            yield from ([size] for size in range(2, 4 * len(SIZES)) if size not in SIZES)
            return


def _problem(session: engine.Session, given: list[Array], expected: Expected) -> str:
    """Return how an answer differs from the reference's, "" where it does not."""
    try:
        with np.errstate(all="ignore"):
            found = session.run(given)
    except EngineError as error:
        is_refusal = isinstance(expected, EngineError) or any(each in str(error) for each in REFUSALS)
        return "" if is_refusal else f"refused: {error}"
    if isinstance(expected, EngineError):
        return f"taken, where the reference refuses: {expected}"
    pairs = enumerate(zip(found, expected, strict=True))
    return next((f"output {k}: {text}" for k, pair in pairs if (text := difference(*pair))), "")


def _guarded(given: Sequence[Array], *, at_end: bool) -> list[Array]:
    return [
        guarded_array(each, at_end=at_end, dtype=each.dtype.name) if each.size and not each.dtype.hasobject else each
        for each in given
    ]


def _place_memory_between_guard_pages() -> None:
    """Give every second run an arena of its exact size between guard pages, and the others one that was used before."""
    give = memory.Arenas.give
    runs = iter(range(sys.maxsize))
    memory.allocate = lambda size: guarded_bytes(size, at_end=True)
    memory._GROWTH = 1  # type: ignore[misc]

    def give_or_drop(arenas: memory.Arenas, arena: memory.Arena) -> None:
        if next(runs) % 2:
            give(arenas, arena)

    memory.Arenas.give = give_or_drop  # type: ignore[method-assign]


if __name__ == "__main__":
    report_all(race, sys.argv[1], *map(int, sys.argv[2:]))
