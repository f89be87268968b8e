"""Kernels in columns are the kernels that were put there."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.buffers import Buffer, Buffers, written
from engine.compiler.native import NativeStep, NativeSteps
from engine.compiler.places import Home, address, home_of, offset_of, port_of, taken_apart

PLACES = st.builds(address, st.sampled_from(Home), st.integers(0, 2**29 - 1), st.integers(-(2**40), 2**40))
STEPS = st.builds(
    NativeStep,
    function=st.text(max_size=3),
    kind=st.text(max_size=3),
    chunks=st.integers(1, 2**40),
    arguments=st.lists(PLACES, max_size=4).map(tuple),
    operators=st.lists(st.text(max_size=3), min_size=1, max_size=3).map(tuple),
    flops=st.integers(0, 2**70),
    bytes=st.integers(0, 2**50),
    is_dealt=st.booleans(),
)


@given(parts=st.lists(st.lists(STEPS, max_size=4), min_size=1, max_size=3))
def test_steps_in_columns_are_the_steps_that_were_given(parts: list[list[NativeStep]]) -> None:
    steps = [each for part in parts for each in part]
    joined = NativeSteps.joined([NativeSteps.of(part) for part in parts])
    assert [*joined] == steps and len(joined) == len(steps) and joined == NativeSteps.of(iter(steps))
    assert joined[1:-1] == steps[1:-1] and (not steps or joined[-1] == steps[-1])
    assert joined.chunks.tolist() == [each.chunks for each in steps]
    assert joined.operators == tuple(name for each in steps for name in each.operators)
    homes, offsets = taken_apart(joined.places)
    places = [place for each in steps for place in each.arguments]
    assert homes.tolist() == [home_of(each) for each in places] and offsets.tolist() == [*map(offset_of, places)]


@given(st.sampled_from(Home), st.integers(0, 2**29 - 1), st.integers(-(2**62), 2**62))
def test_a_place_is_what_it_was_made_of(home: Home, port: int, offset: int) -> None:
    place = address(home, port, offset)
    assert (home_of(place), port_of(place), offset_of(place)) == (home, port, offset)


def test_there_is_no_step_behind_the_last() -> None:
    with pytest.raises(IndexError):
        NativeSteps.of([])[0]


def test_the_collector_of_garbage_finds_few_things_however_many_steps_there_are() -> None:
    step = NativeStep(
        function="f", kind="k", chunks=1, arguments=(address(Home.ARENA, 0, 64),), operators=("a",), flops=1, bytes=1
    )
    steps = NativeSteps.of([step] * 1000)
    assert sum(map(gc.is_tracked, gc.get_referents(steps, *gc.get_referents(steps)))) < 20


def test_buffers_count_the_steps_before_their_part() -> None:
    parts = [(0, 64, 0, 2, ("x",)), (64, 32, 1, 1, ())], [(0, 16, 0, 1, ("y",))]
    buffers = Buffers(tuple(zip((0, 3), map(written, parts), strict=True)))
    expected = [
        Buffer(offset=0, bytes=64, first=0, last=2, operands=("x",)),
        Buffer(offset=64, bytes=32, first=1, last=1, operands=()),
        Buffer(offset=0, bytes=16, first=3, last=4, operands=("y",)),
    ]
    assert [*buffers] == expected and len(buffers) == 3 and buffers[-1] == expected[-1]
    assert buffers == Buffers.of(expected) and hash(buffers) == hash(Buffers.of(expected))
