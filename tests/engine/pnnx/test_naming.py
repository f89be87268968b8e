"""Operators that share a name in the file, as optimisation level 0 writes a module that is used twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RuntimeGraph, pnnx
from engine.errors import WeightsError
from engine.graph import surgery
from engine.pnnx.graph import unique_names
from tests.engine.pnnx.build import Entry, archive, param, save

LINEAR = "nn.Linear fc 1 1 {} {} bias=False in_features=2 out_features=2 @weight=(2,2)f32"
LINES = ["pnnx.Input in0 0 1 0 #0=(1,2)f32", LINEAR.format(0, 1), LINEAR.format(1, 2), "pnnx.Output out0 1 0 2"]
WEIGHTS = [np.array([[1, 2], [3, 4]], np.float32), np.array([[0, 1], [1, 0]], np.float32)]


def shared(folder: Path, *weights: np.ndarray) -> Path:
    """Two layers of one name, and members of one name for them."""
    return save(folder, param(LINES), archive([Entry(name="fc.weight", data=each.tobytes()) for each in weights]))


@pytest.mark.parametrize(
    ("written", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        (["a_1", "a", "a", "a_1"], ["a_1", "a", "a_2", "a_1_1"]),
    ],
)
def test_the_first_keeps_its_name_and_names_of_the_file_stay(written: list[str], unique: list[str]) -> None:
    assert unique_names(written) == unique


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "a_1_1", "b"])))
def test_names_are_unique_and_those_that_were_stay_as_they_were(written: list[str]) -> None:
    names = unique_names(written)
    assert len(set(names)) == len(written)
    assert unique_names(names) == names
    assert all(name == raw or written.count(raw) > 1 for name, raw in zip(names, written, strict=True))


def test_many_operators_of_one_name_are_named_in_no_time() -> None:
    assert unique_names(["a"] * 100_000)[-1] == "a_99999"


def test_each_operator_has_the_member_of_its_turn(tmp_path: Path) -> None:
    graph = pnnx.read(shared(tmp_path, *WEIGHTS), verify=True)
    assert [operator.name for operator in graph.operators] == ["in0", "fc", "fc_1", "out0"]
    for operator, weight in zip(graph.operators[1:3], WEIGHTS, strict=True):
        np.testing.assert_array_equal(operator.attributes["weight"].data, weight)


def test_one_member_is_enough_for_all_operators_of_a_name(tmp_path: Path) -> None:
    graph = pnnx.read(shared(tmp_path, WEIGHTS[0]))
    for operator in graph.operators[1:3]:
        np.testing.assert_array_equal(operator.attributes["weight"].data, WEIGHTS[0])


def test_more_members_than_operators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        pnnx.read(shared(tmp_path, *WEIGHTS, WEIGHTS[0]))
    assert str(caught.value) == "model.pnnx.bin: 'fc.weight': the member repeats: found 3, expected twice"


def test_a_member_that_repeats_for_one_operator_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, param([LINES[0], LINES[1], "pnnx.Output out0 1 0 1"]), shared(tmp_path, *WEIGHTS).with_name(
        "model.pnnx.bin").read_bytes())  # fmt: skip
    with pytest.raises(WeightsError, match="'fc.weight': the member repeats: found 2, expected once"):
        pnnx.read(path)


def test_names_and_members_are_written_as_they_were_read(tmp_path: Path) -> None:
    graph = pnnx.read(shared(tmp_path, *WEIGHTS))
    copy = tmp_path / "copy.pnnx.param"
    pnnx.write(graph, copy)
    assert [line.split()[1] for line in copy.read_text().splitlines()[2:]] == ["in0", "fc", "fc", "out0"]
    assert pnnx.read(copy, verify=True) == graph
    assert pnnx.format_param(pnnx.read(copy)) == pnnx.format_param(graph)


def test_a_graph_that_lost_the_first_of_a_name_is_written_with_the_names_it_has(tmp_path: Path) -> None:
    part = surgery.extract(pnnx.read(shared(tmp_path, *WEIGHTS)), ["1"], ["2"])
    pnnx.write(part, tmp_path / "part.pnnx.param")
    read = pnnx.read(tmp_path / "part.pnnx.param")
    assert [operator.name for operator in read.operators] == ["pnnx_input_0", "fc_1", "pnnx_output_0"]
    np.testing.assert_array_equal(read.operators[1].attributes["weight"].data, WEIGHTS[1])


def test_a_renamed_operator_is_written_under_its_new_name(tmp_path: Path) -> None:
    graph = RuntimeGraph(shared(tmp_path, *WEIGHTS))
    graph.init()
    graph.rename("fc_1", "head")
    assert [line.split()[1] for line in pnnx.format_param(graph.source).splitlines()[3:5]] == ["fc", "head"]


def test_the_name_in_the_file_does_not_count_when_graphs_are_compared(tmp_path: Path) -> None:
    first, second = pnnx.read(shared(tmp_path, *WEIGHTS)).operators[1:3]
    assert (first.written, second.written) == ("", "fc")
    assert second == replace(second, written="")
