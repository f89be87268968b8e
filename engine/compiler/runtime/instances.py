"""Instances of a graph, by the shapes of their inputs: made once, kept while they are used.

A caller that requires machine code waits for it; for others the compile queue makes what recurs. The program cache
decides which instances are kept, for all graphs of the process.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from engine.cancellation import Progress
from engine.compiler.runtime.compile_queue import QUEUE, Key, Request
from engine.compiler.runtime.instance import AnyInstance, BoundInstance, Instance, TemplateInstances
from engine.compiler.runtime.memory import Arenas
from engine.compiler.runtime.program import Program
from engine.compiler.runtime.program_cache import CACHE, Entry, weight
from engine.errors import CompileError, CompileMemoryError, EngineError, RunCancelledError
from engine.limits import memory_bytes
from engine.tensor import Shaped, TensorSpec

# Share of memory for programs without a given limit.
SHARE: Final = 1 / 4
# Most shapes that are known to be too large.
_MAX_REMEMBERED: Final = 1024
# Most sizes whose numbers are kept; computing them takes a fraction of a millisecond.
MAX_BOUND: Final = 512


class TooLargeError(CompileError):
    """Program for some shapes that exceeds the memory limit of all programs for shapes other than the file's."""

    def __init__(self, size: int, limit: int) -> None:
        problem = "the program for these shapes exceeds the memory limit"
        super().__init__(problem, found=f"{size:,} bytes", expected=f"at most {limit:,} (instances_max_bytes)")


def key_of(inputs: Shaped) -> Key:
    """Return the key of instances: shapes and dtypes of inputs, or of their specs."""
    return tuple([(each.shape, each.dtype) for each in inputs])


class Make(Protocol):
    """Compiler of the program for inputs of some shapes."""

    def __call__(self, specs: Sequence[TensorSpec], *, progress: Progress = ...) -> Program: ...


class Instances:
    """Instances of one graph, by the shapes of their inputs; safe for many threads.

    Args:
        make: compiles, on one core.
        make_now: compiles what a run waits for; None to use ``make``.
        threads: of every instance.
        limit: bytes that instances of the process may take, except those of files' own shapes.
        own: the shapes of the file, whose instance stays.
        must: whether only machine code may answer: an instance is kept whatever it evicts, or refused.
        is_dynamic: whether the graph has dynamic shapes: its instances share arenas, so many take the memory of one.
        release: called with a program of a template that is not kept any longer.
    """

    def __init__(
        self, make: Make, threads: int, limit: int | None = None, own: Sequence[TensorSpec] | None = None,
        *, must: bool = False, make_now: Make | None = None, is_dynamic: bool = False,
        release: Callable[[Program], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._make = make
        self._make_now = make_now or make
        self._threads = threads
        self.limit = int(memory_bytes() * SHARE) if limit is None else limit
        self._own = None if own is None else key_of(own)
        self._ready: dict[Key, Entry[Instance]] = {}
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._must = must
        self._release = release
        self._arenas = Arenas(self.limit) if is_dynamic else None
        self._refused: dict[Key, int] = {}
        self._bound: dict[Key, BoundInstance] = {}
        self._templates: dict[int, Entry[TemplateInstances]] = {}
        self.typical_bytes = 0

    @property
    def bytes(self) -> int:
        """Return the memory that all instances take: code, packed weights, arenas."""
        with self._lock:
            own, templates = self._ready.values(), self._templates.values()
            return sum(each.bytes for each in own) + sum(each.bytes for each in templates)

    @property
    def is_making(self) -> bool:
        """Return whether a program is being compiled."""
        return self._making.locked()

    def find(self, inputs: Shaped) -> AnyInstance | None:
        """Return the instance for inputs of these shapes; None if there is none."""
        return self._find(key_of(inputs))

    def _find(self, key: Key) -> AnyInstance | None:
        entry = self._ready.get(key)
        return self._bound.get(key) if entry is None else entry.instance

    def program(self, inputs: Shaped) -> Program | None:
        """Return the program that a run of these shapes would find; None if there is none."""
        return self._program(key_of(inputs))

    def _program(self, key: Key) -> Program | None:
        found = self._find(key)
        return None if found is None else found.program

    def latest(self) -> tuple[list[list[int]], Program | None]:
        """Return the input shapes and the program of the last run; None as program if there is none."""
        with self._lock:
            used = {each.instance.used_s: each.instance.program for each in self._ready.values()}
            used |= {each.instance.used_s: each.instance.latest for each in self._templates.values()}
            program = used[max(used)] if used else None
            shapes = [key for key in (*self._ready, *self._bound) if self._program(key) is program]
        return [[dim or 0 for dim in shape] for shape, _ in (shapes or [()])[0]], program

    def get(self, specs: Sequence[TensorSpec]) -> AnyInstance:
        """Return the instance for inputs of these shapes; make it now if there is none.

        Raises:
            TooLargeError, CompileError, EngineError: as ``prepare`` says.
        """
        program, instance = self._obtain(specs, self._make_now)
        return instance or self._instance(program)

    def get_soon(self, inputs: Shaped, make: Callable[[Shaped], Program | None]) -> AnyInstance | None:
        """Return the instance for inputs of these shapes if there is one or it can be made at once, else None.

        Args:
            make: returns a program at once, or None; several threads may call it at the same time.
        """
        key = key_of(inputs)
        found = self._find(key)
        if found is not None or key in self._refused or (program := make(inputs)) is None:
            return found
        return self._keep(key, program) or self._instance(program)

    def program_soon(self, inputs: Shaped, make: Callable[[Shaped], Program | None]) -> Program | None:
        """Return the program that ``get_soon`` would find or make, and keep it for the run that follows."""
        key = key_of(inputs)
        found = self._program(key)
        if found is not None or key in self._refused or (program := make(inputs)) is None:
            return found
        self._keep(key, program)
        return program

    def new_bytes(self, program: Program) -> int:
        """Return the bytes of the arena that a run of a program has to allocate; 0 if it finds one."""
        size = program.arena_bytes
        return 0 if self._arenas is None or self._arenas.has_idle(size) else size

    def prepare(
        self, specs: Sequence[TensorSpec], make: Callable[[Sequence[TensorSpec]], Program], *, refresh: bool = False
    ) -> Program:
        """Return the program for inputs of these shapes, made now if there is none; keep its instance if it fits.

        Args:
            make: used in place of the constructor's.
            refresh: make a new one even if there is one.

        Raises:
            TooLargeError: it must be kept, and exceeds the limit; later calls for these shapes fail at once.
            CompileError: generated code is not valid.
            EngineError: an operator does not accept these shapes.
        """
        return self._obtain(specs, make, refresh)[0]

    def _obtain(
        self, specs: Sequence[TensorSpec], make: Callable[[Sequence[TensorSpec]], Program], refresh: bool = False
    ) -> tuple[Program, AnyInstance | None]:
        """Return a program, and its instance if that is kept."""
        key = key_of(specs)
        if key in self._refused:
            raise TooLargeError(self._refused[key], self.limit)
        found = None if refresh else self.find(specs)
        if found is not None:
            return found.program, found
        with self._making:
            found = None if refresh else self.find(specs)
            if found is not None:
                return found.program, found
            program = make(specs)
            return program, self._keep(key, program)

    def begin(self, specs: Sequence[TensorSpec], *, is_urgent: bool = False) -> None:
        """Make the instance for these shapes in the background when they recur.

        Args:
            is_urgent: at once, not only when they recur.
        """
        QUEUE.request(self, key_of(specs), specs, is_urgent=is_urgent)

    def make(self, request: Request, progress: Progress) -> None:
        """Make the requested instance, in the background.

        Raises:
            RunCancelledError: it takes too long, or the interpreter ends.
        """
        try:
            with self._making:
                if self.program(request.specs) is None:
                    program = self._make(request.specs, progress=progress)
                    if self._keep(request.key, program) is None:
                        request.decline(weight(program))
        except RunCancelledError:
            raise
        except CompileMemoryError as error:
            request.defer(str(error))
        except EngineError as error:
            request.fail(str(error))

    def has_room(self, size: int | None) -> bool:
        """Return whether an instance of this size, or of the largest so far, would be kept."""
        return CACHE.has_room(self.typical_bytes if size is None else size, self.limit)

    def discard(self, specs: Sequence[TensorSpec]) -> None:
        """Release the instance for inputs of these shapes, and its template with its last instance."""
        key = key_of(specs)
        with self._lock:
            entry, bound = self._ready.pop(key, None), self._bound.pop(key, None)
            template = None if bound is None else self._templates.get(id(bound.program.code))
            is_last = bound is not None and all(
                each.program.code is not bound.program.code for each in self._bound.values()
            )
        if entry is not None:
            CACHE.discard(entry)
            entry.instance.close()
        if template is not None and is_last:
            CACHE.discard(template)
            self._remove_template(template)

    def close(self) -> None:
        """Release memory and threads of all instances; current runs end first."""
        with self._lock:
            entries: list[Entry[Any]] = [*self._ready.values(), *self._templates.values()]
            self._ready.clear()
            self._bound.clear()
            self._templates.clear()
        if self._arenas is not None:
            self._arenas.close()
        for entry in entries:
            CACHE.discard(entry)
            entry.instance.close()

    def _instance(self, program: Program) -> Instance:
        return Instance(program, self._threads, self._arenas)

    def _keep(self, key: Key, program: Program) -> AnyInstance | None:
        """Keep the instance of a program; return None if there is no room for it."""
        size, is_own = weight(program), key == self._own
        self.typical_bytes = max(self.typical_bytes, size)
        if self._must and size > self.limit and not is_own:
            _remember(self._refused, key, size)
            raise TooLargeError(size, self.limit)
        if program.is_bound:
            return self._keep_bound(key, program, size)
        if not (self._must or is_own or CACHE.has_room(size, self.limit)):
            return None
        instance = self._instance(program)
        entry = Entry(instance, size, weakref.WeakMethod(self._remove), is_own)
        with self._lock:
            before = self._ready.get(key)
            self._ready[key] = entry
        if before is not None:
            CACHE.discard(before)
            before.instance.close()
        if CACHE.add(entry, self.limit, must=self._must):
            QUEUE.forget(self, key)
            return instance
        self._remove(entry)  # no room: other instances were added meanwhile
        return None

    def _keep_bound(self, key: Key, program: Program, size: int) -> BoundInstance | None:
        """Keep a program of a template, if there is room for the template; drop the oldest of too many."""
        number = id(program.code)
        with self._lock:
            template = self._templates.get(number)
            is_new = template is None
            if template is None:
                made = TemplateInstances(program, self._instance)
                template = self._templates[number] = Entry(made, size, weakref.WeakMethod(self._remove_template))
            template.bytes = max(template.bytes, size)
        if is_new and not CACHE.add(template, self.limit, must=self._must):
            self._remove_template(template)
            return None
        with self._lock:
            if self._templates.get(number) is not template:  # evicted meanwhile
                return None
            if len(self._bound) >= MAX_BOUND:
                del self._bound[next(iter(self._bound))]
            bound = self._bound[key] = BoundInstance(program, template.instance)
            before = self._ready.pop(key, None)
        if before is not None:
            CACHE.discard(before)
            before.instance.close()
        QUEUE.forget(self, key)
        return bound

    def _remove_template(self, template: Entry[TemplateInstances]) -> None:
        """Release a template and all its instances."""
        code = template.instance.program.code
        with self._lock:
            self._templates = {number: each for number, each in self._templates.items() if each is not template}
            self._bound = {key: each for key, each in self._bound.items() if each.program.code is not code}
        template.instance.close()
        self._release(template.instance.program)

    def _remove(self, entry: Entry[Instance]) -> None:
        with self._lock:
            self._ready = {key: each for key, each in self._ready.items() if each is not entry}
        entry.instance.close()


def _remember(numbers: dict[Key, int], key: Key, number: int) -> None:
    if len(numbers) >= _MAX_REMEMBERED:
        numbers.clear()
    numbers[key] = number
