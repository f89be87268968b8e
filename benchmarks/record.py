"""Result of one engine on one network: plain data that goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

OURS = "ours"


@dataclass(kw_only=True)
class Record:
    """Result of one engine on one network with a number of threads and a batch.

    Args:
        error_share: largest absolute difference from PyTorch's answer as a share of the largest magnitude in it.
        failure: why there are no times; empty where there are.
        build_s: from the files to the first answer, libraries already imported.
        second_s: from the files to the second answer.
        warm_build_s: the first in a second process, which finds what the first one left in a cache.
        rss_bytes, pss_bytes: memory of the process after its first answers; PSS counts shared pages by their share.
        times_s: of every timed run.
        busy_times_s: of every timed run while another process kept one of the cores busy.
    """

    network: str
    threads: int
    batch: int
    engine: str
    error_share: float | None = None
    failure: str = ""
    build_s: float | None = None
    second_s: float | None = None
    warm_build_s: float | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    times_s: list[float] = field(default_factory=list)
    busy_times_s: list[float] = field(default_factory=list)

    @property
    def best_s(self) -> float | None:
        """Return the fastest run."""
        return min(self.times_s, default=None)

    @property
    def median_s(self) -> float | None:
        """Return the median run."""
        return median(self.times_s) if self.times_s else None

    @property
    def busy_slowdown(self) -> float | None:
        """Return the median with a busy core by the median without."""
        if not (self.times_s and self.busy_times_s):
            return None
        return median(self.busy_times_s) / median(self.times_s)

    def to_json(self) -> dict[str, Any]:
        """Return all fields with the figures of the tables."""
        figures = {"best_s": self.best_s, "median_s": self.median_s, "busy_slowdown": self.busy_slowdown}
        return asdict(self) | figures


def from_json(data: Mapping[str, Any]) -> Record:
    """Return the record that to_json() wrote."""
    return Record(**{name: data[name] for name in Record.__dataclass_fields__})
