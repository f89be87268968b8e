"""The values between operators: kept as a run has them, and where two runs part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import engine
from app.settings import Settings
from app.trials.comparing import Values, values_of
from app.trials.sessions import Build, Sessions
from tests.app.console.conftest import long_lines
from tests.engine.pnnx.build import pair

X = np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> engine.RuntimeGraph:
    return engine.load(pair(tmp_path_factory.mktemp("long"), long_lines(2), {}))


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with Sessions(Settings(cache=False), lambda: False) as sessions:
        yield sessions


def kept(graph: engine.RuntimeGraph, build: Build, sessions: Sessions) -> Values:
    session = sessions.get(graph, build)
    sessions.make_ready(session, build, [X])
    session.run([X])
    return values_of(graph, session, build, [X], sessions)


def test_machine_code_writes_down_what_leaves_a_kernel_and_the_reference_everything(
    graph: engine.RuntimeGraph, sessions: Sessions
) -> None:
    reference = kept(graph, Build(backend="reference"), sessions)
    compiled = kept(graph, Build(threads=1), sessions)
    made = [op.name for op in graph.operators if op.inputs and op.outputs]
    assert [name for name, _ in reference.arrays] == made == list(reference.operators) and not reference.kernels
    assert set(compiled.arrays) < set(reference.arrays)
    assert {("expr_0", 0), ("expr_1", 0)} <= set(compiled.arrays) and set(compiled.kernels.values()) <= set(made)
    for place, array in compiled.arrays.items():
        assert np.allclose(array, reference.arrays[place], atol=1e-6), place


def test_values_are_those_of_the_run_that_is_compared(graph: engine.RuntimeGraph, sessions: Sessions) -> None:
    session = engine.Session(graph, "reference")
    expected = session.run([X], taps=["a0", "b1"]).taps
    found = kept(graph, Build(backend="reference"), sessions).arrays
    assert np.array_equal(found["stage0.0.pool", 0], expected["a0"])
    assert np.array_equal(found["stage0.1.relu", 0], expected["b1"])


def test_sessions_of_a_trial_are_closed_with_it(tmp_path: Path, graph: engine.RuntimeGraph) -> None:
    with Sessions(Settings(cache_dir=tmp_path), lambda: False) as sessions:
        session = sessions.get(graph, Build(threads=1))
        assert sessions.get(graph, Build(threads=1)) is session
        sessions.make_ready(session, Build(threads=1), [X])
        assert session.is_compiled([X])
    assert not session.is_compiled([X])
