"""Expressions of codes: the bytes of the reference's formula, in as few functions as possible."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, apply
from engine.compiler.kernels.quantising import dequantised, quantised, simplified
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

X = Operand(0)
RANGES = {"uint8": (0.0, 255.0), "int8": (-128.0, 127.0)}
AWKWARD = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 1e-40], np.float32)


def code(x: Expr, scale: float, zero: float, dtype: str = "uint8") -> Expr:
    return quantised(x, Number(scale), Number(zero), *RANGES[dtype])


def names(tree: Expr) -> list[str]:
    return [tree.name, *(name for each in tree.arguments for name in names(each))] if isinstance(tree, Apply) else []


def stored(tree: Expr, x: np.ndarray, dtype: str, level: str) -> np.ndarray:
    target = guarded_array(np.zeros(x.shape, dtype), dtype=dtype)
    kernel = make_elements(x.shape, [(1,), (1,)], (dtype, "float32"), tree, "float", describe(level))
    run(kernel, level, [target, guarded_array(x)])
    return target


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("scale", [0.1, 0.5, 1 / 3, 7e-30, 3e30, 2.0**-120])
def test_codes_are_those_of_a_division(level: str, dtype: str, scale: float) -> None:
    """Include numbers whose quotient is half-way between two codes, or next to that."""
    random, step = np.random.default_rng(2), np.float32(scale)
    halves = (np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)) * step
    x = np.concatenate([AWKWARD, halves, np.nextafter(halves, np.inf, dtype=np.float32),
                        random.standard_normal(5003).astype(np.float32) * 90 * step])  # fmt: skip
    zero, (low, high) = 5.0 if dtype == "uint8" else -7.0, RANGES[dtype]
    with np.errstate(all="ignore"):
        wanted = np.clip(np.nan_to_num(np.rint(x / step).astype(np.float64) + zero, nan=0.0), low, high)
    np.testing.assert_array_equal(stored(code(X, float(step), zero, dtype), x, dtype, level), wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_a_simplified_expression_has_the_same_value(level: str) -> None:
    x = np.concatenate([AWKWARD, np.random.default_rng(3).standard_normal(999).astype(np.float32) * 20])
    for zero in (0.0, 9.0):
        again = dequantised(code(apply("clip", X, 0.0, 6.0), 0.05, zero), Number(0.05), Number(zero))
        tree = code(apply("relu", apply("add", again, X)), 0.04, zero)
        np.testing.assert_array_equal(stored(simplified(tree), x, "uint8", level), stored(tree, x, "uint8", level))


def test_limits_are_merged_and_codes_are_only_rounded() -> None:
    assert names(simplified(code(apply("relu", X), 0.1, 0.0))) == ["code", "quotient", "limit"]
    assert names(simplified(code(apply("clip", X, 0.0, 6.0), 0.1, 0.0))) == ["code", "quotient", "limit"]
    assert "relu" in names(simplified(code(apply("relu", X), 0.1, 9.0)))
    for zero in (0.0, 9.0):
        tree = simplified(dequantised(code(X, 0.1, zero), Number(0.1), Number(zero)))
        assert names(tree) == ["mul", "round", "quotient", "limit"]
