"""Results of profiled runs as plain data, and the parts of a split batch joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.graph.running.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Measurements of one profiled run.

    Args:
        rows: one row an operator, in the graph's order, like Outputs.profile.
        kernels: one entry a kernel of machine code, in the order they ran.
        peak_bytes: most bytes of intermediate values alive at once.
        buffers: regions of memory that held them, like Outputs.buffers.
    """

    rows: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    peak_bytes: int
    buffers: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Interval in which one thread ran a kernel, in µs after the start of the run."""

    thread: int
    begin_us: float
    end_us: float
    chunks: int

    def describe(self) -> dict[str, Any]:
        """Return the interval as plain data."""
        return {"thread": self.thread, "begin_us": self.begin_us, "end_us": self.end_us, "chunks": self.chunks}


def measured(watch: Watch) -> MeasuredRun:
    """Return the measurements of a watched run of the reference."""
    rows = [
        {"index": op.index, "name": op.name, "type": op.type, "kernel": "reference", "time_us": spent / 1e3}
        for op, spent in zip((step.operator for step in watch.plan.steps), watch.times_ns, strict=True)
    ]
    return MeasuredRun(rows=rows, kernels=[], peak_bytes=watch.peak_bytes, buffers=_buffers(watch))


def _buffers(watch: Watch) -> list[dict[str, Any]]:
    """Return the values of a reference run placed in one imaginary block, each in the lowest free gap.

    numpy allocates every value separately, so real addresses tell nothing.
    """
    plan, names = watch.plan, {slot: name for name, slot in watch.plan.operands.items()}
    ends = {slot: at for at, step in enumerate(plan.steps) for slot in step.released}
    alive: list[tuple[int, int, int]] = []
    found = []
    for at, step in enumerate(plan.steps):
        alive = [each for each in alive if each[2] >= at]
        for slot in step.outputs:
            size = watch.sizes.get(slot)
            if size is None:
                continue
            last, offset = ends.get(slot, len(plan.steps)), 0
            for low, high, _ in sorted(alive):
                if offset + size <= low:
                    break
                offset = max(offset, high)
            alive.append((offset, offset + size, last))
            found.append({"offset": offset, "bytes": size, "first": at, "last": last, "operands": [names[slot]]})
    return found


def join_kernels(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Return the kernels of all parts of a split batch as one list: times and work are summed, threads left out."""
    if len(runs) == 1:
        return runs[0].kernels
    if len({len(run.kernels) for run in runs}) != 1:
        return [kernel for run in runs for kernel in run.kernels]
    return [_sum_of(parts) for parts in zip(*(run.kernels for run in runs), strict=True)]


def _sum_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {name: value for name, value in parts[0].items() if name != "spans"}
    for name in ("time_us", "flops", "bytes"):
        total[name] = sum(part[name] for part in parts)
    total["chunks_us"] = [spent for part in parts for spent in part["chunks_us"]]
    return total | rates(total["time_us"], total["flops"], total["bytes"])


def rates(time_us: float, flops: int, moved: int) -> dict[str, float]:
    """Return the rates of work in a time, as 10^9 operations and as bytes a second; empty for a time of zero."""
    return {"gflops": flops / time_us / 1e3, "bytes_per_s": moved / time_us * 1e6} if time_us > 0 else {}


def join_rows(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Return the rows of all parts of a split batch as one table; times are summed."""
    if len(runs) == 1:
        return runs[0].rows
    return [
        {**rows[0], "time_us": sum(row["time_us"] for row in rows)}
        for rows in zip(*(run.rows for run in runs), strict=True)
    ]
