"""What a measured run tells: time, arithmetic and traffic of every kernel, and which operators it computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.compiler.blueprint import Blueprint, Segment
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.profiling import MeasuredRun, rates
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A kernel, or an operator left to the reference, in one run."""

    operators: tuple[str, ...]
    kernel: str
    time_us: float
    flops: int = 0
    bytes: int = 0

    def describe(self) -> dict[str, Any]:
        """As plain data, with rates where there is something to rate."""
        return {
            "kernel": self.kernel,
            "operators": list(self.operators),
            "time_us": self.time_us,
            "flops": self.flops,
            "bytes": self.bytes,
            **rates(self.time_us, self.flops, self.bytes),
        }


def report_run(plan: Blueprint, graph: RuntimeGraph, times: Sequence[tuple[Segment, Array]]) -> MeasuredRun:
    """Join the clock's readings with what each step is."""
    kernels: list[Measured] = []
    for segment, stamps in times:
        kernels.extend(_measured(plan, segment, stamps))
    described = [each.describe() for each in kernels]
    return MeasuredRun(rows=_rows(graph, kernels), kernels=described, peak_bytes=plan.arena_bytes)


def _measured(plan: Blueprint, segment: Segment, stamps: Array) -> list[Measured]:
    spans = (stamps[1:] - stamps[:-1]) / 1e3
    if segment.call is not None:
        return [Measured(operators=(segment.call.operator,), kernel="reference", time_us=float(spans[0]))]
    return [
        Measured(operators=step.operators, kernel=step.kind, time_us=float(span), flops=step.flops, bytes=step.bytes)
        for step, span in zip(plan.steps[segment.first : segment.last], spans, strict=True)
    ]


def _rows(graph: RuntimeGraph, kernels: Sequence[Measured]) -> list[dict[str, Any]]:
    """A kernel's time stands with the first operator it computes; the others say who they were joined to."""
    led: dict[str, list[Measured]] = {}
    joined: dict[str, str] = {}
    for each in kernels:
        led.setdefault(each.operators[0], []).append(each)
        joined.update(dict.fromkeys(each.operators[1:], each.operators[0]))
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
