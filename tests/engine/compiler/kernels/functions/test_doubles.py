"""Functions of float64 vectors against longdouble or the reference, at every level, with edge cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine import special
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.map import make_map
from engine.tensor import Array
from tests.engine.compiler.kernels.running import LEVELS, run

INF, NAN = float("inf"), float("nan")
EDGES = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1, -1, 0.5, -0.5, 2, 3, -2, -3, 1e300, -1e300, 5e-324, 1e-310, 709.5, 710, -745, -750,
     12, 30, -30, 0.49999999999999994])  # fmt: skip
COUNT = 800
Real = Callable[..., Array]


def precise(function: Real) -> Real:
    """Return a function computed in longdouble and rounded once."""
    return lambda *x: function(*(each.astype(np.longdouble) for each in x)).astype(np.float64)


# Function -> expected result, range of arguments, error in ulp (of the result, or of 1 if it is less).
FUNCTIONS: dict[str, tuple[Real, float, float, float]] = {
    "exp": (precise(np.exp), -745, 709, 1.5),
    "exp2": (precise(np.exp2), -1074, 1023, 1.5),
    "expm1": (precise(np.expm1), -40, 709, 2),
    "log": (precise(np.log), 0, 1e3, 1.5),
    "log2": (precise(np.log2), 0, 1e3, 3),
    "log10": (precise(np.log10), 0, 1e3, 3),
    "log1p": (precise(np.log1p), -1, 50, 2),
    "tanh": (precise(np.tanh), -25, 25, 3),
    "sigmoid": (precise(lambda x: 1 / (1 + np.exp(-x))), -700, 40, 3),
    "logsigmoid": (precise(lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))), -50, 50, 3),
    "erf": (special.erf, -7, 7, 3),
    "erfc": (special.erfc, -7, 27, 8),
}
# Functions whose results near zero are only as exact as those nearby.
ABSOLUTE: dict[str, tuple[Real, float, float, float]] = {
    "lgamma": (special.lgamma, -30, 100, 16),
    "gelu": (special.gelu, -8, 8, 4),
}

every_level = pytest.mark.parametrize("level", LEVELS)


def computed(name: str, level: str, *operands: Array) -> Array:
    count = len(operands[0])
    tree = apply(name, *(Operand(k) for k in range(len(operands))))
    kernel = make_map([count], [1], [[1]] * len(operands), tree, describe(level).of_doubles)
    result = np.zeros(count)
    run(kernel, level, [result, *operands])
    return result


def ulps(found: Array, wanted: Array, least: float) -> Array:
    """Return the distance in units of the last place, with NaN and infinities compared as numbers."""
    with np.errstate(all="ignore"):
        apart = np.abs(found - wanted) / np.spacing(np.maximum(np.abs(wanted), least))
    return np.where((found == wanted) | (np.isnan(found) & np.isnan(wanted)), 0, np.nan_to_num(apart, nan=INF))


@every_level
@pytest.mark.parametrize("name", [*FUNCTIONS, *ABSOLUTE])
def test_functions_of_doubles_keep_their_digits(name: str, level: str) -> None:
    oracle, low, high, limit = {**FUNCTIONS, **ABSOLUTE}[name]
    random = np.random.default_rng(5)
    x = np.concatenate([EDGES, random.uniform(low, high, COUNT), random.standard_normal(COUNT)])
    with np.errstate(all="ignore"):
        wanted = oracle(x)
    assert ulps(computed(name, level, x), wanted, 8.0 if name in ABSOLUTE else 0.0).max() <= limit
