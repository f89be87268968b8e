"""Kernels chosen by what they took on this machine, where that was measured.

A model of cost knows a core by a handful of rates; where it ranks candidates that are near each other it may be wrong.
``--tune`` runs the three best of each kernel and keeps which of them won, as a note beside the cache, by the kernel's
geometry and the host. Every later compile reads it, of whatever network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, Final

from engine.compiler.cache.notes import read_note, write_note
from engine.compiler.codegen.host import Host
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.winograd.blocking import THREADS
from engine.compiler.lowering.selection import CANDIDATES, K
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.tuning.stopwatch import Stopwatch

# What another than the model's choice must save: less is noise.
LEAST_SAVED: Final = 0.03
# Fields in which candidates for one geometry differ.
_CHOSEN: Final = ("tile", "filtering", "blocking", "tile_rows", "vectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out of a kernel.

    Args:
        kernel: the fastest, as ``spelled`` has it, and what it took.
        first: the model's choice, and what that took.
    """

    kernel: str
    time_us: float
    first: str
    first_us: float


class Tuner:
    """Chooses kernels for a compile; one thread at a time.

    Args:
        place: folder of the notes; None where there is none.
        stopwatch: measures what is not known to this tuner yet; None for reading what is known alone.

    Attributes:
        told: by operator what was measured of its kernel, in this compile or before.
    """

    def __init__(self, place: Path | None, host: Host, stopwatch: Stopwatch | None = None) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        self._place = place
        self._host = host
        self._stopwatch = stopwatch
        self._known: dict[str, Verdict | None] = {}

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """The step of the kernel that was found to be fastest; of the first of the candidates where nothing was."""
        return step_of(self._chosen(operator, candidates, step_of))

    def _chosen(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> K:
        first = next(candidates)
        key = hashlib.sha256(f"tuned {self._host.key} {geometry(first)}".encode()).hexdigest()
        if key not in self._known:
            self._known[key] = None if self._stopwatch else self._read(key)
        verdict = self._known[key]
        if verdict is None and self._stopwatch is None:
            return first
        kernels = [first, *islice(candidates, CANDIDATES - 1)]
        if verdict is None and self._stopwatch is not None:
            verdict = self._known[key] = _judge(kernels, self._stopwatch.times([step_of(each) for each in kernels]))
            if self._place is not None:
                write_note(self._place, key, json.dumps(asdict(verdict)).encode())
        assert verdict is not None
        found = next((each for each in kernels if spelled(each) == verdict.kernel), None)
        if found is None:  # of another generator, which offered others
            return first
        self.told[operator] = asdict(verdict)
        return found

    def _read(self, key: str) -> Verdict | None:
        content = None if self._place is None else read_note(self._place, key)
        try:
            told = json.loads(content or b"")
            return Verdict(
                kernel=str(told["kernel"]),
                time_us=float(told["time_us"]),
                first=str(told["first"]),
                first_us=float(told["first_us"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def _judge(kernels: Sequence[Kernel], times: Sequence[float]) -> Verdict:
    costs = [time * shared_out(kernel.chunks) for kernel, time in zip(kernels, times, strict=True)]
    best = min(range(len(kernels)), key=lambda k: costs[k])
    if not costs[best] < (1 - LEAST_SAVED) * costs[0]:
        best = 0
    first, chosen = kernels[0], kernels[best]
    return Verdict(kernel=spelled(chosen), time_us=times[best] * 1e6, first=spelled(first), first_us=times[0] * 1e6)


def shared_out(chunks: int) -> float:
    """What threads that have nothing left to do cost, over the numbers of threads that kernels are run by."""
    return sum(part * threads * -(-chunks // threads) / chunks for threads, part in THREADS)


def geometry(kernel: Kernel) -> str:
    """What candidates for one result have in common; the kind is that of the model's choice."""
    given = ((each.name, getattr(kernel, each.name)) for each in fields(kernel))
    return f"{kernel.kind} {[pair for pair in given if pair[0] not in (*_CHOSEN, 'host')]}"


def spelled(kernel: Kernel) -> str:
    """In what it differs from others for the same result."""
    chosen = [each.name for each in fields(kernel) if each.name in _CHOSEN]
    return " ".join([kernel.kind, *(f"{name}={getattr(kernel, name)}" for name in chosen)])
