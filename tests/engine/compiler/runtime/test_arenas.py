"""Instances that lend each other their memory find it as if it were their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import engine
from engine.compiler import CompiledGraph
from engine.compiler.runtime.memory import Arenas
from engine.options import Options
from tests.engine.graph.build import INPUT, built, conv, op

LIMIT = 1 << 30


def test_a_user_finds_an_arena_as_it_left_it_and_others_find_zeros_where_they_need_them() -> None:
    arenas = Arenas(LIMIT)
    first = arenas.take(1000, 1, [])
    first.block[:1000] = 7
    arenas.give(first)
    again = arenas.take(1000, 1, [])
    assert again is first and (again.block[:1000] == 7).all()
    arenas.give(again)
    other = arenas.take(900, 2, [(0, 100), (300, 900)])
    assert other is first and not other.block[:100].any() and not other.block[300:900].any()
    assert (other.block[100:300] == 7).all()


def test_there_are_as_many_as_are_taken_at_once_and_everybody_gets_the_own_one_back() -> None:
    arenas = Arenas(LIMIT)
    taken = [arenas.take(64, user, []) for user in (1, 2, 3)]
    assert len({each.address for each in taken}) == 3
    for each in taken:
        arenas.give(each)
    assert [arenas.take(64, user, []) for user in (3, 1, 2)] == [taken[2], taken[0], taken[1]]


@pytest.mark.parametrize("size", [0, 1, 4096, (2 << 20) + 1, (4 << 20) - 1])
def test_a_new_arena_is_zeroed_and_as_large_as_asked_for(size: int) -> None:
    arenas = Arenas(LIMIT)
    arenas.give(arenas.take(size // 2, 1, []))
    assert arenas.take(size, 2, []).block.size >= size
    assert not arenas.take(size, 3, []).block.any()


def test_larger_runs_find_room_in_an_arena_and_untouched_memory_does_not_count() -> None:
    arenas = Arenas(3_000)
    first = arenas.take(1000, 1, [])
    arenas.give(first)
    assert arenas.has_idle(2000) and not arenas.has_idle(1 << 30)
    second = arenas.take(2000, 1, [])
    assert second is first
    third = arenas.take(1000, 2, [])
    arenas.give(second)
    arenas.give(third)
    assert {id(arenas.take(1000, user, [])) for user in (1, 2)} == {id(first), id(third)}


def test_what_outgrows_the_limit_is_not_kept() -> None:
    arenas = Arenas(1 << 20)
    small, large = arenas.take(1 << 19, 1, []), arenas.take(1 << 20, 2, [])
    arenas.give(small)
    arenas.give(large)
    assert arenas.take(1 << 19, 3, []) is small
    assert arenas.take(1 << 20, 2, []) is not large


def picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * width).standard_normal((1, 3, height, width), np.float32)


@pytest.fixture
def graph() -> engine.RuntimeGraph:
    """Return a graph of images with borders, which must be zero whatever was written there before."""
    return built(
        INPUT,
        conv("first", "0", "1", (3, 16), padding=(1, 1)),
        op("nn.ReLU", "relu", "1", "2"),
        conv("second", "2", "3", (16, 16), padding=(1, 1)),
        op("nn.Sigmoid", "gate", "3", "4"),
        conv("third", "4", "5", (16, 8), (5, 5), padding=(2, 2)),
        op("pnnx.Output", "out", "5"),
        _0=(1, 3, None, None),
    )


LARGE_SHAPES = [(12, 20), (7, 9), (21, 12), (12, 20), (5, 33)]
# Instances keep small arenas, and lend large ones.
MIXED_SHAPES = [(2, 3), (3, 4), (12, 20), (3, 2), (2, 3)]


@pytest.mark.parametrize("shapes", [LARGE_SHAPES, MIXED_SHAPES], ids=["large", "mixed"])
def test_shapes_in_turn_and_at_once_give_the_same_bits_whichever_wrote_before(
    graph: engine.RuntimeGraph, shapes: list[tuple[int, int]]
) -> None:
    compiled, reference = CompiledGraph(graph, Options(threads=2)), engine.Session(graph, backend="reference")

    def answer(shape: tuple[int, int]) -> np.ndarray:
        return compiled.run([picture(*shape)])[0]

    first = {shape: answer(shape) for shape in shapes}
    for shape, found in first.items():
        np.testing.assert_allclose(found, reference.run([picture(*shape)])[0], rtol=1e-3, atol=1e-3)
    with ThreadPoolExecutor(4) as pool:
        for shape, found in zip(shapes * 8, pool.map(answer, shapes * 8), strict=True):
            np.testing.assert_array_equal(found, first[shape])
    compiled.close()
