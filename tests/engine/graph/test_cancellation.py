"""Whatever a graph makes long, it can be stopped: every stage asks whether it is still wanted, and heeds the answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RunCancelledError, RuntimeGraph, Session
from engine.cancellation import cancellable, cancelling, check_cancelled
from engine.graph.batch.batching import decide
from engine.graph.planning.execution_order import ORDERS, arrange
from engine.passes import PASSES
from engine.pnnx import Graph, Operator, read, write
from tests.engine.graph.build import F32, INPUT, built, op

# More than any loop does between two questions.
STEP = 300


class Asked:
    """Counts how often it is asked; says yes from a turn on."""

    def __init__(self, until: float = float("inf")) -> None:
        self.times = 0
        self.until = until

    def __call__(self) -> bool:
        self.times += 1
        return self.times > self.until


def chain(length: int) -> RuntimeGraph:
    """Weights, folding, kernels and layers: so many of each."""
    operators: list[Operator] = []
    last = "0"
    for n in range(length):
        data = np.full((1, 4), n + 1, F32)
        operators += [
            op("pnnx.Attribute", f"weight{n}", "", f"w{n}", data=data),
            op("pnnx.Expression", f"folded{n}", f"w{n}", f"f{n}", expr="mul(@0,2)"),
            op("pnnx.Expression", f"sum{n}", f"{last} f{n}", f"s{n}", expr="add(@0,@1)"),
            op("torch.sort", f"sorted{n}", f"s{n}", f"v{n} i{n}", dim=1, descending=False),
        ]
        last = f"v{n}"
    return built(INPUT, *operators, op("pnnx.Output", "out", last), _0=(1, 4))


@pytest.fixture(scope="module")
def sources() -> tuple[RuntimeGraph, RuntimeGraph]:
    return chain(STEP // 2), chain(STEP)


def _read(graph: RuntimeGraph) -> Callable[[], object]:
    folder = Path(tempfile.mkdtemp())
    write(graph.source, folder / "x.param", folder / "x.bin")
    return lambda: read(folder / "x.param", folder / "x.bin", verify=True)


def _built(source: Graph) -> None:
    RuntimeGraph.from_source(source).build()


STAGES: dict[str, Callable[[RuntimeGraph], Callable[[], object]]] = {
    "reading": _read,
    "building": lambda graph: lambda: _built(graph.source),
    "greedy order": lambda graph: lambda: arrange(graph.operators, "least_memory"),
    "inference": lambda graph: lambda: graph.infer([engine.TensorSpec((1, 4), F32)]),
    **{name: lambda graph, name=name: lambda: PASSES[name](graph) for name in PASSES},  # type: ignore[misc]
    "description": lambda graph: graph.describe,
    "another batch": lambda graph: lambda: decide(graph),
    "a run": lambda graph: lambda: Session(graph, backend="reference").run([np.zeros((1, 4), F32)]),
    "compiling": lambda graph: lambda: Session(graph, backend="compiled", cache=None).prepare(),
}
SMALL = {"compiling": 30}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_asks_more_often_where_the_graph_is_longer(
    stage: str, sources: tuple[RuntimeGraph, RuntimeGraph]
) -> None:
    graphs = [chain(SMALL[stage] * k) for k in (1, 2)] if stage in SMALL else list(sources)
    times = []
    for graph in graphs:
        work, asked = STAGES[stage](graph), Asked()
        with cancelling(asked):
            work()
        times.append(asked.times)
    # Every so many turns: what lies between two questions has a bound.
    assert times[1] - times[0] >= (len(graphs[1].operators) - len(graphs[0].operators)) // 256
    assert times[1] > times[0] > 0


@pytest.mark.parametrize("stage", STAGES)
def test_a_no_at_any_time_ends_a_stage(stage: str) -> None:
    graph = chain(12)
    work, asked = STAGES[stage](graph), Asked()
    with cancelling(asked):
        work()
    for until in sorted({*range(min(asked.times, 4)), *range(0, asked.times, max(1, asked.times // 12))}):
        with cancelling(Asked(until)), pytest.raises(RunCancelledError):
            STAGES[stage](graph)()
    work()


def test_a_description_that_was_stopped_is_whole_when_it_is_asked_for_again() -> None:
    session, other = (Session(chain(3), backend="auto", cache=None) for _ in range(2))
    asked = Asked()
    other.prepare(cancelled=asked)
    told = other.describe(asked)
    for until in range(0, asked.times, max(1, asked.times // 10)):
        with suppress(RunCancelledError):  # what the calls before have finished is not asked about again
            session.prepare(cancelled=Asked(until))
            session.describe(Asked(until))
    again = session.describe()
    assert again["batch"] == told["batch"] and again["backend"] == told["backend"] == "compiled"


def test_what_an_outer_block_asks_is_asked_inside_too() -> None:
    with cancelling(Asked(0)), cancelling(Asked()), pytest.raises(RunCancelledError):
        check_cancelled()
    with cancelling(Asked()), cancelling(None), cancelling(Asked(0)), pytest.raises(RunCancelledError):
        check_cancelled()
    check_cancelled()


def test_the_items_end_when_they_are_cancelled() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    seen = []
    with cancelling(Asked(5)), pytest.raises(RunCancelledError):
        for number in cancellable(endless()):
            seen.append(number)
    assert seen == [0, 1, 2, 3, 4]


def test_every_order_of_operators_is_among_the_stages() -> None:
    assert set(ORDERS) == {"kahn", "depth_first", "least_memory"}
