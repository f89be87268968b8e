"""Batched products of bytes and of bfloat16, at every level, on memory that ends at a guard page."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from engine.compiler.codegen.host import describe, detect
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.product import Product, choose_product_tile
from engine.tensor import BFLOAT16, Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

Layout = Literal["rows", "columns"]
SIZES = [(1, 1, 1), (3, 17, 65), (17, 3, 4), (13, 197, 64), (40, 33, 7), (5, 1, 6), (2, 70, 259)]
HOSTS = {**{level: describe(level) for level in LEVELS[1:]}, LEVELS[0]: detect()}
SUM = Epilogue(apply("whole_sum", Operand(0)))


def laid(values: Array, layout: Layout, gap: int) -> tuple[Array, Matrix]:
    """Return batched matrices (n, h) in guarded memory, rows or columns ``gap`` elements apart, and their strides."""
    turned = values if layout == "rows" else values.swapaxes(2, 3)
    n, h, lines, length = turned.shape
    pitch = length + gap
    spread = np.full((n, h, lines, pitch), 99, np.int8 if values.dtype == np.int8 else np.uint8).astype(values.dtype)
    spread[..., :length] = turned
    steps = (pitch, 1) if layout == "rows" else (1, pitch)
    found = guarded_array(spread.reshape(-1)[: spread.size - gap], dtype=spread.dtype)
    return found, Matrix((h * lines * pitch, lines * pitch), *steps)


def product(level: str, a: Array, b: Array, layout: Layout, gap: int, **given: Any) -> Array:
    """Return the product that the kernel computes, with the gaps of its rows."""
    host, stack, (rows, terms), columns = HOSTS[level], a.shape[:2], a.shape[2:], b.shape[3]
    (left, of_left), (right, of_right) = laid(a, "rows", gap), laid(b, layout, gap)
    target, of_target = laid(np.zeros((*stack, rows, columns), np.float32), "rows", gap)
    target[...] = 7
    tile_rows, vectors = choose_product_tile(host, rows, columns, terms, given["words"])
    kernel = Product(
        stack=stack, rows=rows, columns=columns, terms=terms, left=of_left, right=of_right,
        target=Strides(*of_target.batch, of_target.row), tile_rows=tile_rows, vectors=vectors, host=host, **given,
    )  # fmt: skip
    run(kernel, level, [left, right, target])
    found = np.append(target, np.full(gap, 7, np.float32)).reshape(*stack, rows, columns + gap)
    assert (found[..., columns:] == 7).all()
    return found[..., :columns]


@together(
    ("level", LEVELS),
    ("layout", ["rows", "columns"]),
    ("sizes", SIZES),
    ("dtype", ["uint8", "int8"]),
    ("zeros", [(0, 0), (3, 128), (255, 0), (121, 131)]),
)
def test_sums_of_bytes_are_exact(
    level: str, layout: Layout, sizes: tuple[int, int, int], dtype: str, zeros: tuple[int, int]
) -> None:
    (rows, columns, terms), random = sizes, np.random.default_rng(5)
    ends = np.iinfo(dtype)
    zeros = zeros[0], max(zeros[1] + int(ends.min), int(ends.min))
    a = random.integers(0, 256, (2, 3, rows, terms)).astype(np.uint8)
    b = random.integers(ends.min, ends.max + 1, (2, 3, terms, columns)).astype(dtype)
    found = product(level, a, b, layout, 3, words="int8", dtype=dtype, zeros=zeros, epilogue=SUM)
    wanted = np.matmul(a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1])
    np.testing.assert_array_equal(found, wanted.astype(np.float32))


@together(("level", LEVELS), ("layout", ["rows", "columns"]), ("sizes", SIZES), ("dtype", ["bfloat16", "float"]))
def test_factors_of_bfloat16(level: str, layout: Layout, sizes: tuple[int, int, int], dtype: str) -> None:
    (rows, columns, terms), random = sizes, np.random.default_rng(6)
    a = random.standard_normal((2, 3, rows, terms)).astype(np.float32).astype(BFLOAT16)
    b = random.standard_normal((2, 3, terms, columns)).astype(np.float32)
    rounded = b.astype(BFLOAT16)
    found = product(level, a, rounded if dtype == "bfloat16" else b, layout, 2, words="bfloat16", dtype=dtype)
    wanted = np.matmul(a.astype(np.float32).astype(np.float64), rounded.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.sqrt(terms))


@pytest.mark.parametrize("level", LEVELS)
def test_many_rows_and_chunks(level: str) -> None:
    random = np.random.default_rng(7)
    a = random.integers(0, 256, (1, 1, 700, 300)).astype(np.uint8)
    b = random.integers(0, 256, (1, 1, 300, 600)).astype(np.uint8)
    found = product(level, a, b, "rows", 0, words="int8", dtype="uint8", zeros=(9, 100), epilogue=SUM)
    np.testing.assert_array_equal(found, np.matmul(a.astype(np.int64) - 9, b.astype(np.int64) - 100))
