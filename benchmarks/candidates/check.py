"""Compare the simulator with this machine: tiles of a 1×1 convolution, measured and simulated."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.candidates.machine import Machine, pointwise
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import detect
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.measuring.bench import products_a_second
from engine.compiler.runtime.memory import allocate
from engine.errors import CompileError

# From one sum, which waits for itself, to as many as there are registers.
TILES = (
    (1, 1),
    (2, 1),
    (3, 1),
    (4, 1),
    (7, 1),
    (14, 1),
    (28, 1),
    (1, 2),
    (2, 2),
    (7, 2),
    (14, 2),
    (1, 3),
    (4, 3),
    (6, 4),
)
# Weights of a panel and pixels of a tile stay in the first-level cache, results in the second.
_PIXELS, _CHANNELS, _VECTORS = 840, 96, 12
_ROUNDS = 40


def check(machine: Machine) -> str:
    """Return a table of tiles: time of a product, simulated and measured.

    Raises:
        CompileError: the machine's code does not run here.
    """
    here = detect()
    if here.name != machine.host.name:
        raise CompileError("this machine runs other code", found=here.name, expected=machine.host.name)
    kernels = [pointwise(here, ConvTile(1, p, v), _PIXELS, _CHANNELS, _VECTORS // v) for p, v in TILES]
    second = products_a_second(here, 0.2)
    times = _times(kernels)
    lines = ["| pixels × vectors | measured | simulated |", "|---|---|---|"]
    pairs = []
    for kernel, seconds in zip(kernels, times, strict=True):
        products = kernel.flops / 2 / here.lanes
        pairs.append((seconds * second / products, machine.direct(kernel, kernel.tile) / products))
        lines.append(f"| {kernel.tile.columns} × {kernel.tile.vectors} | {pairs[-1][0]:.3f} | {pairs[-1][1]:.3f} |")
    ranks = [np.argsort(np.argsort(each)) for each in zip(*pairs, strict=True)]
    return "\n".join([*lines, "", f"Rank correlation {np.corrcoef(*ranks)[0, 1]:.2f}."])


def _times(kernels: Sequence[Conv]) -> list[float]:
    """Return the minimum processor time of each in many runs in turn."""
    runs = []
    for kernel in kernels:
        module = Module()
        kernel.emit(module)
        code = object_code.Code([object_code.assemble(str(module), kernel.host)], kernel.host)
        sizes = (_PIXELS * kernel.source.w, len(kernel.panels) * kernel.panel_floats, _PIXELS * kernel.out_channels)
        blocks = [allocate(4 * size).view(np.float32) for size in sizes]
        for block in blocks:
            block[:] = 0.5
        table = np.array([block.ctypes.data for block in blocks], np.uint64)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(kernel.name))
        runs.append((function, table, range(kernel.chunks), code, blocks))
    best = [float("inf")] * len(runs)
    for _ in range(_ROUNDS):
        for k, (function, table, chunks, *_) in enumerate(runs):
            start = time.thread_time()
            for chunk in chunks:
                function(table.ctypes.data, chunk)
            best[k] = min(best[k], time.thread_time() - start)
    return best
