"""What else the compiler is asked for; it is imported only then: without llvmlite the engine still runs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bundle import Manifest
from engine.errors import CompileError
from engine.options import cache_folder
from engine.stopping import Progress

if TYPE_CHECKING:
    from engine.compiler.bundling.writing import BundleWriter


def admit(manifest: Manifest) -> None:
    """Refuse a bundle that is for another machine or another engine.

    Raises:
        BundleError: saying what it is for, and what is here.
    """
    from engine.compiler.bundling import admission

    admission.admit(manifest)


@contextmanager
def write_bundle(folder: Path, tag: str | None, replace: bool) -> Iterator[Callable[..., BundleWriter]]:
    """What makes a bundle of a graph, its options, further files and a target; it is in its place after the block.

    Raises:
        BundleError, CompileError: as ``Session.save_bundle`` says.
    """
    if not has_llvm():
        raise CompileError("llvmlite is not installed, so there is no compiler")
    from engine.compiler.bundling.writing import BundleWriter, place_for

    with place_for(folder, tag=tag, replace=replace) as place:
        yield partial(BundleWriter, place)


def has_llvm() -> bool:
    """Whether there is something that compiles; it is not imported to find out."""
    try:
        return importlib.util.find_spec("llvmlite") is not None
    except ValueError:  # it was kept out
        return False


def in_background(job: Callable[[Progress], bool]) -> bool:
    """Have something done that compiles, in the one thread of the process that does so while others run.

    Args:
        job: does a step of it, and says whether there is more to do; told how to let others run meanwhile.

    Returns:
        Whether there is a compiler; nothing is done without.
    """
    try:
        from engine.compiler.runtime.compile_queue import QUEUE
    except ImportError:
        return False
    QUEUE.submit(job)
    return True


def measure_peak(seconds: float = 0.2) -> float:
    """What one core can do at most: floating-point operations a second of fused multiply-adds on registers, measured.

    Args:
        seconds: how long to measure.

    Raises:
        CompileError: there is no compiler, or none for this processor.
    """
    try:
        from engine.compiler.measuring import peak
    except ImportError as exc:
        raise no_compiler(exc) from exc
    return peak.measure_peak(seconds)


def describe_host(cache: str | os.PathLike[str] | None = "auto", *, again: bool = False) -> dict[str, Any]:
    """Describe this machine: what a core does, measured once in a process, and what kernels are chosen by.

    Args:
        cache: folder where a calibration is kept, as ``Session`` has it.
        again: calibrate: measure anew, keep it, and choose by it whatever is compiled from now on.

    Raises:
        CompileError: there is no compiler, or none for this processor.
    """
    try:
        from engine.compiler.measuring.description import describe
    except ImportError as exc:
        raise no_compiler(exc) from exc
    return describe(cache_folder(cache), again=again)


def no_compiler(exc: ImportError) -> CompileError:
    """The error that says so."""
    return CompileError("llvmlite cannot be imported, so there is no compiler", found=str(exc))
