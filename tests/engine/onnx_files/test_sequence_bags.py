"""A loop that inserts the pooled rows of bags into a sequence is one operator; any other loop stays what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, onnx, save

RANDOM = np.random.default_rng(3)
TABLE = RANDOM.standard_normal((9, 17)).astype(np.float32)
COUNT = 7

# As PyTorch's exporter writes it (torch.onnx.export(..., dynamo=True) of nn.EmbeddingBag).
POOLED = {
    "sum": "weight_rows = Slice (rows, start, end) pooled = ReduceSum (weight_rows, zero_1d)",
    "mean": """weight_rows = Slice (rows, start, end) final_turn = Sub ({last_of}, one) last = Equal (turn, final_turn)
        pooled = If (last) <then_branch = then () => (divided) {{
            total = ReduceSum (weight_rows, zero_1d) count = Sub ({length}, start) filled = Greater (count, zero)
            divided = If (filled) <then_branch = filled () => (quotient) {{
                floats = Cast <to = 1> (count) quotient = Div (total, floats)
            }}, else_branch = empty () => (same) {{ same = Identity (total) }}>
        }}, else_branch = other () => (average) {{ average = ReduceMean (weight_rows, zero_1d) }}>""",
    "max": """final_turn = Sub ({last_of}, one) last = Equal (turn, final_turn)
        weight_rows = If (last) <then_branch = then () => (final) {{
            final = Slice (rows, start, {length})
        }}, else_branch = other () => (inner) {{ inner = Slice (rows, start, end) }}>
        pooled = ReduceMax (weight_rows, zero_1d)""",
}
FIXED = {
    "inputs": "int64[7] indices, int64[3] offsets, float[7] factors",
    "begin": "bounds = Concat <axis = 0> (offsets, seven)",
    "condition": "yes",
    "count": "three",
    "last_of": "three",
    "length": "seven",
}
OPEN = {
    "inputs": "int64[n] indices, int64[b] offsets, float[n] factors",
    "begin": """length = Shape (indices) bags = Size (offsets) bounds = Concat <axis = 0> (offsets, length)
        begins = Less (zero, bags)""",
    "condition": "begins",
    "count": "bags",
    "last_of": "bags",
    "length": "length",
}
MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
graph ({inputs}) => (float[] y)
<int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, bool yes = {{1}},
 int64[1] minus_one = {{-1}}, int64[1] zero_1d = {{0}}, int64[1] seven = {{7}}, float[1, 17] zeros = {{{zeros}}}>
{{
    {begin}
    looked_up = Gather (table, indices)
    column = Unsqueeze (factors, one)
    rows = Mul (looked_up, column)
    sequence = SequenceEmpty ()
    {before}
    turns, all = Loop ("", {condition}, {first_turn}, {sequence}) 
        <body = body (int64 number, bool was, int64 turn, so_far) => (goes_on, next_turn, longer) {{
        at = Reshape (turn, minus_one)
        after = Add (at, one)
        start = Slice (bounds, at, after)
        behind = Add (at, {behind})
        end = Slice (bounds, after, behind)
        nothing = Equal (start, end)
        row = If (nothing) <then_branch = none () => (empty_row) {{ empty_row = Identity ({empty}) }},
            else_branch = some () => (pooled) {{ {pooled} }}>
        longer = SequenceInsert (so_far, {inserted})
        next_turn = Add (turn, one)
        goes_on = Less (next_turn, {count})
    }}>
    y = ConcatFromSequence <axis = {axis}> (all)
}}
"""


def bags(mode: str, sizes: dict[str, str] = FIXED, **other: str) -> Any:
    """Return the model; ``other`` says in what it is not what the exporter writes."""
    defaults = {"first_turn": "zero", "sequence": "sequence", "before": "", "behind": "two", "empty": "zeros",
                "inserted": "row", "axis": "0", "zeros": ", ".join(["0"] * 17)}  # fmt: skip
    pooled = other.pop("pooled", POOLED[mode])
    given = {**defaults, **sizes, **other}
    proto = onnx.parser.parse_model(MODEL.format(pooled=pooled.format(**given), **given))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
    return proto


def pooled_rows(mode: str, indices: Any, offsets: Any, factors: Any) -> Any:
    ends = [*offsets[1:], len(indices)]
    rows = [TABLE[indices[a:b]] * factors[a:b, None] for a, b in zip(offsets, ends, strict=True)]
    pool = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    return np.array([pool(each, axis=0) if len(each) else np.zeros(17) for each in rows], np.float32)


def feeds(offsets: list[int]) -> dict[str, Any]:
    return {
        "indices": RANDOM.integers(0, 9, COUNT),
        "offsets": np.array(offsets),
        "factors": RANDOM.standard_normal(COUNT).astype(np.float32),
    }


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("sizes", [FIXED, OPEN], ids=["fixed", "open"])
@pytest.mark.parametrize("mode", POOLED)
def test_bags_are_one_kernel(tmp_path: Path, mode: str, sizes: dict[str, str], backend: str) -> None:
    graph = engine.load(save(tmp_path, bags(mode, sizes)))
    assert "onnx.Loop" not in {op.type for op in graph.operators}
    session = engine.Session(graph, backend, 1, cache=None)
    for offsets in ([0, 2, 5], [0, 0, 3], [0, 3, 7], *([[0, 1, 2, 6], [0]] if sizes is OPEN else [])):
        given = feeds(offsets)
        np.testing.assert_allclose(session.run(given)[0], pooled_rows(mode, **given), rtol=1e-5, atol=1e-6)
    if backend == "compiled":
        rows = {row["type"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}
        assert rows["onnx.EmbeddingBags"] == "bags"


@pytest.mark.parametrize(
    ("mode", "other"),
    [
        ("sum", {"first_turn": "one"}),
        ("sum", {"count": "two"}),
        ("sum", {"zeros": ", ".join(["1"] * 17)}),
        ("sum", {"axis": "1"}),
        ("sum", {"before": "filled = SequenceConstruct (zeros)", "sequence": "filled"}),
        ("sum", {"pooled": "weight_rows = Slice (rows, start, end) pooled = ReduceSumSquare (weight_rows, zero_1d)"}),
        ("sum", {"pooled": "weight_rows = Slice (looked_up, end, start) pooled = ReduceSum (weight_rows, zero_1d)"}),
        ("sum", {"pooled": "weight_rows = Slice (rows, start, seven) pooled = ReduceSum (weight_rows, zero_1d)"}),
        ("mean", {"last_of": "two"}),
        ("max", {"length": "minus_one"}),
    ],
    ids=str,
)
def test_any_other_loop_stays(tmp_path: Path, mode: str, other: dict[str, str]) -> None:
    proto = bags(mode, FIXED, **other)
    graph = engine.load(save(tmp_path, proto))
    assert "onnx.Loop" in {op.type for op in graph.operators}
    given = feeds([0, 2, 5])
    found = engine.Session(graph, "reference").run(given)[0]
    np.testing.assert_allclose(found, expected(proto, given)[0], rtol=1e-5, atol=1e-6)


def test_rows_that_are_inserted_elsewhere_than_at_the_end_keep_their_loop(tmp_path: Path) -> None:
    graph = engine.load(save(tmp_path, bags("sum", FIXED, inserted="row, zero")))
    assert "onnx.Loop" in {op.type for op in graph.operators}
    given = feeds([0, 2, 5])
    found = engine.Session(graph, "reference").run(given)[0]
    np.testing.assert_allclose(found, pooled_rows("sum", **given)[::-1], rtol=1e-5, atol=1e-6)
