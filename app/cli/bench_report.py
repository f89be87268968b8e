"""Text report of ``bench``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import engine
from app.measuring.timing import Times
from app.messages import printable
from app.render.formatting import count_text, counted, percent_text, time_text
from app.render.table import aligned

_TITLES: Final = ("µs", "GFLOP/s", "of peak", "GB/s", "kernel", "operators")
_BAR, _BAR_LENGTH = "█", 16
_ENGINE_TITLES: Final = ("min", "median", "p99", "times ours", "error", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Result of ``bench``.

    Args:
        name, session: of the model.
        items: number of items in the batch.
        times, errors: by engine, ours first.
        kernels: kernels of one run with their times.
        peak: peak FLOP/s of one core, or None if it cannot be measured.
        has_bars: whether each kernel's time is also shown as a bar.
    """

    name: str
    session: engine.Session
    items: int
    times: Mapping[str, Times]
    errors: Mapping[str, float]
    kernels: Sequence[Mapping[str, Any]]
    peak: float | None
    has_bars: bool = False

    def text(self) -> str:
        """Return the report."""
        lines = [self._about(), "", *self._summary(), "", *self._kernels()]
        if len(self.times) > 1:
            lines += ["", *self._engines()]
        return "\n".join([*map(printable, lines), ""])

    def plain(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        return {
            "model": self.name,
            "items": self.items,
            "backend": self.session.backend,
            "threads": self._threads,
            "peak_flops_per_s": self.peak,
            "engines": {name: {**asdict(each), "error": self.errors[name]} for name, each in self.times.items()},
            "kernels": [dict(each) for each in self.kernels],
        }

    @property
    def _threads(self) -> int:
        return self.session.threads or 1

    @property
    def _own_engine(self) -> str:
        return next(iter(self.times))

    def _about(self) -> str:
        parts = [self.name, counted(self.items, "item"), f"{self.session.backend} back end"]
        error = self.errors[self._own_engine]
        return " · ".join([*parts, counted(self._threads, "thread"), f"within {error:.0e} of the reference"])

    def _summary(self) -> list[str]:
        """Return a line each for latency, throughput and arithmetic."""
        times = self.times[self._own_engine]
        figures = ("min", times.least_s), ("median", times.median_s), ("p99", times.p99_s)
        shown = " · ".join(f"{name} {time_text(seconds * 1e6)}" for name, seconds in figures)
        throughput = self.items / times.median_s
        per_second = f"{throughput:,.0f}" if throughput >= 1000 else f"{throughput:.3g}"
        lines = [f"latency     {shown} · {times.runs} runs", f"throughput  {per_second} items/s"]
        flops = sum(each.get("flops", 0) for each in self.kernels)
        if flops:
            rate = flops / times.least_s
            lines.append(f"arithmetic  {count_text(flops, 'FLOP')} · {count_text(rate, 'FLOP/s')}{self._of_peak(rate)}")
        return lines

    def _of_peak(self, rate: float) -> str:
        if self.peak is None:
            return ""
        cores = "one core" if self._threads == 1 else f"{self._threads} cores"
        return f" · {self._share(rate)} of the peak of {cores} ({count_text(self.peak, 'FLOP/s')} each)"

    def _share(self, rate: float) -> str:
        return "" if self.peak is None else percent_text(rate / (self.peak * self._threads))

    def _kernels(self) -> list[str]:
        """Return a row for each kernel in order of execution, and one for the total."""
        total_us = sum(each["time_us"] for each in self.kernels)
        total = (f"{total_us:.1f}", "", "", "", "", f"in {counted(len(self.kernels), 'kernel')}")
        rows = [_TITLES, *map(self._kernel, self.kernels), total]
        if self.has_bars:
            most = max((each["time_us"] for each in self.kernels), default=0.0) or 1.0
            bars = [_BAR * round(_BAR_LENGTH * each["time_us"] / most) for each in self.kernels]
            rows = [(row[0], bar, *row[1:]) for row, bar in zip(rows, ("time", *bars, ""), strict=True)]
        return aligned(rows, _TITLES[:-2])

    def _kernel(self, each: Mapping[str, Any]) -> tuple[str, ...]:
        time_us, flops, moved = each["time_us"], each.get("flops", 0), each.get("bytes", 0)
        rate = flops / time_us * 1e6 if time_us else 0.0
        return (
            f"{time_us:.1f}",
            f"{rate / 1e9:.1f}" if rate else "",
            self._share(rate) if rate else "",
            f"{moved / time_us / 1e3:.1f}" if moved and time_us else "",
            each["kernel"],
            ", ".join(each["operators"]),
        )

    def _engines(self) -> list[str]:
        """Return a row for each engine, ours first."""
        best = self.times[self._own_engine].least_s
        rows = [
            (
                *(time_text(seconds * 1e6) for seconds in (each.least_s, each.median_s, each.p99_s)),
                f"{each.least_s / best:.2f}",
                f"{self.errors[name]:.0e}",
                name,
            )
            for name, each in self.times.items()
        ]
        return aligned([_ENGINE_TITLES, *rows], _ENGINE_TITLES[:-1])
