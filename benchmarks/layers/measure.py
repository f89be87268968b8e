"""Measure one case: bind the layer, compare its answer with PyTorch's, then let both take turns on one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.layers.case import Case
from engine import Annotations, registry
from engine.layers import bind

ALLOWED_SHARE: Final = 1e-4
"""Largest difference from PyTorch's answer, as a share of the largest magnitude in it."""
TURN_S: Final = 0.004
"""Least length of a turn; short operators run several times in one."""


@dataclass(slots=True, kw_only=True)
class Record:
    """Result of a case: the seconds of one run, a number a turn."""

    case: Case
    ours_s: list[float] = field(default_factory=list)
    torch_s: list[float] = field(default_factory=list)
    failure: str = ""

    def ratio(self, of: Callable[[Sequence[float]], float] = min) -> float:
        """Return our time divided by PyTorch's."""
        return of(self.ours_s) / of(self.torch_s)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data, in microseconds."""
        case = self.case
        found: dict[str, Any] = {"name": case.name, "family": case.family, "type": case.type, "size": case.size}
        if self.failure:
            return found | {"failure": self.failure}
        times = {"ours": self.ours_s, "torch": self.torch_s}
        for name, seconds in times.items():
            found[f"{name}_us"] = {"min": _us(min(seconds)), "median": _us(statistics.median(seconds))}
        return found | {"ratio": round(self.ratio(), 2), "median_ratio": round(self.ratio(statistics.median), 2)}


def measure(case: Case, rounds: int) -> Record:
    """Return the times of both, or the fault of our answer; for 0 rounds no times."""
    import torch

    torch.set_num_threads(1)
    operands, attributes = case.feed()
    layer = bind(
        registry[case.type],
        n_inputs=len(operands),
        params=case.params,
        attributes=attributes,
        annotations=Annotations(inputs=(None,) * len(operands), outputs=(None,)),
    )
    tensors = [_as_tensor(torch, each) for each in (*operands, *attributes.values())]
    record = Record(case=case)
    with torch.inference_mode():
        record.failure = difference(layer.forward(operands), case.call(torch, *tensors))
        if rounds and not record.failure:
            runs = [
                (record.ours_s, lambda: layer.forward(operands)),
                (record.torch_s, lambda: case.call(torch, *tensors)),
            ]
            counts = [_runs_in_a_turn(run) for _, run in runs]
            for index in range(rounds):
                for side in (0, 1) if index % 2 else (1, 0):
                    times, run = runs[side]
                    times.append(_time(run, counts[side]))
    return record


def _time(run: Callable[[], Any], count: int) -> float:
    run()  # what the other left in the caches is not its fault
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def _runs_in_a_turn(run: Callable[[], Any]) -> int:
    return max(1, round(TURN_S / max(min(_time(run, 1) for _ in range(3)), 1e-7)))


def _as_tensor(torch: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_as_tensor(torch, each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def difference(found: Any, expected: Any) -> str:
    """Return the fault of our answer, empty if there is none. PyTorch may return fewer values."""
    ours, theirs = _flat(found), [np.asarray(each) for each in _flat(expected)]
    for a, b in zip(ours, theirs, strict=False):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"found {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        if share := _share(a, b):
            return f"differs by {share:.1e} of the largest magnitude"
    return ""


def _share(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the difference of two arrays; 0 if it is within the tolerance."""
    if b.dtype.kind in "biu":
        return float(not np.array_equal(a, b))
    share = float(np.max(np.abs(a - b), initial=0) / max(np.max(np.abs(b), initial=0), 1e-30))
    return 0.0 if share <= ALLOWED_SHARE else share


def _flat(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _flat(each)] if isinstance(value, (tuple, list)) else [value]


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)
