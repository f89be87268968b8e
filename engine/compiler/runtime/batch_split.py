"""Batches that are split: when a batch runs in parts, and the parts in parallel, each on one thread.

A batch reads the weights once, but its results no longer fit the caches. Images run one by one where they are larger
than the weights, and a batch of them is larger than a cache. Which cache depends on how fast the last one is. Threads
share a batch better than an image, unless each has images of its own.

Threads that share a run wait for each other at the end of every step, and read what others have written. Parts of a
batch share only the weights; their kernels write to their slices of the batch's outputs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.executable import Executable
from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.program import Program
from engine.graph.batch.batch_axes import Axes
from engine.graph.batch.batching import joined
from engine.memory.resources import available_cores
from engine.tensor import Array

# Share of the last-level cache; larger results are read back from memory.
FAR_SHARE: Final = 1 / 2
# Ratio of images to weights from which reading weights again from a slow last-level cache pays.
IMAGES_TO_WEIGHTS: Final = 4 / 3
# Share of the time of a run's products that reading images from that cache must take to matter.
SIGNIFICANT_SHARE: Final = 1 / 20


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Decision of how a batch runs, from the program for one part.

    Args:
        plan: executable of the program.
        cores: cores of the threads of a run, at most one each.
        limit: bytes that instances may take.
    """

    plan: Executable
    host: Host
    cores: int
    limit: int

    def is_better(self, parts: int) -> bool:
        """Return whether so many parts are faster than one run of the batch."""
        whole, memory = parts * self.plan.arena_bytes, self.host.memory
        if whole > FAR_SHARE * memory.last_bytes:
            return self._images > self.plan.constant_bytes / 2
        is_slow = memory.late_cost > 0 and whole > memory.second_bytes
        return is_slow and self._is_significant and (self.cores == 1 or self.parallel_count(parts) > 0)

    def parallel_count(self, parts: int) -> int:
        """Return how many parts run in parallel, one thread each; 0 where that is slower.

        It is a multiple of the cores. Each thread reads all weights, which images have to outweigh, and writes to
        memory of its own, which the last-level cache has to hold for all of them.
        """
        has_room = self.cores * self.plan.arena_bytes <= min(self.limit, FAR_SHARE * self.host.memory.last_bytes)
        return parts // self.cores * self.cores if self.cores > 1 and has_room and self._is_of_images else 0

    @property
    def _images(self) -> int:
        """Return the bytes that a run reads and writes besides weights."""
        return int(self.plan.steps.bytes.sum()) - self.plan.constant_bytes

    @property
    def _is_of_images(self) -> bool:
        """Return whether reading weights again costs little; a recurrent layer shares its steps in a batch."""
        is_recurrent = "recurrent" in self.plan.steps.kinds
        return not is_recurrent and self._images > IMAGES_TO_WEIGHTS * self.plan.constant_bytes

    @property
    def _is_significant(self) -> bool:
        """Return whether reading images from the last-level cache takes a significant share of the run."""
        products = int(self.plan.steps.flops.sum()) / (2 * self.host.lanes)
        return self._is_of_images and self._images * self.host.memory.stream_cost > SIGNIFICANT_SHARE * products


class Gather:
    """Arrays for the outputs of all parts, except outputs that kernels do not make or whose parts are not contiguous.

    Args:
        program: of a part.
        count: number of parts.
        axes: batch axis of each output; None where it is the same for every part.
    """

    def __init__(self, program: Program, count: int, axes: Axes) -> None:
        self._axes, self._count = axes, count
        outputs = zip(program.kernel_outputs, axes, strict=True) if program.makes_all_outputs else ()
        self._arrays = {
            port: np.empty((count * shape[0], *shape[1:]), dtype) for (port, shape, dtype), axis in outputs if axis == 0
        }

    def part(self, number: int) -> Mapping[int, Array]:
        """Return the memory of a part's outputs, by number of the output."""
        found = {}
        for output, array in self._arrays.items():
            size = array.shape[0] // self._count
            found[output] = array[number * size : (number + 1) * size]
        return found

    def join(self, answers: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the outputs of the batch, from those of every part.

        Raises:
            InputError: their shapes do not match.
        """
        each = enumerate(zip(zip(*answers, strict=True), self._axes, strict=True))
        return [
            self._arrays[number] if number in self._arrays else joined(parts, axis) for number, (parts, axis) in each
        ]


class HelperThreads:
    """Threads of the process that run parts beside the callers' threads; started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def call(self, works: Sequence[Callable[[], None]]) -> list[Future[None]]:
        """Start these in the caller's context; fewer of them where the system has no more threads."""
        called: list[Future[None]] = []
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max(1, available_cores() - 1), thread_name_prefix="part")
            try:
                for work in works:
                    called.append(self._pool.submit(copy_context().run, work))
            except RuntimeError:  # no more threads, or the process ends
                return called
        return called


class ParallelParts:
    """Instances of one program, each for one thread; concurrent runs share them.

    Args:
        count: number of threads, the caller's included.

    Raises:
        CompileError: there is not enough memory.
    """

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self._instances = [Instance(program) for _ in range(count)]

    def run(self, parts: Sequence[Sequence[Array]], whole: Gather) -> list[list[Any]]:
        """Return what ``Instance.run`` returns for every part, in order; the first failure ends all.

        Args:
            whole: memory for the outputs of the batch, whose first parts these are.

        Raises:
            RunCancelledError, NotFiniteError, OutsideTableError, EngineError: as ``Instance.run``.
        """
        answers: list[list[Any]] = [[]] * len(parts)
        left = deque(range(len(parts)))

        def work(instance: Instance) -> None:
            try:
                while (number := _next_number(left)) is not None:
                    answers[number] = instance.run(parts[number], into=whole.part(number))
            finally:
                left.clear()

        first, *others = self._instances
        helpers = HELPER_THREADS.call([partial(work, each) for each in others])
        try:
            work(first)
        finally:
            # Tasks that have not started are cancelled; the others may still write.
            begun = [each for each in helpers if not each.cancel()]
            wait(begun)
        for each in begun:
            each.result()
        return answers


def _next_number(left: deque[int]) -> int | None:
    """Take the next number; return None if another thread took the last."""
    try:
        return left.popleft()
    except IndexError:
        return None


HELPER_THREADS: Final = HelperThreads()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HELPER_THREADS.__init__)  # type: ignore[misc]
