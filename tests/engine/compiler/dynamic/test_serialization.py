"""Templates on disk: what is kept gives the same programs, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler.builder import Builder
from engine.compiler.cache.entry import Content, EntryError
from engine.compiler.dynamic.serialization import content_of, templates_of
from engine.compiler.dynamic.template import Template
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.engine.graph.build import INPUT, built, conv, op

F32 = np.dtype(np.float32)


def net() -> engine.RuntimeGraph:
    return built(
        INPUT,
        conv("first", "0", "1", (3, 16), padding=(1, 1), stride=(2, 2)),
        op("nn.ReLU", "relu", "1", "2"),
        conv("second", "2", "3", (16, 8), padding=(1, 1)),
        op("torch.mean", "mean", "3", "4", dim=(2, 3), keepdim=False),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3, None, None),
    )


def specs(height: int, width: int) -> list[TensorSpec]:
    return [TensorSpec((1, 3, height, width), F32)]


def picture(height: int, width: int) -> Array:
    return np.random.default_rng(height).standard_normal((1, 3, height, width), np.float32)


@pytest.fixture(scope="module")
def templates() -> list[Template]:
    builder = Builder(net(), Options(threads=1))
    builder.program(specs(64, 48))
    return builder._templates.part(is_restored=False)


def as_read(content: Content) -> Content:
    return Content(json.loads(json.dumps(content.facts)), content.code, content.constants)


def test_what_is_kept_gives_the_same_plans(templates: list[Template]) -> None:
    (found,) = templates_of(as_read(content_of([], templates)))
    (made,) = templates
    for sizes in ((64, 48), (31, 77), (128, 130)):
        pool, expected = found.numbers(specs(*sizes)), made.numbers(specs(*sizes))
        assert pool is not None and expected is not None
        plans = found.executable.numbered(pool), made.executable.numbered(expected)
        assert plans[0].steps == plans[1].steps and plans[0].buffers == plans[1].buffers
        assert (plans[0].outputs, plans[0].arena_bytes) == (plans[1].outputs, plans[1].arena_bytes)
    assert found.numbers(specs(1, 48)) is None and made.numbers(specs(1, 48)) is None
    assert found.is_fixed == made.is_fixed


def test_templates_of_two_processes_are_kept_together(templates: list[Template]) -> None:
    restored = templates_of(as_read(content_of([], templates)))
    both = templates_of(as_read(content_of(restored, templates)))
    expected = templates[-1].executable
    for each in (template.executable for template in both):
        assert each.weights.tobytes() == expected.weights.tobytes()
        assert each.constants.tobytes() == expected.constants.tobytes() and each.code == expected.code


def test_templates_of_several_processes_keep_their_own_weights(templates: list[Template]) -> None:
    (made,) = templates
    others = [np.full(size, number, np.uint8) for number, size in enumerate((640, 64, 128))]
    found: list[Template] = []
    for weights in others:
        new = replace(made, executable=replace(made.executable, weights=weights))
        found = templates_of(as_read(content_of(found, [new])))
    assert [each.executable.weights.tolist() for each in found] == [each.tolist() for each in others]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("atoms", [["import os", "", [], []]]),
        ("atoms", [["//", "h", [[["x"], 1]], []]]),
        ("guards", [["!= 0", [], True]]),
        ("inputs", [[[7, 7, 7, 7], "float32"]]),
        ("inputs", [[[-1, -3], "no dtype"]]),
        ("constants", [0, 1 << 40]),
        ("weights", [-8, 8]),
        ("parts", [99]),
        ("steps", {}),
        ("values", None),
    ],
)
def test_what_is_no_template_is_refused(key: str, value: Any, templates: list[Template]) -> None:
    content = as_read(content_of([], templates))
    facts = copy.deepcopy(content.facts)
    facts["templates"][0][key] = value
    with pytest.raises(EntryError):
        templates_of(Content(facts, content.code, content.constants))


def test_a_new_process_answers_any_size_without_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine.Session(net(), backend="compiled", cache=tmp_path, threads=1)
    first.run([picture(64, 48)])
    reference = engine.Session(net(), backend="reference")
    again = engine.Session(net(), backend="compiled", cache=tmp_path, threads=1)
    monkeypatch.setattr("engine.compiler.pipeline.CompilePipeline.template", None)
    for sizes in ((33, 65), (64, 48), (200, 51)):
        (found,), (expected,) = again.run([picture(*sizes)]), reference.run([picture(*sizes)])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert again.describe()["compiler"]["is_cached"]


def test_processes_that_each_add_a_template_answer_as_the_reference(tmp_path: Path) -> None:
    graph, sizes = net(), ((1, 1), (1, 40), (40, 1), (40, 41))  # a size of 1 is a constant of its template
    for number in range(len(sizes)):
        session = engine.Session(graph, backend="compiled", cache=tmp_path, threads=1)
        for each in (*sizes[: number + 1], *sizes[:number]):
            expected = engine.Session(graph, backend="reference").run([picture(*each)])[0]
            np.testing.assert_allclose(session.run([picture(*each)])[0], expected, rtol=1e-4, atol=1e-5)
        session.close()


def test_a_prepared_session_has_loaded_what_an_earlier_one_compiled(tmp_path: Path) -> None:
    first, second = (engine.Session(net(), threads=1, cache=tmp_path) for _ in range(2))
    first.prepare()
    second.prepare()
    (loaded,) = second._executor.find(second.graph).builder._templates._found  # type: ignore[union-attr]
    assert loaded.is_restored
    assert second.is_compiled([picture(31, 77)], exact=False)
