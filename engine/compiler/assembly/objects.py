"""Kernels as object code, each that is different once; those that cannot be made are named, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.runtime.team import team_code
from engine.errors import CompileError
from engine.progress import Progress
from engine.stopping import wanted_quick

# Instructions of all kernels of a program: some minutes of LLVM at worst. Networks of 300 operators have a tenth of it.
PROGRAM_OPERATIONS = 2_000_000

_log = logging.getLogger("pnnx_serve.engine")


class RefusedError(Exception):
    """Kernels that cannot be made: lowered again without them, the rest of the graph can be.

    Attributes:
        reasons: operator -> why it needs to be left to the reference.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(", ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons


def make_objects(steps: Sequence[Step], host: Host, progress: Progress, cores: int = 1) -> list[bytes]:
    """An object for the team and one for each kernel: all in one would take LLVM longer, without a sign of progress.

    Args:
        cores: LLVM may work on so many kernels at once, in threads of its own where it is more than one.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some of its kernels would, or they are not valid.
    """
    first: dict[str, KernelStep] = {}
    for step in wanted_quick(steps):
        if isinstance(step, KernelStep):
            first.setdefault(step.kernel.name, step)
    refused: dict[str, str] = {}
    with _assembling(cores) as assemble:
        pending: list[tuple[KernelStep | None, Future[bytes]]] = [
            (None, assemble(partial(object_code.assemble, team_code(host), host)))
        ]
        left = PROGRAM_OPERATIONS
        for number, step in enumerate(first.values()):
            progress("assembling", number, len(first))
            if left < 0:
                raise CompileError("the program would be too large", expected=f"{PROGRAM_OPERATIONS:,} instructions")
            try:
                module = _module(step.kernel, host)
            except _NotMadeError as error:
                refused[step.operators[0]] = str(error)
            else:
                left -= module.operations
                pending.append((step, assemble(partial(_object, step.kernel, module, host))))
        objects = list(_finished(pending, refused))
    if refused:
        raise RefusedError(refused)
    return objects


@contextmanager
def _assembling(cores: int) -> Iterator[Callable[[Callable[[], bytes]], Future[bytes]]]:
    """What has a kernel assembled: by other threads, which are gone afterwards, or at once where there is one core."""
    if cores < 2:
        yield _at_once
        return
    pool = ThreadPoolExecutor(cores, thread_name_prefix="assemble")
    try:
        yield pool.submit
    finally:
        pool.shutdown(cancel_futures=True)


def _at_once(work: Callable[[], bytes]) -> Future[bytes]:
    done: Future[bytes] = Future()
    try:
        done.set_result(work())
    except (CompileError, _NotMadeError) as error:
        done.set_exception(error)
    return done


def _finished(pending: Sequence[tuple[KernelStep | None, Future[bytes]]], refused: dict[str, str]) -> Iterator[bytes]:
    """The objects, in the order they were asked for; those refused get their reason."""
    for step, future in pending:
        try:
            yield future.result()
        except _NotMadeError as error:
            if step is not None:
                refused[step.operators[0]] = str(error)


class _NotMadeError(Exception):
    """A kernel that cannot be written."""


def _module(kernel: Kernel, host: Host) -> Module:
    module = Module()
    try:
        kernel.emit(module)
    except TooLargeError as error:
        raise _NotMadeError(str(error)) from None
    except Exception as exc:  # a defect of a generator costs speed, not the answer
        _log.warning("%s: it cannot be written: %s: %s", kernel.name, type(exc).__name__, exc)
        raise _NotMadeError(f"its kernel failed with {type(exc).__name__}") from exc
    return module


def _object(kernel: Kernel, module: Module, host: Host) -> bytes:
    try:
        return object_code.assemble(str(module), host)
    except CompileError as error:
        _log.warning("%s: %s", kernel.name, error)
        raise _NotMadeError("its kernel is not valid code") from error
