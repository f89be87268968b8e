"""Attention against the formula in float64, at every level, on memory that ends at a guard page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from engine.compiler.assembly.dynamic_kernels import DynamicKernel
from engine.compiler.codegen.host import describe
from engine.compiler.codegen.ir import GuardedTable, Module, TooLargeError
from engine.compiler.kernels.attention.attention import Attention
from engine.compiler.kernels.attention.layout import TYPICAL_KEYS, choose_rows
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.products.matrix import Matrix
from engine.ir.dims import ShapeEnv
from engine.ir.tables import Table
from engine.layers.attention.attention import ScaledDotProductAttention
from engine.tensor import BFLOAT16, Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

RANDOM = np.random.default_rng(4)
Layout = Literal["rows", "columns"]
LINES = [Matrix((128 * 24,), 24, 1), Matrix((9 * 128,), 1, 128), *[Matrix((128 * 24,), 24, 1)] * 2]


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(4))


SIZES = [
    (1, 1, 1, 1), (1, 65, 3, 2), (2, 3, 2, 1), (3, 17, 1, 65), (17, 2, 17, 3), (65, 65, 65, 17), (50, 33, 64, 64),
    (70, 900, 8, 5), (3, 1300, 40, 24),
]  # fmt: skip


def laid(values: Array, layout: Layout, gap: int, dtype: str = "float32") -> tuple[Array, Matrix]:
    """Return batched matrices in guarded memory, rows or columns ``gap`` elements apart, and their strides."""
    turned = values if layout == "rows" else values.swapaxes(1, 2)
    stack, lines, length = turned.shape
    spread = np.full((stack, lines, length + gap), np.nan, np.float32)
    spread[:, :, :length] = turned
    memory = guarded_array(spread.reshape(-1)[: spread.size - gap], dtype=dtype)
    steps = (length + gap, 1) if layout == "rows" else (1, length + gap)
    return memory, Matrix((lines * (length + gap),), *steps)


def made(level: str, stack: int, sizes: tuple[int, int, int, int], matrices: list[Matrix], **given: Any) -> Attention:
    host, (queries, keys, width, values) = describe(level), sizes
    words = given.get("words", "float")
    rows, vectors = choose_rows(host, queries, TYPICAL_KEYS if given.get("is_padded") else keys, width, words=words)
    query, key, value, target = matrices
    return Attention(
        batch=(stack,), queries=queries, keys=keys, width=width, values=values, query=query, key=key, value=value,
        target=target, host=host, rows=rows, vectors=vectors, **{"scale": 0.3, **given},
    )  # fmt: skip


def check(
    level: str,
    stack: int,
    sizes: tuple[int, int, int, int],
    layouts: tuple[Layout, Layout, Layout] = ("rows", "rows", "rows"),
    gap: int = 3,
    masks: tuple[tuple[str, Array], ...] = (),
    **given: Any,
) -> None:
    queries, keys, width, values = sizes
    shapes = (stack, queries, width), (stack, keys, width), (stack, keys, values)
    operands = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    dtypes = ["float32", *[given.get("dtype", "float32")] * 2]
    operands = [each.astype(dtype) for each, dtype in zip(operands, dtypes, strict=True)]
    pairs = [laid(*each) for each in zip(operands, layouts, [gap] * 3, dtypes, strict=True)]
    if given.get("is_padded"):
        pairs[1] = padded(operands[1], level, queries)
    target, place = laid(np.zeros((stack, queries, values), np.float32), "rows", gap)
    target[...] = 7
    given["masks"] = tuple(Mask(Matrix((queries * keys,), keys, 1), kind) for kind, _ in masks)
    kernel = made(level, stack, sizes, [*(matrix for _, matrix in pairs), place], **given)
    run(kernel, level, [*(memory for memory, _ in pairs), target, *(at_the_end(each) for _, each in masks)])
    bias = sum(
        (np.where(mask if kind == "keep" else ~mask, 0, -np.inf) if kind != "add" else mask) for kind, mask in masks
    )
    if is_rounded := given.get("words") == "bfloat16":
        operands = [each.astype(BFLOAT16) for each in operands]
    layer = ScaledDotProductAttention(scale=0.3, is_causal=given.get("is_causal", False))
    wanted = layer.forward(*(each.astype(np.float64) for each in operands), bias if masks else None)
    found = np.append(target, np.full(gap, 7, np.float32)).reshape(stack, queries, values + gap)
    assert (found[:, :, values:] == 7).all()
    # Weights are rounded to 8 bits: the error is at most 2**-9 of the largest value.
    tolerance = {"rtol": 0, "atol": 2**-9 * np.abs(operands[2]).max()} if is_rounded else {"rtol": 2e-5, "atol": 2e-6}
    np.testing.assert_allclose(found[:, :, :values], wanted, **tolerance)


def padded(keys: Array, level: str, queries: int) -> tuple[Array, Matrix]:
    """Return column-major keys padded to whole panels, in guarded memory, and their strides."""
    stack, count, width = keys.shape
    host = describe(level)
    _, (vectors, _) = choose_rows(host, queries, TYPICAL_KEYS, width)
    line = -(-count // (vectors * host.lanes)) * vectors * host.lanes
    spread = np.full((stack, width, line), np.nan, np.float32)
    spread[:, :, :count] = keys.swapaxes(1, 2)
    return guarded_array(spread), Matrix((width * line,), 1, line)


def at_the_end(mask: Array) -> Array:
    """Return a mask that ends at a guard page, of bytes too."""
    if mask.dtype == np.float32:
        return guarded_array(mask)
    padded = np.zeros(-(-mask.size // 4) * 4, bool)
    padded[len(padded) - mask.size :] = mask.reshape(-1)
    return guarded_array(padded.view(np.float32)).view(bool)[len(padded) - mask.size :]


@together(
    ("level", LEVELS),
    ("layouts", [("rows", "rows", "rows"), ("rows", "columns", "rows"), ("columns", "rows", "rows")]),
    ("kind", ["plain", "causal", "masked"]),
    ("sizes", [each for each in SIZES if each[2] % 2 == 0]),
)
def test_factors_are_rounded_to_bfloat16(
    level: str, layouts: tuple[Layout, Layout, Layout], kind: str, sizes: tuple[int, int, int, int]
) -> None:
    queries, keys = sizes[:2]
    first = np.arange(queries)[:, None] * keys // queries // 2
    mask = (np.arange(keys) >= first) & (np.arange(keys) <= first + keys // 2)
    masks = (("keep", np.stack([mask, mask])),) if kind == "masked" else ()
    check(level, 2, sizes, layouts, masks=masks, is_causal=kind == "causal", words="bfloat16")


@together(
    ("level", LEVELS),
    ("is_causal", [False, True]),
    ("sizes", SIZES),
)
def test_any_sizes(level: str, is_causal: bool, sizes: tuple[int, int, int, int]) -> None:
    check(level, 2, sizes, is_causal=is_causal)


@together(
    ("level", LEVELS),
    ("layouts", [("rows", "columns", "rows"), ("columns", "rows", "rows"), ("columns", "columns", "rows")]),
    ("sizes", [(5, 21, 3, 18), (19, 530, 17, 1), (4, 3, 1, 2)]),
)
def test_matrices_may_lie_in_columns(
    level: str, layouts: tuple[Layout, Layout, Layout], sizes: tuple[int, int, int, int]
) -> None:
    check(level, 2, sizes, layouts)
    check(level, 2, sizes, layouts, is_causal=True)


@together(
    ("level", LEVELS),
    ("keys", [1, 2, 3, 17, 64, 900]),
    ("kinds", [("add",), ("keep",), ("drop",), ("add", "keep", "drop")]),
    ("is_causal", [False, True]),
)
def test_masks(level: str, keys: int, kinds: tuple[str, ...], is_causal: bool) -> None:
    shape = (2, 9, keys)
    masks = [(kind, RANDOM.random(shape) < (0.7 if kind == "keep" else 0.3)) for kind in kinds]
    given = [(kind, np.where(m, 0, -np.inf).astype(np.float32) if kind == "add" else m) for kind, m in masks]
    check(level, 2, (9, keys, 5, 20), masks=tuple(given), is_causal=is_causal)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_any_number_of_keys_and_queries_with_the_same_code(level: str, is_causal: bool) -> None:
    for queries, keys in ((2, 2), (3, 17), (50, 33), (64, 64), (65, 65), (70, 900), (33, 1300)):
        check(level, 2, (queries, keys, 9, 24), is_causal=is_causal, is_padded=True)
    if level == LEVELS[0]:
        like = made(level, 2, (98, 98, 9, 24), LINES, is_padded=True, is_causal=is_causal)
        kernels = [replace(like, queries=n, keys=n) for n in (98, 126, 127)]
        first, *others = [DynamicKernel(kernel, "host", 4) for kernel in kernels]
        first.write()
        table = GuardedTable(first.sizes)
        assert all(table.fits(each.sizes.values) and each.key == first.key for each in others)


@together(
    ("level", LEVELS),
    ("queries,keys,width", [(1, 2, 64), (1, 700, 17), (8, 513, 40), (9, 40, 3), (20, 1300, 130)]),
    ("kinds", [(), ("keep",), ("add", "drop")]),
    ("dtype", ["float32", "float16", "bfloat16"]),
)
def test_few_queries_by_dots_with_keys_in_rows(
    level: str, queries: int, keys: int, width: int, kinds: tuple[str, ...], dtype: str
) -> None:
    kept = RANDOM.random((2, queries, keys)) < 0.6
    kept[:, :, 0] = True
    given = {"keep": kept, "add": RANDOM.standard_normal(kept.shape).astype(np.float32), "drop": ~kept}
    masks = tuple((kind, given[kind]) for kind in kinds)
    check(level, 2, (queries, keys, width, 20), masks=masks, by_dots=True, dtype=dtype)


def test_one_code_multiplies_a_query_with_any_number_of_keys() -> None:
    like = made(LEVELS[0], 2, (1, 98, 24, 24), [Matrix((128 * 24,), 24, 1)] * 4, by_dots=True)
    first, *others = [DynamicKernel(replace(like, keys=n), "host", 4) for n in (98, 2, 700, 5000)]
    first.write()
    table = GuardedTable(first.sizes)
    assert all(table.fits(each.sizes.values) and each.key == first.key for each in others)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("hint", [2, 12, 64, 90, 500])
def test_a_chunk_has_no_more_tiles_than_its_memory_is_for_at_any_length(level: str, hint: int) -> None:
    env = ShapeEnv()
    length = env.dynamic("length", hint)
    kernel = made(level, 3, (length, length, 9, 24), LINES, is_padded=True)
    table = Table(env, [kernel.grid.block[0]])
    blocks = [table([size]) for size in (*range(2, 700, 7), 5000, 1 << 20)]
    assert all(1 <= block[0] <= kernel.most_tiles for block in blocks if block is not None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("keys", [2, 31, 64, 600])
def test_masks_with_the_same_code(level: str, keys: int) -> None:
    shape = (2, 9, keys)
    kept = RANDOM.random(shape) < 0.7
    kept[:, :, 0] = True
    kept[:, :, keys // 2 + 1 :] = False
    added = np.where(RANDOM.random(shape) < 0.3, -np.inf, RANDOM.standard_normal(shape)).astype(np.float32)
    added[:, :, 0] = 0
    for masks in ((("keep", kept),), (("add", added),), (("add", added), ("drop", ~kept))):
        check(level, 2, (9, keys, 5, 20), masks=masks, is_padded=True)


@together(
    ("level", LEVELS),
    ("is_padded", [False, True]),
    ("queries,keys,width", [(70, 70, 9), (9, 130, 40), (130, 900, 300), (3, 1300, 1)]),
    ("kinds", [("keep",), ("add",), ("add", "drop")]),
)
def test_windows_that_move_along_the_keys(
    level: str, is_padded: bool, queries: int, keys: int, width: int, kinds: tuple[str, ...]
) -> None:
    first = np.linspace(0, keys - width, queries).astype(int)[:, None]
    place = np.arange(keys)
    kept = np.broadcast_to((place >= first) & (place < first + width), (2, queries, keys)).copy()
    kept[1] = place >= keys // 2  # as long as its neighbour in a batch, and padded in front
    some = RANDOM.standard_normal(kept.shape).astype(np.float32)
    added = some if "drop" in kinds else np.where(kept, some, np.float32(-np.inf))
    given = {"keep": kept, "add": added, "drop": ~kept}
    masks = tuple((kind, given[kind]) for kind in kinds)
    check(level, 2, (queries, keys, 5, 20), masks=masks, is_padded=is_padded)


@pytest.mark.parametrize("keys", [5, 700])
@pytest.mark.parametrize("is_zero", [True, False])
def test_a_row_that_sees_no_key_gives_zeros_or_nan(keys: int, is_zero: bool) -> None:
    shapes = (1, 3, 4), (1, keys, 4), (1, keys, 4)
    operands = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    mask = np.ones((1, 3, keys), bool)
    mask[0, 1] = False
    mask[0, 2, : keys - 1] = False  # all of the first blocks
    matrices = [Matrix((0,), 4, 1)] * 4
    masks = (Mask(Matrix((0,), keys, 1), "keep"),)
    kernel = made(LEVELS[0], 1, (3, keys, 4, 4), matrices, masks=masks, is_zero=is_zero)
    target = np.full((3, 4), 7, np.float32)
    run(kernel, LEVELS[0], [*operands, target, mask])
    assert (target[1] == 0).all() if is_zero else np.isnan(target[1]).all()
    np.testing.assert_allclose(target[2], operands[2][0, -1], rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_memory_on_the_stack_does_not_grow_with_the_sequence(level: str) -> None:
    sizes = []
    for length in (2000, 20_000):
        matrices = [Matrix((0,), 64, 1)] * 4
        module = Module()
        made(level, 1, (length, length, 64, 64), matrices).emit(module)
        sizes.append((module.operations, str(module).count("alloca")))
    assert sizes[1][0] <= 1.2 * sizes[0][0]


def test_heads_as_wide_as_no_stack_are_refused() -> None:
    kernel = made(LEVELS[0], 1, (4, 40, 40_000, 8), [Matrix((0,), 40_000, 1)] * 4)
    with pytest.raises(TooLargeError):
        kernel.emit(Module())


def test_work_falls_into_chunks_for_several_threads() -> None:
    matrices = [Matrix((64 * 197,), 64, 1)] * 4
    assert made(LEVELS[0], 3, (197, 197, 64, 64), matrices).chunks >= 8
    assert made(LEVELS[0], 1000, (1, 3, 4, 4), matrices).chunks <= 4
