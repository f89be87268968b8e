"""Samples of comparisons and of tests of single values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from record import Sample

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, -2.0, NAN, INF], [0.0, -0.0, -INF, 3.0]])
Y = torch.tensor([1.0, 2.0, NAN, -INF])
INTS = torch.tensor([[1, -2, 3, 0], [200, -200, 2, 1]])
U8 = INTS.to(torch.uint8)
HALF = torch.tensor([[1.0, 2.0, 0.1, -3.0]]).half()
COMPLEX = torch.tensor([1 + 2j, 3 - 1j, complex(NAN, 0), complex(0, INF)])


def compared(function: Callable[..., torch.Tensor]) -> Callable[..., object]:
    return lambda x, y: (function(x, y), function(x, 1.0), function(x, y[:1]))


SAMPLES = [
    *[Sample(name, compared(getattr(torch, name)), (X, Y)) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    Sample("compare_integers", lambda i, u, x: (i > 1.5, i == u, i < x, u >= -1, i <= 2, u != 200), (INTS, U8, X)),
    Sample(
        "compare_mixed_floats",
        lambda h, x, d: (h == 0.1, h < x, x > d, d.sum() >= x, x == d.sum()),
        (HALF, X, X.double() + 1e-12),
    ),
    Sample("compare_bool_complex", lambda b, c: (b == 1, b > b[0], c == c[0], c != 1), (X > 0, COMPLEX)),
    Sample("compare_bfloat16", lambda x, y: (x > y, x == 0.1), (HALF.to(torch.bfloat16), HALF.to(torch.bfloat16) * 2)),
    Sample("compare_empty_and_0d", lambda e, x: (e > 1, x.sum() > 0, e == x[0]), (torch.zeros(0, 4), Y)),
    Sample("compare_dynamic", lambda x, y: x > y, (X, Y), [(X[:, :2], Y[:2])], dynamic=(X[:, :2], Y[:2])),
    Sample(
        "isnan_isinf_isfinite",
        lambda x, i, c: (
            x.isnan(),
            x.isinf(),
            x.isfinite(),
            i.isnan(),
            i.isinf(),
            i.isfinite(),
            c.isnan(),
            c.isinf(),
            c.isfinite(),
        ),
        (X, INTS, COMPLEX),
    ),
    Sample(
        "isposinf_isneginf_isreal",
        lambda x, i, c: (torch.isposinf(x), torch.isneginf(x), torch.isposinf(i), torch.isreal(c), torch.isreal(x)),
        (X, INTS, COMPLEX),
    ),
    Sample("isclose", lambda x, y: (x.isclose(y), x.isclose(y, rtol=0.5, atol=0.1, equal_nan=True)), (X, Y * 1.00001)),
    Sample("isclose_integers", lambda i: (i.isclose(i + 1), i.isclose(i + 1, rtol=0.5)), (INTS,)),
    Sample("signbit", lambda x, i, u: (x.signbit(), i.signbit(), u.signbit()), (X, INTS, U8)),
    Sample("equal_allclose", lambda x: (torch.isclose(x, x).all(),), (X,)),
    Sample("maximum_raw", lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)), (X, Y)),
]
