"""A loop over bags of indices, as PyTorch's exporter writes it, is one operator; any other loop stays what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import INT64, model, node, onnx, save, value

BOOL = 9
RANDOM = np.random.default_rng(11)
TABLE = RANDOM.standard_normal((9, 17)).astype(np.float32)


def bags(
    pool: str = "ReduceSum", *, weighted: bool = False, dynamic_sizes: bool = True, opset: int = 12, **other: Any
) -> Any:
    """The model; ``other`` says in what it is not what the exporter writes."""
    attributes = {"axes": other.get("axes", [0]), "keepdims": 0}
    inside = [
        node("Gather", ["all", "turn"], ["a"], axis=0),
        node("Gather", [other.get("ends", "rest"), other.get("place", "turn")], ["b"], axis=0),
        node("Unsqueeze", ["a"], ["a1"], axes=[0]),
        node("Unsqueeze", ["b"], ["b1"], axes=[0]),
        node("Slice", ["indices", "a1", "b1", "zero"], ["row"]),
        node("Gather", ["table", "row"], ["rows"], axis=0),
    ]
    if weighted:
        inside += [node("Slice", ["scales", other.get("from", "a1"), "b1", "zero"], ["scale"]),
                   node("Unsqueeze", ["scale"], ["column"], axes=[1]),
                   node("Mul", ["rows", "column"], ["scaled"])]  # fmt: skip
    inside += [node(pool, ["scaled" if weighted else "rows"], ["pooled"], **attributes),
               node("Cast", [other.get("still", "yes")], ["still"], to=BOOL)]  # fmt: skip
    body = onnx.helper.make_graph(
        inside, "body", [value("turn", [], INT64), value("before", [], BOOL)],
        [value("still", [], BOOL), value("pooled", None)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["indices"], ["length"]),
        node("Concat", ["offsets", "length"], ["all"], axis=0),
        node("Slice", ["all", other.get("start", "one"), "end", "zero"], ["rest"]),
        node("Shape", [other.get("counted", "rest")], ["bags"]),
        node("Gather", ["bags", "first"], ["count"], axis=0),
        node("Loop", ["count", "yes"], ["y"], name="loop", body=body),
    ]
    sizes = ("i", "o") if dynamic_sizes else (7, 4)
    inputs = [value("indices", [sizes[0]], INT64), value("offsets", [sizes[1]], INT64)]
    inputs += [value("scales", [sizes[0]])] if weighted else []
    weights = {
        "table": TABLE,
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "end": np.array([2**63 - 1]),
        "first": np.array(0),
        "fixed": np.array(0),
        "yes": np.array(True),
        "no": np.array(False),
    }
    return model(nodes, inputs, [value("y", None)], weights, opset=opset)


def sessions(folder: Path, proto: Any) -> tuple[engine.Session, engine.Session]:
    graph = engine.load(save(folder, proto))
    return engine.Session(graph, "compiled", 1, cache=None), engine.Session(graph, "reference")


def pooled(pool: str, indices: Any, offsets: Any, scales: Any = None) -> Any:
    ends = [*offsets[1:], len(indices)]
    scales = np.ones(len(indices), np.float32) if scales is None else scales
    rows = [TABLE[indices[a:b]] * scales[a:b, None] for a, b in zip(offsets, ends, strict=True)]
    sums = np.array([each.sum(0) for each in rows], np.float32).reshape(len(offsets), -1)
    counts = np.array([max(1, len(each)) if pool == "ReduceMean" else 1 for each in rows], np.float32)
    return sums / counts[:, None]


@pytest.mark.parametrize("dynamic_sizes", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("pool", ["ReduceSum", "ReduceMean"])
def test_bags_are_one_kernel(tmp_path: Path, pool: str, weighted: bool, dynamic_sizes: bool) -> None:
    pytest.importorskip("llvmlite")
    both = sessions(tmp_path, bags(pool, weighted=weighted, dynamic_sizes=dynamic_sizes))
    for offsets in ([0, 2, 2, 5], [0, 0, 0, 0], [0, 7, 7, 7]):
        indices, scales = RANDOM.integers(0, 9, 7), RANDOM.standard_normal(7).astype(np.float32)
        given = [indices, np.array(offsets), *([scales] if weighted else [])]
        for session in both:
            found = session.run(given)[0]
            np.testing.assert_allclose(found, pooled(pool, *given), rtol=1e-5, atol=1e-6)
    rows = {row["type"]: row["kernel"] for row in both[0].describe()["operators"] if "kernel" in row}
    assert rows["onnx.EmbeddingBags"] == "bags"
    assert "onnx.Loop" not in rows


@pytest.mark.parametrize("offsets", [[1, 2, 4, 6], [0, 5, 3, 7], [0, 2, -3, 7], [0, 99, 2, 2], [-99, 2, 3, 4]])
def test_bounds_are_those_of_a_slice(tmp_path: Path, offsets: list[int]) -> None:
    indices = np.array([8, -1, 3, 3, -9, 0, 5])
    for session in sessions(tmp_path, bags()):
        found = session.run([indices, np.array(offsets)])[0]
        np.testing.assert_allclose(found, pooled("ReduceSum", indices, offsets), rtol=1e-5, atol=1e-6)


def test_an_index_outside_of_the_table_is_refused(tmp_path: Path) -> None:
    for session in sessions(tmp_path, bags()):
        with pytest.raises(engine.EngineError, match="out of range"):
            session.run([np.array([0, 9]), np.array([0, 1])])


@pytest.mark.parametrize("count", [0, 1])
def test_there_may_be_no_bags_and_no_indices(tmp_path: Path, count: int) -> None:
    for session in sessions(tmp_path, bags("ReduceMean")):
        found = session.run([np.zeros(0, np.int64), np.zeros(count, np.int64)])[0]
        assert found.tolist() == [[0.0] * 17] * count


@pytest.mark.parametrize(
    "other",
    [{"start": "two"}, {"start": "zero"}, {"place": "fixed"}, {"axes": [1]}, {"counted": "all"}, {"ends": "all"},
     {"still": "no"}, {"still": "before"}, {"weighted": True, "from": "zero"}, {"pool": "ReduceMax"}],
    ids=str,
)  # fmt: skip
def test_any_other_loop_stays(tmp_path: Path, other: dict[str, Any]) -> None:
    graph = engine.load(save(tmp_path, bags(**other)))
    is_alike = other == {"still": "before"}
    assert ("onnx.Loop" in {op.type for op in graph.operators}) is not is_alike
