"""Layer normalisation against the formula in float64, on rows that end at a guard page."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.rows.layer_norm import LayerNorm
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

RANDOM = np.random.default_rng(2)


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(2))


def expected(rows: Array, weight: Array | None, bias: Array | None, eps: float, is_centred: bool) -> Array:
    x = rows.astype(np.float64)
    x = x - x.mean(axis=1, keepdims=True) if is_centred else x
    x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)
    return (x if weight is None else x * weight) + (0 if bias is None else bias)


def check(
    level: str,
    rows: Array,
    scales: tuple[bool, bool] = (True, True),
    *,
    eps: float = 1e-5,
    is_centred: bool = True,
    gaps: tuple[int, int] = (0, 0),
    residual: bool = False,
    tolerance: float = 3e-6,
) -> None:
    """Compare the kernel's result for (rows, columns), rows ``gaps`` floats apart in the source and the target."""
    count, columns = rows.shape
    weight, bias = (RANDOM.standard_normal(columns).astype(np.float32) if given else None for given in scales)
    other = RANDOM.standard_normal(rows.shape).astype(np.float32)
    tail = Epilogue(apply("add", Operand(0), Operand(1)), (Strides(0, columns, 0, 1),)) if residual else Epilogue()
    kernel = LayerNorm(
        rows=count, columns=columns, source=columns + gaps[0], target=columns + gaps[1], eps=eps,
        is_centred=is_centred, has_weight=scales[0], has_bias=scales[1], host=describe(level), epilogue=tail,
    )  # fmt: skip
    spread = np.full((count, columns + gaps[0]), 9, np.float32)
    spread[:, :columns] = rows
    source = guarded_array(spread.reshape(-1)[: spread.size - gaps[0]])
    target = guarded_array(np.full(count * (columns + gaps[1]) - gaps[1], 7, np.float32))
    given = [guarded_array(each) for each in (weight, bias, other if residual else None) if each is not None]
    run(kernel, level, [source, target, *given])
    result = np.append(target, np.full(gaps[1], 7, np.float32)).reshape(count, -1)
    wanted = expected(rows, weight, bias, eps, is_centred) + (other if residual else 0)
    assert (result[:, columns:] == 7).all()
    np.testing.assert_allclose(result[:, :columns], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 16, 49, 96, 197, 256, 257, 768, 1000])
def test_any_number_of_columns(level: str, is_centred: bool, columns: int) -> None:
    rows = RANDOM.standard_normal((5, columns)).astype(np.float32) * 6 + 3
    check(level, rows, is_centred=is_centred, eps=1e-2 if columns == 1 else 1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scales", [(False, False), (True, False), (False, True)])
def test_weight_and_bias_may_be_missing(level: str, scales: tuple[bool, bool]) -> None:
    check(level, RANDOM.standard_normal((4, 75)).astype(np.float32), scales)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [21, 700])
def test_rows_may_lie_apart_and_a_residual_be_added(level: str, columns: int) -> None:
    check(level, RANDOM.standard_normal((6, columns)).astype(np.float32), gaps=(3, 5), residual=True)


def test_many_rows_fall_into_chunks() -> None:
    check(LEVELS[0], RANDOM.standard_normal((500, 600)).astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [4096, 4099])
def test_a_row_far_from_zero_keeps_the_digits_it_has(level: str, columns: int) -> None:
    rows = (RANDOM.standard_normal((3, columns)) + 1000).astype(np.float32)
    check(level, rows, tolerance=2 * float(np.spacing(np.float32(1000))))


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_begins_with_an_outlier_keeps_the_digits_of_the_others(level: str) -> None:
    rows = RANDOM.standard_normal((2, 1000)).astype(np.float32)
    rows[:, 0] = 1e4
    check(level, rows, tolerance=1e-5)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("columns", [33, 1000])
def test_what_is_not_finite_spoils_its_row_alone(number: float, columns: int) -> None:
    rows = RANDOM.standard_normal((3, columns)).astype(np.float32)
    rows[1, columns // 2] = number
    kernel = LayerNorm(rows=3, columns=columns, source=columns, target=columns, eps=1e-5, host=describe(LEVELS[0]))
    target = np.zeros_like(rows)
    run(kernel, LEVELS[0], [rows, target])
    assert np.isnan(target[1]).all()
    assert np.isfinite(target[[0, 2]]).all()
