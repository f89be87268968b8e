"""Reductions and scans of rows of any dtype, at every level, on memory that ends at a guard page."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.elements import Domain
from engine.compiler.kernels.ordering.scan import Scan
from engine.compiler.kernels.rows.reduction import TypedMode, TypedReduction
from engine.tensor import Array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.kernels.test_elements import on_guard

RANDOM = np.random.default_rng(17)
SIZES = [(1, 1), (2, 17), (3, 131)]
FOLDS = {
    "sum": np.sum, "product": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "count": np.count_nonzero,
    "any": np.any, "all": np.all,
}  # fmt: skip
CASES: list[tuple[TypedMode, str, str]] = [
    *((mode, dtype, "int64") for mode in ("sum", "product", "count") for dtype in ("uint8", "int64")),
    *((mode, dtype, dtype) for mode in ("max", "min") for dtype in ("uint8", "int16", "int64")),
    *((mode, "float64", "float64") for mode in ("sum", "product", "max", "min", "mean")),
    *((mode, dtype, "bool") for mode in ("any", "all") for dtype in ("bool", "float32", "float64")),
]


def values(dtype: str, shape: tuple[int, ...], mode: str = "") -> Array:
    """Return numbers up to the limits of a dtype, with zeros; NaN in some rows of floats."""
    if dtype == "bool":
        return RANDOM.random(shape) < 0.8
    if dtype.startswith("float"):
        found = RANDOM.standard_normal(shape).astype(dtype)
        found[RANDOM.random(shape) < 0.02] = 0
        if mode not in ("sum", "mean", "product"):
            found[-1, -1] = np.nan
        return found
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RANDOM.choice(np.array([low, high, 0, 1, 2, 3], dtype), shape)


def domain_of(dtype: str) -> Domain:
    return {"float32": "float", "float64": "double"}.get(dtype, "i64")  # type: ignore[return-value]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mode", "dtype", "result"), CASES)
def test_rows(level: str, mode: TypedMode, dtype: str, result: str) -> None:
    for rows, columns in SIZES:
        x, target = on_guard(values(dtype, (rows, columns), mode)), on_guard(np.zeros(rows, result))
        kernel = TypedReduction(
            mode=mode, rows=rows, columns=columns, source=columns, target=1, dtypes=(dtype, result),
            domain=domain_of(dtype), host=describe(level),
        )  # fmt: skip
        run(kernel, level, [x, target])
        with np.errstate(all="ignore"):
            kept = {"dtype": np.int64} if mode in ("sum", "product") and dtype != "float64" else {}
            wanted = FOLDS[mode](x, axis=-1, **kept).astype(result)
        if result == "float64":
            np.testing.assert_allclose(target, wanted, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float64"])
def test_scans(level: str, dtype: str) -> None:
    result = "float64" if dtype == "float64" else "int64"
    for outer, size, inner in ((1, 1, 1), (2, 17, 1), (3, 5, 6), (1, 9, 16)):
        x = on_guard(values(dtype, (outer, size, inner), "sum"))
        target = on_guard(np.zeros(x.shape, result))
        kernel = Scan(
            mode="sum", outer=outer, size=size, inner=inner, dtypes=(dtype, result), domain=domain_of(dtype),
            host=describe(level),
        )  # fmt: skip
        run(kernel, level, [x, target])
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(target, np.cumsum(x, 1, dtype=result), rtol=1e-12, atol=1e-12)
