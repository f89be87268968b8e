"""Functions numpy does not have: erf, gelu, erfc, erfinv, lgamma, digamma.

Every function takes an array of any real dtype and keeps its shape. The error in float64 is about 1e-14 (relative; near
the zeros of lgamma and digamma away from 1 and 2, absolute). Other dtypes are computed in float64 and rounded, except
erf and gelu in float32 and below, on a network's hot path, which stay in float32: 4e-7, of 1 + erf in gelu. Integers
and bools give float32. NaN stays NaN; no function warns.

Source: own Chebyshev interpolants and fit (tests/data/expression/fit_special.py), Stirling's series.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeAlias

import numpy as np

from engine.tensor import BFLOAT16, Array, DType

Coefficients: TypeAlias = tuple[float, ...]  # highest power first
Function: TypeAlias = Callable[[Array], Array]

# erf(x) = tanh(x P(x*x)) to 1e-7. P only grows where erf is 1 in float32, so no argument is too large.
_ERF_TANH: Final[Coefficients] = (
    1.418504350552318e-07, -5.668443058192664e-06, 8.763711854461592e-05, -0.000619784073900732,
    -0.00019183152074460906, 0.1027690561298273, 1.1283792742664638,
)  # fmt: skip
# The same for erf(x / sqrt(2)).
_NORMAL_TANH: Final[Coefficients] = tuple(
    coefficient / 2 ** (power + 0.5) for power, coefficient in zip(range(6, -1, -1), _ERF_TANH, strict=True)
)
# erf(x) / x in 2z - 1, z = x*x, for |x| <= 1.
ERF: Final[Coefficients] = (
    1.4543887079465116e-14, -3.8078824063194953e-13, 9.167619596865806e-12, -2.035228405815769e-10,
    4.115800583208149e-09, -7.511569286591727e-08, 1.223382738359897e-06, -1.7537169441124866e-05,
    0.00021751715604159932, -0.0022854855611441132, 0.019852496688983708, -0.1405360890227171, 0.9654687386698673,
)  # fmt: skip
# (1 + 2x) exp(x*x) erfc(x) in (x - 3.75) / (x + 3.75), for x >= 0.
ERFC: Final[Coefficients] = (
    4.434959070009628e-10, 3.110310719839165e-10, -5.28428697963142e-09, -3.743568033634583e-09,
    3.8965452548985966e-08, 2.3261913276696566e-08, -2.591069687796658e-07, -5.721597255990987e-08,
    1.752057970166318e-06, -9.735619015182663e-07, -1.1444412439171722e-05, 2.2384240314224437e-05,
    5.1649211390702855e-05, -0.0002901540809795271, 0.0002937136342850081, 0.0017556258530017257,
    -0.009746579552504244, 0.028362277418940665, -0.058693398590212366, 0.09230432116037876, -0.10880393014171785,
    0.08227673849014516, 0.003585415485463775, -0.14024059858554697, 1.2375126308378275,
)  # fmt: skip
# erfinv(y) / y in w / 2.5 - 1, w = -log(1 - y*y) <= 5.
ERFINV: Final[Coefficients] = (
    4.455502041853586e-06, -3.333668023235368e-05, 2.4390115560760592e-05, 0.0002840682437147928,
    -0.0008357945005424916, -0.00048434490177890003, 0.00852569234233724, -0.01957419535690098, -0.02610825025337576,
    0.6166007235686378, 1.501409351110792,
)  # fmt: skip
# The same in sqrt(w) / 2 - 2.1, for the larger w of float64.
ERFINV_TAIL: Final[Coefficients] = (
    -0.00032907369458776343, 4.551131202283439e-05, 0.0018593266574727385, -0.0014918925847785566,
    -0.002362854660077148, 0.003530030808837686, -0.0015101300375312619, 0.001062912550118251, -0.0017806930940958276,
    0.0018826713971651947, -0.00227393624842252, 0.003638684935059255, -0.005216781617248656, 0.0032301280520317106,
    2.0198046759047448, 4.041726358611006,
)  # fmt: skip
# lgamma(x) / ((x - 1)(x - 2)) in 2x - 3, for 1 <= x <= 2.
LGAMMA: Final[Coefficients] = (
    1.1273354955165048e-11, -3.533898162275879e-11, 5.18198984494436e-11, -1.6393816009998903e-10,
    6.533268528434416e-10, -2.0732827842398214e-09, 6.434152357291201e-09, -2.057761163373013e-08,
    6.623601939725099e-08, -2.138843561161159e-07, 6.948440187550096e-07, -2.274240971132041e-06,
    7.5113915317296576e-06, -2.509432984849446e-05, 8.510090378468051e-05, -0.0002945507014009265,
    0.0010498186644508718, -0.003913560937631659, 0.01572785026864121, -0.07297994795715297, 0.4831289505409809,
)  # fmt: skip
# Stirling's series for lgamma and digamma, in 1 / x**2.
STIRLING: Final[Coefficients] = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
STIRLING_SLOPE: Final[Coefficients] = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
STIRLING_FROM: Final = 12.0  # the first argument for which six terms reach 1e-16

_BLOCK_BYTES: Final = 1 << 18  # bytes of one array; gelu of 8 million float32 takes half the time it takes as a whole
_FLOATS: Final[tuple[DType, ...]] = (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64))


def _blockwise(working: type[np.floating[Any]]) -> Callable[[Function], Function]:
    """Return a decorator that computes in a working dtype, by blocks that fit the cache; the dtype of results stays."""

    def decorate(compute: Function) -> Function:
        @wraps(compute)
        def function(x: Array) -> Array:
            x = np.asarray(x)
            flat = x.reshape(-1)
            result = np.empty(flat.shape, x.dtype if x.dtype in _FLOATS else np.float32)
            length = _BLOCK_BYTES // np.dtype(working).itemsize
            with np.errstate(all="ignore"):
                for start in range(0, flat.size, length):
                    block = slice(start, start + length)
                    result[block] = compute(flat[block].astype(working, copy=False))
            return result.reshape(x.shape)

        return function

    return decorate


def erf(x: Array) -> Array:
    """Compute the error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return _erf64(x) if np.asarray(x).dtype == np.float64 else _erf32(x)


@_blockwise(np.float32)
def _erf32(x: Array) -> Array:
    return _odd_tanh(_ERF_TANH, x)


def gelu(x: Array) -> Array:
    """Compute x times the probability that a standard normal variable is below x: x (1 + erf(x / sqrt(2))) / 2."""
    return _gelu64(x) if np.asarray(x).dtype == np.float64 else _gelu32(x)


@_blockwise(np.float32)
def _gelu32(x: Array) -> Array:
    result = _odd_tanh(_NORMAL_TANH, x)
    result += np.float32(1)
    result *= x * np.float32(0.5)
    return result


@_blockwise(np.float64)
def _gelu64(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf64(x * math.sqrt(0.5))))


def _odd_tanh(coefficients: Coefficients, x: Array) -> Array:
    """Compute tanh(x P(x*x)) as a new array."""
    result = _polynomial(coefficients, x * x)
    result *= x
    np.tanh(result, out=result)
    return result


@_blockwise(np.float64)
def _erf64(x: Array) -> Array:
    magnitude = np.abs(x)
    small = _polynomial(ERF, np.minimum(2 * x * x - 1, 1)) * x
    return np.where(magnitude < 1, small, np.copysign(1 - _erfc_positive(magnitude), x))


@_blockwise(np.float64)
def erfc(x: Array) -> Array:
    """Compute 1 - erf(x) without cancellation: relatively exact for large x."""
    small = 1 - _polynomial(ERF, np.minimum(2 * x * x - 1, 1)) * x
    large = _erfc_positive(np.abs(x))
    return np.where(np.abs(x) < 0.5, small, np.where(x < 0, 2 - large, large))


def _erfc_positive(x: Array) -> Array:
    """Compute erfc for x >= 0."""
    x = np.minimum(x, 30.0)  # erfc(30) is 0 in float64
    head = x.astype(np.float32).astype(np.float64)  # head*head is exact, so exp loses nothing to a large square
    gauss = np.exp(-head * head) * np.exp((head - x) * (head + x))
    return np.asarray(gauss * _polynomial(ERFC, (x - 3.75) / (x + 3.75)) / (1 + 2 * x))


def erfinv(y: Array) -> Array:
    """Compute the x with erf(x) = y: infinite at -1 and 1, NaN beyond."""
    return _erfinv64(y) if np.asarray(y).dtype == np.float64 else _erfinv32(y)


@_blockwise(np.float64)
def _erfinv32(y: Array) -> Array:
    return _with_ends(_near_erfinv(np.abs(y)), y)


@_blockwise(np.float64)
def _erfinv64(y: Array) -> Array:
    magnitude = np.abs(y)
    x = _near_erfinv(magnitude)
    # Halley's step, which cubes the error.
    residual = np.where(magnitude < 0.5, _erf64(x) - magnitude, (1 - magnitude) - _erfc_positive(x))
    step = residual * (math.sqrt(math.pi) / 2) * np.exp(x * x)
    return _with_ends(x - step / (1 + x * step), y)


def _near_erfinv(y: Array) -> Array:
    """Compute erfinv to 1e-8, for 0 <= y < 1."""
    w = -np.log((1 - y) * (1 + y))
    quotient = _polynomial(ERFINV, w / 2.5 - 1)
    tail = w > 5
    if tail.any():
        quotient[tail] = _polynomial(ERFINV_TAIL, np.sqrt(w[tail]) / 2 - 2.1)
    return np.asarray(y * quotient)


def _with_ends(x: Array, y: Array) -> Array:
    """Compute erfinv from its values for |y|, and at the ends of its domain."""
    magnitude = np.abs(y)
    x = np.where(magnitude == 1, np.inf, np.where(magnitude > 1, np.nan, x))
    return np.copysign(x, y)


@_blockwise(np.float64)
def lgamma(x: Array) -> Array:
    """Compute log(|gamma(x)|): infinite at 0 and the negative integers."""
    magnitude = np.abs(x)
    positive = _lgamma_positive(np.where(magnitude == 0, 1, magnitude))
    reflected = math.log(math.pi) - np.log(np.abs(_sin_pi(magnitude))) - np.log(magnitude) - positive
    result = np.where(x > 0, positive, reflected)
    return np.where((x <= 0) & (x == np.floor(x)), np.inf, result)


def _lgamma_positive(x: Array) -> Array:
    """Compute lgamma by Stirling's series for large x; smaller x are shifted into 1 to 2, where a polynomial is exact.

    lgamma(x) = lgamma(x + 1) - log(x).
    """
    inverse = 1 / np.maximum(x, STIRLING_FROM)
    large = (x - 0.5) * (np.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5)
    large += inverse * _polynomial(STIRLING, inverse * inverse)
    moved = np.minimum(x, STIRLING_FROM)
    factor = np.ones_like(moved)
    for _ in range(int(STIRLING_FROM) - 2):
        factor = np.where(moved > 2, factor * (moved - 1), factor)
        moved = np.where(moved > 2, moved - 1, moved)
    below = moved < 1
    base = np.where(below, moved + 1, moved)
    # From x itself: x + 1 is rounded, and the distance to the zero at 1 is what counts.
    zeros = np.where(below, moved * (moved - 1), (moved - 1) * (moved - 2))
    small = zeros * _polynomial(LGAMMA, 2 * base - 3) + np.where(below, -np.log(moved), np.log(factor))
    return np.asarray(np.where(x < STIRLING_FROM, small, large))


@_blockwise(np.float64)
def digamma(x: Array) -> Array:
    """Compute the slope of lgamma: infinite at 0, NaN at the negative integers."""
    positive = np.where(x < 0, 1 - x, x)
    moved, shift = positive, np.zeros_like(x)
    for _ in range(int(STIRLING_FROM)):  # digamma(x) = digamma(x + 1) - 1/x
        small = moved < STIRLING_FROM
        shift = np.where(small, shift + 1 / moved, shift)
        moved = np.where(small, moved + 1, moved)
    inverse = 1 / moved
    square = inverse * inverse
    result = np.log(moved) - 0.5 * inverse - square * _polynomial(STIRLING_SLOPE, square) - shift
    reflected = result - math.pi * _cos_pi(x) / _sin_pi(x)
    result = np.where(x < 0, np.where(x == np.floor(x), np.nan, reflected), result)
    return np.where(x == 0, np.copysign(np.inf, -x), result)


def _sin_pi(x: Array) -> Array:
    """Compute sin(pi x), exactly 0 at the integers."""
    part = np.mod(np.abs(x), 2)
    folded = np.where(part > 1, part - 1, part)  # sin(pi (p + 1)) = -sin(pi p)
    sine = np.sin(math.pi * np.minimum(folded, 1 - folded))
    return np.asarray(np.where((part > 1) ^ (x < 0), -sine, sine))


def _cos_pi(x: Array) -> Array:
    return _sin_pi(np.abs(x) + 0.5)


def _polynomial(coefficients: Coefficients, x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule in the dtype of x, in one array."""
    first, second, *others = map(x.dtype.type, coefficients)
    result: Array = x * first
    result += second
    for coefficient in others:
        result *= x
        result += coefficient
    return result
