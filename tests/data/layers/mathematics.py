"""Samples of element-wise mathematics outside expressions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from record import Sample

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[-300.0, -1.5, -0.3, -0.0], [0.0, 0.3, 2.5, 300.0]])
S = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0])
T = torch.tensor([2.0, -INF, NAN, INF, -1.0, 0.0])
POSITIVE = X.abs() + 0.1
UNIT = X / 400 + 0.5
INTS = torch.tensor([[7, -2, 3, 0], [200, -200, 2, 1]])
J = torch.tensor([3, 5, -2, 2])
HALF = (X / 100).half()
BF16 = (X / 100).to(torch.bfloat16)

UNARY = (
    "log2",
    "exp2",
    "frac",
    "erfc",
    "erfinv",
    "digamma",
    "sinc",
    "deg2rad",
    "rad2deg",
    "lgamma",
    "positive",
    "i0",
    "special_entr",
    "special_ndtr",
)


def unary(name: str) -> Callable[..., torch.Tensor]:
    function = getattr(torch, name, None) or getattr(torch.special, name.removeprefix("special_"))
    return lambda x: function(x)


SAMPLES = [
    Sample(
        "clamp",
        lambda x: (x.clamp(-1, 2), x.clamp(min=0.5), x.clamp(max=-0.1), x.clamp(2, -2), x.clamp(-INF, INF)),
        (X,),
    ),
    Sample("clamp_nan", lambda x: (x.clamp(-1, 1), x.clamp(min=0.0), x.clamp(NAN, 1.0)), (S,)),
    Sample(
        "clamp_tensor_bounds",
        lambda x, a, b: (x.clamp(a, b), x.clamp(min=a), x.clamp(max=b), torch.clamp(x, a.sum(), None)),
        (X, X[0] / 2, X[1]),
    ),
    Sample(
        "clamp_of_integers",
        lambda i: (i.clamp(0, 5), i.clamp(1.5), i.clamp(max=2.5), i.to(torch.uint8).clamp(2, 9)),
        (INTS,),
    ),
    Sample("clamp_half", lambda x, y: (x.clamp(0.1, 1.7), y.clamp(-0.3, 0.7)), (HALF, BF16)),
    Sample("clamp_min_max", lambda x: (x.clamp_min(0.5), x.clamp_max(1), torch.clip(x, -1, 1)), (X,)),
    *[
        Sample(
            name,
            unary(name),
            (X / 100 if name != "lgamma" else X,),
            [(UNIT,)],
            rtol=2e-5,
        )
        for name in UNARY
    ],
    Sample(
        "unary_of_integers",
        lambda i: (
            torch.log2(i),
            torch.exp2(i),
            torch.erfc(i),
            torch.deg2rad(i),
            torch.lgamma(i),
            torch.sinc(i),
            torch.positive(i),
        ),
        (J,),
    ),
    Sample(
        "unary_half",
        lambda x: (torch.log2(x), torch.exp2(x), torch.erfc(x), torch.frac(x), torch.deg2rad(x), torch.sinc(x)),
        (HALF,),
        rtol=1e-3,
    ),
    Sample(
        "unary_double",
        lambda x: (torch.log2(x), torch.exp2(x), torch.erfc(x), torch.frac(x), torch.lgamma(x), torch.digamma(x)),
        (X.double() / 10,),
        rtol=1e-12,
        atol=1e-12,
    ),
    Sample(
        "unary_special_values",
        lambda x: (
            torch.log2(x),
            torch.exp2(x),
            torch.erfc(x),
            torch.frac(x),
            torch.erfinv(x),
            torch.lgamma(x),
            torch.digamma(x),
            torch.sinc(x),
        ),
        (S,),
    ),
    Sample(
        "logit",
        lambda x: (torch.logit(x), torch.logit(x, 0.1)),
        (UNIT,),
        [(torch.tensor([[0.0, 1.0, -1.0, NAN], [2.0, 0.5, 1e-7, 0.9]]),)],
        rtol=2e-5,
    ),
    Sample("sgn_angle", lambda x, c: (x.sgn(), c.sgn(), x.angle(), c.angle()), (S, torch.complex(S, T)[3:])),
    Sample("angle_int", lambda i: i.angle(), (INTS,)),
    Sample("nan_to_num", lambda x: (x.nan_to_num(), x.nan_to_num(1.0, 2.0, -3.0), x.nan_to_num(nan=5.0)), (S,)),
    Sample("nan_to_num_types", lambda i, h: (i.nan_to_num(), h.nan_to_num()), (INTS, S.half())),
    Sample("nan_to_num_double", lambda x: x.nan_to_num(), (S.double(),)),
    Sample(
        "binary",
        lambda x, y: (
            torch.hypot(x, y),
            torch.copysign(x, y),
            torch.xlogy(x, y),
            torch.heaviside(x, y),
            torch.ldexp(x, y),
            torch.logaddexp2(x, y),
            torch.special.xlog1py(x, y),
        ),
        (S, T),
    ),
    Sample(
        "binary_numbers",
        lambda x: (torch.copysign(x, -2), torch.xlogy(x, 2.0), torch.xlogy(2, x), torch.special.xlog1py(x, 0.5)),
        (X,),
    ),
    Sample(
        "binary_of_integers",
        lambda i, j: (
            torch.copysign(i, j),
            torch.xlogy(i, j.abs()),
            torch.heaviside(i, j),
            torch.gcd(i, j),
            torch.lcm(i, j),
            torch.ldexp(i, j),
        ),
        (INTS, J),
    ),
    Sample(
        "float_power",
        lambda x, i, e: (
            torch.float_power(x, 2),
            torch.float_power(i, e),
            torch.float_power(2, x),
            torch.float_power(x, e),
        ),
        (X / 100, INTS[0], torch.tensor([2.0, 0.5, -1.0, 3.0])),
    ),
    Sample(
        "lerp", lambda x, y, w: (torch.lerp(x, y, 0.3), torch.lerp(x, y, w), torch.lerp(x, y, 0.8)), (X, X[1], UNIT)
    ),
    Sample(
        "addcmul_addcdiv",
        lambda x, y, z: (
            torch.addcmul(x, y, z),
            torch.addcmul(x, y, z, value=0.5),
            torch.addcdiv(x, y, z),
            torch.addcdiv(x, y, z, value=-2),
        ),
        (X, X[1], POSITIVE),
    ),
    Sample("addcmul_integers", lambda i, j: torch.addcmul(i, i, j, value=2), (INTS, J)),
    Sample(
        "lerp_half", lambda x, y: (torch.lerp(x, y, 0.3), torch.addcmul(x, y, y, value=0.5)), (HALF, HALF[0]), rtol=2e-3
    ),
    Sample(
        "true_divide_remainder",
        lambda x, y: (torch.true_divide(x, y), torch.remainder(5, y), torch.fmod(x, 0.7)),
        (X, POSITIVE),
    ),
    Sample("frexp", lambda x: torch.frexp(x), (X,)),
    Sample(
        "fix_square",
        lambda x: (
            torch.fix(x),
            torch.absolute(x),
            torch.negative(x),
            torch.arccos(x / 400),
            torch.arctan2(x, x + 1),
            torch.concat((x, x)),
        ),
        (X,),
    ),
    Sample(
        "expit_special",
        lambda x: (
            torch.special.expit(x),
            torch.special.exp2(x / 100),
            torch.special.erf(x),
            torch.special.log1p(x.abs()),
            torch.special.gammaln(x),
            torch.special.psi(POSITIVE),
        ),
        (X,),
        rtol=1e-4,
    ),
]
