"""Print the coefficients of engine/special.py (needs mpmath): Chebyshev interpolants, and one rational for float32.

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


def rational_erf() -> tuple[np.ndarray, np.ndarray]:
    """P and Q with erf(x) = x P(x*x) / Q(x*x) for |x| <= 4 to 2.5e-8, by reweighted linear least squares."""
    x = 2 - 2 * np.cos(np.pi * np.arange(1, 800) / 800)
    s, f = x * x / 16, np.array([float(mp.erf(v) / v) for v in x])
    q, weight, best = np.ones_like(s), np.ones_like(s), (np.inf, s, s)
    for _ in range(60):
        w = np.sqrt(weight) / (q * f)
        columns = np.concatenate([s[:, None] ** np.arange(6), -f[:, None] * s[:, None] ** np.arange(1, 6)], 1)
        scale = np.linalg.norm(columns * w[:, None], axis=0)
        solution = np.linalg.lstsq(columns * w[:, None] / scale, f * w, rcond=None)[0] / scale
        upper, lower = solution[:6], np.concatenate([[1.0], solution[6:]])
        q = np.polyval(lower[::-1], s)
        error = np.abs(np.polyval(upper[::-1], s) / q / f - 1)
        best = min(best, (error.max(), upper, lower), key=lambda candidate: candidate[0])
        weight = weight * (error / error.max() + 1e-3)
        weight /= weight.sum()
    return best[1] / 16.0 ** np.arange(6), best[2] / 16.0 ** np.arange(6)


def show(name: str, coefficients: list[mp.mpf] | np.ndarray) -> None:
    print(name, *(f"    {float(value)!r}," for value in reversed(list(coefficients))), sep="\n")


if __name__ == "__main__":
    upper, lower = rational_erf()
    show("_ERF_P32, highest power first", upper)
    show("_ERF_Q32", lower)
    show("_ERF, in 2z - 1", interpolant(erf_over_x, 0, 1, 13))
    show("_ERFC", interpolant(scaled_erfc, -1, 1, 25))
    show("_LGAMMA, in 2x - 3", interpolant(lgamma_quotient, 1, 2, 21))
