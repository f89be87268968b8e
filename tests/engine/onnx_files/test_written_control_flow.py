"""Branches and loops written as ONNX files give onnxruntime's answers of the file that was read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.onnx_writing import to_model
from tests.engine.onnx_files.models import FLOAT, INT64, model, node, onnx, save, value
from tests.engine.onnx_files.test_control_flow import BOOL, body, branches, old_scan, summing_loop

onnxruntime = pytest.importorskip("onnxruntime")


def answers(proto: Any, feeds: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def written(proto: Any, folder: Path) -> Any:
    """Return a model read and written again."""
    made = to_model(engine.load(save(folder, proto)))
    if all(each.type.tensor_type.HasField("shape") for each in made.graph.output):
        onnx.checker.check_model(made, full_check=True)
    return made


def hold_same_answers(proto: Any, folder: Path, *runs: Mapping[str, Any]) -> Any:
    proto.ir_version = 10
    made = written(proto, folder)
    for feeds in runs:
        for mine, theirs in zip(answers(made, feeds), answers(proto, feeds), strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    return made


def types(graph: Any) -> list[str]:
    """Return the types of all nodes, those of subgraphs after their node."""
    found = []
    for each in graph.node:
        inner = [name for attribute in each.attribute if attribute.HasField("g") for name in types(attribute.g)]
        found += [each.op_type, *inner]
    return found


X = np.array([1, 2], np.float32)


def test_a_branch_reads_values_of_the_outer_graph(tmp_path: Path) -> None:
    runs = [{"c": np.array(choice), "x": np.linspace(-1, 3, 3 * rows, dtype=np.float32).reshape(rows, 3)}
            for choice in (True, False) for rows in (1, 4)]  # fmt: skip
    made = hold_same_answers(branches(), tmp_path, *runs)
    assert types(made.graph) == ["If", "Mul", "Sub", "Relu"]


def test_a_loop_counts_stacks_and_stops(tmp_path: Path) -> None:
    runs = [{"count": np.array(count), "start": np.zeros(2, np.float32), "x": X} for count in (0, 1, 3, 100)]
    hold_same_answers(summing_loop(), tmp_path, *runs)


@pytest.mark.parametrize("has_count", [True, False])
def test_a_loop_takes_a_count_or_a_condition_or_both(has_count: bool, tmp_path: Path) -> None:
    nodes = [node("Add", ["s", "x"], ["t"]), node("ReduceMax", ["t"], ["top"], keepdims=0),
             node("Less", ["top", "bound"], ["again"])]  # fmt: skip
    inside = body("body", nodes, [value("turn", [], INT64), value("before", [], BOOL), value("s", [2])],
                  [value("again", [], BOOL), value("t", [2])])  # fmt: skip
    loop = node("Loop", ["count" if has_count else "", "first", "x"], ["y"], body=inside)
    inputs = [value("first", [], BOOL), value("x", [2]), *([value("count", [], INT64)] if has_count else [])]
    proto = model([loop], inputs, [value("y", [2])], {"bound": np.float32(9)})
    counts = [{"count": np.array(count)} for count in (0, 2, 9)] if has_count else [{}]
    runs = [{"first": np.array(first), "x": X, **count} for first in (True, False) for count in counts]
    hold_same_answers(proto, tmp_path, *runs)


@pytest.mark.parametrize("axes", [{}, {"scan_input_axes": [1], "scan_output_axes": [-1]}])
@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_slices_and_stacks_along_axes_in_both_directions(
    axes: dict[str, Any], direction: int, tmp_path: Path
) -> None:
    inside = body("body", [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "w"], ["u"])],
                  [value("s", [2]), value("x", [2])], [value("t", [2]), value("u", [2])])  # fmt: skip
    scan = node("Scan", ["start", "xs"], ["last", "all"], body=inside, num_scan_inputs=1,
                scan_input_directions=[direction], scan_output_directions=[direction], **axes)  # fmt: skip
    shape = [2, "n"] if axes else ["n", 2]
    proto = model([scan], [value("start", [2]), value("xs", shape)], [value("last", [2]), value("all", shape)],
                  {"w": np.array([2, 3], np.float32)})  # fmt: skip
    xs = np.arange(6, dtype=np.float32).reshape((2, 3) if axes else (3, 2))
    hold_same_answers(proto, tmp_path, {"start": X, "xs": xs})


def nested() -> Any:
    """Return a model with a branch in a loop in a loop; all read values of the graphs around them."""
    then = body("then", [node("MatMul", ["inner", "w"], ["a"])], [], [value("a", [2, 2])])
    other = body("else", [node("Add", ["inner", "x"], ["b0"]), node("Add", ["b0", "outer"], ["b"])], [],
                 [value("b", [2, 2])])  # fmt: skip
    within = body(
        "within",
        [
            node("Equal", ["k", "turn"], ["same"]),
            node("If", ["same"], ["next"], then_branch=then, else_branch=other),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Identity", ["go"], ["still"]),
        ],
        [value("k", [], INT64), value("go", [], BOOL), value("inner", [2, 2])],
        [value("still", [], BOOL), value("next", [2, 2]), value("total", [])],
    )
    around = body(
        "around",
        [
            node("Loop", ["three", "", "outer"], ["moved", "totals"], body=within),
            node("Tanh", ["moved"], ["state"]),
            node("Identity", ["stay"], ["on"]),
        ],
        [value("turn", [], INT64), value("stay", [], BOOL), value("outer", [2, 2])],
        [value("on", [], BOOL), value("state", [2, 2]), value("totals", [3])],
    )
    loop = node("Loop", ["n", "", "x"], ["y", "all"], body=around)
    weights = {"w": np.array([[0.5, 1], [-1, 0.25]], np.float32), "three": np.array(3)}
    inputs = [value("n", [], INT64), value("x", [2, 2])]
    return model([loop], inputs, [value("y", [2, 2]), value("all", ["n", 3])], weights)


def test_bodies_may_be_nested(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 2)).astype(np.float32)
    made = hold_same_answers(nested(), tmp_path, *({"n": np.array(n), "x": x} for n in (1, 5)))
    assert [each for each in types(made.graph) if each in ("If", "Loop")] == ["Loop", "Loop", "If"]


def test_results_that_no_node_of_the_body_makes_are_copied(tmp_path: Path) -> None:
    constant = onnx.numpy_helper.from_array(np.array([5, 6], np.float32))

    def copies(*names: str) -> list[Any]:
        return [node("Identity", [name], [f"{name}{k}"]) for k, name in enumerate(names)]

    then = body("then", [*copies("x", "x"), node("Constant", [], ["k"], value=constant)], [],
                [value("x0", [2]), value("x1", [2]), value("k", [2])])  # fmt: skip
    other = body("else", [node("Neg", ["x"], ["a"]), *copies("a", "a", "w")], [],
                 [value("a0", [2]), value("a1", [2]), value("w2", [2])])  # fmt: skip
    swap = body("body", copies("go", "b", "a", "i"),
                [value("i", [], INT64), value("go", [], BOOL), value("a", [2]), value("b", [2])],
                [value("go0", [], BOOL), value("b1", [2]), value("a2", [2]), value("i3", [], INT64)])  # fmt: skip
    nodes = [node("If", ["c"], ["p", "q", "r"], then_branch=then, else_branch=other),
             node("Loop", ["n", "", "p", "r"], ["s", "t", "turns"], body=swap)]  # fmt: skip
    proto = model(nodes, [value("c", [], BOOL), value("x", [2]), value("n", [], INT64)],
                  [*(value(name, [2]) for name in "qst"), value("turns", ["n"], INT64)], {"w": X})  # fmt: skip
    runs = [{"c": np.array(c), "x": X, "n": np.array(n)} for c in (True, False) for n in (0, 3)]
    hold_same_answers(proto, tmp_path, *runs)


def test_sizes_that_change_in_a_loop_stay_dynamic(tmp_path: Path) -> None:
    nodes = [node("Concat", ["s", "x"], ["longer"], axis=0), node("Shape", ["longer"], ["size"]),
             node("Identity", ["go"], ["on"])]  # fmt: skip
    grow = body("body", nodes, [value("i", [], INT64), value("go", [], BOOL), value("s", ["k"])],
                [value("on", [], BOOL), value("longer", ["m"]), value("size", [1], INT64)])  # fmt: skip
    loop = node("Loop", ["n", "", "x"], ["y", "sizes"], body=grow)
    proto = model(
        [loop], [value("n", [], INT64), value("x", [2])], [value("y", ["z"]), value("sizes", ["n", 1], INT64)]
    )
    hold_same_answers(proto, tmp_path, *({"n": np.array(n), "x": X} for n in (0, 3)))


def test_half_precision_is_kept_in_a_body(tmp_path: Path) -> None:
    half = onnx.TensorProto.FLOAT16
    then = body("then", [node("Exp", ["x"], ["a"])], [], [value("a", [2], half)])
    other = body("else", [node("Neg", ["x"], ["b"])], [], [value("b", [2], half)])
    proto = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
                  [value("c", [], BOOL), value("x", [2], half)], [value("y", [2], half)])  # fmt: skip
    hold_same_answers(proto, tmp_path, {"c": np.array(False), "x": X.astype(np.float16)})


def test_operators_of_a_body_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    lists = body("body", [node("SequenceInsert", ["s", "x"], ["longer"]), node("Identity", ["go"], ["on"])],
                 [value("i", [], INT64), value("go", [], BOOL), sequence("s")],
                 [value("on", [], BOOL), sequence("longer")])  # fmt: skip
    nodes = [node("SequenceConstruct", ["x"], ["s0"]), node("Loop", ["n", "", "s0"], ["s1"], name="grow", body=lists),
             node("ConcatFromSequence", ["s1"], ["y"], axis=0)]  # fmt: skip
    proto = model(nodes, [value("n", [], INT64), value("x", [2])], [value("y", ["m"])])
    with pytest.raises(
        engine.UnsupportedOperatorError, match=r"grow \(onnx.Loop\): .* no rank and dtype that are known"
    ):
        written(proto, tmp_path)
    with pytest.raises(engine.UnsupportedOperatorError, match=r"onnx.BatchScan"):
        written(old_scan([0]), tmp_path)


def sequence(name: str) -> Any:
    return onnx.helper.make_tensor_sequence_value_info(name, FLOAT, None)
