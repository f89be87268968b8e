"""The parts of a batch side by side: each is run by one thread, in memory of its own, with nobody to wait for.

Threads that share a run wait for each other at the end of every step, and what one has written the other reads. Parts
of a batch have nothing in common but weights.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.joined import Joined
from engine.compiler.runtime.program import Program
from engine.memory.resources import available_cores
from engine.tensor import Array


class Helpers:
    """The threads that run parts beside the callers', for the whole process; made when they are first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def call(self, works: Sequence[Callable[[], None]]) -> list[Future[None]]:
        """Have these done, as asked from here; fewer of them where the system has no more threads for us."""
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


class Apart:
    """Instances of one program, each for one thread; runs that overlap share them.

    Args:
        count: of threads, the caller's included.

    Raises:
        CompileError: there is not so much memory.
    """

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self._instances = [Instance(program) for _ in range(count)]

    def run(self, parts: Sequence[Sequence[Array]], whole: Joined) -> list[list[Any]]:
        """What ``Instance.run`` gives for every part, in their order; the first that fails ends them all.

        Args:
            whole: where they write their outputs, and are the first parts of.

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
            # Who has not begun need not, for nothing is left to do; who has still writes.
            begun = [each for each in helpers if not each.cancel()]
            wait(begun)
        for each in begun:
            each.result()
        return answers


def _taken(left: deque[int]) -> int | None:
    """The next one; None where another thread took the last."""
    try:
        return left.popleft()
    except IndexError:
        return None


HELPERS: Final = Helpers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HELPERS.__init__)  # type: ignore[misc]
