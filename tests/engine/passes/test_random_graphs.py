"""Whatever a graph is made of, every pass and all of them together keep its answers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine import EngineError, RuntimeGraph
from engine.graph import execute
from engine.passes import PASSES, optimise
from tests.engine.passes.applying import FOLDED, applied, assert_answers, assert_same_ports
from tests.engine.passes.random_graphs import EXACT, WEIGHTED, random_graph

seeds = st.integers(0, 2**32)


def inputs_of(graph: RuntimeGraph, batch: int = 2) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(-9, 9, (batch, 4, 3)).astype(np.float32) for _ in graph.inputs]


@given(seeds, st.sampled_from(list(PASSES)))
def test_a_pass_keeps_every_bit_where_no_weights_are_folded(seed: int, name: str) -> None:
    graph = random_graph(seed, EXACT)
    applied(PASSES[name], graph, *inputs_of(graph))


@given(seeds)
def test_all_passes_keep_every_number_where_no_weights_are_folded(seed: int) -> None:
    graph = random_graph(seed, EXACT)
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    assert_answers(execute(optimised.plan, inputs_of(graph)), execute(graph.plan, inputs_of(graph)), signed=False)


@given(seeds)
def test_all_passes_keep_every_number_of_a_graph_with_an_open_batch(seed: int) -> None:
    graph = random_graph(seed, EXACT, open_batch=True)
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    for inputs in (inputs_of(graph, batch) for batch in (1, 2, 5)):
        expected = answers(graph, inputs)
        if expected is not None:
            assert_answers(execute(optimised.plan, inputs), expected, signed=False)


def answers(graph: RuntimeGraph, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The graph's answers; None where a constant or a reshape in it forbids this batch."""
    try:
        return execute(graph.plan, inputs)
    except EngineError:
        return None


@given(seeds)
def test_folded_weights_stay_close(seed: int) -> None:
    graph = random_graph(seed, WEIGHTED)
    optimised, _ = optimise(graph)
    assert_answers(execute(optimised.plan, inputs_of(graph)), execute(graph.plan, inputs_of(graph)), FOLDED)
    assert optimise(optimised)[0] is optimised
