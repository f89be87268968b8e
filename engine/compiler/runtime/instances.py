"""The instances of a graph, by the shapes of their inputs: made once, kept while they are used.

Making one compiles a program and takes a while. Whoever must have it waits; whoever can do without lets the process's
one thread for it (background.py) make what comes again. What is kept is decided for all graphs together (shelf.py).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from engine.compiler.runtime.arenas import Arenas
from engine.compiler.runtime.background import BACKGROUND, Key, Wish
from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.lending import lending
from engine.compiler.runtime.program import Program
from engine.compiler.runtime.shelf import SHELF, Kept, default_bytes, weight
from engine.errors import CompileError, EngineError, RunCancelledError
from engine.progress import Progress
from engine.tensor import TensorSpec

# Shapes that are remembered as too large.
_MAX_REFUSED: Final = 1024
# What a shape counts for that somebody asked to be made ahead of its first run.
PREPARED_USES: Final = 32


class TooLargeError(CompileError):
    """What is compiled for some shapes takes more memory than all may that is kept for other shapes than the file's."""

    def __init__(self, size: int, limit: int) -> None:
        problem = "what is compiled for these shapes is too large to be kept"
        super().__init__(problem, found=f"{size:,} bytes", expected=f"at most {limit:,} (instances_max_bytes)")


class Make(Protocol):
    """Compiles the program for inputs of some shapes."""

    def __call__(self, specs: Sequence[TensorSpec], *, progress: Progress = ...) -> Program: ...


class Instances:
    """Instances by shapes; many threads may ask at once.

    Args:
        make: compiles, on one core.
        make_now: compiles what a run waits for; None for no other way.
        threads: of every instance.
        limit: bytes that instances of the process may take, those of files' own shapes aside.
        own: the shapes of the file, whose instance stays.
        must: whether nothing else can answer: what is asked for is kept whatever has to go for it, or refused.
        lend: whether they lend each other their arenas, so that many shapes take the memory of one.
    """

    def __init__(
        self, make: Make, threads: int, limit: int | None = None, own: Sequence[TensorSpec] | None = None,
        *, must: bool = False, make_now: Make | None = None, lend: bool = False,
    ) -> None:  # fmt: skip
        self._make = make
        self._make_now = make_now or make
        self._threads = threads
        self.limit = default_bytes() if limit is None else limit
        self._own = None if own is None else _key(own)
        self._ready: OrderedDict[Key, Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._making, self._generating = threading.Lock(), threading.Lock()
        self._largest = 0
        self._must = must
        self._arenas = Arenas(self.limit) if lend else None
        self._refused: dict[Key, int] = {}

    def find(self, specs: Sequence[TensorSpec]) -> Instance | None:
        """The instance for inputs of these shapes; None if there is none."""
        return self._find(_key(specs))

    def again(self, key: Key) -> Instance | None:
        """The same, by what ``key_of`` gave."""
        return self._find(key)

    def holds(self, key: Key) -> bool:
        """Whether a run would find it."""
        with self._lock:
            return key in self._ready

    def get(self, specs: Sequence[TensorSpec]) -> Instance:
        """The instance for inputs of these shapes, made now if there is none.

        Raises:
            TooLargeError, CompileError, EngineError: as ``prepare`` says.
        """
        program, instance = self._obtain(specs, self._make_now)
        return instance or self._instance(program)

    def get_soon(
        self, specs: Sequence[TensorSpec], make: Callable[[Sequence[TensorSpec]], Program | None], wait_s: float = 0.0
    ) -> Instance | None:
        """The instance for inputs of these shapes, if it can be made in no time, also while LLVM works; else None.

        Args:
            make: a program, where that takes milliseconds.
            wait_s: for whoever makes another.
        """
        key = _key(specs)
        if key in self._refused or not self._generating.acquire(timeout=wait_s):
            return None  # who compiles may take long
        try:
            program = make(specs)
            if program is None:
                return None
            wish = BACKGROUND.wish(self, key, specs, now=False)
            return self._keep(wish, program) or self._instance(program)
        finally:
            self._generating.release()

    def prepare(
        self, specs: Sequence[TensorSpec], make: Callable[[Sequence[TensorSpec]], Program], *, refresh: bool = False
    ) -> Program:
        """The program for inputs of these shapes, made now if there is none; its instance too, where that is kept.

        Args:
            make: used instead of the one given at the beginning.
            refresh: make a new one even if there is one.

        Raises:
            TooLargeError: it must be kept, and is larger than the limit; of these shapes that is known from then on.
            CompileError: generated code is not valid.
            EngineError: an operator does not accept these shapes.
        """
        return self._obtain(specs, make, refresh, PREPARED_USES)[0]

    def _obtain(
        self,
        specs: Sequence[TensorSpec],
        make: Callable[[Sequence[TensorSpec]], Program],
        refresh: bool = False,
        uses: int = 1,
    ) -> tuple[Program, Instance | None]:
        """A program, and its instance where that is kept; asking for it counts as so many uses."""
        key = _key(specs)
        if key in self._refused:
            raise TooLargeError(self._refused[key], self.limit)
        found = None if refresh else self._find(key)
        if found is not None:
            return found.program, found
        with self._making, lending(self._generating):
            found = None if refresh else self._find(key)
            if found is not None:
                return found.program, found
            program = make(specs)
            wish = BACKGROUND.wish(self, key, specs, times=uses, now=False)
            return program, self._keep(wish, program)

    def begin(self, specs: Sequence[TensorSpec], *, is_urgent: bool = False) -> bool:
        """These shapes were met: if that happens again, let their instance be made in the background.

        Args:
            is_urgent: not only then.

        Returns:
            Whether there is hope: no where it was tried, and failed.
        """
        return not BACKGROUND.wish(self, _key(specs), specs, is_urgent=is_urgent).is_hopeless

    def make(self, wish: Wish, progress: Progress) -> None:
        """Make what is wished for; in the background.

        Raises:
            RunCancelledError: nobody wants it any more.
        """
        try:
            with self._making, lending(self._generating):
                if self._find(wish.key) is None:
                    self._keep(wish, self._make(wish.specs, progress=progress))
        except RunCancelledError:
            raise
        except EngineError as error:
            wish.give_up(str(error))

    def program(self, specs: Sequence[TensorSpec]) -> Program | None:
        """The program of the instance that a run of these shapes would find; None if there is none."""
        with self._lock:
            kept = self._ready.get(_key(specs))
            return None if kept is None else kept.instance.program

    def latest(self) -> tuple[list[list[int]], Program | None]:
        """The program asked for last and the shapes of its inputs; None while there is none."""
        with self._lock:
            for key, kept in reversed(self._ready.items()):
                return [list(shape) for shape, _ in key], kept.instance.program
            return [], None

    def discard(self, specs: Sequence[TensorSpec]) -> None:
        """Give back what inputs of these shapes run in; a run that comes later does without."""
        key = _key(specs)
        with self._lock:
            kept = self._ready.pop(key, None)
        if kept is not None:
            SHELF.discard(kept)
            kept.instance.close()

    def close(self) -> None:
        """Give back memory and threads of all instances; runs that are under way end first."""
        with self._lock:
            dropped = list(self._ready.values())
            self._ready.clear()
        if self._arenas is not None:
            self._arenas.close()
        for kept in dropped:
            SHELF.discard(kept)
            kept.instance.close()

    @property
    def is_making(self) -> bool:
        """Whether a program is made right now."""
        return self._making.locked()

    @property
    def typical_bytes(self) -> int:
        """What the largest instance so far takes; 0 before the first one."""
        return self._largest

    def _find(self, key: Key) -> Instance | None:
        with self._lock:
            kept = self._ready.get(key)
            if kept is None:
                return None
            self._ready.move_to_end(key)
            return kept.use()

    def _instance(self, program: Program) -> Instance:
        return Instance(program, self._threads, self._arenas)

    def _keep(self, wish: Wish, program: Program) -> Instance | None:
        """The instance of a program; None where there is no room for it."""
        key, size = wish.key, weight(program)
        self._largest = max(self._largest, size)
        is_own = key == self._own
        if self._must and size > self.limit and not is_own:
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused[key] = size
            BACKGROUND.forget(self, key)
            raise TooLargeError(size, self.limit)
        if self._arenas is not None and size <= self.limit:
            arena_bytes = program.blueprint.arena_bytes
            size += self._arenas.count(arena_bytes) - arena_bytes
        if not (self._must or is_own or SHELF.admits(size, wish.times, self.limit)):
            wish.bytes = size
            return None
        instance = self._instance(program)
        kept = Kept(instance, size, _dropper(self, key), wish.times, is_own, is_quick=self._arenas is not None)
        with self._lock:
            before = self._ready.pop(key, None)
            self._ready[key] = kept
        if before is not None:
            SHELF.discard(before)
            before.instance.close()
        if SHELF.add(kept, self.limit, must=self._must):
            BACKGROUND.forget(self, key)
        else:  # others came first
            wish.bytes = size
            self._remove(key, kept)
        return instance

    def _remove(self, key: Key, kept: Kept) -> None:
        with self._lock:
            if self._ready.get(key) is kept:
                del self._ready[key]
        kept.instance.close()

    def _drop(self, key: Key, kept: Kept) -> None:
        """Make room for others; it is a wish again, of which it is known what it takes."""
        self._remove(key, kept)
        BACKGROUND.wish(self, key, _specs(key), times=kept.uses, now=False).bytes = kept.bytes


def _dropper(owner: Instances, key: Key) -> Callable[[Kept], None]:
    """What the shelf calls; it must not keep the owner, and everything it has, alive."""
    found = weakref.ref(owner)

    def drop(kept: Kept) -> None:
        instances = found()
        if instances is not None:
            instances._drop(key, kept)

    return drop


def _specs(key: Key) -> list[TensorSpec]:
    return [TensorSpec(shape, np.dtype(dtype)) for shape, dtype in key]


def key_of(specs: Sequence[TensorSpec]) -> Key:
    """What instances are found by."""
    return _key(specs)


def _key(specs: Sequence[TensorSpec]) -> Key:
    return tuple([(tuple([dim or 0 for dim in spec.shape]), spec.dtype.name) for spec in specs])
