"""Softmax along rows against the reference layer, on rows that end at a guard page."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.rows.softmax import Softmax
from engine.layers.normalisation.softmax import LogSoftmax
from engine.layers.normalisation.softmax import Softmax as Reference
from engine.tensor import Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run


def computed(level: str, rows: Array, is_logarithm: bool, gaps: tuple[int, int] = (0, 0)) -> Array:
    """Return the kernel's result for (rows, columns), rows ``gaps`` floats apart in the source and the target."""
    count, columns = rows.shape
    kernel = Softmax(
        rows=count,
        columns=columns,
        source=columns + gaps[0],
        target=columns + gaps[1],
        is_logarithm=is_logarithm,
        host=describe(level),
    )
    spread = np.full((count, columns + gaps[0]), 9, np.float32)
    spread[:, :columns] = rows
    source = guarded_array(spread.reshape(-1)[: spread.size - gaps[0]])
    size = count * (columns + gaps[1])
    target = guarded_array(np.full(size - gaps[1], 7, np.float32))
    run(kernel, level, [source, target])
    result = np.append(target, np.full(gaps[1], 7, np.float32)).reshape(count, -1)
    assert (result[:, columns:] == 7).all()
    return result[:, :columns]


def check(level: str, rows: Array, is_logarithm: bool, gaps: tuple[int, int] = (0, 0)) -> None:
    layer = (LogSoftmax if is_logarithm else Reference)(dim=-1)
    np.testing.assert_allclose(
        computed(level, rows, is_logarithm, gaps), layer.forward(rows), rtol=2e-6, atol=2e-6 if is_logarithm else 1e-9
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_logarithm", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 10, 16, 49, 64, 197, 1000])
def test_any_number_of_columns(level: str, is_logarithm: bool, columns: int) -> None:
    check(level, np.random.default_rng(1).standard_normal((5, columns), np.float32) * 6, is_logarithm)


@pytest.mark.parametrize("level", LEVELS)
@together(("is_logarithm", [False, True]), ("columns", range(1, 10)), ("count", [1, 16, 43]), ("gap", [0, 4]))
def test_any_number_of_short_rows(level: str, is_logarithm: bool, columns: int, count: int, gap: int) -> None:
    rows = np.random.default_rng(columns).standard_normal((count, columns), np.float32) * 6
    check(level, rows, is_logarithm, (0, gap))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [2, 3, 5])
def test_short_rows_of_equal_elements_are_the_same_everywhere_and_computed_in_place(level: str, columns: int) -> None:
    rows = np.repeat(np.random.default_rng(columns).standard_normal((21, 1), np.float32), columns, axis=1)
    kernel = Softmax(rows=21, columns=columns, source=columns, target=columns, host=describe(level))
    place = guarded_array(rows)
    run(kernel, level, [place, place])
    np.testing.assert_array_equal(place, np.full_like(rows, np.float32(1) / np.float32(columns)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_logarithm", [False, True])
def test_rows_may_lie_apart(level: str, is_logarithm: bool) -> None:
    check(level, np.random.default_rng(1).standard_normal((6, 21), np.float32), is_logarithm, (3, 5))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_logarithm", [False, True])
@pytest.mark.parametrize("columns", [4, 5, 90])
def test_infinities_nan_and_large_numbers_as_the_reference(level: str, is_logarithm: bool, columns: int) -> None:
    rows = np.random.default_rng(1).standard_normal((16, columns), np.float32)
    rows[0] = -np.inf
    rows[1, 3] = np.nan
    rows[2, 2] = np.inf
    rows[3, :-1] = -np.inf
    rows[4, 1::2] = -np.inf
    rows[5] = np.finfo(np.float32).max
    rows[6, ::2] = -np.finfo(np.float32).max
    rows[7] *= 80
    check(level, rows, is_logarithm)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [2, 7, 37])
@pytest.mark.parametrize("pitch", [0, 1])
def test_the_epilogue_sees_the_element_it_belongs_to(level: str, columns: int, pitch: int) -> None:
    rows = np.random.default_rng(1).standard_normal((20, columns), np.float32)
    other = np.random.default_rng(2).standard_normal((20 if pitch else 1, columns), np.float32)
    kernel = Softmax(
        rows=20,
        columns=columns,
        source=columns,
        target=columns,
        host=describe(level),
        epilogue=Epilogue(apply("mul", Operand(0), Operand(1)), (Strides(0, pitch * columns, 0),)),
    )
    target = guarded_array(np.zeros_like(rows))
    run(kernel, level, [guarded_array(rows), target, guarded_array(other)])
    np.testing.assert_allclose(target, Reference(dim=-1).forward(rows) * other, rtol=2e-6)


def test_work_falls_into_chunks_that_together_do_all_of_it() -> None:
    check(LEVELS[0], np.random.default_rng(1).standard_normal((301, 400), np.float32), False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [5, 49, 700])
def test_what_a_mask_leaves_next_to_nothing_is_zero_and_not_subnormal(level: str, columns: int) -> None:
    rows = np.random.default_rng(1).standard_normal((4, columns), np.float32)
    rows[:, 1::2] -= 100
    found = computed(level, rows, is_logarithm=False)
    assert (found[:, 1::2] == 0).all() and (found[:, ::2] > 1e-6).all()
    assert np.isnan(computed(level, np.array([[-100, np.nan, 0]], np.float32), is_logarithm=False)).all()
