"""Packed weights are held once: in the block of the program."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from engine.compiler.assembly.generation import make_blueprint
from engine.compiler.blueprint import Home
from engine.compiler.codegen.host import describe
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from tests.engine.compiler.cache.keeping import convolution


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
    constants = [each for each in storages if each.home is Home.CONSTANT]
    packed = [each.data for each in constants if each.data is not None]
    blueprint = make_blueprint(lowering)
    assert packed and all(each.data is None for each in constants)
    assert all(each.tobytes() in blueprint.constants.tobytes() for each in packed)


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
