"""Sorted order: the reference's answers, ties, NaN and both zeros included, and nothing beside its memory."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.ordering.sorting import SORTED, Sorting
from engine.layers.sorting.sorting import sort_order
from engine.pnnx import Operator
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.lowering.rules.indexing.test_gather import SHAPES, kernels_of
from tests.engine.graph.build import INPUT, built, op
from tests.nightly import IS_NIGHTLY

RANDOM = np.random.default_rng(29)


def awkward(*shape: int) -> np.ndarray:
    """Numbers with many ties, some not finite, and both zeros."""
    x = RANDOM.choice([RANDOM.standard_normal(shape), RANDOM.integers(-3, 3, shape)])
    some = RANDOM.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42]), shape)
    return np.where(RANDOM.random(shape) < 0.2, some, x).astype(np.float32)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 300), (300, 3)], ids=str)
@pytest.mark.parametrize("is_on", [False, True])
def test_order_is_the_references(shape: tuple[int, ...], is_on: bool) -> None:
    x = awkward(*shape)
    for dim in range(-1, len(shape)):
        operators = [op("torch.sort", "all", "0", "a b", dim=dim, descending=is_on)]
        for k in {1, shape[dim]}:
            operators += [
                op("torch.topk", f"top{k}", "0", f"c{k} d{k}", k=k, dim=dim, largest=is_on),
                op("torch.kthvalue", f"one{k}", "0", f"e{k} f{k}", k=k, dim=dim, keepdim=is_on),
            ]
        assert set(kernels_of(operators, [x]).values()) == {"sort"}


@pytest.mark.parametrize("dtype", SORTED)
def test_order_of_every_dtype(dtype: str) -> None:
    for columns in (7, 300):
        x = RANDOM.integers(0, 2 if dtype == "bool" else 100, (3, columns)).astype(dtype)
        x[0, :2] = (np.iinfo(dtype).min, np.iinfo(dtype).max) if x.dtype.kind in "iu" else (0, 1)
        sort = op("torch.sort", "all", "0", "a b", dim=1, descending=columns == 7)
        ends = [op("torch.topk", f"top{k}", "0", f"c{k} d{k}", k=3, dim=1, largest=bool(k)) for k in range(2)]
        assert set(kernels_of([sort, *ends], [x]).values()) == {"sort"}


def lengths(level: str, *all: int) -> tuple[int, ...]:
    """Lengths of rows that are tried: at levels below the host's, only those just above a vector or a table."""
    return all if IS_NIGHTLY or level == LEVELS[0] else tuple(each for each in all if each in (9, 257))


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_every_length(level: str) -> None:
    for columns in lengths(level, 1, 2, 3, 8, 9, 255, 256, 257, 1000, 5000):
        x = awkward(3, columns)
        x[1] = 1.0
        source = guarded_array(x)
        few = {(0, min(5, columns)), (min(2, columns - 1), 1), (columns // 200, columns // 200)} - {(0, 0)}
        for first, count in {(0, columns), (columns // 2, 1), (columns - 1, 1), *few}:
            for is_descending in (False, True):
                kernel = Sorting(
                    dtype="float32", rows=3, columns=columns, source=columns, first=first, count=count,
                    is_descending=is_descending, host=describe(level),
                )  # fmt: skip
                elements = guarded_array(np.zeros((3, count), np.float32))
                places, scratch = (guarded_array(np.zeros((n, 2), np.float32)) for n in (3 * count, kernel.scratch))
                run(kernel, level, [source, places, elements, scratch])
                wanted = sort_order(x, 1, is_descending)[:, first : first + count]
                np.testing.assert_array_equal(places.view(np.int64).reshape(3, count), wanted)
                np.testing.assert_array_equal(elements, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [1, 2, 7, 256, 257, 999])
def test_middles(level: str, columns: int) -> None:
    x = awkward(4, columns)
    x[1], x[2] = np.nan, RANDOM.standard_normal(columns)
    for middle, least in (("all", 0), ("numbers", 1)):
        missing = np.isnan(x)
        numbers = columns - missing.sum(1)
        at = np.maximum(numbers - 1, 0) // 2
        at = at if least else np.where(missing.any(1), numbers, (columns - 1) // 2)
        wanted = np.take_along_axis(sort_order(x, 1), at[:, None], 1)
        kernel = Sorting(
            dtype="float32", rows=4, columns=columns, source=columns, first=0, count=1, middle=middle,
            host=describe(level),
        )  # fmt: skip
        elements = guarded_array(np.zeros((4, 1), np.float32))
        places, scratch = (guarded_array(np.zeros((n, 2), np.float32)) for n in (4, kernel.scratch))
        run(kernel, level, [guarded_array(x), places, elements, scratch])
        np.testing.assert_array_equal(places.view(np.int64)[:, :1], wanted)


def test_medians_of_all() -> None:
    x = RANDOM.standard_normal((3, 5, 33)).astype(np.float32)
    x[0, 0, 0], x[1, :, 4] = np.inf, -np.inf
    gaps = np.where(RANDOM.random(x.shape) < 0.02, np.nan, x).astype(np.float32)
    for values in (x, gaps):
        for type_ in ("aten::median", "aten::nanmedian"):
            assert_lowered(values, op(type_, "it", "0", "1"))


def assert_lowered(x: np.ndarray, layer: Operator) -> None:
    """Check that one operator of x has a kernel that gives the reference's answer."""
    net = built(INPUT, layer, op("pnnx.Output", "out", "1"), _0=x.shape)
    session = Session(net, backend="compiled", cache=None)
    (found,), (wanted,) = session.run([x]), Session(net, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
