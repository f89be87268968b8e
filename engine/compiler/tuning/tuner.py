"""Selection of kernels by measured time.

A cost model knows a core by a few rates, so it may misjudge candidates that are close to each other. ``--tune`` runs
the three best candidates of each kernel and stores the fastest as a note beside the cache, by the kernel's geometry and
the host. Every later compilation of any network reads it.
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

# Least saving for which another kernel replaces the model's choice; less is noise.
LEAST_SAVED: Final = 0.03
# Fields in which candidates for the same geometry differ.
_CHOSEN: Final = ("tile", "filtering", "blocking", "tile_rows", "vectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of measuring the candidates of a kernel.

    Args:
        kernel, time_us: the fastest, formatted by ``variant``, and its time.
        first, first_us: the model's choice and its time.
    """

    kernel: str
    time_us: float
    first: str
    first_us: float


class Tuner:
    """Kernel selector for a compilation; not thread-safe.

    Args:
        place: folder of the notes; None for none.
        stopwatch: measures kernels that this tuner has not measured yet; None to use only stored results.

    Attributes:
        measured: results by operator, from this compilation or earlier ones.
    """

    def __init__(self, place: Path | None, host: Host, stopwatch: Stopwatch | None = None) -> None:
        self.measured: dict[str, dict[str, Any]] = {}
        self._place = place
        self._host = host
        self._stopwatch = stopwatch
        self._known: dict[str, Verdict | None] = {}

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """Return the step of the kernel measured to be fastest, or of the first candidate without a measurement."""
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
            verdict = self._known[key] = _verdict(kernels, self._stopwatch.times([step_of(each) for each in kernels]))
            if self._place is not None:
                write_note(self._place, key, json.dumps(asdict(verdict)).encode())
        assert verdict is not None
        found = next((each for each in kernels if variant(each) == verdict.kernel), None)
        if found is None:  # stored by another version, which had other candidates
            return first
        self.measured[operator] = asdict(verdict)
        return found

    def _read(self, key: str) -> Verdict | None:
        content = None if self._place is None else read_note(self._place, key)
        try:
            found = json.loads(content or b"")
            return Verdict(
                kernel=str(found["kernel"]),
                time_us=float(found["time_us"]),
                first=str(found["first"]),
                first_us=float(found["first_us"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def _verdict(kernels: Sequence[Kernel], times: Sequence[float]) -> Verdict:
    costs = [time * idle_cost(kernel.chunks) for kernel, time in zip(kernels, times, strict=True)]
    best = min(range(len(kernels)), key=lambda k: costs[k])
    if not costs[best] < (1 - LEAST_SAVED) * costs[0]:
        best = 0
    first, chosen = kernels[0], kernels[best]
    return Verdict(kernel=variant(chosen), time_us=times[best] * 1e6, first=variant(first), first_us=times[0] * 1e6)


def idle_cost(chunks: int) -> float:
    """Return the cost of idle threads, as a factor averaged over the usual numbers of threads."""
    return sum(part * threads * -(-chunks // threads) / chunks for threads, part in THREADS)


def geometry(kernel: Kernel) -> str:
    """Return the fields that all candidates for a result share, and the kind of the model's choice."""
    given = ((each.name, getattr(kernel, each.name)) for each in fields(kernel))
    return f"{kernel.kind} {[pair for pair in given if pair[0] not in (*_CHOSEN, 'host')]}"


def variant(kernel: Kernel) -> str:
    """Return the fields that distinguish a kernel from other candidates for the same result."""
    chosen = [each.name for each in fields(kernel) if each.name in _CHOSEN]
    return " ".join([kernel.kind, *(f"{name}={getattr(kernel, name)}" for name in chosen)])
