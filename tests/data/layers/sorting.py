"""Samples of sorting and searching."""

from __future__ import annotations

import torch
from record import Sample

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
Y = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(2))
TIES = torch.tensor([[2, 7, 7, 1, 2], [3, 3, 3, 3, 3]])
NANS = torch.tensor([[1.0, float("nan"), 3.0, -2.0], [float("inf"), 2.0, -float("inf"), float("nan")]])
EDGES = torch.tensor([1.0, 3.0, 5.0, 7.0])
VALUES = torch.tensor([[0.0, 1.0, 4.0], [5.0, 9.0, float("nan")]])

SAMPLES = [
    Sample(
        "topk",
        lambda x: (*x.topk(2), *x.topk(3, 1), *x.topk(2, 0, largest=False), *x.topk(4, 1, sorted=True), *x.topk(0)),
        (X,),
    ),
    Sample("topk_nan", lambda x: (*x.topk(2), *x.topk(2, largest=False)), (NANS,)),
    Sample("topk_int_half", lambda i, h: (i.topk(3)[0], *h.topk(2, 1)), (TIES, X.half())),
    Sample("topk_dynamic", lambda x: x.topk(3, 1), (X,), [(Y,)], dynamic=(Y,)),
    Sample("topk_runtime_k", lambda x: x.topk(x.size(1) - 1, 1), (X,), [(Y,)], dynamic=(Y,)),
    Sample("topk_values_or_indices_only", lambda x: (x.topk(2)[0], x.topk(3, 1)[1]), (X,)),
    Sample("topk_0d", lambda x: x.sum().topk(1), (X,)),
    Sample("sort", lambda x: (*x.sort(), *x.sort(1), *x.sort(0, descending=True)), (X,)),
    Sample(
        "sort_stable_ties",
        lambda x: (*torch.sort(x, dim=1, stable=True), *torch.sort(x, dim=1, descending=True, stable=True)),
        (TIES,),
    ),
    Sample("sort_nan", lambda x: (x.sort()[0], *x.sort(descending=True), x.argsort()), (NANS,)),
    Sample(
        "sort_types",
        lambda b, h, u: (
            torch.sort(b, dim=1, stable=True),
            h.sort(1),
            torch.sort(u, dim=1, stable=True, descending=True),
        ),
        (TIES > 2, X.half(), TIES.to(torch.uint8)),
    ),
    Sample(
        "argsort", lambda x: (x.argsort(), x.argsort(1, descending=True), torch.argsort(x, dim=0, stable=True)), (X,)
    ),
    Sample("msort", lambda x: torch.msort(x), (X,)),
    Sample(
        "kthvalue",
        lambda x, n: (*x.kthvalue(2), *x.kthvalue(3, 1, keepdim=True), *n.kthvalue(4), n.kthvalue(3)[0]),
        (X, NANS),
    ),
    Sample(
        "searchsorted",
        lambda e, v: (
            torch.searchsorted(e, v),
            torch.searchsorted(e, v, right=True),
            torch.searchsorted(e, v, out_int32=True),
            torch.searchsorted(e, 4.5),
            torch.searchsorted(e, v, side="right"),
        ),
        (EDGES, VALUES),
    ),
    Sample("searchsorted_rows", lambda e, v: torch.searchsorted(e, v), (torch.stack((EDGES, EDGES * 2)), VALUES)),
    Sample(
        "searchsorted_sorter", lambda e, v: torch.searchsorted(e, v, sorter=torch.argsort(e)), (EDGES.flip(0), VALUES)
    ),
    Sample(
        "bucketize",
        lambda e, v: (
            torch.bucketize(v, e),
            torch.bucketize(v, e, right=True),
            torch.bucketize(v, e, out_int32=True),
            torch.bucketize(3.0, e),
        ),
        (EDGES, VALUES),
    ),
    Sample(
        "bincount",
        lambda i, w: (torch.bincount(i), torch.bincount(i, minlength=12), torch.bincount(i, w)),
        (TIES.flatten(), torch.arange(10.0)),
    ),
    Sample("unique", lambda x: (torch.unique(x), *torch.unique(x, return_inverse=True, return_counts=True)), (TIES,)),
    Sample("unique_dim", lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True), (TIES,)),
    Sample(
        "unique_consecutive",
        lambda x: (torch.unique_consecutive(x), *torch.unique_consecutive(x, return_inverse=True, return_counts=True)),
        (TIES,),
    ),
    Sample("histc", lambda x: (torch.histc(x, 5, -1, 1), torch.histc(x, 4)), (X,)),
    Sample(
        "isin",
        lambda x, y: (torch.isin(x, y), torch.isin(x, y, invert=True), torch.isin(x, 3)),
        (TIES, torch.tensor([7, 1])),
    ),
]
