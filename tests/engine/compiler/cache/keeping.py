"""Small graphs to cache, and functions that compile them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine import RuntimeGraph
from engine.compiler import CompiledGraph
from engine.compiler.cache.cache import SUFFIX
from engine.compiler.codegen.host import Host
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.engine.graph.build import INPUT, built, op

SHAPE = (1, 4, 6, 6)
X = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


def weight(seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((8, 4, 3, 3)).astype(np.float32)


def convolution(seed: int = 0, **given: Any) -> RuntimeGraph:
    """Return a convolution with fused operators, which machine code alone runs."""
    params = {"bias": False, "in_channels": 4, "out_channels": 8, "kernel_size": (3, 3), "stride": (1, 1)}
    params |= {"padding": (1, 1), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros", "weight": weight(seed)}
    return built(
        INPUT,
        op("nn.Conv2d", "conv", "0", "1", **(params | given)),
        op("F.relu", "relu", "1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=SHAPE,
    )


def sorting(seed: int = 0) -> RuntimeGraph:
    """Return a convolution and two operators without a kernel: one makes a tensor, one returns a constant."""
    source = convolution(seed).source
    return built(
        *source.operators[:-1],
        op("aten::mode", "sorted", "2", "3 4", dim=-1, keepdim=False),
        op("pnnx.Attribute", "constant", "", "5", data=np.arange(3, dtype=np.complex64)),
        op("pnnx.Output", "out_a", "3"),
        op("pnnx.Output", "out_b", "4"),
        op("pnnx.Output", "out_c", "5"),
        _0=SHAPE,
    )


def compiled(
    folder: Path | None, graph: RuntimeGraph | None = None, host: Host | None = None, **options: Any
) -> CompiledGraph:
    return CompiledGraph(graph or convolution(), Options(threads=1, cache=folder, **options), host)


def is_cached(made: CompiledGraph, shape: tuple[int, ...] = SHAPE) -> bool:
    return made.instances.get([TensorSpec(shape, np.dtype(np.float32))]).program.origin.is_cached


def entries(folder: Path) -> list[Path]:
    """Return the files of the cache, sorted by name."""
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def kept(folder: Path, graph: RuntimeGraph | None = None) -> Path:
    """Compile a graph and return its file in the cache."""
    before = set(entries(folder))
    assert not is_cached(compiled(folder, graph))
    (path,) = set(entries(folder)) - before
    return path
