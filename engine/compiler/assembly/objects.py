"""Kernels as object code, each that is different once; those that cannot be made are named, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from engine.compiler.assembly.opening import OPENINGS, Call, Opening, Openings, opening_of
from engine.compiler.assembly.sharing import Shared
from engine.compiler.blueprint import NotYetMadeError
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.ready import Ready
from engine.compiler.kernels.recurrent.recurrence import Recurrence
from engine.compiler.lowering.choosing import Wanted
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.runtime.lending import lent
from engine.compiler.runtime.priority import give_way
from engine.compiler.runtime.team import team_code
from engine.errors import CompileError, RunCancelledError
from engine.progress import Progress
from engine.stopping import wanted_quick

# Instructions of all kernels of a program: some minutes of LLVM at worst. Networks of 300 operators have a tenth of it.
PROGRAM_OPERATIONS = 2_000_000
# How far LLVM steps back behind those who answer somebody: it has a third of a core that one of them wants as well.
_BEHIND: Final = 5

_log = logging.getLogger("pnnx_serve.engine")


class RefusedError(Exception):
    """Kernels that cannot be made: lowered again without them, the rest of the graph can be.

    Attributes:
        reasons: operator -> why it needs to be left to the reference.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(", ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons


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
    is_known: bool = False,
) -> Objects:
    """An object for the team and one for each kernel: all in one would take LLVM longer, without a sign of progress.

    Args:
        cores: LLVM may work on so many kernels at once, in threads of its own where it is more than one; 0 for what
            others leave of one core.
        is_open: whether kernels read sizes when they run, where they can, so that other shapes find their code.
        is_known: whether only code is wanted that was made before.

    Raises:
        NotYetMadeError: there is none.
        CompileError: the program would be too large.
        RefusedError: some of its kernels would, or they are not valid.
    """
    first: dict[object, KernelStep] = {}
    for step in wanted_quick(steps):
        if isinstance(step, KernelStep):  # to look for code takes no longer than to name a kernel
            first.setdefault(id(step.kernel) if is_open else step.kernel.name, step)
    with _assembling(cores) as assemble:
        maker = _Maker(host, assemble, is_open=is_open, is_known=is_known)
        for number, step in enumerate(first.values()):
            progress("assembling", number, len(first))
            maker.make(step)
        objects = maker.finish()
    if maker.refused:
        raise RefusedError(maker.refused)
    return objects


class Made:
    """What code there is for a host; see ``Code``."""

    def __init__(self, host: Host) -> None:
        self._key = host.key

    def is_made(self, step: KernelStep) -> bool:
        """See ``Code``."""
        opening = opening_of(step.kernel, self._key, len(step.pointers))
        return not opening.is_open or OPENINGS.has(*opening.wanted)

    def wanted(self, step: KernelStep) -> Wanted:
        """See ``Code``."""
        return opening_of(step.kernel, self._key, len(step.pointers)).wanted

    def has(self, wanted: Wanted) -> bool:
        """See ``Code``."""
        return OPENINGS.has(*wanted)

    def ready(self, step: KernelStep) -> Ready | None:
        """See ``Code``."""
        kernel, opening = step.kernel, opening_of(step.kernel, self._key, len(step.pointers))
        found = OPENINGS.find(opening) if opening.is_open else None
        if found is None or kernel.reads_few or isinstance(kernel, Recurrence):
            return None
        return Ready(
            host=kernel.host,
            function=found.function,
            numbers=found.numbers,
            code=found.code,
            reported=kernel.reported_kind,
            pieces=kernel.chunks,
            operations=kernel.flops,
        )


class _Maker:
    """Has kernels made, or finds what was made of them.

    Args:
        assemble: has something done that gives object code.

    Attributes:
        refused: operator -> why its kernel cannot be made.
    """

    def __init__(
        self,
        host: Host,
        assemble: Callable[[Callable[[], bytes]], Future[bytes]],
        *,
        is_open: bool,
        is_known: bool,
    ) -> None:
        self._host, self._assemble, self._is_open, self._is_known = host, assemble, is_open, is_known
        self._key = host.key
        self._left = PROGRAM_OPERATIONS
        self._calls: dict[object, Call] = {}
        self._found: dict[str, bytes] = {}
        self._written = Openings()
        self._shared = Shared()
        self._team = assemble(partial(_team, host))
        self._pending: list[tuple[KernelStep, Opening | None, Future[bytes]]] = []
        self.refused: dict[str, str] = {}

    def make(self, step: KernelStep) -> None:
        """A kernel, unless there is code for it.

        Raises:
            CompileError: the program would be too large.
        """
        if isinstance(step.kernel, Ready):
            self._calls[id(step.kernel)] = Call(step.kernel.function, step.kernel.numbers)
            self._found[step.kernel.function] = step.kernel.code
            return
        opening = self._opened(step) if self._is_open else None
        known = opening and (OPENINGS.find(opening) or self._written.find(opening))
        if known:
            self._calls[id(step.kernel)] = Call(known.function, known.numbers)
            if known.code:
                self._found[known.function] = known.code
            return
        if self._is_known and opening is not None:
            raise NotYetMadeError
        if opening is None and step.kernel.name in self._calls:
            return
        if self._left < 0:
            raise CompileError("the program would be too large", expected=f"{PROGRAM_OPERATIONS:,} instructions")
        module = None if opening is None else _opened_module(opening)
        if opening is not None and module is not None:
            self._calls[id(step.kernel)] = opening.call
            self._written.keep(opening, b"")
        else:
            opening, module = None, self._closed_module(step)
        if module is not None:
            self._left -= module.operations
            # What other programs find must need no object but its own.
            text = str(module) if opening is not None else self._shared.text(module)
            self._pending.append((step, opening, self._assemble(partial(_object, step.kernel, text, self._host))))

    def finish(self) -> Objects:
        """All there is, once it is assembled."""
        code = [self._team.result(), *self._found.values()]
        for step, opening, future in self._pending:
            try:
                code.append(future.result())
            except _NotMadeError as error:
                self.refused[step.operators[0]] = str(error)
            else:
                if opening is not None:
                    OPENINGS.keep(opening, code[-1])
        return Objects(code, self._calls, self._found, len(self._pending))

    def _opened(self, step: KernelStep) -> Opening | None:
        opening = opening_of(step.kernel, self._key, len(step.pointers))
        return opening if opening.is_open else None

    def _closed_module(self, step: KernelStep) -> Module | None:
        self._calls[step.kernel.name] = Call(step.kernel.name)
        try:
            return _module(step.kernel)
        except _NotMadeError as error:
            self.refused[step.operators[0]] = str(error)
            return None


@contextmanager
def _assembling(cores: int) -> Iterator[Callable[[Callable[[], bytes]], Future[bytes]]]:
    """What has a kernel assembled: by other threads, which are gone afterwards, or at once where there is one core."""
    if cores == 1:
        yield _at_once
        return
    pool = ThreadPoolExecutor(max(1, cores), "assemble", partial(give_way, _BEHIND) if cores < 1 else None)
    try:
        yield pool.submit if cores else partial(_awaited, pool)
    finally:
        pool.shutdown(cancel_futures=True)


@lru_cache(maxsize=4)
def _team(host: Host) -> bytes:
    """What walks the steps, the same in every program."""
    return object_code.assemble(team_code(host), host)


def _awaited(pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> Future[bytes]:
    try:
        done = pool.submit(work)
    except RuntimeError as exc:  # the interpreter is about to end, or the system has no more threads
        raise RunCancelledError("there is no thread to compile in") from exc
    with lent():
        wait([done])
    return done


def _at_once(work: Callable[[], bytes]) -> Future[bytes]:
    done: Future[bytes] = Future()
    try:
        done.set_result(work())
    except (CompileError, _NotMadeError) as error:
        done.set_exception(error)
    return done


class _NotMadeError(Exception):
    """A kernel that cannot be written."""


def _opened_module(opening: Opening) -> Module | None:
    """A kernel with open sizes; None where it can only be written for those at hand."""
    try:
        return opening.write()
    except TooLargeError:
        return None
    except Exception as exc:  # a defect of a generator costs time, not the answer
        _log.warning("%s: its sizes stay closed: %s: %s", opening.key, type(exc).__name__, exc)
        return None


def _module(kernel: Kernel) -> Module:
    module = Module()
    try:
        kernel.write(module)
    except TooLargeError as error:
        raise _NotMadeError(str(error)) from None
    except Exception as exc:  # a defect of a generator costs speed, not the answer
        _log.warning("%s: it cannot be written: %s: %s", kernel.name, type(exc).__name__, exc)
        raise _NotMadeError(f"its kernel failed with {type(exc).__name__}") from exc
    return module


def _object(kernel: Kernel, text: str, host: Host) -> bytes:
    try:
        return object_code.assemble(text, host)
    except CompileError as error:
        _log.warning("%s: %s", kernel.name, error)
        raise _NotMadeError("its kernel is not valid code") from error
