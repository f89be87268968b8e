"""Packed weights are in memory once: in the program's block."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler import builder
from engine.compiler.addresses import MemorySpace
from engine.compiler.assembly import generation
from engine.compiler.assembly.generation import make_executable
from engine.compiler.codegen.host import describe
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from engine.tensor import TensorSpec
from tests.engine.compiler.cache.keeping import compiled, convolution
from tests.engine.graph.build import built, op


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def lowered() -> Lowering:
    graph = convolution()
    ports = ([port.operand for port in ports] for ports in (graph.inputs, graph.outputs))
    lowering = Lowering(graph.operators, graph.infer([port.spec for port in graph.inputs]), *ports, describe("sse"))
    lower(lowering)
    return lowering


def test_what_was_packed_lies_in_the_block_and_nowhere_else() -> None:
    lowering = lowered()
    storages = {each.storage for step in lowering.steps if isinstance(step, KernelStep) for each in step.pointers}
    constants = [each for each in storages if each.space is MemorySpace.CONSTANT]
    packed = [each.data for each in constants if each.data is not None]
    executable = make_executable(lowering)
    assert packed and all(each.data is None for each in constants)
    assert all(each.tobytes() in executable.constants.tobytes() for each in packed)


def test_a_lowering_that_is_done_with_keeps_nothing_that_waits_for_a_collector(without_collector: None) -> None:
    lowering = lowered()
    packed = [
        weakref.ref(each.storage.data)
        for step in lowering.steps
        if isinstance(step, KernelStep)
        for each in step.pointers
        if each.storage.data is not None
    ]
    assert packed and all(each() is not None for each in packed)
    lowering.forget()
    assert not any(each() is not None for each in packed)


@pytest.fixture
def looking_up() -> RuntimeGraph:
    """Return a graph that looks up rows of a table, and multiplies by other weights."""
    table, weight = (np.random.default_rng(0).standard_normal((rows, 16)).astype(np.float32) for rows in (3000, 8))
    return built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        op("nn.Embedding", "look", "x", "y", num_embeddings=3000, embedding_dim=16, sparse=False, weight=table),
        op("nn.Linear", "last", "y", "z", bias=False, in_features=16, out_features=8, weight=weight),
        op("pnnx.Output", "out", "z"),
        _x=TensorSpec((1, 5), np.dtype(np.int64)),
    )


@pytest.mark.parametrize("is_large", [True, False])
def test_tables_lie_behind_all_else_on_a_disk(
    is_large: bool, looking_up: RuntimeGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    monkeypatch.setattr(builder, "move_to_disk", lambda block, folder: moved.append(block.nbytes) or True)
    if is_large:
        monkeypatch.setattr(generation, "_TABLE_BYTES", 4 * 3000 * 16)
    x = np.array([[0, 2999, 7, 7, 1]])
    expected = Session(looking_up, backend="reference").run([x])[0]
    for _ in range(2):  # compiled, and from the cache
        made = compiled(tmp_path, looking_up)
        np.testing.assert_allclose(made.run([x])[0], expected, rtol=1e-5, atol=1e-6)
        program = made.instances.latest()[1]
        assert program is not None and program.executable.tables_at == (mmap.PAGESIZE if is_large else None)
    assert moved == [4 * 3000 * 16] * 2 * is_large
