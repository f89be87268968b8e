"""Timing of kernels in turn: the least of many runs, each with caches in the state that a network leaves them in."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from engine.cancellation import check_cancelled
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.measuring.timing import written
from engine.compiler.runtime.memory import allocate
from engine.compiler.storage import Storage
from engine.errors import CompileError
from engine.tensor import Array

_ROUNDS: Final = 9
# Weights up to this share of the last-level cache are assumed to stay in it between runs.
_STAYS: Final = 1 / 2
_LONGEST_WALK: Final = 128 << 20
_RUN: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Stopwatch:
    """Timer of kernels that are run in turn.

    Args:
        weights_bytes: of the network the kernels are part of. Before each run enough memory is read to evict what the
            network's other layers would have evicted.
    """

    def __init__(self, host: Host, weights_bytes: int) -> None:
        self._host = host
        memory = host.memory
        is_far = weights_bytes > _STAYS * memory.last_bytes
        self._others = written(min(2 * (memory.last_bytes if is_far else memory.second_bytes), _LONGEST_WALK))

    def times(self, steps: Sequence[KernelStep]) -> list[float]:
        """Return the processor time of each kernel in seconds; infinity if it cannot be compiled.

        Raises:
            RunCancelledError: the compilation was cancelled.
        """
        runs = [self._made(step) for step in steps]
        best = [float("inf")] * len(runs)
        for _ in range(_ROUNDS):
            check_cancelled()
            for k, run in enumerate(runs):
                if run is not None:
                    self._others.sum()
                    start = time.thread_time()
                    run()
                    best[k] = min(best[k], time.thread_time() - start)
        return best

    def _made(self, step: KernelStep) -> Callable[[], None] | None:
        """Return a function that runs all chunks of a step on its own memory; None if it cannot be compiled."""
        kernel, module = step.kernel, Module()
        try:
            kernel.write(module)
            code = object_code.Code([object_code.assemble(str(module), self._host)], self._host)
            blocks: dict[int, Array] = {}
            for each in step.pointers:
                if id(each.storage) not in blocks:
                    blocks[id(each.storage)] = _memory_of(each.storage)
        except (CompileError, TooLargeError):
            return None
        addresses = [blocks[id(each.storage)].ctypes.data + each.offset for each in step.pointers]
        table = np.array(addresses, np.uint64)
        function, chunks = _RUN(code.address(kernel.name)), range(kernel.chunks)

        def run(kept: object = (code, blocks, table)) -> None:
            for chunk in chunks:
                function(table.ctypes.data, chunk)

        return run


def _memory_of(storage: Storage) -> Array:
    """Return memory with a constant's data, or filled with ordinary numbers."""
    block = allocate(max(storage.bytes, 1))
    if storage.data is not None:
        block[: storage.bytes] = storage.data.view(np.uint8)
    elif storage.meta.dtype == np.float32:
        block[: storage.bytes].view(np.float32)[:] = 0.5
    return block
