"""Networks that read texts of any length: one template, right at lengths far from the one it was made for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.cancellation import cancellable_progress, silent
from engine.compiler.builder import Builder
from engine.compiler.dynamic.template import Template
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.runtime.test_dynamic_shapes import text, text_model
from tests.engine.onnx_files.models import model, node, onnx, save, value

LENGTHS = (2, 3, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 191, 256, 257, 300)
WIDTH = 24
MOST_GUARDS = 10


def causal_model(folder: Path) -> engine.RuntimeGraph:
    """Build a causal block with positions: scores by a product, a triangle, a softmax."""
    random = np.random.default_rng(1)
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "one"], ["n"], axis=0),
        node("Range", ["zero", "n", "one"], ["places"]),
        node("Gather", ["table", "places"], ["found"], axis=0),
        node("Add", ["x", "found"], ["y"]),
        node("Transpose", ["y"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["y", "turned"], ["scores"]),
        node("Unsqueeze", ["n", "axes"], ["length"]),
        node("Concat", ["length", "length"], ["square"], axis=0),
        node("ConstantOfShape", ["square"], ["full"], value=onnx.numpy_helper.from_array(np.ones(1, np.float32))),
        node("Trilu", ["full"], ["triangle"], upper=0),
        node("Cast", ["triangle"], ["kept"], to=9),
        node("Where", ["kept", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "y"], ["z"]),
    ]
    constants = {
        "zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "low": np.float32(-1e9),
        "table": random.standard_normal((512, WIDTH)).astype(np.float32) / 4,
    }  # fmt: skip
    made = model(nodes, [value("x", ["b", "n", WIDTH])], [value("z", None)], constants)
    return engine.load(save(folder, made))


def vectors(batch: int, length: int) -> list[Array]:
    return [np.random.default_rng(length).standard_normal((batch, length, WIDTH), np.float32) / 2]


def template_of(graph: engine.RuntimeGraph, inputs: Sequence[Array]) -> Template:
    builder = Builder(graph, Options(threads=1, cache=None))
    specs = [TensorSpec(each.shape, each.dtype) for each in inputs]
    return builder._pipeline.template(specs, builder.host, cancellable_progress(silent), 1)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_causal_block_gives_the_references_answers_at_every_length(batch: int, tmp_path: Path) -> None:
    graph = causal_model(tmp_path)
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=2)
    for length in (40, *LENGTHS):
        given = vectors(batch, length)
        np.testing.assert_allclose(session.run(given)[0], reference.run(given)[0], rtol=1e-4, atol=1e-5)


def test_templates_made_for_other_lengths_share_only_code_that_is_right_for_them(tmp_path: Path) -> None:
    graph = causal_model(tmp_path)
    reference = engine.Session(graph, backend="reference")
    for first in (5, 45, 128, 18):
        session = engine.Session(graph, backend="compiled", cache=None, threads=2)
        for length in (first, 257, 129, 64, 9):
            given = vectors(1, length)
            np.testing.assert_allclose(session.run(given)[0], reference.run(given)[0], rtol=1e-4, atol=1e-5)


def test_templates_of_texts_rely_on_few_classes_and_on_no_length(tmp_path: Path) -> None:
    for graph, inputs in ((causal_model(tmp_path), vectors(3, 40)), (text_model(), text(40))):
        template = template_of(graph, inputs)
        assert not template.is_fixed
        assert not template.executable.reasons
        assert len(template.env.guards) < MOST_GUARDS


def test_a_template_takes_all_lengths_of_its_class(tmp_path: Path) -> None:
    template = template_of(causal_model(tmp_path), vectors(1, 128))
    specs = [[TensorSpec(each.shape, each.dtype) for each in vectors(1, length)] for length in LENGTHS]
    passed = [length for length, each in zip(LENGTHS, specs, strict=True) if template.numbers(each) is not None]
    assert passed == [n for n in LENGTHS if passed[0] <= n]
    assert passed[0] < 64


def test_a_length_never_met_counts_as_compiled_if_a_template_is_valid_for_it(tmp_path: Path) -> None:
    session = engine.Session(causal_model(tmp_path), backend="compiled", cache=None, threads=1)
    assert not session.is_compiled(vectors(2, 41), exact=False)
    session.prepare(specs=[TensorSpec((2, 40, WIDTH), np.dtype(np.float32))])
    assert not session.is_compiled(vectors(2, 41))
    assert session.is_compiled(vectors(2, 41), exact=False)
    assert session.is_compiled(vectors(2, 41))  # its numbers have been computed
