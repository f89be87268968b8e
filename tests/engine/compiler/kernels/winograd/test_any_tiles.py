"""Winograd convolutions of images of many sizes share code that reads the number of tiles of a chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.kernel import Strides
from engine.compiler.kernels.winograd.blocking import Blocking, choose_blocking
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.ir.dims import ShapeEnv
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.kernels.winograd.test_winograd import FOUR, check
from tests.engine.compiler.machines import MACHINES

STACK_BYTES = 1 << 20


def symbolic(blocking: Blocking, tiles: int) -> Blocking:
    """Return the blocking for a symbolic number of tiles with this hint."""
    return blocking.within(ShapeEnv().dynamic("tiles", max(tiles, 2)))


@pytest.mark.parametrize("tiles", [3, 6, 9])
@pytest.mark.parametrize(("channels", "depth"), [((24, 40), 32), ((70, 33), 32)])
def test_any_number_of_tiles_a_chunk_in_memory_for_more(tiles: int, channels: tuple[int, int], depth: int) -> None:
    blocking = Blocking(tiles=tiles, at_once=3, vectors=2, panels=1, depth=depth, room=9)
    check(LEVELS[0], (2, 10, 17), channels, blocking=blocking, residual=True)


@pytest.mark.parametrize("size", [(16, 17), (21, 30), (24, 24)])
def test_sizes_that_share_code(size: tuple[int, int]) -> None:
    blocking = symbolic(choose_blocking(describe(LEVELS[0]), FOUR, *size, 32, 32, 1), 36)
    assert blocking.room
    check(LEVELS[0], (1, *size), (32, 32), blocking=replace(blocking, tiles=blocking.at_once))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("channels", [(3, 64), (64, 64), (100, 7), (512, 512), (5000, 16), (16, 5000)])
def test_code_for_any_number_of_tiles_needs_a_megabyte_of_stack_at_most(
    machine: str, channels: tuple[int, int]
) -> None:
    for filtering in (Filtering(2), FOUR, Filtering(6)):
        for size in (1, 5, 13, 56, 300):
            chosen = choose_blocking(MACHINES[machine], filtering, size, size, *channels, 1)
            blocking = symbolic(chosen, size * size)
            assert blocking.at_once <= blocking.room
            assert _stack_bytes(MACHINES[machine], filtering, blocking, channels) <= STACK_BYTES


def _stack_bytes(host: Host, filtering: Filtering, blocking: Blocking, channels: tuple[int, int]) -> int:
    code = Winograd(
        batch=1,
        rows=300,
        columns=300,
        in_channels=channels[0],
        out_channels=channels[1],
        source=Strides(0, 302 * channels[0], channels[0]),
        target=Strides(0, 300 * channels[1], channels[1]),
        filtering=filtering,
        blocking=blocking,
        host=host,
    )
    scratch = code.scratch
    return 4 * filtering.positions * (scratch.step + scratch.sum_step) + 16 * (blocking.room or 0)
