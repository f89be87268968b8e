"""The arena: live tensors never share bytes, and every border is zero while its image is live."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine.compiler import CompiledGraph
from engine.compiler.assembly.memory import MemoryPlan, plan_memory
from engine.compiler.codegen.host import Memory, describe
from engine.compiler.kernels.images.border import Border
from engine.compiler.lowering.steps import KernelStep, Pointer, Step
from engine.compiler.storage import Storage, View, channels_last, new_fault_flag, row_major
from engine.options import Options
from engine.tensor import Array
from tests.engine.graph.build import INPUT, built, conv, op

CODE = Border(batch=1, rows=3, columns=3, pitch=1, border=(1, 1, 1, 1), host=describe("sse"))
KINDS = [
    lambda: row_major((7,), np.dtype(np.float32)),
    lambda: row_major((40,), np.dtype(np.float32)),
    lambda: channels_last((1, 3, 2, 2), (1, 1, 1, 1)),
    lambda: channels_last((1, 3, 4, 1), (1, 1, 1, 1)),
    lambda: channels_last((2, 1, 2, 3), (0, 1, 1, 0)),
    new_fault_flag,
]


def step(*views: View) -> Step:
    """Return a step that uses some storages."""
    return KernelStep(kernel=CODE, pointers=tuple(Pointer(view.storage) for view in views), operators=("it",))


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Draw steps that each write an image or another tensor and read earlier ones."""
    views: list[View] = []
    steps = []
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12)):
        read = draw(st.lists(st.sampled_from(views), max_size=2)) if views else []
        views.append(kind())
        steps.append(step(views[-1], *read))
    return steps


def covered(storage: Storage) -> Array:
    """Return the floats of a storage that its tensor may occupy."""
    if storage.frame is None:
        return np.ones(storage.meta.size, bool)
    frame = storage.frame
    top, left, bottom, right = frame.border
    whole = np.zeros((frame.batch, frame.rows, frame.columns, frame.pitch), bool)
    whole[:, top : frame.rows - bottom, left : frame.columns - right] = True
    return whole.reshape(-1)


def run(plan: MemoryPlan, arena: Array, last: int) -> None:
    """Simulate the steps up to ``last``: a float of the arena is 0, or the number of its last writer."""
    for number, (storage, life) in enumerate(sorted(plan.lifetimes.items(), key=lambda item: item[1].first), 1):
        if life.first > last:
            return
        at = plan.offsets[storage] // 4
        floats, inner = arena[at : at + storage.meta.size], covered(storage)
        if storage in plan.unclean:
            floats[~inner] = 0
        assert not floats[~inner].any(), f"the border of storage {number} is not zero"
        floats[inner] = number if storage.frame is not None or not storage.is_zeroed else 0


@given(programs(), st.data())
def test_borders_are_zero_wherever_the_run_before_ended(steps: list[Step], data: st.DataObject) -> None:
    second_bytes = data.draw(st.sampled_from([0, 800, Memory().second_bytes]))
    plan = plan_memory(steps, [], Memory(second_bytes=second_bytes))
    arena = np.full(plan.bytes // 4, -1, np.int64)  # others have used it
    for first, end in plan.clean:
        arena[first // 4 : end // 4] = 0
    for last in [*data.draw(st.lists(st.integers(0, len(steps)), max_size=3)), len(steps)]:
        run(plan, arena, last)


@given(programs())
def test_what_is_alive_at_one_time_shares_no_byte(steps: list[Step]) -> None:
    plan = plan_memory(steps, [], Memory())
    ranges = [
        (plan.offsets[storage], plan.offsets[storage] + storage.bytes, life) for storage, life in plan.lifetimes.items()
    ]
    for k, (low, high, life) in enumerate(ranges):
        assert 0 <= low < high <= plan.bytes
        assert not any(life.overlaps(other) and low < end and at < high for at, end, other in ranges[:k])


def test_the_fault_flag_shares_memory_with_no_tensor() -> None:
    word, *others = new_fault_flag(), *(row_major((16,), np.dtype(np.float32)) for _ in range(3))
    plan = plan_memory([step(others[0]), step(word), *map(step, others[1:])], [], Memory())
    assert plan.offsets[word.storage] not in [plan.offsets[each.storage] for each in others]


@pytest.mark.parametrize("threads", [1, 2])
def test_images_that_take_turns_in_one_place_are_computed_alike_every_time(threads: int) -> None:
    given = {"padding": (1, 1)}
    steps = [
        conv("a", "0", "1", (8, 40), **given),
        conv("b", "1", "2", (40, 64), stride=(2, 2), **given),
        conv("c", "2", "3", (64, 24), **given),
        op("nn.Upsample", "up", "3", "4", scale_factor=(2.0, 2.0), mode="nearest", size=None),
        conv("d", "4", "5", (24, 48), **given),
        conv("e", "5", "6", (48, 8), **given),
    ]
    graph = built(INPUT, *steps, op("pnnx.Output", "out", "6"), _0=(1, 8, 61, 70))
    compiled = CompiledGraph(graph, Options(threads=threads))
    executable = compiled.builder.program([port.spec for port in graph.inputs]).executable
    assert executable.arena_bytes < 4 * 64 * 72 * (8 + 40 + 48 + 24)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 8, 61, 70), np.float32)
        (found,), (wanted,) = compiled.run([x]), engine.Session(graph, backend="reference").run([x])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
