"""Whole programs between pages that may not be touched: they stay inside arena, weights and inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.compiler.kernels.running import LEVELS
from tests.nightly import IS_NIGHTLY

ROOT = Path(__file__).parents[3]
# A process of its own: a kernel that reaches too far ends it, and not the tests.
SCRIPT = """
import sys
import numpy as np
import engine
from engine.compiler import CompiledGraph, weights
from engine.compiler.assembly import generation
from engine.compiler.runtime import memory
from engine.compiler.codegen.host import describe
from engine.options import Options
from tests.engine.compiler.kernels.guarded import guarded_array

level, *names = sys.argv[1:]
at_end = True


def guarded_bytes(count):
    return guarded_array(np.zeros(max(1, -(-count // 4)), np.float32), at_end=at_end).view(np.uint8)[:count]


memory.allocate = guarded_bytes
memory._GROWTH = 1
for module in (generation, weights):
    module.allocate = module.aligned_bytes = guarded_bytes
random = np.random.default_rng(0)
for name in names:
    graph = engine.load(f"model_store/{name}/1/model.pnnx.param")
    shape = [dim or size for dim, size in zip(graph.inputs[0].spec.shape, (1, 3, 21, 29))]
    values = random.standard_normal(shape).astype(np.float32)
    wanted = engine.Session(graph, backend="reference").run([values])
    for winograd in ("auto", "off"):
        for at_end in (True, False):
            print(name, winograd, "end" if at_end else "beginning", file=sys.stderr, flush=True)
            x = guarded_array(values, at_end=at_end)
            compiled = CompiledGraph(graph, Options(threads=2, winograd=winograd), describe(level))
            assert compiled.builder.program([engine.TensorSpec(x.shape, x.dtype)]).executable.steps
            for found, want in zip(compiled.run([x]), wanted):
                scale = np.abs(want).max()
                np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * scale)
print("inside")
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_programs_stay_inside_their_memory(level: str) -> None:
    names = ("digits", "shapes", "superres") if IS_NIGHTLY or level == LEVELS[0] else ("digits",)
    command = [sys.executable, "-c", SCRIPT, level, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.strip()) == (0, "inside"), done.stderr[-2000:]
