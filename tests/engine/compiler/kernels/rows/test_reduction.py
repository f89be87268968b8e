"""Reductions of rows against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.rows.reduction import RowReduction
from engine.tensor import Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

MODES = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


def reduced(level: str, mode: Any, rows: Array, gap: int = 0, epilogue: Epilogue | None = None) -> Array:
    """Return the kernel's result for (rows, columns); results are two floats apart."""
    count, columns = rows.shape
    spread = np.full((count, columns + gap), np.nan, np.float32)
    spread[:, :columns] = rows
    source = guarded_array(spread.reshape(-1)[: spread.size - gap])
    target = guarded_array(np.full(2 * count - 1, 7, np.float32))
    kernel = RowReduction(
        mode=mode,
        rows=count,
        columns=columns,
        source=columns + gap,
        target=2,
        host=describe(level),
        epilogue=epilogue or Epilogue(),
    )
    run(kernel, level, [source, target, *([guarded_array(rows[:, 0])] if epilogue else [])])
    assert (target[1::2] == 7).all()
    return target[::2]


@together(("level", LEVELS), ("mode", MODES), ("columns", [1, 2, 3, 13, 64, 197, 1000]))
def test_any_number_of_columns(level: str, mode: str, columns: int) -> None:
    rows = np.random.default_rng(1).standard_normal((5, columns), np.float32) + 3
    np.testing.assert_allclose(reduced(level, mode, rows, gap=4), MODES[mode](rows.astype(np.float64), 1), rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [5, 90])
def test_nan_and_infinities(level: str, mode: str, columns: int) -> None:
    rows = np.random.default_rng(1).standard_normal((columns + 2, columns), np.float32)
    for k in range(columns):
        rows[k, k] = np.nan
    rows[-2] = np.inf
    rows[-1] = -np.inf
    np.testing.assert_array_equal(reduced(level, mode, rows), MODES[mode](rows, 1))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_long_rows_keep_their_precision(mode: str) -> None:
    rows = np.random.default_rng(1).random((2, 1_000_003), np.float32)
    np.testing.assert_allclose(reduced(LEVELS[0], mode, rows), MODES[mode](rows.astype(np.float64), 1), rtol=1e-6)


def test_the_epilogue_sees_the_row_it_belongs_to() -> None:
    rows = np.random.default_rng(1).standard_normal((4, 37), np.float32)
    epilogue = Epilogue(apply("mul", Operand(0), Operand(1)), (Strides(0, 1, 0),))
    wanted = rows.max(1) * rows[:, 0]
    np.testing.assert_array_equal(reduced(LEVELS[0], "max", rows, epilogue=epilogue), wanted)
