"""Element-wise functions against float64: as exact as their docstrings say, at every level and width."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import llvmlite.binding as llvm
import numpy as np
import pytest

from engine import special
from engine.compiler.codegen.host import Host, describe
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import assemble
from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.kernels.functions.math import COSTS, FUNCTIONS
from engine.compiler.kernels.map import Map, make_map
from engine.expression import FUNCTIONS as REFERENCE
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import registry
from engine.layers.elementwise import activation, piecewise, ternary
from engine.layers.elementwise.functions import Unary
from engine.special import erf
from engine.tensor import BFLOAT16, Array
from tests.engine.compiler.kernels.running import LEVELS, run

INF, NAN = float("inf"), float("nan")
ALPHA = float(np.float32(0.3))
SPECIAL = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 1e-45, -1e-45, 1e-38, -1e-38, 0.1, 16777217,
     8388609.5, 1e10, 3.4e38, -3.4e38], np.float32)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Function, constants behind its operands, expected result, and the range of the docstring's claim."""

    name: str
    oracle: Callable[..., Array]
    constants: tuple[float, ...] = ()
    operands: int = 1
    low: float = -INF
    high: float = INF
    scale: Callable[..., Array] = np.abs

    @property
    def id(self) -> str:
        return "-".join([self.name, *map(str, self.constants)])


def forward(layer: Layer) -> Callable[..., Array]:
    return layer.forward


def single(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


STEP = float(np.float32(0.0371))
ROUNDER = np.float32(1.5 * 2**23)

# Below -87.3 the exponential in the denominator approaches infinity, and the quotient becomes subnormal.
APPROXIMATED = (
    Row("exp", np.exp),
    Row("exp2", np.exp2),
    Row("exp_down", np.exp, high=71),
    Row("exp_or_zero", np.exp, low=-87.3, high=71),
    Row("exp2_down", np.exp2, low=-126, high=0),
    Row("expm1", np.expm1),
    Row("log", np.log),
    Row("log2", np.log2),
    Row("log10", np.log10),
    Row("log1p", np.log1p),
    Row("logsigmoid", forward(Unary(function="logsigmoid"))),
    Row("softplus", forward(activation.Softplus()), (1.0, 20.0)),
    Row("softplus", lambda x: np.where(x > 2, x, np.log1p(np.exp(single(x * 2.5))) / 2.5), (2.5, 5.0)),
    Row("sigmoid", forward(Unary(function="sigmoid")), low=-87.3),
    Row("silu", forward(Unary(function="silu")), low=-87.3),
    Row("tanh", np.tanh),
    Row("erf", erf),
    Row("gelu", forward(activation.GELU()), low=-1e38),
    Row("gelu_tanh", forward(activation.GELU(approximate="tanh")), low=-1e12, high=1e12),
    Row("mish", lambda x: x * np.tanh(np.log1p(np.exp(np.minimum(x, 700)))), low=-87.3),
    Row("elu", forward(activation.ELU()), (1.0,)),
    Row("selu", forward(Unary(function="selu"))),
    Row("celu", lambda x: np.where(x > 0, x, ALPHA * np.expm1(single(x / ALPHA))), (ALPHA,)),
    Row("hardsigmoid", forward(Unary(function="hardsigmoid"))),
    Row("hardswish", forward(Unary(function="hardswish")), high=5e37),
    Row("softsign", forward(Unary(function="softsign"))),
    Row("sin", np.sin),
    Row("cos", np.cos),
    Row("tan", np.tan),
    Row("asin", np.arcsin),
    Row("acos", np.arccos),
    Row("atan", np.arctan),
    Row("sinh", np.sinh),
    Row("cosh", np.cosh),
    Row("asinh", np.arcsinh),
    Row("acosh", np.arccosh),
    Row("atanh", np.arctanh),
    Row("rsqrt", lambda x: 1 / np.sqrt(x)),
    Row("pow", np.power, operands=2),
    Row("atan2", np.arctan2, operands=2),
    Row("hypot", np.hypot, operands=2),
    Row("erfc", special.erfc),
    Row("erfinv", special.erfinv),
    Row("lgamma", special.lgamma),
    Row("quotient", lambda x: x / STEP, (STEP, 1 / STEP), low=1e-30, high=1e30),
)


def reference(name: str) -> Callable[..., Array]:
    return REFERENCE[name].evaluate  # type: ignore[return-value]


def registered(type: str) -> Callable[..., Array]:
    return registry[type].layer(**registry[type].presets).forward


def truth(type: str) -> Callable[..., Array]:
    return lambda *operands: registered(type)(*operands).astype(np.float32)


# Exact: the reference in float32 gives the same bits.
EXACT = (
    *(Row(name, reference(name)) for name in ("abs", "neg", "sign", "square", "ceil", "floor", "round", "trunc")),
    *(Row(name, reference(name)) for name in ("sqrt", "reciprocal")),
    *(Row(name, reference(name), operands=2) for name in ("add", "sub", "mul", "div")),
    *(Row(name, reference(name), operands=2) for name in ("fmod", "remainder", "floor_divide")),
    Row("max", reference("max"), operands=2),
    Row("min", reference("min"), operands=2),
    Row("cube", lambda x: x * x * x),
    Row("frac", lambda x: x - np.trunc(x)),
    Row("fmax", np.fmax, operands=2),
    Row("fmin", np.fmin, operands=2),
    Row("copysign", np.copysign, operands=2),
    Row("heaviside", registered("torch.heaviside"), operands=2),
    *(Row(name, truth(f"torch.{name}"), operands=2) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(Row(name, truth(f"torch.{name}"), operands=2) for name in ("logical_and", "logical_or", "logical_xor")),
    *(Row(name, truth(f"torch.{name}")) for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")),
    *(Row(name, truth(f"torch.{name}")) for name in ("logical_not", "signbit")),
    Row("round_float16", lambda x: x.astype(np.float16).astype(np.float32)),
    Row("round_bfloat16", lambda x: x.astype(BFLOAT16).astype(np.float32)),
    Row("whole_sum", lambda x: x.view(np.int32).astype(np.float32)),
    Row("shifted_sum", lambda x, y: (x.view(np.int32) + y.view(np.int32)).astype(np.float32), operands=2),
    Row("code", lambda x: ((x + ROUNDER) - ROUNDER) + np.float32(7), (7.0,)),
    Row("limit", lambda x: np.where(x > -2, np.where(x < 3, x, np.float32(3)), np.float32(-2)), (-2.0, 3.0)),
    Row("relu", forward(piecewise.ReLU())),
    Row("relu6", forward(piecewise.Hardtanh(min_val=0.0, max_val=6.0))),
    Row("clip", forward(piecewise.Hardtanh(min_val=-0.75, max_val=2.0)), (-0.75, 2.0)),
    Row("leaky_relu", lambda x: np.where(x > 0, x, np.float32(0.1) * x), (0.1,)),
    Row("prelu", lambda x, w: np.where(x > 0, x, w * x), operands=2),
    Row("threshold", forward(piecewise.Threshold(threshold=0.5, value=-2.0)), (0.5, -2.0)),
    Row("hardshrink", forward(piecewise.Hardshrink(lambd=0.5)), (0.5,)),
    Row("softshrink", forward(piecewise.Softshrink(lambd=0.5)), (0.5,)),
    Row("where", lambda c, a, b: np.where(c != 0, a, b), operands=3),
    Row("lerp", ternary.between, operands=3),
    Row("addcmul", forward(ternary.AddCMul()), operands=4),
    Row("addcdiv", forward(ternary.AddCDiv()), operands=4),
)


def _xlogy(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y))


# Near 0, where terms cancel, only the absolute error is small; or the result has the error of its parts.
DERIVED = (
    Row("logaddexp", np.logaddexp, operands=2, scale=lambda a, b: 1 + np.maximum(np.abs(a), np.abs(b))),
    Row("xlogy", _xlogy, operands=2, scale=lambda x, y: np.abs(_xlogy(x, y))),
    Row("tanhshrink", lambda x: x - np.tanh(x)),
    Row("fma", lambda a, b, c: a * b + c, operands=3, scale=lambda a, b, c: np.abs(a * b) + np.abs(c)),
)
ROWS = (*APPROXIMATED, *EXACT, *DERIVED)
every_level = pytest.mark.parametrize("level", LEVELS)
# Each function has different code at each level: the copy keeps conftest.py from skipping any.
really_every_level = pytest.mark.parametrize("level", [*LEVELS])


def rows(table: tuple[Row, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", table, ids=lambda row: row.id)


def kernel_of(row: Row, length: int, host: Host) -> Map:
    operands = [Operand(k) for k in range(row.operands)]
    tree = apply(row.name, *operands, *map(Number, row.constants))
    return make_map((length,), (1,), [(1,)] * row.operands, tree, host)


def computed(row: Row, level: str, operands: tuple[Array, ...], lanes: int | None = None) -> Array:
    result = np.empty_like(operands[0])
    host = describe(level)
    kernel = kernel_of(row, result.size, replace(host, lanes=lanes or host.lanes))
    run(kernel, level, [result, *operands])
    return result


@lru_cache(maxsize=8)
def operands_of(count: int, n_random: int = 100_000) -> tuple[Array, ...]:
    """Return random bits, numbers of usual sizes, and special values, in all combinations."""
    rng = np.random.default_rng(count)
    special = [each.ravel() for each in np.meshgrid(*[SPECIAL] * min(count, 2))]
    columns = []
    for k in range(count):
        bits = rng.integers(0, 2**32, n_random, dtype=np.uint32).view(np.float32)
        usual = [rng.uniform(-high, high, n_random // 2) for high in (1e-3, 1.1, 10, 100, 1e5)]
        wide = np.exp(rng.uniform(-85, 85, n_random // 2))
        numbers = np.concatenate([*usual, wide]).astype(np.float32)
        columns.append(np.concatenate([special[k % len(special)], bits, numbers]))
    return tuple(columns)


def within(row: Row, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    outside = (operands[0] < row.low) | (operands[0] > row.high)
    return tuple(each[~outside].copy() for each in operands)


def exact(row: Row, operands: tuple[Array, ...]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(row.oracle(*(each.astype(np.float64) for each in operands)))


def errors(found: Array, true: Array) -> Array:
    """Return errors in units of the last place of the true value; for subnormal numbers these are 2**-149."""
    with np.errstate(all="ignore"):
        rounded = true.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs(found.astype(np.float64) - true) / unit
    agrees = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(agrees, 0, np.where(np.isnan(error), INF, error))


def claimed(name: str, unit: str) -> float | None:
    found = re.search(rf"within ([\d.e-]+) {unit}", (FUNCTIONS[name].__doc__ or "").replace("\n", " "))
    return float(found[1]) if found else None


def test_every_function_has_a_row() -> None:
    assert {row.name for row in ROWS} == set(FUNCTIONS)
    assert set(COSTS) <= set(FUNCTIONS)


@really_every_level
@rows(APPROXIMATED)
def test_the_error_is_what_the_docstring_says(row: Row, level: str) -> None:
    operands = within(row, operands_of(row.operands))
    found, true = computed(row, level, operands), exact(row, operands)
    ulp, relative = claimed(row.name, "ulp"), claimed(row.name, r"\|x\|")
    if ulp is not None:
        error, bound = errors(found, true), ulp
    else:
        assert relative is not None
        with np.errstate(all="ignore"):
            error, bound = np.abs(found - true) / np.maximum(np.abs(operands[0]), 1e-37), relative
        error = np.where((found == true) | (np.isnan(found) & np.isnan(true)), 0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (error[worst], [each[worst] for each in operands], found[worst], true[worst])


@really_every_level
@rows(EXACT)
def test_exact_functions_give_the_references_bits(row: Row, level: str) -> None:
    operands = operands_of(row.operands)
    with np.errstate(all="ignore"):
        expected = np.asarray(row.oracle(*operands))
    assert expected.dtype == np.float32
    found = computed(row, level, operands)
    np.testing.assert_array_equal(found, expected)
    if row.name not in ("max", "min", "fmax", "fmin", "relu", "relu6", "clip", "softshrink", "sign", "lerp"):
        signed = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[signed]), np.signbit(expected[signed]))


@really_every_level
@rows(DERIVED)
def test_composed_functions_are_close(row: Row, level: str) -> None:
    operands = operands_of(row.operands)
    found, true = computed(row, level, operands), exact(row, operands)
    with np.errstate(all="ignore"):
        size = exact(replace(row, oracle=row.scale), operands)
        close = np.abs(found - true) <= 3e-7 * size + 1e-44
        overflows = np.isinf(found) & (np.abs(size) > 3.4e38)
    assert np.all(close | overflows | (found == true) | (np.isnan(found) & np.isnan(true)))


@every_level
@rows(ROWS)
def test_every_width_gives_the_same(row: Row, level: str) -> None:
    operands = tuple(each[:1003].copy() for each in operands_of(row.operands))
    expected, whole = computed(row, level, operands), describe(level).lanes
    # Vector widths for elements of twice the size, and at the end of a row; generators emit no wider ones.
    for lanes in (1, 4, 8):
        if lanes < whole:
            np.testing.assert_array_equal(computed(row, level, operands, lanes), expected)


@really_every_level
@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "expm1", "log1p", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str, level: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    zeros = np.array([0.0, -0.0], np.float32)
    assert np.signbit(computed(row, level, (zeros,))).tolist() == [False, True]


@really_every_level
@pytest.mark.parametrize("name", ["sigmoid", "silu", "mish", "gelu"])
def test_tails_fade_as_pytorchs(name: str, level: str) -> None:
    layer: Layer = activation.GELU() if name == "gelu" else Unary(function=name)
    row = next(row for row in ROWS if row.name == name)
    x: Array = np.array([-87.5, -88, -88.7, -88.8, -95, -104, -1e4, -3e38, -INF, 88.8, 3e38, INF], np.float32)
    with np.errstate(all="ignore"):
        expected = layer.forward(x)
    np.testing.assert_allclose(computed(row, level, (x,)), expected, rtol=1e-6, atol=1e-36)


@every_level
def test_hardswish_overflows_where_pytorchs_product_does(level: str) -> None:
    row = next(row for row in ROWS if row.name == "hardswish")
    x: Array = np.array([5.6e37, 5.7e37, 3e38, INF, -3e38], np.float32)
    largest = np.float32(5.6e37)
    np.testing.assert_allclose(computed(row, level, (x,)), [largest, INF, INF, INF, 0], rtol=1e-6)


@really_every_level
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size_are_reduced_exactly(name: str, level: str) -> None:
    """Include the angles nearest to multiples of pi / 2 for each exponent."""
    row = next(row for row in ROWS if row.name == name)
    mantissas = np.random.default_rng(0).integers(2**23, 2**24, (105, 100))
    angles = np.ldexp(mantissas.astype(np.float64), np.arange(105)[:, None] - 1)
    near = np.ldexp([16367173.0, 16_052_895, 9_423_517, 16_367_173, 8_419_071], [72, 72, 72, 0, 20])
    edges = [np.nextafter(np.float32(2.0**n), np.float32(way)) for n in (28, 54, 79, 104) for way in (0, INF)]
    x: Array = np.float32([*angles.reshape(-1), *near, *edges, 3.4e38, 2.0**28])
    x = np.concatenate([x, -x])
    with np.errstate(all="ignore"):
        true = getattr(np, name)(x.astype(np.float64))
    assert errors(computed(row, level, (x,)), true).max() <= (claimed(name, "ulp") or 0)


@every_level
def test_what_is_no_angle_has_no_sine(level: str) -> None:
    row = next(row for row in ROWS if row.name == "sin")
    assert np.isnan(computed(row, level, (np.float32([INF, -INF, np.nan, 1]),))).tolist() == [True, True, True, False]


@pytest.mark.parametrize("level", ["avx512", "avx2", "sse", "neon"])
def test_nothing_outside_is_called(level: str) -> None:
    host = describe(level)
    for lanes in {1, 4, host.lanes}:
        module = Module()
        for row in ROWS:
            kernel_of(row, 1003, replace(host, lanes=lanes)).emit(module)
        assert undefined_symbols(assemble(str(module), host)) == []


def undefined_symbols(code: bytes) -> list[str]:
    """Return the undefined symbols of an ELF file: entries of 24 bytes, section number at byte 6, 0 if undefined."""
    sections = {each.name(): each.data() for each in llvm.ObjectFileRef.from_data(code).sections()}
    names = sections[b".strtab" if b".strtab" in sections else ".strtab"]
    symbols = sections[b".symtab" if b".symtab" in sections else ".symtab"]
    found = []
    for start in range(24, len(symbols), 24):
        name, section = struct.unpack_from("<IxxH", symbols, start)
        if not section:
            found.append(names[name : names.index(b"\0", name)].decode())
    return found
