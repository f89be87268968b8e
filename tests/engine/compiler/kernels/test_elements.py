"""Maps over any dtypes, at every level, on memory that ends at a guard page."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.elements import Domain, make_elements
from engine.compiler.kernels.expr import Expr, Operand, apply
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

RANDOM = np.random.default_rng(11)
SIZES = (1, 2, 3, 17, 65, 4099)
X, Y, Z = (Operand(k) for k in range(3))

CASES: list[tuple[Domain, Expr, tuple[str, ...]]] = [
    ("float", apply("lt", X, Y), ("bool", "float32", "float32")),
    ("float", apply("where", X, Y, Z), ("float32", "bool", "float32", "int32")),
    ("float", X, ("float32", "bool")),
    ("float", X, ("float32", "int64")),
    ("double", X, ("float32", "float64")),
    ("double", apply("ge", X, Y), ("bool", "float64", "float32")),
    ("double", apply("max", apply("mul", X, 0.1), Y), ("float64", "float64", "float64")),
    ("i64", apply("and", X, Y), ("bool", "bool", "bool")),
    ("i64", apply("mul", X, Y), ("int32", "int32", "int32")),
    ("i64", apply("eq", X, Y), ("bool", "int16", "uint8")),
    ("i64", apply("rshift", X, Y), ("int8", "int8", "int8")),
]


def on_guard(values: np.ndarray) -> np.ndarray:
    """Return the array, ending at a guard page."""
    padding = -values.nbytes % 4
    block = guarded_array(np.zeros((values.nbytes + padding) // 4, np.float32)).view(np.uint8)
    place = block[padding:].view(values.dtype).reshape(values.shape)
    place[...] = values
    return place


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return RANDOM.random(shape) < 0.5
    if dtype.startswith("float"):
        found = RANDOM.standard_normal(shape).astype(dtype)
        found.reshape(-1)[::7] = [np.nan, np.inf, -np.inf, -0.0][int(RANDOM.integers(4))]
        return found
    return RANDOM.integers(0, 100, shape).astype(dtype)


def expected(tree: Expr, operands: list[np.ndarray]) -> np.ndarray:
    """Return the expression computed by numpy, with numpy's promotion."""
    if tree == X:
        return operands[0]
    name = tree.name  # type: ignore[union-attr]
    x, y, *rest = operands
    with np.errstate(all="ignore"):
        if name == "where":
            return np.where(x, y, rest[0])
        if name == "max":
            return np.maximum(x * 0.1, y)
        functions = {
            "lt": np.less, "ge": np.greater_equal, "eq": np.equal, "and": np.bitwise_and, "mul": np.multiply,
            "rshift": np.right_shift,
        }  # fmt: skip
        return functions[name](x, y)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("domain", "tree", "dtypes"), CASES, ids=str)
def test_every_dtype_at_every_size(level: str, domain: Domain, tree: Expr, dtypes: tuple[str, ...]) -> None:
    for size in SIZES:
        operands = [on_guard(values(each, (size,))) for each in dtypes[1:]]
        target = on_guard(np.zeros(size, dtypes[0]))
        kernel = make_elements((size,), [(1,)] * len(dtypes), dtypes, tree, domain, describe(level))
        run(kernel, level, [target, *operands])
        np.testing.assert_array_equal(target, expected(tree, operands).astype(dtypes[0]))


@pytest.mark.parametrize("level", LEVELS)
def test_operands_broadcast_and_lie_in_any_order(level: str) -> None:
    x, y = values("float32", (5, 17)), values("int64", (3, 1, 17))
    target = np.zeros((3, 5, 17), bool)
    strides = [(85, 17, 1), (0, 17, 1), (17, 0, 1)]
    kernel = make_elements(
        (3, 5, 17), strides, ("bool", "float32", "int64"), apply("lt", X, Y), "float", describe(level)
    )
    run(kernel, level, [target, x, y])
    np.testing.assert_array_equal(target, x < y)
    turned = np.zeros((17, 5), bool)
    kernel = make_elements((17, 5), [(5, 1), (1, 17)], ("bool", "float32"), apply("isnan", X), "float", describe(level))
    run(kernel, level, [turned, x])
    np.testing.assert_array_equal(turned, np.isnan(x.T))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 17, 65, 4099])
def test_only_existing_elements_set_the_fault_flag(level: str, size: int) -> None:
    x, tree = RANDOM.integers(-100, 100, size), apply("floor_divide", X, Y)
    kernel = make_elements(
        (size,), [(1,)] * 3, ("int64",) * 3, tree, "i64", describe(level), checked=[apply("eq", Y, 0)]
    )
    for place in (None, 0, size // 2, size - 1):
        y = np.full(size, 3)
        y[[] if place is None else place] = 0
        target, fault_flag = on_guard(np.zeros(size, np.int64)), np.zeros(1, np.int32)
        run(kernel, level, [target, on_guard(x), on_guard(y), fault_flag])
        assert fault_flag[0] == (0 if place is None else 2)
        np.testing.assert_array_equal(target, np.where(y == 0, 0, x // 3))
