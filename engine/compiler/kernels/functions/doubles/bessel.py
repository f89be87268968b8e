"""Modified Bessel function of order 0.

Source: Cephes' Chebyshev series, as in numpy's i0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import absolute, like, maximum, minimum
from engine.compiler.kernels.functions.exponential import exp

# e**-x i0(x) in x / 2 - 2 up to 8.
_NEAR: Final = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998,
    -0.02373741480589947, 0.04930528423967071, -0.09490109704804764, 0.17162090152220877, -0.3046826723431984,
    0.6767952744094761,
)  # fmt: skip
# e**-x sqrt(x) i0(x) in 32 / x - 2 from 8 on.
_FAR: Final = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943,
    0.8044904110141088,
)  # fmt: skip
_BOUND: Final = 8.0


def i0(f: Function, x: Value) -> Value:
    """Emit the modified Bessel function of order 0 with relative error 1e-15; infinite from 709.8 on."""
    x, bound, two = absolute(f, x), like(x, _BOUND), like(x, 2.0)
    near = _series(f, f.fsub(f.fmul(minimum(f, x, bound), like(x, 0.5)), two), _NEAR)
    large = maximum(f, x, bound)
    far = _series(f, f.fsub(f.fdiv(like(x, 32.0), large), two), _FAR)
    far = f.fdiv(far, f.intrinsic("sqrt", large))
    return f.fmul(exp(f, x), f.select(f.compare("ogt", x, bound), far, near))


def _series(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Emit a sum of Chebyshev polynomials of x / 2, by Clenshaw's rule."""
    zero = like(x, 0.0)
    before, last, this = zero, zero, like(x, coefficients[0])
    for each in coefficients[1:]:
        before, last = last, this
        this = f.fadd(f.fsub(f.fmul(x, last), before), like(x, each))
    return f.fmul(f.fsub(this, before), like(x, 0.5))
