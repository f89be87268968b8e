"""Names of dynamic sizes in a file are shown wherever shapes are; sizes of one name are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value


@pytest.fixture
def graph(tmp_path: Path) -> engine.RuntimeGraph:
    ports = [value("a", ["batch", 3, "n"]), value("b", ["batch", 1, "n"])]
    names = [value("y", ["batch", 3, "n"])]
    return engine.load(save(tmp_path, model([node("Add", ["a", "b"], ["y"])], ports, names)))


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_inputs_outputs_and_operands_have_them(graph: engine.RuntimeGraph) -> None:
    description = graph.describe()
    assert [port["size_names"] for port in description["inputs"]] == [["batch", None, "n"]] * 2
    assert [port["size_names"] for port in description["outputs"]] == [["batch", None, "n"]]
    assert description["operands"]["a"]["size_names"] == ["batch", None, "n"]
    assert [port.shape_text for port in graph.inputs] == ["[batch, 3, n]", "[batch, 1, n]"]


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_sizes_of_one_name_must_agree(graph: engine.RuntimeGraph, backend: str) -> None:
    session = engine.Session(graph, backend=backend, threads=1, cache=None)  # type: ignore[arg-type]
    assert session.run([_ones(2, 3, 4), _ones(2, 1, 4)])[0].shape == (2, 3, 4)
    told = r"input 'b': dimension 0 \('batch'\) has another size: found \[1, 1, 4\], expected 2, as .* of input 'a'"
    with pytest.raises(engine.InputError, match=told):
        session.run([_ones(2, 3, 4), _ones(1, 1, 4)])
    with pytest.raises(engine.InputError, match=r"dimension 2 \('n'\) .* found \[2, 1, 1\], expected 4"):
        session.run([_ones(2, 3, 4), _ones(2, 1, 1)])


def test_errors_spell_shapes_with_them(graph: engine.RuntimeGraph) -> None:
    session = engine.Session(graph, backend="reference")
    with pytest.raises(engine.InputError, match=r"found \[2, 5, 4\], expected \[batch, 3, n\]"):
        session.run([_ones(2, 5, 4), _ones(2, 1, 4)])
    with pytest.raises(engine.InputError, match=r"expected 3 \(\[batch, 3, n\]\)"):
        session.run([_ones(2), _ones(2, 1, 4)])


def test_they_survive_changes_of_the_graph(graph: engine.RuntimeGraph) -> None:
    assert graph.extract(["a", "b"], ["y"]).outputs[0].size_names == ("batch", None, "n")
    graph.rename("a", "first")
    graph.build()
    assert graph.inputs[0].size_names == ("batch", None, "n")


@pytest.mark.parametrize("name", ["x" * 65, "a\nb", "\u202eb", "", "?", "-1", "None"])
def test_what_cannot_be_shown_or_names_nothing_is_no_name(tmp_path: Path, name: str) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [name, 3])], [value("y", None)])
    graph = engine.load(save(tmp_path, proto))
    assert graph.inputs[0].size_names == ()
    assert "size_names" not in graph.describe()["inputs"][0]
