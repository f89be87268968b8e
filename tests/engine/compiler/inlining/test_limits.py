"""Unrolling is bounded, whatever trip counts a file states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler.inlining.inlining import MOST_KEPT, MOST_KEPT_OPERATORS, Inlining
from engine.compiler.inlining.trip_counts import MOST_ADDED, MOST_ITERATIONS, size_of
from engine.graph.building.subgraphs import Subgraph
from tests.engine.compiler.inlining.loops import BOOL, WEIGHTS, body
from tests.engine.onnx_files.models import INT64, model, node, save, value

FLOAT32 = np.dtype(np.float32)


def iteration(name: str, nodes: list[Any], result: str, still: str = "") -> Any:
    """Return a subgraph with one state, whose nodes use ``{name}s``."""
    still = still or f"{name}still"
    inputs = [value(f"{name}iteration", [], INT64), value(f"{name}before", [], BOOL), value(f"{name}s", None)]
    nodes = [*nodes, node("Identity", [f"{name}before"], [f"{name}still"])]
    return body(name, nodes, inputs, [value(still, [], BOOL), value(result, None)])


def looped(count: str, inside: Any, **weights: Any) -> Any:
    nodes = [node("Shape", ["x"], ["sizes"]), node("Gather", ["sizes", "zero"], ["rows"], axis=0),
             node("Loop", [count, "", "x"], ["y"], name="loop", body=inside)]  # fmt: skip
    return model(nodes, [value("x", ["n", 3])], [value("y", None)], {**WEIGHTS, **weights})


def taken(folder: Path, proto: Any, rows: int = 2) -> tuple[engine.RuntimeGraph, engine.RuntimeGraph]:
    """Return a graph, and the inlined graph for this number of rows."""
    graph = engine.load(save(folder, proto))
    return graph, Inlining(graph).graph_for([engine.TensorSpec((rows, 3), FLOAT32)])


def loops_of(graph: engine.RuntimeGraph) -> list[str]:
    return [op.name for op in graph.operators if op.type == "onnx.Loop"]


@pytest.mark.parametrize("count", [2**31 - 1, 2**63 - 1, MOST_ITERATIONS + 1])
def test_loops_of_many_turns_stay(tmp_path: Path, count: int) -> None:
    graph, found = taken(
        tmp_path, looped("many", iteration("b", [node("Neg", ["bs"], ["t"])], "t"), many=np.array(count))
    )
    assert found is graph


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_a_loop_that_never_turns_hands_on_what_it_was_given(tmp_path: Path, count: int) -> None:
    inside = iteration("b", [node("MatMul", ["bs", "weight"], ["t"])], "t")
    _, found = taken(tmp_path, looped("none", inside, none=np.array(count)))
    assert not loops_of(found)


def test_a_loop_without_an_end_stays(tmp_path: Path) -> None:
    graph, found = taken(tmp_path, looped("", iteration("b", [node("Neg", ["bs"], ["t"])], "t")))
    assert found is graph


def test_a_turn_that_only_a_run_decides_stays(tmp_path: Path) -> None:
    nodes = [node("ReduceMax", ["bs"], ["top"], keepdims=0), node("Less", ["top", "half"], ["c"])]
    graph, found = taken(tmp_path, looped("two", iteration("b", nodes, "bs", still="c")))
    assert found is graph


def test_what_a_turn_refuses_a_run_says(tmp_path: Path) -> None:
    nodes = [node("Concat", ["bs", "x"], ["longer"], axis=0), node("Add", ["longer", "x"], ["t"])]
    graph = engine.load(save(tmp_path, looped("two", iteration("b", nodes, "t"))))
    x = np.ones((3, 3), np.float32)
    for backend in ("reference", "auto"):
        with pytest.raises(engine.EngineError, match="loop"):
            engine.Session(graph, backend=backend, cache=None).run([x])


def test_a_large_body_is_not_repeated(tmp_path: Path) -> None:
    names = ["bs", *(f"v{k}" for k in range(MOST_ADDED // 2))]
    nodes = [node("Neg", [a], [b]) for a, b in zip(names, names[1:], strict=False)]
    graph, found = taken(tmp_path, looped("two", iteration("b", nodes, names[-1])))
    assert found is graph


def test_loops_inside_of_loops_count_with_all_their_turns(tmp_path: Path) -> None:
    inside = iteration("a", [node("Neg", ["as"], ["at"])], "at")
    for name, inner in (("b", "a"), ("c", "b"), ("d", "c")):
        inside = iteration(name, [node("Loop", ["many", "", f"{name}s"], [f"{name}t"], body=inside)], f"{name}t")
        assert inner
    graph, found = taken(tmp_path, looped("many", inside, many=np.array(40)))
    assert size_of(found.operators) - size_of(graph.operators) <= MOST_ADDED
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    graph, found = taken(tmp_path, looped("many", inside, many=np.array(3)))
    assert not loops_of(found)
    np.testing.assert_array_equal(engine.Session(graph, cache=None).run([x])[0], -x)


def test_hundreds_of_loops_share_what_there_is(tmp_path: Path) -> None:
    nodes = [
        node("Loop", ["eight", "", f"x{k}" if k else "x"], [f"x{k + 1}"], name=f"loop{k}",
             body=iteration(f"b{k}", [node("Neg", [f"b{k}s"], [f"t{k}"])], f"t{k}"))
        for k in range(200)
    ]  # fmt: skip
    proto = model(nodes, [value("x", ["n", 3])], [value("x200", None)], {"eight": np.array(8)})
    graph, found = taken(tmp_path, proto)
    assert 0 < len(loops_of(found)) < 200
    assert size_of(found.operators) - size_of(graph.operators) <= MOST_ADDED


def test_of_looking_ahead_there_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysed = 0
    before = Subgraph.infer

    def counted(self: Subgraph, inputs: Any) -> Any:
        nonlocal analysed
        analysed += len(self.operators)
        return before(self, inputs)

    nodes = [
        node("Loop", ["", "yes", "x"], [f"x{k}"], name=f"loop{k}",
             body=iteration(f"b{k}", [node("Neg", [f"b{k}s"], [f"t{k}"])], f"t{k}"))
        for k in range(200)
    ]  # fmt: skip
    graph = engine.load(save(tmp_path, model(nodes, [value("x", ["n", 3])], [value("x0", None)], WEIGHTS)))
    specs = [engine.TensorSpec((2, 3), FLOAT32)]
    monkeypatch.setattr(Subgraph, "infer", counted)
    graph.infer(specs)
    once, analysed = analysed, 0
    assert Inlining(graph).graph_for(specs) is graph
    assert analysed - once <= 4 * MOST_ADDED


def test_of_many_shapes_only_some_graphs_are_kept(tmp_path: Path) -> None:
    graph = engine.load(save(tmp_path, looped("rows", iteration("b", [node("Neg", ["bs"], ["t"])], "t"))))
    inlining = Inlining(graph)
    for rows in range(1, 2 + MOST_KEPT):
        found = inlining.graph_for([engine.TensorSpec((rows, 3), FLOAT32)])
        assert not loops_of(found)
        assert inlining.graph_for([engine.TensorSpec((rows, 3), FLOAT32)]) is found
    kept = list(inlining._kept.values())
    assert len(kept) == MOST_KEPT
    assert sum(len(each.operators) for each in kept) <= MOST_KEPT_OPERATORS


def test_turns_share_their_weights(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    weight = np.linspace(-0.01, 0.01, 96 * 96, dtype=np.float32).reshape(96, 96)
    inside = iteration("b", [node("MatMul", ["bs", "w"], ["t"])], "t")
    nodes = [node("Loop", ["ten", "", "x"], ["y"], body=inside)]
    proto = model(nodes, [value("x", [5, 96])], [value("y", None)], {"w": weight, "ten": np.array(10)})
    ours = engine.Session(engine.load(save(tmp_path, proto)), "compiled", 1, cache=None)
    ours.run([np.ones((5, 96), np.float32)])
    figures = ours.describe()["compiler"]
    assert figures["fallbacks"] == 0
    assert figures["constant_bytes"] < 2 * weight.nbytes


def test_a_long_name_does_not_grow_with_every_turn(tmp_path: Path) -> None:
    inside = iteration("b", [node("Neg", ["bs"], ["t"], name="n" * 100_000)], "t")
    _, found = taken(tmp_path, looped("two", inside))
    assert not loops_of(found)
    assert max(len(op.name) for op in found.operators) < 1000
