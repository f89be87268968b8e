"""Branches and loops: bodies are graphs of their own, chosen and repeated by values of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import FLOAT, INT64, expected, model, node, onnx, save, value

BOOL = 9


def body(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return onnx.helper.make_graph(nodes, name, inputs, outputs)


def branches() -> Any:
    """Return a model of y = x * w if c else x - 1, of the shape of x or of another."""
    then = body("then", [node("Mul", ["x", "w"], ["a"])], [], [value("a", None)])
    other = body("else", [node("Sub", ["x", "one"], ["b"])], [], [value("b", None)])
    nodes = [node("If", ["c"], ["i"], then_branch=then, else_branch=other), node("Relu", ["i"], ["y"])]
    weights = {"w": np.full((2, 1, 3), 2, np.float32), "one": np.float32(1)}
    return model(nodes, [value("c", [], BOOL), value("x", ["n", 3])], [value("y", None)], weights)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("choice", [True, False])
def test_a_run_takes_the_branch_of_its_condition(tmp_path: Path, backend: Any, choice: bool) -> None:
    proto = branches()
    session = engine.Session(engine.load(save(tmp_path, proto)), backend=backend)
    for rows in (1, 4):
        feeds = {"c": np.array(choice), "x": np.linspace(-1, 3, 3 * rows, dtype=np.float32).reshape(rows, 3)}
        (found,) = session.run(feeds)
        np.testing.assert_allclose(found, expected(proto, feeds)[0])


def test_of_a_known_condition_only_the_branch_is_left(tmp_path: Path) -> None:
    proto = branches()
    del proto.graph.input[0]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(False), "c"))
    graph = engine.load(save(tmp_path, proto))
    assert "onnx.If" not in {op.type for op in graph.operators}
    np.testing.assert_array_equal(
        engine.Session(graph, backend="reference").run([np.full((1, 3), 5, np.float32)])[0], 4
    )


def summing_loop() -> Any:
    """Adds x to a sum so often, or until it exceeds a bound; gives every sum on the way."""
    inside = body(
        "body",
        [
            node("Add", ["sum", "x"], ["more"]),
            node("ReduceMax", ["more"], ["top"], keepdims=0),
            node("Less", ["top", "bound"], ["goes_on"]),
            node("Identity", ["more"], ["row"]),
        ],
        [value("turn", [], INT64), value("before", [], BOOL), value("sum", [2])],
        [value("goes_on", [], BOOL), value("more", [2]), value("row", [2])],
    )
    nodes = [node("Loop", ["count", "", "start"], ["last", "rows"], body=inside)]
    inputs = [value("count", [], INT64), value("start", [2]), value("x", [2])]
    return model(nodes, inputs, [value("last", [2]), value("rows", ["turns", 2])], {"bound": np.float32(9)})


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_loop_runs_so_often_or_until_its_condition_fails(tmp_path: Path, count: int) -> None:
    proto = summing_loop()
    x = np.array([1, 2], np.float32)
    feeds = {"count": np.array(count), "start": np.zeros(2, np.float32), "x": x}
    found = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run(feeds)
    turns = min(count, 5)
    np.testing.assert_array_equal(found[0], turns * x)
    np.testing.assert_array_equal(found[1], np.arange(1, turns + 1)[:, None] * x)


def test_a_loop_without_an_end_is_ended(tmp_path: Path) -> None:
    inputs = [value("turn", [], INT64), value("before", [], BOOL), value("s", [1])]
    outputs = [value("still", [], BOOL), value("s", [1])]
    inside = body("body", [node("Identity", ["before"], ["still"])], inputs, outputs)
    proto = model([node("Loop", ["", "", "x"], ["y"], body=inside)], [value("x", [1])], [value("y", [1])])
    session = engine.Session(engine.load(save(tmp_path, proto)), backend="reference")
    turns = 0

    def is_enough() -> bool:
        nonlocal turns
        turns += 1
        return turns > 100

    with pytest.raises(engine.RunCancelledError), engine.cancelling(is_enough):
        session.run([np.ones(1, np.float32)])


def test_a_scan_goes_over_slices(tmp_path: Path) -> None:
    inside = body("body", [node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["u"])],
                  [value("s", [2]), value("x", [2])], [value("t", [2]), value("u", [2])])  # fmt: skip
    nodes = [node("Scan", ["start", "xs"], ["last", "all"], body=inside, num_scan_inputs=1, scan_output_directions=[1])]
    proto = model(nodes, [value("start", [2]), value("xs", ["n", 2])], [value("last", [2]), value("all", ["n", 2])])
    feeds = {"start": np.zeros(2, np.float32), "xs": np.arange(6, dtype=np.float32).reshape(3, 2)}
    found = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run(feeds)
    np.testing.assert_array_equal(found[0], feeds["xs"].sum(0))
    np.testing.assert_array_equal(found[1], feeds["xs"].cumsum(0)[::-1])


def test_a_pair_cannot_hold_a_body_and_says_so(tmp_path: Path) -> None:
    graph = engine.load(save(tmp_path, branches()))
    with pytest.raises(engine.EngineError, match="subgraphs"):
        graph.save(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")


def test_bodies_inside_each_other_end_somewhere(tmp_path: Path) -> None:
    inner = body("inner", [node("Relu", ["x"], ["y"])], [], [value("y", [2])])
    for _ in range(11):
        inner = body("outer", [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], [], [value("y", [2])])
    nodes = [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)]
    proto = model(nodes, [value("c", [], BOOL), value("x", [2], FLOAT)], [value("y", [2])])
    with pytest.raises(engine.EngineError, match="nested too deep"):
        engine.load(save(tmp_path, proto))


def old_scan(directions: list[int], lengths: str = "") -> Any:
    """Sums of rows so far, of every item of a batch, as operator set 8 has it."""
    body = onnx.helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["y"])], "body",
        [value("s", [2]), value("x", [2])], [value("t", [2]), value("y", [2])],
    )  # fmt: skip
    scan = node("Scan", [lengths, "s0", "xs"], ["last", "all"], body=body, num_scan_inputs=1, directions=directions)
    inputs = [value("s0", ["n", 2]), value("xs", ["n", "t", 2]), *([value("lengths", ["n"], 7)] if lengths else [])]
    return model([scan], inputs, [value("last", None), value("all", None)], opset=8)


def test_a_scan_of_operator_set_8_takes_a_batch_of_items_of_any_lengths(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    feeds = {"s0": np.zeros((2, 2), np.float32), "xs": x}
    run = engine.Session(engine.load(save(tmp_path, old_scan([0]))), backend="reference").run
    last, whole = run(feeds)
    np.testing.assert_array_equal(whole, x.cumsum(axis=1))
    np.testing.assert_array_equal(last, x.sum(axis=1))
    run = engine.Session(engine.load(save(tmp_path, old_scan([1], "lengths"))), backend="reference").run
    last, whole = run({**feeds, "lengths": np.array([3, 1])})
    np.testing.assert_array_equal(whole, [x[0, ::-1].cumsum(axis=0), [x[1, 0], [0, 0], [0, 0]]])
    for lengths in ([3, 4], [-1, 1]):
        with pytest.raises(engine.EngineError, match="sequence_lens"):
            run({**feeds, "lengths": np.array(lengths)})


def test_attention_with_graphs_in_it_is_operators_among_the_others(tmp_path: Path) -> None:
    """Compare with the written-out formula, as not every reference evaluator has the operator."""
    cap = [node("Tanh", ["s"], ["t"])]
    body = onnx.helper.make_graph(cap, "cap", [value("s", [1, 4, 3, 5])], [value("t", [1, 4, 3, 5])])
    flexible = node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=body, scale=0.5)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal(shape, np.float32) for shape in ((1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 6)))
    feeds = {"q": q, "k": k, "v": v}
    inputs = [value(name, each.shape) for name, each in feeds.items()]
    proto = model([flexible], inputs, [value("y", None)], domains=["ai.onnx.preview"])
    (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run(feeds)
    scores = np.tanh(q @ k.repeat(2, 1).swapaxes(2, 3) * 0.5)
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, shares @ v.repeat(2, 1), rtol=1e-5, atol=1e-6)


def test_pieces_of_one_lose_their_axis_as_onnxruntime_has_it(tmp_path: Path) -> None:
    """PyTorch's exporter says unbind so, with a length of 1 beside keepdims=0."""
    nodes = [
        node("SplitToSequence", ["x", "one"], ["all"], axis=1, keepdims=0),
        node("SequenceAt", ["all", "one"], ["y"]),
    ]
    proto = model(nodes, [value("x", ["n", 2])], [value("y", None)], {"one": np.int64(1)})
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run([x])
    np.testing.assert_array_equal(found, x[:, 1])


def loop_of_items(items: list[Any], declared: Any) -> Any:
    """A loop that gives each turn's ``item`` of its state ``v``; the weights are of those who follow it."""
    kept = [node("Identity", ["c"], ["c2"]), node("Add", ["v", "one"], ["v2"])]
    inputs = [value("i", [], INT64), value("c", [], BOOL), value("v", declared)]
    inside = body("body", [*kept, *items], inputs, [value("c2", [], BOOL), value("v2", declared), value("item", None)])
    nodes = [
        node("Loop", ["n", "", "v0"], ["v", "items"], body=inside),
        node("Shape", ["items"], ["sizes"]),
        node("ReduceSum", ["items", "first"], ["total"], keepdims=0),
        node("Concat", ["total", "total"], ["twice"], axis=0),
    ]
    outputs = [value("items", None), value("sizes", None, INT64), value("twice", None)]
    weights = {"one": np.ones(1, np.float32), "first": np.array([0]), "w": np.ones((2, 3), np.float32)}
    return model(nodes, [value("n", [], INT64), value("v0", declared)], outputs, weights)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("declared", [[2], ["a"], None], ids=str)
@pytest.mark.parametrize(("items", "shape"), [
    ([node("Identity", ["v2"], ["item"])], [2]),
    ([node("Unsqueeze", ["v2", "first"], ["item"])], [1, 2]),
    ([node("Expand", ["v2", "to"], ["item"])], [3, 2]),
    ([node("Unsqueeze", ["v2", "first"], ["row"]), node("MatMul", ["row", "w"], ["item"])], [1, 3]),
], ids=["itself", "row", "rows", "product"])  # fmt: skip
def test_what_no_turn_stacks_has_the_shape_of_an_item(
    items: list[Any], shape: list[int], declared: Any, backend: Any, tmp_path: Path
) -> None:
    proto = loop_of_items(items, declared)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3, 2]), "to"))
    session = engine.Session(engine.load(save(tmp_path, proto)), backend=backend, cache=None)
    for turns in (2, 0):
        found, sizes, total = session.run({"n": np.array(turns), "v0": np.zeros(2, np.float32)})
        assert [*found.shape] == sizes.tolist() == [turns, *shape]
        assert total.shape == (2 * shape[0], *shape[1:])


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("length", [3, 0])
def test_a_scan_over_no_slices_stacks_nothing_along_its_axis(length: int, backend: Any, tmp_path: Path) -> None:
    inside = body(
        "body",
        [node("Add", ["s", "x"], ["s2"]), node("Identity", ["s2"], ["o"])],
        [value("s", [3]), value("x", [3])],
        [value("s2", [3]), value("o", [3])],
    )
    scan = node("Scan", ["s0", "xs"], ["s", "os"], body=inside, num_scan_inputs=1, scan_output_axes=[1])
    proto = model([scan], [value("s0", [3]), value("xs", ["n", 3])], [value("s", None), value("os", None)])
    session = engine.Session(engine.load(save(tmp_path, proto)), backend=backend, cache=None)
    state, stack = session.run([np.ones(3, np.float32), np.ones((length, 3), np.float32)])
    assert state.tolist() == [1.0 + length] * 3
    assert (stack.shape, stack.dtype) == ((3, length), np.float32)


def test_a_body_that_refuses_its_first_turn_need_not_take_it(tmp_path: Path) -> None:
    items = [node("MatMul", ["v2", "w"], ["item"])]
    session = engine.Session(engine.load(save(tmp_path, loop_of_items(items, ["a"]))), backend="reference")
    (found, *_) = session.run({"n": np.array(0), "v0": np.zeros(5, np.float32)})
    assert found.shape == (0, 3)
    with pytest.raises(engine.EngineError):
        session.run({"n": np.array(1), "v0": np.zeros(5, np.float32)})
