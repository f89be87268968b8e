"""What measured runs tell, as plain data, and the parts of a split batch as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.graph.running.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What one profiled run took.

    Args:
        rows: one an operator of the graph, in its order, as Outputs.profile has them.
        kernels: of machine code, in the order they ran.
        peak_bytes: of intermediate values alive at once.
        buffers: pieces of memory that held them, as Outputs.buffers has them.
    """

    rows: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    peak_bytes: int
    buffers: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one thread had of a kernel, in µs after the run began."""

    thread: int
    begin_us: float
    end_us: float
    chunks: int

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        return {"thread": self.thread, "begin_us": self.begin_us, "end_us": self.end_us, "chunks": self.chunks}


def measured(watch: Watch) -> MeasuredRun:
    """A run of the reference that was watched."""
    rows = [
        {"index": op.index, "name": op.name, "type": op.type, "kernel": "reference", "time_us": spent / 1e3}
        for op, spent in zip((step.operator for step in watch.plan.steps), watch.times_ns, strict=True)
    ]
    return MeasuredRun(rows=rows, kernels=[], peak_bytes=watch.peak_bytes, buffers=_buffers(watch))


def _buffers(watch: Watch) -> list[dict[str, Any]]:
    """Values of a run of the reference as if they lay in one block, each in the lowest gap there was for it.

    numpy gives every one memory of its own: where that is tells nothing.
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
    """The kernels of the parts of a split batch as one list: what they took and did adds up, who did it is left out."""
    if len(runs) == 1:
        return runs[0].kernels
    if len({len(run.kernels) for run in runs}) != 1:
        return [kernel for run in runs for kernel in run.kernels]
    return [_sum_of(parts) for parts in zip(*(run.kernels for run in runs), strict=True)]


def _sum_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {name: value for name, value in parts[0].items() if name != "spans"}
    for name in ("time_us", "flops", "bytes"):
        total[name] = sum(part[name] for part in parts)
    return total | rates(total["time_us"], total["flops"], total["bytes"])


def rates(time_us: float, flops: int, moved: int) -> dict[str, float]:
    """What was done in a time as billions of operations and as bytes a second; nothing where it took none."""
    return {"gflops": flops / time_us / 1e3, "bytes_per_s": moved / time_us * 1e6} if time_us > 0 else {}


def join_rows(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """The rows of the parts of a split batch as one table: times add up."""
    if len(runs) == 1:
        return runs[0].rows
    return [
        {**rows[0], "time_us": sum(row["time_us"] for row in rows)}
        for rows in zip(*(run.rows for run in runs), strict=True)
    ]
