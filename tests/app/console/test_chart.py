"""Graphs folded and laid out: nothing is lost, lines lead downwards, and what is alike is one box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from app.console.chart import ALL, MODULES, STRUCTURE, chart
from app.console.figures import figures, pictures
from app.console.folding import Fold, find_modules, module_of
from tests.app.console.conftest import ROOT, long_lines
from tests.engine.pnnx.build import pair

STORE = ROOT / "model_store"


def described(name: str) -> dict[str, Any]:
    return engine.load(STORE / name / "1" / "model.pnnx.param").describe()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return engine.load(pair(tmp_path_factory.mktemp("long"), long_lines(30), {})).describe()


def check(data: dict[str, Any], found: dict[str, Any]) -> None:
    """Every operator is in one box, and every line leads from a box to one below it."""
    shown = sorted(index for node in found["nodes"] for index in node["operators"])
    assert shown == list(range(len(data["operators"])))
    nodes = found["nodes"]
    for edge in found["edges"]:
        source = nodes[edge["source"]]
        assert edge["targets"] and edge["source"] not in edge["targets"]
        assert all(nodes[target]["y"] >= source["y"] + source["height"] for target in edge["targets"])


@pytest.mark.parametrize("name", ["digits", "shapes", "superres"])
@pytest.mark.parametrize("unfolded", [None, (), (ALL,)])
@pytest.mark.parametrize("fused", [True, False])
def test_every_operator_is_in_one_box_however_the_graph_is_folded(name: str, unfolded: Any, fused: bool) -> None:
    data = described(name)
    check(data, chart(data, unfolded, fused=fused))


def test_blocks_that_are_alike_are_one_box_that_unfolds(long: dict[str, Any]) -> None:
    shut = chart(long, ())
    assert [node["title"] for node in shut["nodes"] if node["kind"] == "fold"] == ["30 × residual block"]
    (fold,) = (node for node in shut["nodes"] if node["kind"] == "fold")
    blocks = chart(long, (fold["id"],))
    assert sum(node["kind"] == "fold" for node in blocks["nodes"]) == 30 and len(blocks["open"]) == 1
    (frame,) = blocks["open"]
    inside = [node for node in blocks["nodes"] if node["kind"] == "fold"]
    assert all(frame["y"] <= node["y"] <= frame["y"] + frame["height"] for node in inside)
    assert len(chart(long, (ALL,))["nodes"]) == 92


def test_blocks_are_modules_where_names_tell_them(long: dict[str, Any]) -> None:
    found = chart(long, (), by=MODULES)
    assert [node["title"] for node in found["nodes"] if node["kind"] == "fold"] == ["stage0", "stage1"]
    assert found["ways"] == [STRUCTURE, MODULES] and found["by"] == MODULES
    (fold, _) = (node for node in found["nodes"] if node["kind"] == "fold")
    inside = chart(long, (fold["id"],), by=MODULES)
    assert "20 × stage0.*" in [node["title"] for node in inside["nodes"]] or inside["open"]
    check(long, chart(long, (ALL,), by=MODULES))


@pytest.mark.parametrize("by", [STRUCTURE, MODULES])
def test_an_operator_that_is_asked_for_stands_by_itself_however_deep_it_is(long: dict[str, Any], by: str) -> None:
    (at,) = (row["index"] for row in long["operators"] if row["name"] == "stage0.7.relu")
    found = chart(long, (), by=by, shown=at)
    (node,) = (node for node in found["nodes"] if at in node["operators"])
    assert node["kind"] == "operator" and len(found["open"]) >= 2
    assert chart(long, (), by=by, shown=2**31)["open"] == []


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("layer1.0.conv1", ("layer1", "0")), ("head", None), ("F.relu_3", None), ("pnnx_expr_3", None), ("", None),
        ("/layer1/layer1.0/conv1/Conv", ("layer1", "0", "conv1")), ("/Add", None),
        ("/blocks.3/attn/MatMul_1", ("blocks", "3", "attn")),
        ("node_Conv_12", None), ("...", ("", "", "")), ("/", None),
    ],
)  # fmt: skip
def test_a_name_is_a_path_as_converters_write_them(name: str, module: tuple[str, ...] | None) -> None:
    assert module_of(name) == module


@given(
    st.lists(st.sampled_from(["a.0.x", "a.1.y", "a.b.c.d", "b.z", "", "/s/s.0/t/Conv", "n", "F.relu_1"]), max_size=40)
)
def test_folds_of_any_names_are_nested_stretches(names: list[str]) -> None:
    def within(folds: tuple[Fold, ...], first: int, last: int) -> None:
        for fold in folds:
            assert first <= fold.first < fold.last <= last
            within(fold.children, fold.first, fold.last)
            first = fold.last + 1

    folds = find_modules([module_of(name) for name in names], lambda item: str(item.length), lambda at: at == 0)
    within(folds or (), 0, len(names) - 1)


def test_an_unknown_name_unfolds_nothing(long: dict[str, Any]) -> None:
    assert chart(long, ("none", "9999-1", "")) == chart(long, ())


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=25), st.data())
def test_whatever_is_said_to_be_fused_the_lines_lead_downwards(pairs: list[tuple[int, int]], draw: Any) -> None:
    data = described("digits" if draw.draw(st.booleans()) else "superres")
    rows = [dict(row) for row in data["operators"]]
    for one, other in pairs:
        row = rows[one % len(rows)]
        row |= {"kernel": "fused", "fused_into": rows[other % len(rows)]["name"]}
    for row in rows[:: draw.draw(st.integers(1, 9))]:
        row["kernel"] = "removed"
    check(data, chart({**data, "operators": rows}, draw.draw(st.sampled_from([None, (), (ALL,)]))))


@pytest.mark.parametrize(
    "array",
    [
        np.array(1.5), np.zeros((0, 3)), np.full((2, 2), np.nan), np.array([np.inf, -np.inf, 1.0]),
        np.array([np.finfo(np.float64).min, np.finfo(np.float64).max]), np.arange(10, dtype=np.int64),
        np.array([2**63 - 1, -(2**63)]), np.array([True, False]), np.ones((2, 3), np.complex64), np.ones((2, 3, 4, 5)),
    ],
)  # fmt: skip
def test_any_tensor_has_figures_that_json_can_say(array: np.ndarray[Any, Any]) -> None:
    told = figures(array)
    assert told["shape"] == list(array.shape) and sum(told.get("histogram", ())) in (0, np.isfinite(array).sum())
    numbers = [told.get(name, 0.0) for name in ("min", "max", "mean", "std")]
    assert all(isinstance(each, (int, str, bool)) or np.isfinite(each) for each in [*told["first"], *numbers])
    channels = {4: 3, 2: int(array.dtype.kind == "f" and array.size > 0)}
    assert len(pictures(array)) == channels.get(array.ndim, 0)


def test_figures_are_those_of_numpy(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((7, 11)).astype(np.float32)
    told = figures(array)
    assert told["min"] == array.min() and told["max"] == array.max()
    assert np.isclose(told["mean"], array.mean(), atol=1e-6) and np.isclose(told["std"], array.std(), atol=1e-6)
    assert told["histogram"] == np.histogram(array, 48)[0].tolist()
