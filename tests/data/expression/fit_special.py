"""Print the coefficients of engine/special.py (needs mpmath): Chebyshev interpolants, and one fit for float32.

python fit_special.py
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Real = Callable[[mp.mpf], mp.mpf]


def interpolant(f: Real, low: float, high: float, terms: int) -> list[mp.mpf]:
    """Coefficients, lowest power first, in u = (2t - low - high) / (high - low)."""
    angles = [mp.pi * (2 * k + 1) / (2 * terms) for k in range(terms)]
    values = [f(((high - low) * mp.cos(angle) + low + high) / 2) for angle in angles]
    series = [2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / terms for j in range(terms)]
    series[0] /= 2
    return powers(series)


def powers(series: list[mp.mpf]) -> list[mp.mpf]:
    """A Chebyshev series as a polynomial."""
    total = [mp.mpf(0)] * len(series)
    before, now = [mp.mpf(0)], [mp.mpf(1)]
    for j, coefficient in enumerate(series):
        total = [t + coefficient * (now[i] if i < len(now) else 0) for i, t in enumerate(total)]
        shifted = [mp.mpf(0)] + [(1 if j == 0 else 2) * value for value in now]
        padded = before + [mp.mpf(0)] * (len(shifted) - len(before))
        before, now = now, [s - p if j else s for s, p in zip(shifted, padded, strict=True)]
    return total


def erf_over_x(z: mp.mpf) -> mp.mpf:
    """erf(x) / x in z = x * x."""
    return 2 / mp.sqrt(mp.pi) if z == 0 else mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    """(1 + 2x) exp(x*x) erfc(x) in t = (x - 3.75) / (x + 3.75)."""
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    if x < 25:
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)
    terms = [mp.mpf(1)]
    for m in range(1, 40):
        terms.append(-terms[-1] * (2 * m - 1) / (2 * x * x))
    return (1 + 2 * x) * mp.fsum(terms) / (x * mp.sqrt(mp.pi))


def lgamma_quotient(x: mp.mpf) -> mp.mpf:
    """lgamma(x) / ((x - 1) (x - 2)), which has no zero between 1 and 2."""
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def erfinv_over_y(w: mp.mpf) -> mp.mpf:
    """erfinv(y) / y in w = -log(1 - y*y)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    y = mp.sqrt(1 - mp.exp(-w))
    return mp.erfinv(y) / y


def erf_as_tanh(degree: int = 6, limit: float = 3.2) -> np.ndarray:
    """P, lowest power first, with erf(x) = tanh(x P(x*x)) to 1e-7, by reweighted linear least squares.

    Where erf nears 1 tanh forgives much, so that the fit may end at ``limit``; its leading coefficient must be positive
    for the tanh to stay at 1 beyond.
    """
    x = limit / 2 * (1 - np.cos(np.pi * np.arange(1, 1200) / 1200))
    erf, erfc = (np.array([float(f(v)) for v in x]) for f in (mp.erf, mp.erfc))
    target = np.array([float(mp.atanh(mp.erf(v)) / v) for v in x])
    slope = x * erfc * (1 + erf) / erf  # relative error of erf for an error of P
    columns = (x * x / limit**2)[:, None] ** np.arange(degree + 1)
    weight, best = np.ones_like(x), (np.inf, x)
    for _ in range(600):
        w = np.sqrt(weight) * slope
        scale = np.linalg.norm(columns * w[:, None], axis=0)
        solution = np.linalg.lstsq(columns * w[:, None] / scale, target * w, rcond=None)[0] / scale
        error = np.abs(columns @ solution - target) * slope
        best = min(best, (error.max(), solution), key=lambda candidate: candidate[0])
        weight = weight * (error / error.max() + 1e-3)
        weight /= weight.sum()
    return best[1] / limit ** (2 * np.arange(degree + 1))


def show(name: str, coefficients: list[mp.mpf] | np.ndarray) -> None:
    print(name, *(f"    {float(value)!r}," for value in reversed(list(coefficients))), sep="\n")


if __name__ == "__main__":
    show("ERF_TANH, highest power first", erf_as_tanh())
    show("ERF, in 2z - 1", interpolant(erf_over_x, 0, 1, 13))
    show("ERFC", interpolant(scaled_erfc, -1, 1, 25))
    show("ERFINV, in w / 2.5 - 1", interpolant(erfinv_over_y, 0, 5, 11))
    low, high = mp.mpf("2.2"), mp.mpf("6.2")  # of sqrt(w): from a little below sqrt(5) to the last y before 1
    show("ERFINV_TAIL, in sqrt(w) / 2 - 2.1", interpolant(lambda s: erfinv_over_y(s * s), low, high, 16))
    show("LGAMMA, in 2x - 3", interpolant(lgamma_quotient, 1, 2, 21))
