"""One generator for every processor: programs for narrower ones agree, and those for AArch64 compile."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler import CompiledGraph
from engine.compiler.assembly.generation import make_executable
from engine.compiler.codegen.host import describe
from engine.compiler.lowering import Lowering, lower
from engine.options import Options
from tests.engine.compiler.kernels.running import LEVELS

STORE = Path(__file__).parents[4] / "model_store"
ELF_AARCH64 = 183


def load(name: str) -> tuple[engine.RuntimeGraph, list[engine.TensorSpec]]:
    """Return a model of the store, and specs of its inputs with dynamic sizes filled in."""
    graph = engine.load(STORE / name / "1" / "model.pnnx.param")
    known = [port.spec for port in graph.inputs if port.spec is not None]
    return graph, [engine.TensorSpec(tuple(dim or 64 for dim in spec.shape), spec.dtype) for spec in known]


@pytest.mark.parametrize("part", ["host", "memory"])
def test_whatever_is_known_of_a_machine_is_in_its_key(part: str) -> None:
    host = describe("avx2")
    known = host if part == "host" else host.memory
    others = []
    for field in fields(known):
        value = getattr(known, field.name)
        if isinstance(value, int | float):
            changed = replace(known, **{field.name: value + 1})
            others.append(changed if part == "host" else replace(host, memory=changed))
    assert len({host.key, *(other.key for other in others)}) == len(others) + 1 > 7


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_every_level_agrees_with_the_reference(level: str, name: str) -> None:
    graph, specs = load(name)
    inputs = [np.random.default_rng(1).standard_normal(spec.sizes).astype(np.float32) for spec in specs]
    wanted = engine.Session(graph, backend="reference").run(inputs)
    found = CompiledGraph(graph, Options(threads=1), describe(level)).run(inputs)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-4 * float(np.abs(theirs).max()))


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_kernels_for_aarch64_become_objects_of_it(name: str) -> None:
    graph, specs = load(name)
    outputs = [op.inputs[0] for op in graph.source.operators if op.type == "pnnx.Output"]
    inputs = [port.operand for port in graph.inputs]
    lowering = Lowering(graph.operators, graph.infer(specs), inputs, outputs, describe("neon"))
    lower(lowering)
    executable = make_executable(lowering)
    assert executable.steps
    assert not executable.reasons
    for code in executable.code:
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[18:20], "little") == ELF_AARCH64
