"""Bodies inside of programs: branches that shapes decide join what is around them, others are programs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.graph.building.subgraphs import Subgraph
from engine.limits import asking_for_room
from tests.engine.onnx_files.models import INT64, expected, model, node, onnx, save, value
from tests.engine.onnx_files.test_control_flow import BOOL, body, branches, summing_loop

pytest.importorskip("llvmlite")


def session(folder: Path, proto: Any, **options: Any) -> engine.Session:
    return engine.Session(engine.load(save(folder, proto)), "compiled", 1, cache=None, **options)


@pytest.fixture
def no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the reference makes of a body is an answer."""

    def refuse(self: Subgraph, inputs: Any) -> Any:
        raise AssertionError("the reference ran a body")

    monkeypatch.setattr(Subgraph, "run", refuse)


def chosen_by_rank() -> Any:
    """Return an If as scripts write it: the last axis is dropped if it is 1; inside, another If depends on a size."""
    inner_then = body("inner_then", [node("Relu", ["d"], ["r"])], [], [value("r", None)])
    inner_else = body("inner_else", [node("Neg", ["d"], ["g"])], [], [value("g", None)])
    then = body(
        "then",
        [
            node("Squeeze", ["more", "last"], ["d"]),
            node("Size", ["d"], ["count"]),
            node("Greater", ["count", "few"], ["many"]),
            node("If", ["many"], ["q"], then_branch=inner_then, else_branch=inner_else),
        ],
        [],
        [value("q", None), value("d", None)],
    )
    other = body("else", [node("Identity", ["more"], ["e"])], [], [value("e", None), value("more", None)])
    nodes = [
        node("Add", ["x", "one"], ["more"]),
        node("Shape", ["x"], ["sizes"], start=-1),
        node("Equal", ["sizes", "ones"], ["c"]),
        node("If", ["c"], ["i", "j"], then_branch=then, else_branch=other),
        node("Mul", ["i", "j"], ["y"]),
    ]
    weights = {"one": np.float32(1), "ones": np.array([1]), "last": np.array([-1]), "few": np.array(3)}
    return model(nodes, [value("x", ["n", "m"])], [value("y", None)], weights)


def test_branches_that_shapes_decide_are_compiled_among_the_operators_around(tmp_path: Path) -> None:
    proto = chosen_by_rank()
    ours = session(tmp_path, proto)
    for shape in ((2, 1), (5, 1), (2, 3)):
        x = np.linspace(-3, 2, np.prod(shape), dtype=np.float32).reshape(shape)
        (found,) = ours.run([x])
        np.testing.assert_array_equal(found, expected(proto, {"x": x})[0])
        assert ours.describe()["compiler"]["fallbacks"] == 0


@pytest.mark.usefixtures("no_reference")
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_branch_that_a_value_chooses_is_a_program_of_its_own(tmp_path: Path, is_prepared: bool) -> None:
    proto = branches()
    ours = session(tmp_path, proto)
    if is_prepared:
        ours.prepare(specs=[engine.TensorSpec((), np.dtype(bool)), engine.TensorSpec((4, 3), np.dtype(np.float32))])
    for choice in (True, False, True):
        feeds = {"c": np.array(choice), "x": np.linspace(-1, 3, 12, dtype=np.float32).reshape(4, 3)}
        np.testing.assert_array_equal(ours.run(feeds)[0], expected(proto, feeds)[0])
    (row,) = [row for row in ours.describe()["operators"] if row["type"] == "onnx.If"]
    assert "compiled by themselves" in row["why"]
    ours.close()
    np.testing.assert_array_equal(ours.run(feeds)[0], expected(proto, feeds)[0])


@pytest.mark.usefixtures("no_reference")
def test_a_graph_of_nothing_but_a_choice_is_compiled(tmp_path: Path) -> None:
    proto = branches()
    del proto.graph.node[1]
    proto.graph.output[0].name = "i"
    feeds = {"c": np.array(True), "x": np.full((1, 3), 4, np.float32)}
    np.testing.assert_array_equal(session(tmp_path, proto).run(feeds)[0], expected(proto, feeds)[0])


@pytest.mark.usefixtures("no_reference")
@pytest.mark.parametrize("count", [0, 3])
def test_a_loop_runs_its_compiled_body(tmp_path: Path, count: int) -> None:
    x = np.array([1, 2], np.float32)
    found = session(tmp_path, summing_loop()).run([np.array(count), np.zeros(2, np.float32), x])
    np.testing.assert_array_equal(found[0], count * x)
    np.testing.assert_array_equal(found[1], np.arange(1, count + 1)[:, None] * x)


def growing_loop() -> Any:
    """A state that has one element more every turn."""
    inside = body(
        "body",
        [node("Concat", ["s", "x"], ["longer"], axis=0), node("Mul", ["longer", "x"], ["t"]),
         node("Identity", ["before"], ["still"])],
        [value("turn", [], INT64), value("before", [], BOOL), value("s", ["n"])],
        [value("still", [], BOOL), value("t", ["m"])],
    )  # fmt: skip
    nodes = [node("Loop", ["count", "", "x"], ["y"], body=inside)]
    return model(nodes, [value("count", [], INT64), value("x", [1])], [value("y", None)])


@pytest.mark.usefixtures("no_reference")
def test_the_states_of_a_loop_may_have_another_shape_in_every_turn(tmp_path: Path) -> None:
    (found,) = session(tmp_path, growing_loop()).run([np.array(4), np.full(1, 2, np.float32)])
    assert found.tolist() == [32, 32, 16, 8, 4]


@pytest.mark.usefixtures("no_reference")
def test_a_scan_runs_its_compiled_body(tmp_path: Path) -> None:
    inside = body("body", [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "w"], ["u"])],
                  [value("s", [2]), value("x", [2])], [value("t", [2]), value("u", [2])])  # fmt: skip
    nodes = [node("Scan", ["start", "xs"], ["last", "all"], body=inside, num_scan_inputs=1)]
    inputs = [value("start", [2]), value("xs", [3, 2]), value("w", [2])]
    proto = model(nodes, inputs, [value("last", [2]), value("all", [3, 2])])
    feeds = {
        "start": np.zeros(2, np.float32),
        "xs": np.arange(6, dtype=np.float32).reshape(3, 2),
        "w": np.array([2, -1], np.float32),
    }
    for found, wanted in zip(session(tmp_path, proto).run(feeds), expected(proto, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_no_tensor_goes_through_a_body_of_the_reference(tmp_path: Path) -> None:
    then = body("then", [node("SequenceConstruct", ["more", "more"], ["s"])], [], [onnx.ValueInfoProto(name="s")])
    other = body("else", [node("SequenceConstruct", ["more"], ["s"])], [], [onnx.ValueInfoProto(name="s")])
    nodes = [node("Add", ["x", "x"], ["more"]), node("If", ["c"], ["q"], then_branch=then, else_branch=other),
             node("ConcatFromSequence", ["q"], ["y"], axis=0)]  # fmt: skip
    proto = model(nodes, [value("c", [], BOOL), value("x", [2])], [value("y", None)])
    ours = session(tmp_path, proto)
    for choice, times in ((True, 2), (False, 1)):
        found = ours.run([np.array(choice), np.array([1, 2], np.float32)])[0]
        np.testing.assert_array_equal(found, [2, 4] * times)


def test_an_error_in_a_compiled_body_names_its_operators(tmp_path: Path) -> None:
    then = body("then", [node("Add", ["x", "w"], ["a"], name="here")], [], [value("a", None)])
    other = body("else", [node("Neg", ["x"], ["b"])], [], [value("b", None)])
    nodes = [node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)]
    proto = model(nodes, [value("c", [], BOOL), value("x", ["n"]), value("w", ["m"])], [value("y", None)])
    ours = session(tmp_path, proto)
    feeds = [np.ones(2, np.float32), np.ones(3, np.float32)]
    assert ours.run([np.array(False), *feeds])[0].tolist() == [-1, -1]
    with pytest.raises(engine.EngineError, match="choice.*here"):
        ours.run([np.array(True), *feeds])


def test_a_compiled_loop_without_an_end_is_ended(tmp_path: Path) -> None:
    inputs = [value("turn", [], INT64), value("before", [], BOOL), value("s", [1])]
    nodes = [node("Identity", ["before"], ["still"]), node("Add", ["s", "s"], ["t"])]
    inside = body("body", nodes, inputs, [value("still", [], BOOL), value("t", [1])])
    proto = model([node("Loop", ["", "", "x"], ["y"], body=inside)], [value("x", [1])], [value("y", [1])])
    ours = session(tmp_path, proto)
    ours.prepare()
    asked = iter(range(200))
    with pytest.raises(engine.RunCancelledError), engine.cancelling(lambda: next(asked, None) is None):
        ours.run([np.ones(1, np.float32)])


def test_what_follows_from_shapes_alone_is_found_out_once_and_its_size_asked_about_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = session(tmp_path, branches())
    feeds = {"c": np.array(True), "x": np.zeros((1000, 3), np.float32)}
    wanted = ours.run(feeds)[0]
    followed: list[Any] = []
    before = Subgraph.infer
    monkeypatch.setattr(Subgraph, "infer", lambda self, inputs: followed.append(inputs) or before(self, inputs))
    asked: list[int] = []
    with asking_for_room(asked.append):
        np.testing.assert_array_equal(ours.run(feeds)[0], wanted)
    assert followed == []
    assert wanted.nbytes in asked
    asked.clear()
    with asking_for_room(asked.append):
        ours.run({"c": np.array(True), "x": np.zeros((7, 3), np.float32)})
    assert any(each >= 7 * 3 * 4 for each in asked)
