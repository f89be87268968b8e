"""Sizes that only values tell are asked about before there is memory for them: in a run, in a loop, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.errors import ShapeError
from tests.engine.onnx_files.models import INT64, model, node, save, value

BOOL, STRING = 9, 8
MOST = 1 << 20
SIZE = 8192


def limited(count: int) -> None:
    if count > MOST:
        raise ShapeError("no room", found=count)


def column(name: str = "column") -> list[Any]:
    return [node("Range", ["nought", "count", "one"], ["row"]), node("Reshape", ["row", "upright"], [name])]


CASES: dict[str, list[Any]] = {
    "Add": [*column(), node("Add", ["column", "row"], ["y"])],
    "Where": [*column(), node("Equal", ["row", "one"], ["is"]), node("Where", ["is", "column", "row"], ["y"])],
    "MatMul": [*column(), node("Reshape", ["row", "flat"], ["line"]), node("MatMul", ["column", "line"], ["y"])],
    "Expand": [node("Concat", ["counts", "counts"], ["to"], axis=0), node("Expand", ["one", "to"], ["y"])],
    "Resize": [
        node("Concat", ["counts", "counts"], ["to"], axis=0),
        node("Resize", ["dot", "", "", "to"], ["y"], mode="linear"),
    ],
}
NUMBERS = {
    "nought": np.int64(0), "one": np.int64(1), "upright": np.array([-1, 1]), "flat": np.array([1, -1]),
    "dot": np.ones((1, 1), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_a_result_as_large_as_a_value_says_is_asked_about_first(tmp_path: Path, case: str, backend: Any) -> None:
    if backend == "compiled":
        pytest.importorskip("llvmlite")
    # Something that has a kernel stands beside it.
    nodes = [node("Reshape", ["count", "single"], ["counts"]), *CASES[case], node("Exp", ["a"], ["b"])]
    weights = {**NUMBERS, "single": np.array([1])}
    proto = model(nodes, [value("count", [], INT64), value("a", [4])], [value("y", None), value("b", [4])], weights)
    proto.graph.output[0].type.Clear()
    session = engine.Session(engine.load(save(tmp_path, proto)), backend=backend, cache=None)
    with engine.asking_for_room(limited):
        assert session.run([np.int64(16), np.ones(4, np.float32)])[0].shape == (16, 16)
        with pytest.raises(ShapeError, match="no room"):
            session.run([np.int64(SIZE), np.ones(4, np.float32)])


def turns(body: list[Any], kind: int, count: int = 40, more: Any = ()) -> Any:
    import onnx

    inputs = [value("i", [], INT64), value("c", [], BOOL), value("v", None, kind)]
    outputs = [value("d", [], BOOL), value("w", None, kind), *more]
    graph = onnx.helper.make_graph([*body, node("Identity", ["c"], ["d"])], "body", inputs, outputs)
    results = ["y", *(f"all{k}" for k in range(len(more)))]
    proto = model(
        [node("Loop", ["count", "", "x"], results, body=graph)],
        [value("x", ["n"], kind)], [value(name, None, kind) for name in results], {"count": np.int64(count)},
    )  # fmt: skip
    return proto


@pytest.mark.parametrize("kind", ["doubled", "texts", "kept"])
def test_what_a_loop_makes_is_asked_about_as_it_grows(tmp_path: Path, kind: str) -> None:
    if kind == "doubled":
        proto, x = turns([node("Concat", ["v", "v"], ["w"], axis=0)], 1), np.ones(4, np.float32)
    elif kind == "texts":
        proto, x = turns([node("StringConcat", ["v", "v"], ["w"])], STRING), np.array(["ab"], object)
    else:
        body = [node("Identity", ["v"], ["w"]), node("Add", ["v", "v"], ["k"])]
        proto, x = turns(body, 1, 10_000, [value("k", None)]), np.ones(1024, np.float32)
    session = engine.Session(engine.load(save(tmp_path, proto)), backend="reference")
    most: list[int] = []

    def asked(count: int) -> None:
        most.append(count)
        if count > 1 << 24:
            raise ShapeError("no room", found=count)

    with engine.asking_for_room(asked), pytest.raises(ShapeError, match="no room"):
        session.run([x])
    assert max(most) < 1 << 26


def test_how_batches_run_is_found_out_without_a_tensor_of_any_size(tmp_path: Path) -> None:
    """A Resize by what the input says: nothing is run to find out how batches run."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["whole"], to=INT64),
        node("Mul", ["whole", "nought"], ["none"]), node("Add", ["none", "big"], ["size"]),
        node("Concat", ["kept", "size"], ["to"], axis=0), node("Resize", ["x", "", "", "to"], ["y"]),
    ]  # fmt: skip
    weights = {"nought": np.array([0]), "big": np.array([40_000]), "kept": np.array([2, 3, 40_000])}
    proto = model(nodes, [value("x", [2, 3, 8, 8])], [value("y", None)], weights)
    graph = engine.load(save(tmp_path, proto))
    asked: list[int] = []
    with engine.asking_for_room(asked.append):
        batching = engine.Session(graph, backend="reference").batching
    assert batching.mode != "any"
    assert max(asked, default=0) < 1 << 20
