"""Pages of weights that were cloned or are shared go when a graph is compiled, and come back when they are read."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler.runtime.memory import release
from engine.memory import blocks
from tests.engine.compiler.cache.keeping import X, convolution

MODEL = Path(__file__).parents[4] / "model_store" / "shapes" / "1" / "model.pnnx.param"
NAME = "weights of this test"


def take_mapped(path: Path) -> np.ndarray:  # type: ignore[type-arg]
    """Make the file unreadable."""
    content = Path(path).read_bytes()
    descriptor = os.memfd_create(NAME)
    os.write(descriptor, content)
    try:
        return blocks.map_block(descriptor, len(content))
    finally:
        os.close(descriptor)


def resident_bytes() -> int:
    """Bytes of it that this process holds."""
    held, is_part = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            is_part = NAME in line
        elif is_part and line.startswith("Rss:"):
            held += int(line.split()[1]) << 10
    return held


def sums(graph: engine.RuntimeGraph) -> list[float]:
    return [float(np.abs(each.data).sum()) for op in graph.operators for each in op.attributes.values()]


def test_weights_are_given_back_and_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.pnnx.pair.take_file", take_mapped)
    graph = engine.load(MODEL)
    before = sums(graph)
    assert resident_bytes() > 0
    release(graph)
    assert resident_bytes() == 0
    assert sums(graph) == before
    del graph
    gc.collect()
    assert NAME not in Path("/proc/self/maps").read_text()


def test_weights_that_were_copied_are_kept() -> None:
    graph = engine.load(MODEL)
    before = sums(graph)
    release(graph)
    assert sums(graph) == before == sums(engine.load(MODEL))


def test_aligned_copies_of_the_reference_are_let_go_and_made_anew() -> None:
    graph = convolution()
    expected = engine.Session(graph, backend="reference").run([X])
    layer = next(op.layer for op in graph.operators if op.name == "conv")
    assert layer is not None and "_aligned" in vars(layer)
    release(graph)
    assert "_aligned" not in vars(layer)
    np.testing.assert_array_equal(engine.Session(graph, backend="reference").run([X])[0], expected[0])


def test_weights_in_memory_are_left_alone() -> None:
    graph = convolution()
    before = sums(graph)
    release(graph)
    assert sums(graph) == before
