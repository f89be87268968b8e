"""Maps: every order of dimensions, broadcast, gap and processor level against numpy on the same views."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.map import make_map
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

SUM = apply("fma", Operand(0), 2.0, Operand(1))


def strides(array: Array) -> list[int]:
    return [0 if n == 1 else s // 4 for n, s in zip(array.shape, array.strides, strict=True)]


def laid_out(shape: Sequence[int], order: Sequence[int], seed: int) -> Array:
    """Return a tensor whose dimensions are in this memory order, ending at a guard page."""
    values = np.random.default_rng(seed).standard_normal([shape[axis] for axis in order], np.float32)
    return guarded_array(values).transpose(np.argsort(order))


def check(level: str, shape: tuple[int, ...], target: Array, a: Array, b: Array) -> None:
    wide_a, wide_b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    kernel = make_map(shape, strides(target), [strides(wide_a), strides(wide_b)], SUM, describe(level))
    run(kernel, level, [target, a, b])
    np.testing.assert_allclose(target, 2 * wide_a + wide_b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5), (2, 3, 5, 7), (1, 1, 1, 40), (2, 24, 6, 6), (1, 3, 20, 21)])
def test_any_shape(level: str, shape: tuple[int, ...]) -> None:
    order = range(len(shape))
    check(level, shape, *(laid_out(shape, order, seed) for seed in range(3)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "orders", [((0, 2, 3, 1), (0, 1, 2, 3)), ((0, 1, 2, 3), (0, 2, 3, 1)), ((3, 2, 1, 0), (1, 0, 3, 2))]
)
@pytest.mark.parametrize("channels", [3, 20])
def test_any_order_in_memory(level: str, orders: tuple[Sequence[int], ...], channels: int) -> None:
    shape = (2, channels, 5, 7)
    target, a = (laid_out(shape, order, seed) for seed, order in enumerate(orders))
    check(level, shape, target, a, laid_out(shape, orders[0], 2))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("small", [(1, 20, 1, 1), (2, 20, 1, 1), (1, 1, 5, 7), (1, 1, 1, 1), (1, 1, 5, 1)])
def test_operands_are_broadcast(level: str, small: tuple[int, ...]) -> None:
    shape, order = (2, 20, 5, 7), (0, 2, 3, 1)
    check(level, shape, laid_out(shape, order, 0), laid_out(shape, order, 1), laid_out(small, order, 2))


@pytest.mark.parametrize("level", LEVELS)
def test_a_map_larger_than_a_chunk(level: str) -> None:
    for shape in ((300_001,), (3, 130_003), (130_003, 3)):
        order = range(len(shape))
        check(level, shape, *(laid_out(shape, order, seed) for seed in range(3)))


@given(sizes=st.lists(st.sampled_from([1, 2, 3, 5, 8, 17]), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
def test_random_views_agree_with_numpy(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(sizes)
    if math.prod(shape) > 20_000:
        shape = shape[:3]
    views = []
    for number in range(3):
        mask = [1 if number and random.random() < 0.2 else n for n in shape]
        views.append(laid_out(mask, random.permutation(len(shape)), number))
    flipped = tuple(slice(None, None, -1) if random.random() < 0.2 else slice(None) for _ in shape)
    target, a, b = views
    wide_a, wide_b = np.broadcast_to(a[flipped], shape), np.broadcast_to(b, shape)
    level = LEVELS[seed % len(LEVELS)]
    kernel = make_map(shape, strides(target), [strides(wide_a), strides(wide_b)], SUM, describe(level))
    run(kernel, level, [target, a[flipped], b])
    np.testing.assert_allclose(target, 2 * wide_a + wide_b, rtol=1e-6, atol=1e-6)
