"""Samples of reductions."""

from __future__ import annotations

import torch
from record import Sample
from written import written

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
Y = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(2))
INTS = torch.arange(-6, 18).reshape(2, 3, 4)
INT32 = INTS.int()
BOOLS = INTS % 5 == 0
HALF = (X * 100).half()
BF16 = X.to(torch.bfloat16)
COMPLEX = torch.complex(X[0], X[1])
NANS = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 2.0, -float("inf")], [4.0, 4.0, 1.0]])
TIES = torch.tensor([[2.0, 7.0, 7.0, 1.0], [3.0, 3.0, 3.0, 3.0], [-0.0, 0.0, 5.0, 5.0]])
EMPTY = torch.zeros(0, 3)
EXTREMES = torch.tensor([[-300.0, 300.0, 0.0], [300.0, 300.0, 300.0], [-300.0, -300.0, -300.0]])

ORDERS = ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"))

SAMPLES = [
    Sample("sum", lambda x: (x.sum(), x.sum(1), x.sum((0, 2)), x.sum(-1, keepdim=True), x.sum((0, 1, 2), True)), (X,)),
    Sample("sum_of_integers", lambda i, j, b: (i.sum(), j.sum(1), b.sum(0), b.sum()), (INTS, INT32, BOOLS)),
    Sample(
        "sum_dtype",
        lambda i, x: (i.sum(1, dtype=torch.float32), x.sum(1, dtype=torch.float64), x.sum(0, dtype=torch.int32)),
        (INTS, X),
    ),
    Sample("sum_half", lambda x: (x.sum(1), x.sum()), (HALF,)),
    Sample("sum_bfloat16", lambda x: (x.sum(1), x.sum(), x.mean(0)), (BF16,)),
    Sample("sum_complex", lambda x: (x.sum(), x.mean(0), x.prod(1)), (COMPLEX,)),
    Sample("sum_empty", lambda x: (x.sum(), x.sum(0), x.prod(0), x.sum(1)), (EMPTY,)),
    Sample("sum_0d", lambda x: (x.sum().sum(0), x.sum().mean(-1), x.sum().amax(0)), (X,)),
    Sample("sum_dynamic", lambda x: (x.sum(1), x.mean((0, 2), keepdim=True)), (X,), [(Y,)], dynamic=(Y,)),
    Sample("nansum_nanmean", lambda x: (x[:1].nansum(), x[:1].nansum(0), x[:1].nanmean(1), x[0].nanmean()), (NANS,)),
    Sample("mean", lambda x: (x.mean(), x.mean(1), x.mean((0, 2)), x.mean(-1, keepdim=True)), (X,)),
    Sample("mean_dtype", lambda i, x: (i.mean(1, dtype=torch.float32), x.mean((0, 2), dtype=torch.float64)), (INTS, X)),
    Sample("mean_half", lambda x: (x.mean(1), x.mean()), (HALF,)),
    Sample("mean_empty", lambda x: (x.mean(0), x.mean(1)), (EMPTY,)),
    Sample("prod", lambda x: (x.prod(1), x.prod(-1, keepdim=True), x.prod(), x.prod(0, dtype=torch.float64)), (X,)),
    Sample("prod_of_integers", lambda i, b: (i.prod(1), i.int().prod(), b.prod(0), b.prod()), (INTS, BOOLS)),
    Sample("prod_half", lambda x: (x.prod(1), x.prod()), (X.half(),), rtol=2e-3),
    Sample(
        "amax_amin", lambda x: (x.amax(), x.amax(1), x.amax((0, 2), True), x.amin(), x.amin(-1), x.amin((1, 2))), (X,)
    ),
    Sample("amax_nan", lambda x: (x.amax(1), x.amin(1), x.amax(), x.amin()), (NANS,)),
    Sample(
        "amax_of_integers", lambda i, b, h: (i.amax(1), i.amin(), b.amax(0), b.amin(2), h.amax(0)), (INTS, BOOLS, HALF)
    ),
    Sample("logsumexp", lambda x: (x.logsumexp(1), x.logsumexp((0, 2), True), x.logsumexp(-1)), (X,)),
    Sample(
        "logsumexp_extremes",
        lambda x, y: (x.logsumexp(1), y.logsumexp(1), y[1].logsumexp(0), (y * 0 - float("inf")).logsumexp(0)),
        (EXTREMES, NANS),
    ),
    Sample("logsumexp_half_int", lambda x, i: (x.logsumexp(1), i.logsumexp(1)), (HALF, INTS)),
    Sample(
        "norm",
        lambda x: (
            x.norm(),
            x.norm(dim=1),
            x.norm(p=1, dim=(0, 2)),
            x.norm(p=float("inf"), dim=1, keepdim=True),
            x.norm(p=float("-inf"), dim=-1),
            x.norm(p=0, dim=0),
            x.norm(p=3),
            x.norm(p="fro", dim=(1, 2)),
            x.norm(p=0.5, dim=2),
        ),
        (X,),
    ),
    Sample(
        "norm_half_complex",
        lambda x, c: (x.norm(dim=1), c.norm(), c.norm(p=1, dim=0)),
        (HALF / 100, COMPLEX),
        rtol=2e-3,
    ),
    Sample("norm_nan", lambda x: (x.norm(dim=1), x.norm(p=float("inf"), dim=1), x.norm(p=0, dim=1)), (NANS,)),
    Sample("norm_dtype", lambda x: torch.norm(x, dim=1, dtype=torch.float64), (X,)),
    Sample("norm_except_dim", lambda x: torch.norm_except_dim(x, 2, 0), (X,)),
    Sample("max_min", lambda x: (x.max(), x.min(), *x.max(1), *x.min(-1, keepdim=True)), (X,)),
    Sample("max_values_only", lambda x: (x.max(1)[0], x.min(0, keepdim=True)[0]), (X,)),
    Sample("max_indices_only", lambda x: (x.max(1)[1], x.min(0)[1]), (X,)),
    Sample(
        "max_ties_and_nan", lambda x, y: (*x.max(1), *x.min(1), *y.max(1), *y.min(1), y.max(), y.min()), (TIES, NANS)
    ),
    Sample(
        "max_of_integers", lambda i, b, h: (*i.max(1), *b.max(0), *h.min(1), i.max(), *b.min(2)), (INTS, BOOLS, HALF)
    ),
    Sample("max_0d", lambda x: (*x.sum().max(0), x.sum().argmax()), (X,)),
    Sample(
        "argmax_argmin", lambda x: (x.argmax(), x.argmax(1), x.argmax(-1, keepdim=True), x.argmin(), x.argmin(0)), (X,)
    ),
    Sample(
        "argmax_ties_and_nan",
        lambda x, y: (x.argmax(1), x.argmin(1), y.argmax(1), y.argmin(1), y.argmax(), y.argmin()),
        (TIES, NANS),
    ),
    Sample("argmax_keepdim_flat", lambda x: (x.argmax(keepdim=True), x.argmin(keepdim=True)), (X,)),
    Sample("argmax_of_integers", lambda i, h: (i.argmax(1), h.argmin(2)), (INTS, HALF)),
    Sample(
        "std_var",
        lambda x: (
            x.std(),
            x.std(1),
            x.var(1, unbiased=False),
            x.var((0, 2), keepdim=True),
            x.std(-1, correction=2),
            x.var(unbiased=False),
        ),
        (X,),
    ),
    Sample("std_of_one", lambda x: (x[:1].std(0), x[:1].var(0, unbiased=False), x[:1].var(0, correction=3)), (X,)),
    Sample(
        "std_half_complex",
        lambda x, c: (x.std(1), x.var(1), c.var(0), c.std()),
        (HALF / 50, COMPLEX),
        rtol=2e-3,
        atol=1e-3,
    ),
    Sample("var_correction_zero", lambda x: (x.var(1, correction=0), x.std(0, correction=0, keepdim=True)), (X,)),
    Sample(
        "var_mean_std_mean",
        lambda x: (
            *torch.var_mean(x, 1),
            *torch.std_mean(x, (0, 2), keepdim=True),
            *torch.var_mean(x),
            *torch.var_mean(x, -1, correction=0),
            *torch.std_mean(x, unbiased=False),
        ),
        (X,),
    ),
    Sample(
        "any_all",
        lambda b: (b.any(), b.all(), b.any(1), b.all(-1, keepdim=True), b.any((0, 2)), b.all((1, 2))),
        (BOOLS,),
    ),
    Sample(
        "any_all_of_numbers",
        lambda i, x, u: (i.any(1), i.all(), x.any(), x.all(0), u.any(), u.all(1)),
        (INTS, NANS, INTS.to(torch.uint8)),
    ),
    Sample("any_empty", lambda x: (x.any(), x.all(), x.any(0), x.all(0)), (EMPTY,)),
    Sample(
        "aminmax",
        lambda x, y: (*x.aminmax(), *x.aminmax(dim=1), *x.aminmax(dim=0, keepdim=True), *y.aminmax(dim=1)),
        (X, NANS),
    ),
    Sample(
        "count_nonzero",
        lambda x: (x.count_nonzero(), x.count_nonzero(1), x.count_nonzero((0, 2)), (x > 0).count_nonzero(-1)),
        (INTS,),
    ),
    Sample(
        "median",
        lambda x, i: (x.median(), *x.median(1), *x.median(-1, keepdim=True), i.median(), *i.median(1)),
        (X, INTS),
    ),
    Sample(
        "median_nan_even",
        lambda x, t: (*x.median(1), x.median(), t.median(), t.median(1)[0], x.nanmedian(), x.nanmedian(1)[0]),
        (NANS, TIES),
    ),
    Sample(
        "mode",
        lambda i: (i.mode(-1)[0], i.mode(0, keepdim=True)[0]),
        (torch.tensor([[1, 2, 2, 3], [3, 3, 1, 1], [4, 5, 6, 7]]),),
    ),
    Sample(
        "quantile",
        lambda x, q: (
            x.quantile(0.3),
            x.quantile(0.75, 1),
            x.quantile(q, 1),
            x.quantile(q, -1, keepdim=True),
            x.quantile(0.5, 1, interpolation="lower"),
            x.quantile(0.5, 1, interpolation="higher"),
            x.quantile(0.4, 1, interpolation="nearest"),
            x.quantile(0.4, 1, interpolation="midpoint"),
            x.quantile(q),
        ),
        (X, torch.tensor([0.1, 0.5, 1.0])),
    ),
    Sample("quantile_nan", lambda x: (x.quantile(0.5, 1), x.nanquantile(0.5, 1)), (NANS,)),
    Sample(
        "linalg_vector_norm",
        lambda x: (
            torch.linalg.vector_norm(x, 3, dim=1),
            torch.linalg.vector_norm(x),
            torch.linalg.vector_norm(x, float("inf"), (0, 1), True),
        ),
        (X,),
    ),
    Sample(
        "linalg_norm",
        lambda x: (
            torch.linalg.norm(x),
            torch.linalg.norm(x, 1, 0),
            torch.linalg.norm(x[0]),
            torch.linalg.norm(x, dim=(0, 2)),
        ),
        (X,),
    ),
    Sample(
        "linalg_norm_of_matrices",
        lambda x: tuple(torch.linalg.norm(x, p, (1, 2), keepdim=p == 1) for p in ORDERS),
        (X,),
        param=written(
            {"x": X}, *(f"aten::linalg_norm x {p} [1,2] {p == 1} None -> norm{k}" for k, p in enumerate(ORDERS))
        ),
    ),
    Sample(
        "linalg_norm_of_one",
        lambda x: (
            torch.linalg.norm(x, "nuc"),
            torch.linalg.norm(x, 3, 1),
            torch.linalg.norm(x, float("inf"), dtype=torch.float64),
        ),
        (X[0],),
        param=written(
            {"x": X[0]},
            "aten::linalg_norm x nuc None False None -> a",
            "aten::linalg_norm x 3 1 False None -> b",
            "aten::linalg_norm x inf None False 7 -> c",
        ),
    ),
    Sample(
        "matrix_norm",
        lambda x: (
            torch.linalg.matrix_norm(x),
            torch.linalg.matrix_norm(x, float("inf"), (0, 2)),
            torch.linalg.matrix_norm(x, -1, keepdim=True),
        ),
        (X,),
    ),
    Sample(
        "cov",
        lambda x, n, w: (
            torch.cov(x),
            torch.cov(x, correction=0),
            torch.cov(x[0]),
            torch.cov(x[:1]),
            torch.cov(x, fweights=n, aweights=w),
            torch.cov(x, correction=0, aweights=w),
        ),
        (X[0], torch.arange(1, 1 + X.shape[2]), torch.rand(X.shape[2])),
    ),
    Sample("cov_of_integers", torch.cov, (torch.randint(-9, 9, (3, 7)),)),
    Sample("corrcoef", lambda x: (torch.corrcoef(x), torch.corrcoef(x[0]), torch.corrcoef(x[:1])), (X[0],)),
    Sample("corrcoef_double", torch.corrcoef, (X[0].double(),)),
    Sample(
        "dist", lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1), torch.dist(x, y, float("inf"))), (X, X * 2 + 1)
    ),
]
