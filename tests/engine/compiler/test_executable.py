"""Kernels in columns are the kernels that were put there."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.addresses import MemorySpace, address, offset_of, port_of, space_of, spaces_and_ports
from engine.compiler.executable import NativeStep, NativeSteps

PLACES = st.builds(address, st.sampled_from(MemorySpace), st.integers(0, 2**29 - 1), st.integers(-(2**40), 2**40))
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


@given(steps=st.lists(STEPS, max_size=8))
def test_steps_in_columns_are_the_steps_that_were_given(steps: list[NativeStep]) -> None:
    found = NativeSteps.of(steps)
    assert [*found] == steps and len(found) == len(steps) and found == NativeSteps.of(iter(steps))
    assert found[1:-1] == steps[1:-1] and (not steps or found[-1] == steps[-1])
    assert found.chunks.tolist() == [each.chunks for each in steps]
    assert found.operators == tuple(name for each in steps for name in each.operators)
    spaces, ports = spaces_and_ports(found.blocks)
    places = [place for each in steps for place in each.arguments]
    assert spaces.tolist() == [space_of(each) for each in places] and found.offsets.tolist() == [
        *map(offset_of, places)
    ]
    assert ports.tolist() == [*map(port_of, places)]


@given(st.sampled_from(MemorySpace), st.integers(0, 2**29 - 1), st.integers(-(2**62), 2**62))
def test_a_place_is_what_it_was_made_of(space: MemorySpace, port: int, offset: int) -> None:
    place = address(space, port, offset)
    assert (space_of(place), port_of(place), offset_of(place)) == (space, port, offset)


def test_there_is_no_step_behind_the_last() -> None:
    with pytest.raises(IndexError):
        NativeSteps.of([])[0]


def test_the_collector_of_garbage_finds_few_things_however_many_steps_there_are() -> None:
    step = NativeStep(
        function="f",
        kind="k",
        chunks=1,
        arguments=(address(MemorySpace.ARENA, 0, 64),),
        operators=("a",),
        flops=1,
        bytes=1,
    )
    steps = NativeSteps.of([step] * 1000)
    assert sum(map(gc.is_tracked, gc.get_referents(steps, *gc.get_referents(steps)))) < 20
