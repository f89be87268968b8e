"""Reports of measured runs: time, arithmetic and traffic of every kernel, and the operators it computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.compiler.executable import Executable, Segment
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.passes.decomposition import origin
from engine.profiling import MeasuredRun, Span, rates
from engine.tensor import Array


@dataclass(frozen=True, slots=True)
class Clocked:
    """Timed segment, with clock values in ns.

    Args:
        began: clock before it.
        steps: for each step an array with a row a chunk: number of the thread, clock before, clock after.
    """

    segment: Segment
    began: int
    steps: Sequence[Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Kernel, or operator on the reference, in one run."""

    operators: tuple[str, ...]
    kernel: str
    time_us: float
    flops: int = 0
    bytes: int = 0
    spans: tuple[Span, ...] = ()
    chunks_us: tuple[float, ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return it as plain data, with rates where they apply."""
        return {
            "kernel": self.kernel,
            "operators": list(self.operators),
            "time_us": self.time_us,
            "flops": self.flops,
            "bytes": self.bytes,
            **rates(self.time_us, self.flops, self.bytes),
            "spans": [each.describe() for each in self.spans],
            "chunks_us": list(self.chunks_us),
        }


def report_run(plan: Executable, graph: RuntimeGraph, times: Sequence[Clocked]) -> MeasuredRun:
    """Combine the trace of a run with the description of its steps."""
    kernels: list[Measured] = []
    for each in times:
        kernels.extend(_measured(plan, each, times[0].began))
    described = [each.describe() for each in kernels]
    buffers = [asdict(each) for each in plan.buffers]
    return MeasuredRun(rows=_rows(graph, kernels), kernels=described, peak_bytes=plan.arena_bytes, buffers=buffers)


def _measured(plan: Executable, clocked: Clocked, start: int) -> Iterator[Measured]:
    """Yield the steps of a segment; a step's time ends with its last chunk and begins where the one before ended."""
    segment, before = clocked.segment, clocked.began
    for number, chunks in enumerate(clocked.steps):
        end = int(chunks[:, 2].max())
        spent, spans, before = (end - before) / 1e3, tuple(_spans(chunks, start)), end
        if segment.call is not None:
            operators = (segment.call.operator,)
            yield Measured(operators=operators, kernel="reference", time_us=spent, spans=spans, chunks_us=(spent,))
            continue
        step = plan.steps[segment.first + number]
        yield Measured(
            operators=step.operators,
            kernel=step.kind,
            time_us=spent,
            flops=step.flops,
            bytes=step.bytes,
            spans=spans,
            chunks_us=tuple(((chunks[:, 2] - chunks[:, 1]) / 1e3).tolist()),
        )


def _spans(chunks: Array, start: int) -> Iterator[Span]:
    """Yield the span of each thread in a step: it takes its chunks one after the other."""
    for thread in np.unique(chunks[:, 0]):
        mine = chunks[chunks[:, 0] == thread]
        yield Span(
            thread=int(thread),
            begin_us=float(mine[:, 1].min() - start) / 1e3,
            end_us=float(mine[:, 2].max() - start) / 1e3,
            chunks=len(mine),
        )


def _rows(graph: RuntimeGraph, kernels: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return a row for each operator; a kernel's time is in the row of the first operator it computes."""
    led: dict[str, list[Measured]] = {}
    joined: dict[str, str] = {}
    for each in kernels:
        leader, *others = map(origin, each.operators)
        led.setdefault(leader, []).append(each)
        joined.update(dict.fromkeys(others, leader))
    return [_row(op, led.get(op.name, []), joined.get(op.name)) for op in graph.operators if op.layer is not None]


def _row(op: RuntimeOperator, kernels: Sequence[Measured], leader: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"index": op.index, "name": op.name, "type": op.type}
    if not kernels:
        joined = {"kernel": "none"} if leader is None else {"kernel": "fused", "fused_into": leader}
        return row | joined | {"time_us": 0.0}
    time_us = sum(each.time_us for each in kernels)
    flops, moved = sum(each.flops for each in kernels), sum(each.bytes for each in kernels)
    row |= {"kernel": max(reversed(kernels), key=lambda each: each.flops).kernel, "time_us": time_us}
    return row | {name: rate for name, rate in rates(time_us, flops, moved).items() if rate}
