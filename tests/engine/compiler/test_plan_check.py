"""A plan that would leave its memory is refused before its code is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import engine
from engine.compiler import CompiledGraph
from engine.compiler.addresses import MemorySpace, address
from engine.compiler.builder import Builder
from engine.compiler.cache.cache import Cache
from engine.compiler.executable import Executable, NativeSteps, ReferenceCall, Region, Segment
from engine.compiler.plan_check import check_output_shapes, check_plan
from engine.errors import CompileError
from engine.options import Options
from engine.tensor import TensorSpec
from tests.engine.graph.build import INPUT, built, op

SPECS = [TensorSpec((4, 8), np.dtype(np.float32))]


@pytest.fixture(scope="module")
def graph() -> engine.RuntimeGraph:
    weight = np.ones((8, 8), np.float32)
    return built(
        INPUT,
        op("nn.Linear", "linear", "0", "1", in_features=8, out_features=8, bias=False, weight=weight),
        op("F.relu", "relu", "1", "2"),
        op("F.softmax", "softmax", "1", "3", dim=1),
        op("pnnx.Output", "out0", "2"),
        op("pnnx.Output", "out1", "3"),
        _0=(4, 8),
    )


@pytest.fixture(scope="module")
def plan(graph: engine.RuntimeGraph) -> Executable:
    return CompiledGraph(graph, Options(threads=1, cache=None)).builder.program(SPECS).executable


def with_output(plan: Executable, number: int, **changes: Any) -> Executable:
    outputs = list(plan.outputs)
    region = outputs[number]
    assert isinstance(region, Region)
    outputs[number] = replace(region, **changes)
    return replace(plan, outputs=tuple(outputs))


def with_argument(plan: Executable, place: int) -> Executable:
    steps = [*plan.steps]
    steps[0] = replace(steps[0], arguments=(place, *steps[0].arguments[1:]))
    return replace(plan, steps=NativeSteps.of(steps))


def with_call(plan: Executable, region: Region) -> Executable:
    call = Segment(first=0, last=0, call=ReferenceCall(operator="relu", inputs=(region,), outputs=(None,)))
    return replace(plan, segments=(*plan.segments, call))


def region(space: MemorySpace, offset: int, *, port: int = 0, strides: tuple[int, ...] = (32, 4)) -> Region:
    return Region(address=address(space, port, offset), shape=(4, 8), strides=strides, dtype="float32")


Damage = Callable[[Executable], Executable]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "two outputs in one array": (
        lambda plan: with_output(plan, 1, address=address(MemorySpace.OUTPUT, 0, 0)),
        "two outputs share an array",
    ),
    "an output with gaps": (
        lambda plan: with_output(plan, 0, strides=(64, 4)),
        "an output is not one dense array",
    ),
    "an output that begins later": (
        lambda plan: with_output(plan, 0, address=address(MemorySpace.OUTPUT, 0, 4)),
        "an output is not one dense array",
    ),
    "an output that is smaller than what is read of it": (
        lambda plan: with_call(with_output(plan, 0, shape=(0, 8)), region(MemorySpace.OUTPUT, 0)),
        "a tensor is outside its memory",
    ),
    "a tensor after the end of the arena": (
        lambda plan: with_call(plan, region(MemorySpace.ARENA, plan.arena_bytes - 64)),
        "a tensor is outside its memory",
    ),
    "a tensor before the beginning of the arena": (
        lambda plan: with_call(plan, region(MemorySpace.ARENA, 32, strides=(-32, 4))),
        "a tensor is outside its memory",
    ),
    "a tensor of an input that does not exist": (
        lambda plan: with_call(plan, region(MemorySpace.INPUT, 0, port=7)),
        "a tensor is outside its memory",
    ),
    "a kernel that writes after the end of the arena": (
        lambda plan: with_argument(plan, address(MemorySpace.ARENA, 0, plan.arena_bytes + 64)),
        "an argument of a kernel lies outside its memory",
    ),
    "a kernel that writes before an output": (
        lambda plan: with_argument(plan, address(MemorySpace.OUTPUT, 1, -4)),
        "an argument of a kernel lies outside its memory",
    ),
    "a kernel that writes to an output that does not exist": (
        lambda plan: with_argument(plan, address(MemorySpace.OUTPUT, 2, 0)),
        "an argument of a kernel lies outside its memory",
    ),
    "a kernel that reads after the weights": (
        lambda plan: with_argument(plan, address(MemorySpace.CONSTANT, 0, plan.constants.nbytes + 4)),
        "an argument of a kernel lies outside its memory",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_plan_that_leaves_its_memory_is_refused(plan: Executable, damage: str) -> None:
    change, message = DAMAGES[damage]
    with pytest.raises(CompileError, match=message):
        check_plan(change(plan), SPECS)


def test_a_plan_for_smaller_inputs_than_it_reads_is_refused(plan: Executable) -> None:
    with pytest.raises(CompileError, match="a tensor is outside its memory"):
        check_plan(with_call(plan, region(MemorySpace.INPUT, 0)), [TensorSpec((3, 8), np.dtype(np.float32))])


def test_an_output_of_another_shape_than_inferred_is_refused(plan: Executable) -> None:
    check_output_shapes(plan, {0: (4, 8), 1: (4, 8)})
    with pytest.raises(CompileError, match="output 1: an output has a different shape"):
        check_output_shapes(plan, {0: (4, 8), 1: (8, 4)})


def test_what_comes_from_the_cache_is_checked_too(graph: engine.RuntimeGraph, tmp_path: Path) -> None:
    options = Options(threads=1, cache=tmp_path)
    Builder(graph, options).program(SPECS)
    load = Cache.load

    def damaged(cache: Cache, key: str) -> Any:
        found = load(cache, key)
        assert found is not None
        return replace(found, executable=with_output(found.executable, 1, address=address(MemorySpace.OUTPUT, 0, 0)))

    with patch.object(Cache, "load", damaged), pytest.raises(CompileError, match="two outputs share an array"):
        Builder(graph, options).program(SPECS)
