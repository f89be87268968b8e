"""Kernels compile to the same object code on one core or several."""

from __future__ import annotations

import pytest

from engine import RunCancelledError
from engine.compiler import CompiledGraph
from engine.graph import RuntimeGraph
from engine.options import Options
from tests.engine.compiler.cache.keeping import convolution, sorting
from tests.held import assert_no_more, held


@pytest.mark.parametrize("graph", [convolution(), sorting()], ids=["convolution", "sorting"])
def test_cores_change_nothing_of_what_is_made(graph: RuntimeGraph) -> None:
    made = [
        CompiledGraph(graph, Options(threads=1)).builder.program(
            [port.spec for port in graph.inputs if port.spec is not None], cores=cores
        )
        for cores in (0, 1, 3)
    ]
    for other in made[1:]:
        assert made[0].executable.code == other.executable.code
        assert made[0].executable.steps == other.executable.steps


def test_who_is_no_longer_wanted_leaves_no_thread_behind() -> None:
    graph = convolution()
    specs = [port.spec for port in graph.inputs if port.spec is not None]

    def refuse(stage: str, number: int, count: int) -> None:
        if stage == "assembling":
            raise RunCancelledError("the run is cancelled")

    before = held()
    for _ in range(4):
        with pytest.raises(RunCancelledError):
            CompiledGraph(graph, Options(threads=1)).builder.program(specs, cores=4, progress=refuse)
    assert_no_more(before, turns=4)
