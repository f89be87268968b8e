"""A batch split into parts that run in parallel: each on one thread, in memory of its own, and gathered as they run.

Threads that share a run wait for each other at the end of every step, and what one has written the other reads. Parts
of a batch have nothing in common but weights; their kernels write their outputs where those of the batch lie.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import numpy as np

from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.program import Program
from engine.graph.batch.batch_axes import Axes
from engine.graph.batch.batching import joined
from engine.memory.resources import available_cores
from engine.tensor import Array


class Gather:
    """Arrays for the outputs of all parts; none for those that kernels do not make, or whose parts lie apart.

    Args:
        instance: runs the parts, or is like those that do.
        count: of parts.
        axes: along which each output holds the batch; None where it is the same for every part.
    """

    def __init__(self, instance: Instance, count: int, axes: Axes) -> None:
        self._axes, self._count = axes, count
        made = zip(instance.made, axes, strict=True) if instance.makes_all_outputs else ()
        self._arrays = {
            port: np.empty((count * shape[0], *shape[1:]), dtype) for (port, shape, dtype), axis in made if axis == 0
        }

    def part(self, number: int) -> Mapping[int, Array]:
        """Return the memory of a part's outputs, by number of the output."""
        found = {}
        for output, array in self._arrays.items():
            size = array.shape[0] // self._count
            found[output] = array[number * size : (number + 1) * size]
        return found

    def join(self, answers: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the outputs of the batch, given those of every part.

        Raises:
            InputError: they do not fit together.
        """
        each = enumerate(zip(zip(*answers, strict=True), self._axes, strict=True))
        return [
            self._arrays[number] if number in self._arrays else joined(parts, axis) for number, (parts, axis) in each
        ]


class Helpers:
    """Threads that run parts beside the callers', for the whole process; made when they are first needed."""

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
            except RuntimeError:  # no thread for it, or the process ends
                return called
        return called


class ParallelParts:
    """Instances of one program, each for one thread; runs that overlap share them.

    Args:
        count: of threads, the caller's included.

    Raises:
        CompileError: there is not so much memory.
    """

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self._instances = [Instance(program) for _ in range(count)]

    def run(self, parts: Sequence[Sequence[Array]], whole: Gather) -> list[list[Any]]:
        """Return what ``Instance.run`` gives for every part, in their order; the first that fails ends them all.

        Args:
            whole: memory for the outputs of the batch, whose first parts these are.

        Raises:
            RunCancelledError, NotFiniteError, OutsideTableError, EngineError: as ``Instance.run``.
        """
        answers: list[list[Any]] = [[]] * len(parts)
        left = deque(range(len(parts)))

        def work(instance: Instance) -> None:
            try:
                while (number := _taken(left)) is not None:
                    answers[number] = instance.run(parts[number], into=whole.part(number))
            finally:
                left.clear()

        first, *others = self._instances
        helpers = HELPERS.call([partial(work, each) for each in others])
        try:
            work(first)
        finally:
            # A helper that has not begun is not needed; one that has may still write.
            begun = [each for each in helpers if not each.cancel()]
            wait(begun)
        for each in begun:
            each.result()
        return answers


def _taken(left: deque[int]) -> int | None:
    """Take the next one; return None where another thread took the last."""
    try:
        return left.popleft()
    except IndexError:
        return None


HELPERS: Final = Helpers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HELPERS.__init__)  # type: ignore[misc]
