"""Mask range pruning keeps all keys that may have weight, and all keys if an excluded one could affect the result."""

from __future__ import annotations

import ctypes
from typing import Literal

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import Code, assemble
from engine.compiler.kernels.attention.mask_range import MaskRange
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.products.matrix import Matrix
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS

ROWS, KEYS, WIDTH = 3, 70, 5
Kind = Literal["add", "keep", "drop"]
Span = tuple[int, int]
ALL = 0, KEYS


def key_range(
    level: str, mask: Array, kind: Kind = "add", *, is_column_major: bool = False, **changed: tuple[int, float]
) -> Span:
    return key_range_of(level, [(mask, kind)], is_column_major=is_column_major, **changed)


def key_range_of(
    level: str, masks: list[tuple[Array, Kind]], *, is_column_major: bool = False, **changed: tuple[int, float]
) -> Span:
    """Return the key range for operands that are all 1, except changed elements: (row, value).

    The range is rounded to whole vectors.
    """
    lanes = describe(level).lanes
    operands = {
        name: np.ones((rows, WIDTH), np.float32) for name, rows in (("query", ROWS), ("key", KEYS), ("value", KEYS))
    }
    for name, (row, value) in changed.items():
        operands[name][row, -1] = value
    memory = [
        guarded_array(each.T.copy() if is_column_major and name == "key" else each) for name, each in operands.items()
    ]
    mask_range = MaskRange(
        rows=ROWS, keys=KEYS, width=WIDTH, values=WIDTH, query=Matrix((), WIDTH, 1),
        key=Matrix((), 1, KEYS) if is_column_major else Matrix((), WIDTH, 1), value=Matrix((), WIDTH, 1),
        masks=tuple(Mask(Matrix((), KEYS if mask.ndim > 1 else 0, 1), kind) for mask, kind in masks), scale=1.0,
        lanes=lanes,
    )  # fmt: skip
    module = Module()
    mask_range.emit(module, "inner")
    f = module.function("key_range", [("ptr", each) for each in "qkvsmn"[: 4 + len(masks)]])
    f.call("inner", f.parameters)
    f.finish()
    host = describe(level)
    code = Code([assemble(str(module), host)], host)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (4 + len(masks)))(code.address("key_range"))
    span = np.full(MaskRange.SPAN, -1)
    memory += [span, *(guarded(mask) for mask, _ in masks)]
    call(*(each.ctypes.data for each in memory))
    return spanned(*map(int, span), level)


def guarded(mask: Array) -> Array:
    """Return a mask that ends at a guard page, of bytes too."""
    if mask.dtype == np.float32:
        return guarded_array(mask)
    spare = -mask.size % 4
    whole = guarded_array(np.append(np.zeros(spare, bool), mask).view(np.float32))
    return whole.view(bool)[spare:]


def spanned(begin: int, end: int, level: str) -> Span:
    """Return the range of keys rounded to whole vectors."""
    lanes = describe(level).lanes
    return begin // lanes * lanes, min(KEYS, -(-end // lanes) * lanes)


def up_to(count: int, level: str) -> Span:
    return spanned(0, count, level)


def padded(count: int, number: float = -np.inf) -> Array:
    mask = np.zeros((ROWS, KEYS), np.float32)
    mask[:, count:] = number
    return mask


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_column_major", [False, True])
@pytest.mark.parametrize("number", [-np.inf, np.finfo(np.float32).min, -1e9, -10000.0, -1000.0])
def test_keys_at_the_end_without_weight_are_left_out(level: str, is_column_major: bool, number: float) -> None:
    for count in (1, 20, 33, 64, 69):
        assert key_range(level, padded(count, number), is_column_major=is_column_major) == up_to(count, level)
    assert key_range(level, padded(20, number)[0], is_column_major=is_column_major) == up_to(20, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_column_major", [False, True])
@pytest.mark.parametrize("number", [-np.inf, np.finfo(np.float32).min, -1e9, -10000.0, -1000.0])
def test_keys_in_front_without_weight_are_left_out(level: str, is_column_major: bool, number: float) -> None:
    for count in (1, 20, 33, 64, 69):
        mask = padded(KEYS - count, number)[:, ::-1].copy()
        assert key_range(level, mask, is_column_major=is_column_major) == spanned(count, KEYS, level)
        assert key_range(level, mask[0], is_column_major=is_column_major) == spanned(count, KEYS, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_column_major", [False, True])
@pytest.mark.parametrize("number", [-np.inf, -10000.0])
def test_of_a_window_only_its_keys_are_looked_at(level: str, is_column_major: bool, number: float) -> None:
    for begin, end in ((0, 3), (20, 35), (33, 64), (65, 68), (69, 70)):
        mask = np.full((ROWS, KEYS), number, np.float32)
        for row in range(ROWS):
            mask[row, max(0, begin - row) : end] = 0
        assert key_range(level, mask, is_column_major=is_column_major) == spanned(max(0, begin - ROWS + 1), end, level)


@pytest.mark.parametrize("level", LEVELS)
def test_queries_that_have_no_key_in_common_look_at_all(level: str) -> None:
    mask = np.full((ROWS, KEYS), -np.inf, np.float32)
    mask[range(ROWS), [20, 30, 40]] = 0
    assert key_range(level, mask) == ALL


@pytest.mark.parametrize("level", LEVELS)
def test_the_query_that_sees_most_counts(level: str) -> None:
    mask = padded(3)
    mask[1, :40] = 0
    assert key_range(level, mask) == up_to(40, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["keep", "drop"])
def test_bytes_are_masks_too(level: str, kind: Kind) -> None:
    mask = padded(20) == 0
    assert key_range(level, mask if kind == "keep" else ~mask, kind) == up_to(20, level)
    assert key_range(level, np.full((ROWS, KEYS), kind == "keep"), kind) == ALL


@pytest.mark.parametrize("level", LEVELS)
def test_a_key_is_seen_if_all_masks_let_it(level: str) -> None:
    padding, seen = padded(50, -10000.0)[0], padded(KEYS - 20)[:, ::-1].copy() == 0
    assert key_range_of(level, [(seen, "keep"), (padding, "add")]) == spanned(20, 50, level)
    assert key_range_of(level, [(padding, "add"), (~seen, "drop")]) == spanned(20, 50, level)
    assert key_range_of(level, [(padding, "add"), (padded(KEYS), "add")]) == up_to(50, level)
    assert key_range_of(level, [(seen, "keep"), (seen[:, ::-1].copy(), "keep")]) == spanned(20, 50, level)
    nowhere = [(seen, "keep"), (~seen, "keep")]
    assert key_range_of(level, nowhere) == ALL


@pytest.mark.parametrize("level", LEVELS)
def test_all_are_looked_at_where_the_last_may_have_weight(level: str) -> None:
    behind = padded(20)
    behind[:, -1] = 0
    for mask in (padded(KEYS), padded(20, -50.0), behind, padded(20, np.nan), np.full_like(behind, -np.inf)):
        assert key_range(level, mask) == ALL
    assert key_range(level, padded(20, -1000.0), query=(1, 1000.0)) == ALL
    assert key_range(level, padded(20, -1000.0), key=(40, -1000.0)) == ALL
    assert key_range(level, padded(20, -1000.0), key=(0, 1000.0)) == ALL
    assert key_range(level, padded(20, -1000.0)[:, ::-1].copy(), key=(40, -1000.0)) == ALL


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_column_major", [False, True])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nothing_is_left_out_that_is_not_finite(level: str, is_column_major: bool, number: float) -> None:
    for name, row in (("query", 1), ("key", 69), ("key", 0), ("value", 50), ("value", 69)):
        assert key_range(level, padded(20), is_column_major=is_column_major, **{name: (row, number)}) == ALL
    in_front = padded(20)[:, ::-1].copy()
    for name, row in (("query", 1), ("key", 0), ("value", 0), ("value", 20)):
        assert key_range(level, in_front, is_column_major=is_column_major, **{name: (row, number)}) == ALL
