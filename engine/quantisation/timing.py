"""Times of layers in a float32 network and in one with fewer bits, also on a machine that does other work.

A kernel's time is the sum of the fastest times of its chunks, each of which is shorter than the time slices that other
programs get. A layer has the time of its kernels in the whole network: there the kernel before it rounds its input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from engine.cancellation import check_cancelled
from engine.graph import RuntimeGraph
from engine.memory.resources import available_cores
from engine.passes.decomposition import origin
from engine.quantisation.assembly import ROUNDED
from engine.quantisation.calibration import prepared
from engine.quantisation.layers import QuantisableLayer
from engine.session import Session
from engine.tensor import Array

# Runs of each network, and most of them where every run is disturbed.
_ROUNDS: Final = 9
_MOST_ROUNDS: Final = 40
# Times are stable once this many rounds shorten a network's by less than this share.
_LAST_ROUNDS: Final = 3
_SHORTENED: Final = 0.005


class KernelTime(NamedTuple):
    """Time of a kernel in µs, and the operators that it computes."""

    operators: tuple[str, ...]
    time_us: float


def measure_kernels(
    networks: Sequence[RuntimeGraph], sample: Sequence[Array], threads: int | None
) -> tuple[list[KernelTime], list[KernelTime]]:
    """Return the kernels of two networks, which run in turns; none of a network that runs on numpy."""
    with prepared(networks[0], threads, sample) as first, prepared(networks[1], threads, sample) as second:
        clocks = _Clock(first, sample), _Clock(second, sample)
        totals: list[float] = []
        while len(totals) < _ROUNDS or (len(totals) < _MOST_ROUNDS and not _is_stable(totals)):
            check_cancelled()
            totals.append(sum(clock.run() for clock in clocks))
        return clocks[0].kernels(), clocks[1].kernels()


def _is_stable(totals: Sequence[float]) -> bool:
    """Return whether the last rounds hardly shortened the sum of all fastest times."""
    return totals[-1] > (1 - _SHORTENED) * totals[-1 - _LAST_ROUNDS]


class _Clock:
    """Fastest times of the chunks of a network's kernels."""

    def __init__(self, session: Session, sample: Sequence[Array]) -> None:
        self._session = session
        self._sample = list(sample)
        self._kernels: Sequence[Mapping[str, Any]] = ()
        self._least = np.zeros(0)
        session.run(self._sample)

    def run(self) -> float:
        """Run the network once more; return the sum of the fastest times."""
        self._kernels = self._session.run(self._sample, profile=True).kernels
        times = np.array([spent for each in self._kernels for spent in each["chunks_us"]], np.float64)
        self._least = np.minimum(self._least, times) if self._least.shape == times.shape else times
        return float(self._least.sum())

    def kernels(self) -> list[KernelTime]:
        """Return the time of every kernel, with its chunks spread evenly over the threads."""
        threads = self._session.threads or available_cores()
        found, first = [], 0
        for each in self._kernels:
            count = len(each["chunks_us"])
            of_each = -(-count // threads) / max(1, count)
            spent = float(self._least[first : first + count].sum()) * of_each
            found.append(KernelTime(tuple(each["operators"]), spent))
            first += count
        return found


def layer_times(kernels: Sequence[KernelTime], layers: Sequence[QuantisableLayer]) -> list[float]:
    """Return the time of each layer in µs: of the kernels that compute it, and that only round its input.

    Layers share the time of a kernel evenly.
    """
    computing = {layer.name: [index] for index, layer in enumerate(layers)}
    rounding: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        rounding.setdefault(layer.input + ROUNDED, []).append(index)
    known = rounding.keys() | computing.keys()
    times = [0.0] * len(layers)
    for operators, spent in kernels:
        owners = [_owner(origin(name), known) for name in operators]
        found = {index for name in owners for index in computing.get(name, ())}
        if not found and all(name in rounding for name in owners):
            found = {index for name in owners for index in rounding[name]}
        for index in found:
            times[index] += spent / len(found)
    return times


def _owner(name: str, known: Collection[str]) -> str:
    """Return the name of which an operator's name is a continuation; empty for other operators."""
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name
