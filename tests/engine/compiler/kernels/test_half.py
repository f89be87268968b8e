"""float16 and bfloat16 in memory, at every level: all numbers are loaded, and all are rounded as in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Operand
from engine.tensor import BFLOAT16, Array, DType
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.kernels.test_elements import on_guard

DTYPES = [np.dtype(np.float16), BFLOAT16]
every = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_level = pytest.mark.parametrize("level", LEVELS)


def converted(x: Array, dtype: DType, level: str) -> Array:
    """Return the kernel's conversion of a vector, on memory that ends at a guard page."""
    source, target = on_guard(x), on_guard(np.zeros(x.shape, dtype))
    names = [dtype.name, x.dtype.name]
    run(make_elements(x.shape, [(1,), (1,)], names, Operand(0), "float", describe(level)), level, [target, source])
    return target


def all_of(dtype: DType) -> Array:
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(dtype)


def hard(dtype: DType) -> Array:
    """Return all numbers of a dtype, midpoints between them, numbers next to midpoints, overflows and underflows."""
    with np.errstate(all="ignore"):
        each = all_of(dtype).astype(np.float32)
        each = np.sort(each[np.isfinite(each)])
        between = (each[1:].astype(np.float64) + each[:-1]).astype(np.float32) / 2
    beside = [np.nextafter(between, np.float32(end)) for end in (-np.inf, np.inf)]
    ends = np.array(
        [np.nan, -np.nan, np.inf, -np.inf, -0.0, 65519.99, 65520, -65520, 3.4e38, -3.4e38, 1e-45], np.float32
    )
    return np.concatenate([each, between, *beside, ends])


@every_level
@every
def test_all_are_loaded(dtype: DType, level: str) -> None:
    x = all_of(dtype)
    found = converted(x, np.dtype(np.float32), level)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))


@every_level
@every
def test_what_is_stored_is_rounded_to_the_nearest(dtype: DType, level: str) -> None:
    x = hard(dtype)
    found = converted(x, dtype, level)
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(found[numbers].view(np.uint16), wanted[numbers].view(np.uint16))
    assert np.isnan(found[~numbers].astype(np.float32)).all()


@every_level
@every
def test_any_size_and_order(dtype: DType, level: str) -> None:
    for size in (1, 2, 3, 17, 33):
        x = np.linspace(-3, 3, size, dtype=np.float32)
        np.testing.assert_array_equal(converted(x, dtype, level), x.astype(dtype))
    x = on_guard(np.linspace(-3, 3, 5 * 17, dtype=np.float32).reshape(5, 17).astype(dtype))
    turned = on_guard(np.zeros((17, 5), np.float32))
    kernel = make_elements((17, 5), [(5, 1), (1, 17)], ["float32", dtype.name], Operand(0), "float", describe(level))
    run(kernel, level, [turned, x])
    np.testing.assert_array_equal(turned, x.T.astype(np.float32))
