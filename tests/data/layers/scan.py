"""Samples of running sums, products and extremes."""

from __future__ import annotations

import torch
from record import Sample

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
Y = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(2))
INTS = torch.arange(-6, 6).reshape(3, 4)
HALF = (X * 10).half()
TIES = torch.tensor([[2.0, 7.0, 7.0, 1.0, float("nan"), 3.0], [3.0, 3.0, 3.0, 4.0, 4.0, 9.0]])

SAMPLES = [
    Sample("cumsum", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1)), (X,)),
    Sample("cumsum_of_integers", lambda i, b: (i.cumsum(1), i.int().cumsum(0), b.cumsum(0)), (INTS, INTS > 0)),
    Sample(
        "cumsum_dtype", lambda i, x: (i.cumsum(1, dtype=torch.float32), x.cumsum(1, dtype=torch.float64)), (INTS, X)
    ),
    Sample("cumsum_half", lambda x: (x.cumsum(1), x.cumprod(0)), (HALF,), rtol=2e-3),
    Sample("cumsum_0d", lambda x: (x.sum().cumsum(0), x.sum().cumprod(0)), (X,)),
    Sample("cumsum_dynamic", lambda x: x.cumsum(1), (X,), [(Y,)], dynamic=(Y,)),
    Sample("cumsum_complex", lambda x: torch.complex(x[0], x[1]).cumsum(0), (X,)),
    Sample("cumprod", lambda x: (x.cumprod(0), x.cumprod(-1)), (X,)),
    Sample("cumprod_of_integers", lambda i, b: (i.cumprod(1), b.cumprod(0)), (INTS, INTS > 0)),
    Sample("cummax_cummin", lambda x, i: (*x.cummax(1), *x.cummin(1), *i.cummax(0), *i.cummin(-1)), (TIES, INTS)),
    Sample("cummax_bool_half", lambda b, h: (*b.cummax(1), *h.cummin(0)), (INTS > 0, HALF)),
    Sample("logcumsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1), (x * 300).logcumsumexp(1)), (X,)),
    Sample(
        "logcumsumexp_infinities",
        lambda x: x.logcumsumexp(0),
        (torch.tensor([float("-inf"), 1.0, float("-inf"), float("inf"), 2.0]),),
    ),
    Sample(
        "diff",
        lambda x, y: (x.diff(), x.diff(2, 1), x.diff(dim=0), x.diff(dim=1, prepend=y, append=y), x.diff(9)),
        (X, X[:, :2]),
    ),
    Sample("diff_int_bool", lambda i, b: (i.diff(), b.diff(), b.diff(dim=0)), (INTS, INTS > 0)),
]
