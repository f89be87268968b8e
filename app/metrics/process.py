"""Metrics of the process: memory, CPU time, garbage collection, compilation. Most come from /proc, on Linux."""

from __future__ import annotations

import gc
import os
import platform
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import engine
from app.metrics.families import Snapshot
from app.version import version

_STATM: Final = Path("/proc/self/statm")
_FILES: Final = Path("/proc/self/fd")


def read_process(worker: str) -> Snapshot:
    """Return the metrics of this process, labelled with its worker number."""
    found: Snapshot = {"pnnx_serve_build_info": {(_version(), platform.python_version()): 1.0}}
    for name, value, *labels in (*_of_system(), *_of_garbage(), *_of_compiler()):
        found.setdefault(name, {})[(worker, *labels)] = value
    return found


def _of_system() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    times = os.times()
    yield "process_cpu_seconds_total", times.user + times.system
    yield "process_threads", threading.active_count()
    try:
        pages = int(_STATM.read_bytes().split()[1])
        files = len(os.listdir(_FILES)) - 1  # without the descriptor of the listing itself
    except (OSError, ValueError, IndexError):  # another system, or out of file descriptors
        return
    yield "process_resident_memory_bytes", float(pages * os.sysconf("SC_PAGE_SIZE"))
    yield "process_open_fds", files


def _of_garbage() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    for generation, (figures, seconds) in enumerate(zip(gc.get_stats(), GARBAGE.seconds, strict=True)):
        label = str(generation)
        yield "python_gc_collections_total", figures["collections"], label
        yield "python_gc_objects_collected_total", figures["collected"], label
        yield "python_gc_seconds_total", seconds, label


def _of_compiler() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    metrics = engine.compile_metrics()
    yield "pnnx_serve_programs_total", metrics.compiled, "compiled"
    yield "pnnx_serve_programs_total", metrics.cached, "cache"
    yield "pnnx_serve_program_seconds_total", metrics.compiled_s, "compiled"
    yield "pnnx_serve_program_seconds_total", metrics.cached_s, "cache"
    yield "pnnx_serve_instances", metrics.instances
    yield "pnnx_serve_instances_bytes", metrics.instances_bytes
    yield "pnnx_serve_compile_wishes", metrics.compile_requests
    yield "pnnx_serve_compiling", float(metrics.is_compiling)


@cache
def _version() -> str:
    return version()


class Garbage:
    """Seconds of garbage collections by generation, counted from ``watch`` on."""

    def __init__(self) -> None:
        self.seconds = [0.0] * len(gc.get_stats())
        self._start = 0.0

    def watch(self) -> None:
        """Begin to count, once in a process."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        # Collections do not nest, and no thread runs Python while one does.
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.seconds[info["generation"]] += time.perf_counter() - self._start


GARBAGE: Final = Garbage()
