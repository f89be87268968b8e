"""Batches run whole, or image by image: by how fast the machine's last-level cache is, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine import RuntimeGraph
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import Memory, describe
from engine.compiler.runtime.batch_split import BatchPolicy
from engine.graph.port import static_specs
from engine.options import Options
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.machines import EMERALD_RAPIDS, ZEN_4
from tests.engine.graph.build import F32, INPUT, built, conv, op

OUT = op("pnnx.Output", "out", "2")


def images() -> RuntimeGraph:
    """Return a graph with some 1.5 MB of intermediate results, and hardly a weight."""
    return built(
        INPUT,
        conv("a", "0", "1", (3, 32), padding=(1, 1)),
        conv("b", "1", "2", (32, 3), padding=(1, 1)),
        OUT,
        _0=(1, 3, 100, 100),
    )


def sums() -> RuntimeGraph:
    """Images that are a few hundredths of what is computed of them."""
    return built(
        INPUT,
        conv("a", "0", "1", (64, 64), (3, 3), padding=(1, 1)),
        conv("b", "1", "2", (64, 64), (3, 3), padding=(1, 1)),
        OUT,
        _0=(1, 64, 60, 60),
    )


def weights() -> RuntimeGraph:
    """Return the same graph with more bytes of weights than that."""
    return built(
        INPUT, conv("a", "0", "1", (3, 512), (5, 5)), conv("b", "1", "2", (512, 512), (3, 3)), OUT, _0=(1, 3, 22, 22)
    )


def steps() -> RuntimeGraph:
    """Return a recurrent layer."""
    random = np.random.default_rng(1)
    sizes = {"weight_ih_l0": (1024, 64), "weight_hh_l0": (1024, 256)}
    given = {
        "input_size": 64, "hidden_size": 256, "num_layers": 1, "bidirectional": False, "bias": False,
        "batch_first": True, "proj_size": 0,
    }  # fmt: skip
    drawn = {name: random.standard_normal(size).astype(F32) for name, size in sizes.items()}
    return built(INPUT, op("nn.LSTM", "lstm", "0", "2 h c", **given, **drawn), OUT, _0=(1, 3000, 64))


@pytest.mark.parametrize(
    ("graph", "memory", "threads", "parts", "is_apart"),
    [
        (images, EMERALD_RAPIDS.memory, 1, 8, True),
        (images, EMERALD_RAPIDS.memory, 1, 1, False),
        (images, EMERALD_RAPIDS.memory, 2, 8, True),
        (images, EMERALD_RAPIDS.memory, 2, 3, True),
        (images, EMERALD_RAPIDS.memory, 4, 3, False),  # not one for each thread
        (images, ZEN_4.memory, 1, 8, False),
        (images, ZEN_4.memory, 1, 16, True),
        (sums, EMERALD_RAPIDS.memory, 1, 8, False),
        (sums, EMERALD_RAPIDS.memory, 2, 8, False),
        (weights, EMERALD_RAPIDS.memory, 1, 8, False),
        (weights, EMERALD_RAPIDS.memory, 2, 8, False),
        (steps, EMERALD_RAPIDS.memory, 1, 8, False),
        (steps, EMERALD_RAPIDS.memory, 2, 8, False),
    ],
)
def test_a_batch_is_run_image_by_image_where_what_it_writes_would_come_back_slowly(
    graph: Callable[[], RuntimeGraph],
    memory: Memory,
    threads: int,
    parts: int,
    is_apart: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.compiler.compiled.available_cores", lambda: 4)
    net = graph()
    specs = static_specs(net.inputs)
    assert specs is not None
    compiled = CompiledGraph(net, Options(threads=threads, cache=None), replace(describe(LEVELS[0]), memory=memory))
    assert not compiled.prefers_parts(specs, parts)  # nothing is known yet
    compiled.prepare(specs)
    assert compiled.prefers_parts(specs, parts) == is_apart
    compiled.close()


@pytest.mark.parametrize(
    ("cores", "parts", "limit", "parallel"),
    [(1, 8, 2**30, 0), (2, 8, 2**30, 8), (2, 9, 2**30, 8), (3, 2, 2**30, 0), (8, 8, 2**30, 8), (16, 16, 2**30, 0),
     (2, 8, 2**20, 0)],
)  # fmt: skip
def test_as_many_parts_run_side_by_side_as_threads_share_evenly_and_memory_holds(
    cores: int, parts: int, limit: int, parallel: int
) -> None:
    net = images()
    specs = static_specs(net.inputs)
    assert specs is not None
    compiled = CompiledGraph(net, Options(threads=1, cache=None), replace(describe(LEVELS[0]), memory=ZEN_4.memory))
    compiled.prepare(specs)
    program = compiled.instances.program(specs)
    assert program is not None
    found = BatchPolicy(program.executable, compiled.builder.host, cores, limit)
    assert found.parallel_count(parts) == parallel
    compiled.close()
