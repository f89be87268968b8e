"""Object code of every distinct kernel; kernels that cannot be compiled are reported with the reason."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from engine.cancellation import Progress, cancellable_quick
from engine.compiler.assembly.dynamic_kernels import (
    DYNAMIC_KERNELS,
    Call,
    DynamicKernel,
    DynamicKernelCache,
    dynamic_kernel_of,
)
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.kernel import Kernel, specialised
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.runtime.team import team_code
from engine.defects import report_defect
from engine.errors import CompileError, RunCancelledError
from engine.ir.dims import specialise

# Most instructions of all kernels of a program: minutes of LLVM at worst. Networks of 300 operators have a tenth of it.
PROGRAM_OPERATIONS = 2_000_000
# Nice value of background compilation: it gets a third of a core that a request needs as well.
_BACKGROUND_NICE: Final = 5


class RefusedError(Exception):
    """Some kernels cannot be compiled; without them, the graph can be lowered again.

    Attributes:
        reasons: operator -> why it is left to the reference.
        defects: operators whose kernels failed because of a defect.
    """

    def __init__(self, reasons: dict[str, str], defects: set[str]) -> None:
        super().__init__(", ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons
        self.defects = defects


@dataclass(frozen=True, slots=True)
class Objects:
    """Code of a program.

    Args:
        code: object files.
        calls: of every kernel; see ``call_of``.
        found: cached code by function name.
        made: number of kernels that were compiled.
    """

    code: list[bytes]
    calls: Mapping[object, Call]
    found: Mapping[str, bytes]
    made: int

    def call_of(self, kernel: Kernel) -> Call:
        """Return how a kernel is called."""
        return self.calls[id(kernel)] if id(kernel) in self.calls else self.calls[kernel.name]


def make_objects(
    steps: Sequence[Step],
    host: Host,
    progress: Progress,
    cores: int = 1,
    *,
    is_dynamic: bool = False,
) -> Objects:
    """Return an object for the step loop and one for each kernel: one for all would take LLVM longer, without progress.

    Args:
        cores: number of kernels LLVM compiles at once, in threads if more than one; 0 for background priority.
        is_dynamic: whether kernels use dynamic sizes where they can, so that other shapes reuse their code.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some kernels are too large or not valid.
    """
    first: dict[object, KernelStep] = {}
    for step in cancellable_quick(steps):
        if isinstance(step, KernelStep):  # a lookup takes no longer than the kernel's name
            first.setdefault(id(step.kernel) if is_dynamic else step.kernel.name, step)
    with _assembling(cores) as assemble:
        maker = _KernelCompiler(host, assemble, is_dynamic=is_dynamic)
        for number, step in enumerate(first.values()):
            progress("assembling", number, len(first))
            maker.make(step)
        objects = maker.finish()
    if maker.refused:
        raise RefusedError(maker.refused, maker.defects)
    return objects


class _KernelCompiler:
    """Collects the kernels of a program, compiled or cached.

    Args:
        assemble: schedules work that returns object code.

    Attributes:
        refused: operator -> why its kernel cannot be compiled.
        defects: operators whose kernel failed because of a defect.
    """

    def __init__(
        self,
        host: Host,
        assemble: Callable[[Callable[[], bytes]], Future[bytes]],
        *,
        is_dynamic: bool,
    ) -> None:
        self._host, self._assemble, self._is_dynamic = host, assemble, is_dynamic
        self._key = host.key
        self._left = PROGRAM_OPERATIONS
        self._calls: dict[object, Call] = {}
        self._found: dict[str, bytes] = {}
        self._written = DynamicKernelCache()
        self._step_loop = assemble(partial(_step_loop, host))
        self._pending: list[tuple[KernelStep, DynamicKernel | None, Future[bytes]]] = []
        self.refused: dict[str, str] = {}
        self.defects: set[str] = set()

    def make(self, step: KernelStep) -> None:
        """Compile a kernel, unless its code is cached.

        Raises:
            CompileError: the program would be too large.
        """
        for size, least in step.kernel.min_sizes:
            if size < least:
                raise CompileError("a kernel tile is larger than the tensor", found=size, expected=f">= {least}")
        dynamic = self._dynamic(step) if self._is_dynamic else None
        if dynamic is not None and self._find(step, dynamic):
            return
        if self._left < 0:
            raise CompileError("the program would be too large", expected=f"{PROGRAM_OPERATIONS:,} instructions")
        if dynamic is None or not self._emit_dynamic(step, dynamic):
            self._emit_specialised(step)

    def _find(self, step: KernelStep, dynamic: DynamicKernel) -> bool:
        """Return whether there is code for a kernel; if so, use it."""
        found = DYNAMIC_KERNELS.find(dynamic) or self._written.find(dynamic)
        if found is None:
            return False
        self._calls[id(step.kernel)] = Call(found.function, found.numbers)
        if found.code:
            self._found[found.function] = found.code
        return True

    def _emit_dynamic(self, step: KernelStep, dynamic: DynamicKernel) -> bool:
        """Emit a kernel with dynamic sizes; return False if it supports only static ones."""
        module = _dynamic_module(dynamic, step)
        if module is None:
            return False
        self._written.keep(dynamic, b"")
        if not self._find(step, dynamic):  # its guards cannot be expressed: it is for these sizes only
            specialise(dynamic.sizes.values)
            self._calls[id(step.kernel)] = dynamic.call
        self._assemble_module(step, dynamic, module)
        return True

    def _emit_specialised(self, step: KernelStep) -> None:
        """Emit a kernel for static sizes, unless an equal one was emitted."""
        kernel = specialised(step.kernel)
        self._calls[id(step.kernel)] = Call(kernel.name)
        if kernel.name in self._calls:
            return
        self._calls[kernel.name] = Call(kernel.name)
        module = self._specialised_module(step, kernel)
        if module is not None:
            self._assemble_module(step, None, module)

    def _assemble_module(self, step: KernelStep, dynamic: DynamicKernel | None, module: Module) -> None:
        self._left -= module.operations
        work = partial(object_code.assemble, str(module), self._host)
        self._pending.append((step, dynamic, self._assemble(work)))

    def finish(self) -> Objects:
        """Return all code once it is assembled."""
        code = [self._step_loop.result(), *self._found.values()]
        for step, dynamic, future in self._pending:
            try:
                code.append(future.result())
            except CompileError as error:
                self._report(step, error)
                self.refused[step.operators[0]] = "its kernel is not valid code"
            else:
                if dynamic is not None:
                    DYNAMIC_KERNELS.keep(dynamic, code[-1])
        return Objects(code, self._calls, self._found, len(self._pending))

    def _dynamic(self, step: KernelStep) -> DynamicKernel | None:
        dynamic = dynamic_kernel_of(step.kernel, self._key, len(step.pointers))
        return dynamic if dynamic.is_dynamic else None

    def _specialised_module(self, step: KernelStep, kernel: Kernel) -> Module | None:
        module = Module()
        try:
            kernel.write(module)
        except TooLargeError as error:
            self.refused[step.operators[0]] = str(error)
            return None
        except Exception as exc:  # a defect of a kernel generator
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
    """Yield a function that assembles a kernel: in other threads, or at once with one core."""
    if cores == 1:
        yield _synchronously
        return
    pool = ThreadPoolExecutor(
        max(1, cores), "assemble", partial(_lower_priority, _BACKGROUND_NICE) if cores < 1 else None
    )
    try:
        yield pool.submit if cores else partial(_submit_and_wait, pool)
    finally:
        pool.shutdown(cancel_futures=True)


def _lower_priority(steps: int) -> None:
    """Lower the priority of this thread, permanently: most users may not raise it again.

    Only for threads that compute without the interpreter's lock: a thread that needs the lock waits for them.

    Args:
        steps: nice value; 5 leaves a third of a core that another thread needs as well, 19 almost nothing.
    """
    with suppress(OSError, AttributeError):  # a system without thread priorities
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), steps)


@lru_cache(maxsize=4)
def _step_loop(host: Host) -> bytes:
    """Return the code that walks the steps, the same in every program."""
    return object_code.assemble(team_code(host), host)


def _submit_and_wait(pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> Future[bytes]:
    try:
        done = pool.submit(work)
    except RuntimeError as exc:  # the interpreter is shutting down, or no thread can be started
        raise RunCancelledError("no thread is available for compilation") from exc
    wait([done])
    return done


def _synchronously(work: Callable[[], bytes]) -> Future[bytes]:
    done: Future[bytes] = Future()
    try:
        done.set_result(work())
    except CompileError as error:
        done.set_exception(error)
    return done


def _dynamic_module(dynamic: DynamicKernel, step: KernelStep) -> Module | None:
    """Return a kernel with dynamic sizes; None if it supports only static ones."""
    try:
        return dynamic.write()
    except TooLargeError:
        return None
    except Exception as exc:  # a defect of a kernel generator costs time, not the result
        report_defect(step.operators[0], exc, is_compiled=True)
        return None
