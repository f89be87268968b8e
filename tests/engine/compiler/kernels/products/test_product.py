"""Batched products against numpy in float64, at every level, on memory that ends at a guard page."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.product import Product, choose_product_tile, is_supported_layout
from engine.tensor import Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

RANDOM = np.random.default_rng(4)
Layout = Literal["rows", "columns"]


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(4))


SIZES = [
    (1, 1, 1), (1, 65, 3), (2, 3, 1), (3, 17, 65), (17, 2, 17), (65, 65, 65), (50, 33, 64), (16, 1, 9), (1, 130, 700),
]  # fmt: skip


def laid(values: Array, layout: Layout, gap: int) -> tuple[Array, Matrix]:
    """Return batched matrices (n, h) in guarded memory, rows or columns ``gap`` elements apart, and their strides."""
    turned = values if layout == "rows" else values.swapaxes(2, 3)
    n, h, lines, length = turned.shape
    spread = np.full((n, h, lines, length + gap), np.nan, np.float32)
    spread[..., :length] = turned
    pitch = length + gap
    steps = (pitch, 1) if layout == "rows" else (1, pitch)
    return guarded_array(spread.reshape(-1)[: spread.size - gap]), Matrix((h * lines * pitch, lines * pitch), *steps)


def made(
    level: str, stack: tuple[int, int], sizes: tuple[int, int, int], places: list[Matrix], **given: Any
) -> Product:
    host, (rows, columns, terms) = describe(level), sizes
    tile_rows, vectors = choose_product_tile(host, rows, columns, terms)
    left, right, target = places
    strides = Strides(*target.batch, target.row)
    return Product(
        stack=stack, rows=rows, columns=columns, terms=terms, left=left, right=right, target=strides,
        tile_rows=tile_rows, vectors=vectors, host=host, **given,
    )  # fmt: skip


def check(
    level: str,
    stack: tuple[int, int],
    sizes: tuple[int, int, int],
    layouts: tuple[Layout, Layout] = ("rows", "rows"),
    gap: int = 3,
    **given: Any,
) -> None:
    rows, columns, terms = sizes
    a, b = (RANDOM.standard_normal((*stack, *shape)).astype(np.float32) for shape in ((rows, terms), (terms, columns)))
    (left, left_place), (right, right_place) = (laid(each, at, gap) for each, at in zip((a, b), layouts, strict=True))
    target, place = laid(np.zeros((*stack, rows, columns), np.float32), "rows", gap)
    target[...] = 7
    other = RANDOM.standard_normal((stack[0], 1, 1, columns)).astype(np.float32)
    kernel = made(level, stack, sizes, [left_place, right_place, place], **given)
    run(kernel, level, [left, right, target, *([guarded_array(other)] if given else [])])
    found = np.append(target, np.full(gap, 7, np.float32)).reshape(*stack, rows, columns + gap)
    assert (found[..., columns:] == 7).all()
    wanted = a.astype(np.float64) @ b
    wanted = np.maximum(np.tanh(wanted), 0) * other if given else wanted
    np.testing.assert_allclose(found[..., :columns], wanted, rtol=1e-5, atol=2e-6 * np.sqrt(terms))


@together(
    ("level", LEVELS),
    ("layouts", [("rows", "rows"), ("rows", "columns"), ("columns", "rows"), ("columns", "columns")]),
    ("sizes", SIZES),
)
def test_any_sizes(level: str, layouts: tuple[Layout, Layout], sizes: tuple[int, int, int]) -> None:
    check(level, (2, 3), sizes, layouts)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [(1, 40, 5), (30, 70, 19), (7, 3, 2)])
def test_the_epilogue_sees_the_element_it_belongs_to(level: str, sizes: tuple[int, int, int]) -> None:
    tree = apply("mul", apply("relu", apply("tanh", Operand(0))), Operand(1))
    check(level, (2, 3), sizes, epilogue=Epilogue(tree, (Strides(sizes[1], 0, 0, 1),)))


def test_what_no_stack_holds_is_read_in_place() -> None:
    sizes, places = (100, 64, 100_000), [Matrix((0, 0), 100_000, 1), Matrix((0, 0), 64, 1), Matrix((0, 0), 64, 1)]
    kernel = made(LEVELS[0], (1, 1), sizes, places)
    assert not kernel.is_packed
    kernel.emit(Module())
    assert not is_supported_layout(kernel.host, (100_000, 64), (1, 100_000), kernel.vectors)


def test_work_falls_into_chunks_for_several_threads() -> None:
    square = [Matrix((0, 0), 256, 1)] * 3
    assert made(LEVELS[0], (1, 1), (256, 256, 256), square).chunks >= 8
    assert made(LEVELS[0], (10, 100), (3, 3, 3), [Matrix((900, 9), 3, 1)] * 3).chunks <= 4
    assert made(LEVELS[0], (1, 1), (5000, 8, 256), square).chunks >= 8
