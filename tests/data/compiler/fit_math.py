"""Print the coefficients of engine/compiler/kernels: minimax polynomials in float32, and one rational (a minute).

python fit_math.py

A polynomial is fitted by Lawson's algorithm: least squares, weights multiplied by the error until it is level. Its
coefficients are rounded one after the other, lowest power first, and the others fitted again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.special import erf, erfc

Real = Callable[[np.ndarray], np.ndarray]
Term = tuple[float, int]
POINTS = 1200


def lawson(matrix: np.ndarray, target: np.ndarray, turns: int = 60) -> tuple[np.ndarray, float]:
    """The c with the least maximum of |matrix @ c - target|, and that maximum."""
    weight, best = np.ones(len(target)), (matrix[0], np.inf)
    for _ in range(turns):
        root = np.sqrt(weight)
        scale = np.linalg.norm(matrix * root[:, None], axis=0)
        solution = np.linalg.lstsq(matrix * root[:, None] / scale, target * root, rcond=None)[0] / scale
        error = np.abs(matrix @ solution - target)
        best = min(best, (solution, error.max()), key=lambda candidate: candidate[1])
        weight = weight * (error / error.max() + 1e-6)
        weight /= weight.sum()
    return best


def polynomial(
    f: Real,
    measure: Real,
    low: float,
    high: float,
    powers: Sequence[int],
    fixed: Sequence[Term] = (),
    dtype: type[np.floating] = np.float32,
) -> tuple[list[float], float]:
    """Coefficients of the powers, so that with the fixed terms they give f; the error is relative to measure."""
    x = ((high + low) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)).astype(np.longdouble)
    rest, size = f(x) - sum(np.longdouble(c) * x**k for c, k in fixed), np.abs(measure(x))
    rounded = []
    for place in range(len(powers)):
        matrix = np.stack([x**k / size for k in powers[place:]], 1).astype(float)
        solution, _ = lawson(matrix, (rest / size).astype(float))
        rounded.append(float(dtype(solution[0])))
        rest = rest - np.longdouble(rounded[-1]) * x ** powers[place]
    return rounded, float(np.abs(rest / size).max())


def show(name: str, fit: tuple[list[float], float]) -> None:
    coefficients, error = fit
    print(f"{name}, highest power first: {error:.1e}")
    print("   ", *(f"{each!r}," for each in reversed(coefficients)))


def show_logarithm(name: str, base: float) -> None:
    """log(1 + f) = f log_b(e) + f**2 P(f), f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    factor = 1 / np.log(np.longdouble(base))

    def rest(x: np.ndarray) -> np.ndarray:
        return (np.log1p(x) - x) / (x * x) * factor

    show(name, polynomial(rest, lambda x: np.log1p(x) / (x * x) * factor, 0.5**0.5 - 1, 2**0.5 - 1, range(9)))


def in_square(f: Real) -> Real:
    """A function of x as one of z = x * x."""
    return lambda z: f(np.sqrt(z))


def show_in_square(name: str, f: Real, remainder: Real, low: float, high: float, terms: int) -> None:
    """The remainder of f after its first terms, the error relative to f; x from low to high."""
    whole = in_square(lambda x: f(x) / x ** (4 if f is np.cos else 3))
    show(name, polynomial(in_square(remainder), whole, low * low, high * high, range(terms)))


def erf_exponent(x: np.ndarray) -> np.ndarray:
    """Return -log(erfc(x)) / x."""
    return np.asarray(-np.log(erfc(x.astype(float))) / x.astype(float), np.longdouble)


def binary_series(z: np.ndarray) -> np.ndarray:
    """log2(m) / s in z = s * s, s = (m - 1) / (m + 1)."""
    return 2 * np.arctanh(np.sqrt(z)) / np.sqrt(z) / np.log(np.longdouble(2))


def normal_fit(bound: float, degree: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """P and Q with erf(x / sqrt(2)) = x P(x * x) / Q(x * x): linear least squares with the last denominator."""
    x = bound * (1 - np.cos(np.pi * np.arange(1, 3000) / 3000))[:, None] / 2
    f, s = erf(x * np.sqrt(0.5)), (x / bound) ** 2
    weight, denominator, best = np.ones_like(x), np.ones_like(x), (np.inf, s, s)
    powers = np.arange(degree + 1)
    for _ in range(1000):
        row = np.sqrt(weight) / denominator
        matrix = np.concatenate([x * s**powers, -f * s ** powers[1:]], 1) * row
        scale = np.linalg.norm(matrix, axis=0)
        solution = np.linalg.lstsq(matrix / scale, (f * row)[:, 0], rcond=None)[0] / scale
        upper, lower = solution[: degree + 1], np.concatenate([[1.0], solution[degree + 1 :]])
        denominator = s**powers @ lower[:, None]
        error = np.abs(x * (s**powers @ upper[:, None]) / denominator - f)
        best = min(best, (error.max(), upper, lower), key=lambda candidate: candidate[0])
        weight = weight * (error / error.max() + 1e-3)
        weight /= weight.sum()
    return best[1] / bound ** (2 * powers), best[2] / bound ** (2 * powers)


def rational(upper: np.ndarray, lower: np.ndarray, x: np.ndarray, fused: bool) -> np.ndarray:
    """Return x P / Q as kernels compute it, with and without a fused multiply-add."""
    z = x * x

    def horner(coefficients: np.ndarray) -> np.ndarray:
        total = np.full_like(z, coefficients[-1])
        for each in coefficients[-2::-1]:
            total = (total.astype(float) * z + each).astype(np.float32) if fused else total * z + each
        return total

    return x * horner(upper) / horner(lower)


def normal_rational(bound: float = 5.5, least: float = 5.1, turns: int = 150) -> None:
    """The fit rounded to float32 in many ways; of those that are 1 to the bit at some x above ``least``, the best."""
    fit = normal_fit(bound)
    x = np.unique(
        np.concatenate([np.linspace(1e-3, bound, 40000), np.linspace(least, bound, 20000)]).astype(np.float32)
    )
    true, rng = erf(x.astype(float) * np.sqrt(0.5)), np.random.default_rng(1)
    best = (np.inf, *(each.astype(np.float32) for each in fit), 0.0)
    for turn in range(turns):
        factor = np.exp(rng.uniform(-0.5, 0.5))
        base = best[1:3] if turn % 3 == 0 and turn else [(each * factor).astype(np.float32) for each in fit]
        upper, lower = (each + np.spacing(each) * rng.integers(-2, 3, 6).astype(np.float32) for each in base)
        values = [rational(upper, lower, x, fused) for fused in (True, False)]
        error = np.maximum.accumulate(np.maximum(*(np.abs(value - true) for value in values)))
        ends = np.nonzero((values[0] == 1) & (values[1] == 1) & (x > least))[0]
        worst = np.maximum(error[ends], 1 - true[ends])
        if len(ends) and worst.min() < best[0]:
            best = (worst.min(), upper, lower, float(x[ends[worst.argmin()]]))
    print(f"erf(x / sqrt(2)) = x P / Q up to {best[3]!r}: {best[0]:.1e}")
    for name, coefficients in zip("PQ", best[1:3], strict=True):
        print(f"    {name}:", *(f"{float(each)!r}," for each in coefficients[::-1]))


def main() -> None:
    half, log2 = float(np.log(2) / 2) * 1.0002, np.log(np.longdouble(2))
    show("e**r", polynomial(np.exp, np.exp, -half, half, range(2, 7), [(1, 0), (1, 1)]))
    show("(e**r - 1 - r) / r**2", polynomial(
        lambda r: (np.expm1(r) - r) / (r * r), lambda r: np.expm1(r) / (r * r), -half, half, range(5)))  # fmt: skip
    two = (lambda r: np.exp(r * log2),) * 2
    show("2**r", polynomial(*two, -0.5001, 0.5001, range(1, 7), [(1, 0)]))
    show("2**r with a power less", polynomial(*two, -0.5, 0.5, range(1, 6), [(1, 0)]))
    show_logarithm("(log(1 + f) - f) / f**2", float(np.e))
    show_logarithm("(log2(1 + f) - f log2(e)) / f**2", 2)
    show_logarithm("(log10(1 + f) - f log10(e)) / f**2", 10)
    quarter = np.pi / 4 * 1.00005
    show_in_square("(sin(r) - r) / r**3 in r**2", np.sin, lambda r: (np.sin(r) - r) / r**3, 1e-2, quarter, 3)
    show_in_square(
        "(cos(r) - 1 + r**2 / 2) / r**4 in r**2", np.cos, lambda r: (np.cos(r) - 1 + r * r / 2) / r**4, 0.1, quarter, 3
    )
    show_in_square("(asin(x) - x) / x**3 in x**2", np.arcsin, lambda x: (np.arcsin(x) - x) / x**3, 1e-2, 0.5, 5)
    show_in_square("(atan(x) - x) / x**3 in x**2", np.arctan, lambda x: (np.arctan(x) - x) / x**3, 1e-2, 1, 8)
    show_in_square("(sinh(x) - x) / x**3 in x**2", np.sinh, lambda x: (np.sinh(x) - x) / x**3, 1e-2, 1, 3)
    show("-log(erfc(x)) / x, in erf(x)", polynomial(
        erf_exponent, lambda x: np.expm1(x * erf_exponent(x)) / x, 1e-3, 3.93, range(8)))  # fmt: skip
    most = ((2**0.5 - 1) / (2**0.5 + 1)) ** 2 * 1.0001
    show("log2(m) / s in s**2", polynomial(binary_series, binary_series, 1e-9, most, range(5), dtype=np.float64))
    normal_rational()


if __name__ == "__main__":
    main()
