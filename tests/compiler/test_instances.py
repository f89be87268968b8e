"""New shapes are compiled once and in the background; runs of known shapes never wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine import CompileError, Session
from engine.compiler import CompiledGraph, CompileOptions
from engine.compiler.instances import MAX_INSTANCES, Instances
from engine.graph import RuntimeGraph
from engine.pnnx import Graph, Operator
from engine.tensor import Array, TensorSpec

F32 = np.dtype(np.float32)
PATIENCE_S = 20.0


def network(*shape: int | None) -> RuntimeGraph:
    operators = (
        Operator("pnnx.Input", "in", (), ("0",)),
        Operator("nn.ReLU", "relu", ("0",), ("1",)),
        Operator("pnnx.Output", "out", ("1",), ()),
    )
    graph = RuntimeGraph.from_source(Graph(operators=operators, annotations={"0": TensorSpec(shape, F32)}))
    graph.build()
    return graph


def specs(size: int) -> list[TensorSpec]:
    return [TensorSpec((1, size), F32)]


def ramp(size: int) -> Array:
    return np.linspace(-1, 1, size, dtype=F32)[None]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def compiled() -> CompiledGraph:
    return CompiledGraph(network(1, None), CompileOptions(threads=1))


def test_the_reference_answers_until_code_is_made() -> None:
    session = Session(network(1, None), cache=None)
    np.testing.assert_array_equal(session.run([ramp(5)])[0], np.maximum(ramp(5), 0))

    def is_compiled() -> bool:
        session.run([ramp(5)])
        machine: Any = session._machine
        return machine._compiled(session.graph).is_ready(specs(5))

    wait_for(is_compiled)
    np.testing.assert_array_equal(session.run([ramp(5)])[0], np.maximum(ramp(5), 0))


def test_known_shapes_run_while_others_are_made(compiled: CompiledGraph) -> None:
    may_go_on = threading.Event()

    def make(wanted: Sequence[TensorSpec]) -> Any:
        if wanted == specs(7):
            assert may_go_on.wait(PATIENCE_S)
        return compiled.program(wanted)

    instances = Instances(make, 1)
    known = instances.get(specs(5))
    instances.begin(specs(7))
    assert instances.get(specs(5)) is known
    assert not instances.is_ready(specs(7))
    may_go_on.set()
    wait_for(lambda: instances.is_ready(specs(7)))


def test_many_who_ask_at_once_get_one_instance(compiled: CompiledGraph) -> None:
    made: list[Sequence[TensorSpec]] = []

    def make(wanted: Sequence[TensorSpec]) -> Any:
        made.append(wanted)
        time.sleep(0.05)
        return compiled.program(wanted)

    instances = Instances(make, 1)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(instances.get(specs(5)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 6
    assert len(set(map(id, found))) == len(made) == 1


def test_what_cannot_be_made_is_tried_once_and_said(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def make(wanted: Sequence[TensorSpec]) -> Any:
        tries.append(1)
        raise CompileError("no kernel", where="mystery")

    instances = Instances(make, 1)
    instances.begin(specs(5))
    wait_for(lambda: "mystery: no kernel" in caplog.text)
    instances.begin(specs(5))
    time.sleep(0.05)
    assert len(tries) == 1
    with pytest.raises(CompileError):
        instances.get(specs(5))


def test_what_was_not_used_for_longest_is_dropped(compiled: CompiledGraph) -> None:
    instances = Instances(compiled.program, 1)
    first = instances.get(specs(1))
    for size in range(2, MAX_INSTANCES + 1):
        instances.get(specs(size))
    instances.get(specs(1))
    instances.get(specs(MAX_INSTANCES + 1))
    assert instances.get(specs(1)) is first
    assert not instances.is_ready(specs(2))
