"""Branches that sizes decide, and operators of numpy between kernels, in programs for all sizes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.tensor import Array

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")


def branching(folder: Path) -> engine.RuntimeGraph:
    """More than ten rows are doubled, fewer get one added; then a function that only numpy computes, and a product."""
    helper, kinds = onnx.helper, onnx.TensorProto
    branches = {}
    for name, operator, number in (("then_branch", "Mul", 2.0), ("else_branch", "Add", 1.0)):
        value = helper.make_tensor("c", kinds.FLOAT, [], [number])
        nodes = [helper.make_node("Constant", [], [f"{name}_c"], value=value)]
        nodes.append(helper.make_node(operator, ["x", f"{name}_c"], [f"{name}_y"]))
        result = helper.make_tensor_value_info(f"{name}_y", kinds.FLOAT, None)
        branches[name] = helper.make_graph(nodes, name, [], [result])
    weights = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Gather", ["shape", "zero"], ["rows"]),
            helper.make_node("Greater", ["rows", "ten"], ["is_long"]),
            helper.make_node("If", ["is_long"], ["chosen"], **branches),
            helper.make_node("Det", ["square"], ["determinant"]),
            helper.make_node("Mul", ["chosen", "determinant"], ["scaled"]),
            helper.make_node("MatMul", ["scaled", "w"], ["y"]),
        ],
        "branching",
        [
            helper.make_tensor_value_info("x", kinds.FLOAT, ["n", 8]),
            helper.make_tensor_value_info("square", kinds.FLOAT, [3, 3]),
        ],
        [helper.make_tensor_value_info("y", kinds.FLOAT, ["n", 16])],
        [
            helper.make_tensor("zero", kinds.INT64, [], [0]),
            helper.make_tensor("ten", kinds.INT64, [], [10]),
            onnx.numpy_helper.from_array(weights, "w"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return engine.load(folder / "model.onnx")


def inputs(rows: int) -> list[Array]:
    random = np.random.default_rng(rows)
    return [random.standard_normal((rows, 8), np.float32), random.standard_normal((3, 3), np.float32)]


def test_each_size_takes_its_own_branch(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=tmp_path / "cache", threads=1)
    for rows in (12, 40, 5, 11, 10, 9, 200, 2, 1, 33):
        (found,), (expected,) = session.run(inputs(rows)), reference.run(inputs(rows))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    again = engine.Session(graph, backend="compiled", cache=tmp_path / "cache", threads=1)
    for rows in (7, 70):
        np.testing.assert_allclose(again.run(inputs(rows))[0], reference.run(inputs(rows))[0], rtol=1e-4, atol=1e-4)


def test_threads_that_meet_different_sizes_get_their_own_answers(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=1)
    failures: list[str] = []

    def ask(seed: int) -> None:
        for rows in np.random.default_rng(seed).integers(1, 60, 25).tolist():
            (found,), (expected,) = session.run(inputs(rows)), reference.run(inputs(rows))
            if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-4):
                failures.append(f"{rows} rows")

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
