"""Entry points of the compiler outside sessions, which import it on demand: without llvmlite the engine still runs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bundle import Manifest
from engine.cancellation import Progress
from engine.errors import CompileError
from engine.options import cache_folder

if TYPE_CHECKING:
    from engine.compiler.bundling.writing import BundleWriter


def admit(manifest: Manifest) -> None:
    """Refuse a bundle that is for another machine or another engine.

    Raises:
        BundleError: names the target of the bundle, and this machine.
    """
    from engine.compiler.bundling.programs import admit as check

    check(manifest)


@contextmanager
def write_bundle(folder: Path, tag: str | None, replace: bool) -> Iterator[Callable[..., BundleWriter]]:
    """Yield a function that makes a bundle of a graph, its options, further files and a target, published in the end.

    Raises:
        BundleError, CompileError: as for ``Session.save_bundle``.
    """
    if not has_llvm():
        raise CompileError("llvmlite is not installed, so there is no compiler")
    from engine.compiler.bundling.writing import BundleWriter, place_for

    with place_for(folder, tag=tag, replace=replace) as place:
        yield partial(BundleWriter, place)


def has_llvm() -> bool:
    """Return whether llvmlite is installed, without importing it."""
    try:
        return importlib.util.find_spec("llvmlite") is not None
    except ValueError:  # blocked by sys.modules["llvmlite"] = None
        return False


def in_background(job: Callable[[Progress], bool]) -> bool:
    """Run a job that compiles in the process's background thread for compilation.

    Args:
        job: does one step and returns whether there are more; its argument lets other jobs run in between.

    Returns:
        Whether there is a compiler; without one nothing is done.
    """
    try:
        from engine.compiler.runtime.compile_queue import QUEUE
    except ImportError:
        return False
    QUEUE.submit(job)
    return True


def measure_peak(seconds: float = 0.2) -> float:
    """Measure the peak of one core: floating-point operations a second of fused multiply-adds on registers.

    Args:
        seconds: duration of the measurement.

    Raises:
        CompileError: there is no compiler, or none for this processor.
    """
    try:
        from engine.compiler.measuring.bench import measure_peak as measured
    except ImportError as exc:
        raise no_compiler(exc) from exc
    return measured(seconds)


def describe_host(cache: str | os.PathLike[str] | None = "auto", *, again: bool = False) -> dict[str, Any]:
    """Describe this machine: the measured rates of a core, and the data by which kernels are chosen.

    Args:
        cache: folder where a calibration is kept, as ``Session`` has it.
        again: calibrate: measure anew, keep it, and choose by it whatever is compiled from now on.

    Raises:
        CompileError: there is no compiler, or none for this processor.
    """
    try:
        from engine.compiler.measuring.record import describe
    except ImportError as exc:
        raise no_compiler(exc) from exc
    return describe(cache_folder(cache), again=again)


def has_bfloat16() -> bool:
    """Return whether there is a compiler, and this processor has instructions for products of bfloat16."""
    with suppress(ImportError, CompileError):
        from engine.compiler.codegen.host import detect

        return detect().has_bfloat16
    return False


def no_compiler(exc: ImportError) -> CompileError:
    """Return the error for an engine without a compiler."""
    return CompileError("llvmlite cannot be imported, so there is no compiler", found=str(exc))
