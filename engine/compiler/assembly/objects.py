"""Kernels as object code, each that is different once; those that cannot be made are named, with the reason."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from engine.compiler.assembly.opening import OPENINGS, Call, Opening, Openings, opening_of
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.kernel import Kernel, with_numbers
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.runtime.team import team_code
from engine.defects import report_defect
from engine.errors import CompileError, RunCancelledError
from engine.ir.dims import specialise
from engine.stopping import Progress, wanted_quick

# Instructions of all kernels of a program: some minutes of LLVM at worst. Networks of 300 operators have a tenth of it.
PROGRAM_OPERATIONS = 2_000_000
# How far LLVM steps back behind those who answer somebody: it has a third of a core that one of them wants as well.
_BEHIND: Final = 5


class RefusedError(Exception):
    """Kernels that cannot be made: lowered again without them, the rest of the graph can be.

    Attributes:
        reasons: operator -> why it needs to be left to the reference.
        defects: those of them whose kernels failed in a way that is not a refusal.
    """

    def __init__(self, reasons: dict[str, str], defects: set[str]) -> None:
        super().__init__(", ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons
        self.defects = defects


@dataclass(frozen=True, slots=True)
class Objects:
    """The code of a program.

    Args:
        code: object code, in parts.
        calls: of every kernel, as ``call_of`` finds it.
        found: by the function's name, what was made before.
        made: how many kernels had to be made.
    """

    code: list[bytes]
    calls: Mapping[object, Call]
    found: Mapping[str, bytes]
    made: int

    def call_of(self, kernel: Kernel) -> Call:
        """How a kernel is called."""
        return self.calls[id(kernel)] if id(kernel) in self.calls else self.calls[kernel.name]


def make_objects(
    steps: Sequence[Step],
    host: Host,
    progress: Progress,
    cores: int = 1,
    *,
    is_open: bool = False,
) -> Objects:
    """An object for the team and one for each kernel: all in one would take LLVM longer, without a sign of progress.

    Args:
        cores: LLVM may work on so many kernels at once, in threads of its own where it is more than one; 0 for what
            others leave of one core.
        is_open: whether kernels read sizes when they run, where they can, so that other shapes find their code.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some of its kernels would, or they are not valid.
    """
    first: dict[object, KernelStep] = {}
    for step in wanted_quick(steps):
        if isinstance(step, KernelStep):  # to look for code takes no longer than to name a kernel
            first.setdefault(id(step.kernel) if is_open else step.kernel.name, step)
    with _assembling(cores) as assemble:
        maker = _Maker(host, assemble, is_open=is_open)
        for number, step in enumerate(first.values()):
            progress("assembling", number, len(first))
            maker.make(step)
        objects = maker.finish()
    if maker.refused:
        raise RefusedError(maker.refused, maker.defects)
    return objects


class _Maker:
    """Has kernels made, or finds what was made of them.

    Args:
        assemble: has something done that gives object code.

    Attributes:
        refused: operator -> why its kernel cannot be made.
        defects: operators whose kernel failed in a way that is not a refusal.
    """

    def __init__(
        self,
        host: Host,
        assemble: Callable[[Callable[[], bytes]], Future[bytes]],
        *,
        is_open: bool,
    ) -> None:
        self._host, self._assemble, self._is_open = host, assemble, is_open
        self._key = host.key
        self._left = PROGRAM_OPERATIONS
        self._calls: dict[object, Call] = {}
        self._found: dict[str, bytes] = {}
        self._written = Openings()
        self._team = assemble(partial(_team, host))
        self._pending: list[tuple[KernelStep, Opening | None, Future[bytes]]] = []
        self.refused: dict[str, str] = {}
        self.defects: set[str] = set()

    def make(self, step: KernelStep) -> None:
        """A kernel, unless there is code for it.

        Raises:
            CompileError: the program would be too large.
        """
        for size, least in step.kernel.least_sizes:
            if size < least:
                raise CompileError("a tile is larger than what it is to cover", found=size, expected=f">= {least}")
        opening = self._opened(step) if self._is_open else None
        if opening is not None and self._find(step, opening):
            return
        if self._left < 0:
            raise CompileError("the program would be too large", expected=f"{PROGRAM_OPERATIONS:,} instructions")
        if opening is None or not self._write_open(step, opening):
            self._write_closed(step)

    def _find(self, step: KernelStep, opening: Opening) -> bool:
        """Return whether there is code for a kernel; then it is called."""
        found = OPENINGS.find(opening) or self._written.find(opening)
        if found is None:
            return False
        self._calls[id(step.kernel)] = Call(found.function, found.numbers)
        if found.code:
            self._found[found.function] = found.code
        return True

    def _write_open(self, step: KernelStep, opening: Opening) -> bool:
        """Write a kernel with open sizes; return False where it can only be written for those at hand."""
        module = _opened_module(opening, step)
        if module is None:
            return False
        self._written.keep(opening, b"")
        if not self._find(step, opening):  # what it relies on cannot be told: it is for these sizes alone
            specialise(opening.sizes.values)
            self._calls[id(step.kernel)] = opening.call
        self._assemble_module(step, opening, module)
        return True

    def _write_closed(self, step: KernelStep) -> None:
        """Write a kernel for the sizes at hand, unless an equal one is written."""
        kernel = with_numbers(step.kernel)
        self._calls[id(step.kernel)] = Call(kernel.name)
        if kernel.name in self._calls:
            return
        self._calls[kernel.name] = Call(kernel.name)
        module = self._closed_module(step, kernel)
        if module is not None:
            self._assemble_module(step, None, module)

    def _assemble_module(self, step: KernelStep, opening: Opening | None, module: Module) -> None:
        self._left -= module.operations
        work = partial(object_code.assemble, str(module), self._host)
        self._pending.append((step, opening, self._assemble(work)))

    def finish(self) -> Objects:
        """All there is, once it is assembled."""
        code = [self._team.result(), *self._found.values()]
        for step, opening, future in self._pending:
            try:
                code.append(future.result())
            except CompileError as error:
                self._report(step, error)
                self.refused[step.operators[0]] = "its kernel is not valid code"
            else:
                if opening is not None:
                    OPENINGS.keep(opening, code[-1])
        return Objects(code, self._calls, self._found, len(self._pending))

    def _opened(self, step: KernelStep) -> Opening | None:
        opening = opening_of(step.kernel, self._key, len(step.pointers))
        return opening if opening.is_open else None

    def _closed_module(self, step: KernelStep, kernel: Kernel) -> Module | None:
        module = Module()
        try:
            kernel.write(module)
        except TooLargeError as error:
            self.refused[step.operators[0]] = str(error)
            return None
        except Exception as exc:  # a defect of a generator
            self._report(step, exc)
            self.refused[step.operators[0]] = f"its kernel failed with {type(exc).__name__}"
            return None
        return module

    def _report(self, step: KernelStep, error: Exception) -> None:
        """Report a defect; the operator may still get another kernel."""
        report_defect(step.operators[0], error, is_compiled=True)
        self.defects.add(step.operators[0])


@contextmanager
def _assembling(cores: int) -> Iterator[Callable[[Callable[[], bytes]], Future[bytes]]]:
    """What has a kernel assembled: by other threads, which are gone afterwards, or at once where there is one core."""
    if cores == 1:
        yield _at_once
        return
    pool = ThreadPoolExecutor(max(1, cores), "assemble", partial(_give_way, _BEHIND) if cores < 1 else None)
    try:
        yield pool.submit if cores else partial(_awaited, pool)
    finally:
        pool.shutdown(cancel_futures=True)


def _give_way(steps: int) -> None:
    """Let others run before this thread, from now on: most users may not take that back.

    Only for threads that compute without the interpreter's lock: a thread that waits for the lock waits for them.

    Args:
        steps: how far; 5 leaves a third of a core that another thread wants as well, 19 almost nothing.
    """
    with suppress(OSError, AttributeError):  # a system that knows no priority of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), steps)


@lru_cache(maxsize=4)
def _team(host: Host) -> bytes:
    """What walks the steps, the same in every program."""
    return object_code.assemble(team_code(host), host)


def _awaited(pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> Future[bytes]:
    try:
        done = pool.submit(work)
    except RuntimeError as exc:  # the interpreter is about to end, or the system has no more threads
        raise RunCancelledError("there is no thread to compile in") from exc
    wait([done])
    return done


def _at_once(work: Callable[[], bytes]) -> Future[bytes]:
    done: Future[bytes] = Future()
    try:
        done.set_result(work())
    except CompileError as error:
        done.set_exception(error)
    return done


def _opened_module(opening: Opening, step: KernelStep) -> Module | None:
    """A kernel with open sizes; None where it can only be written for those at hand."""
    try:
        return opening.write()
    except TooLargeError:
        return None
    except Exception as exc:  # a defect of a generator costs time, not the answer
        report_defect(step.operators[0], exc, is_compiled=True)
        return None
