"""One memory plan for all sizes: live tensors never share bytes, whatever the sizes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.assembly.memory import Lifetime, MemoryPlan, plan_symbolic_memory
from engine.compiler.codegen.host import Memory
from engine.compiler.lowering.steps import ReferenceStep
from engine.compiler.storage import View, channels_last, row_major
from engine.ir.dims import ShapeEnv
from engine.ir.tables import Table

F32 = np.dtype(np.float32)
CACHES = Memory()
TENSORS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), st.integers(1, 4)),
    min_size=1,
    max_size=8,
)


@dataclass
class _Operator:
    name: str = "op"


def step(inputs: list[View], outputs: list[View]) -> ReferenceStep:
    operator: Any = _Operator()
    return ReferenceStep(operator=operator, inputs=tuple(inputs), outputs=tuple(outputs), reason="")


def plan_of(env: ShapeEnv, tensors: list[tuple[int, ...]]) -> tuple[MemoryPlan, list[View]]:
    """Return the plan of a chain of tensors that are read for some steps after they were made; some have borders."""
    height, width = env.dynamic("height", 40), env.dynamic("width", 24)
    views = []
    for channels, tall, wide, border, _ in tensors:
        shape = (1, channels, height // 2**tall + 1, width // 2**wide + 1)
        views.append(channels_last(shape, (border, border, border, border)) if border else row_major(shape, F32))
    steps = []
    for number, view in enumerate(views):
        read = [other for k, other in enumerate(views[:number]) if number - k <= tensors[k][4]]
        steps.append(step(read, [view]))
    return plan_symbolic_memory(steps, views[-1:], CACHES), views


@given(TENSORS, st.lists(st.tuples(st.integers(2, 300), st.integers(2, 300)), min_size=1, max_size=5))
def test_tensors_that_live_at_one_time_share_no_bytes(
    tensors: list[tuple[int, ...]], sizes: list[tuple[int, int]]
) -> None:
    env = ShapeEnv()
    plan, views = plan_of(env, tensors)
    storages = [view.storage for view in views]
    offsets = [plan.offsets[each] for each in storages]
    table = Table(env, [plan.bytes, *offsets, *(each.bytes for each in storages)])
    assert not env.guards  # a plan is right for all sizes by construction
    for each in ((40, 24), *sizes):
        numbers = table(each)
        assert numbers is not None
        total, begins, counts = numbers[0], numbers[1 : 1 + len(views)], numbers[1 + len(views) :]
        assert all(begin + count <= total for begin, count in zip(begins, counts, strict=True))
        assert not any(begin % 64 for begin in begins)
        for a, first in enumerate(storages):
            for b, second in enumerate(storages[:a]):
                if plan.lifetimes[first].overlaps(plan.lifetimes[second]):
                    assert begins[a] + counts[a] <= begins[b] or begins[b] + counts[b] <= begins[a]


@given(TENSORS)
def test_a_border_that_was_written_over_is_cleared(tensors: list[tuple[int, ...]]) -> None:
    plan, views = plan_of(ShapeEnv(), tensors)
    framed = [view.storage for view in views if view.storage.frame is not None]
    for storage in framed:
        life, sharing = (
            plan.lifetimes[storage],
            [each for each, at in plan.offsets.items() if at is plan.offsets[storage] and each is not storage],
        )
        before = [each for each in sharing if _is_before(plan.lifetimes[each], life)]
        last = max(before, key=lambda each: plan.lifetimes[each].last, default=None)
        if last is not None and last.frame is None:
            assert storage in plan.unclean


def _is_before(one: Lifetime, other: Lifetime) -> bool:
    return one.last < other.first
