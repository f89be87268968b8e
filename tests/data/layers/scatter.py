"""Samples of operators that write at indices or under a mask."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(24.0).reshape(4, 6)
INDEX = torch.tensor([[0, 1, 2], [3, 0, 1]])
SRC = torch.tensor([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
ROWS = torch.tensor([2, 0, 2])
MASK = torch.arange(24).reshape(4, 6) % 3 == 0
HALF = X.half()


def put(x: torch.Tensor, *index: object, value: object) -> torch.Tensor:
    y = x.clone()
    y[index] = value
    return y


SAMPLES = [
    Sample(
        "index_put",
        lambda x, i: (put(x, i, value=0.5), put(x, slice(None), i, value=x[:, :3]), x.index_put((i, i), x[0, :3])),
        (X, ROWS),
    ),
    Sample("index_put_accumulate", lambda x, i: x.index_put((i,), x[:3], accumulate=True), (X, ROWS)),
    Sample(
        "index_put_accumulate_scalar", lambda x, i: x.index_put((i, i), torch.tensor(2.0), accumulate=True), (X, ROWS)
    ),
    Sample("index_put_mask", lambda x, m: (put(x, m, value=-1), put(x, x > 12, value=0.0)), (X, MASK)),
    Sample("index_put_list", lambda x: (put(x, [0, 2], value=-1), put(x, slice(None), [1, 3], value=x[:, :2])), (X,)),
    Sample("index_put_int", lambda x, i: x.index_put((i,), torch.tensor(7), accumulate=False), (X.int().long(), ROWS)),
    Sample(
        "index_fill_copy_add",
        lambda x, i: (
            x.index_fill(0, i, 5.0),
            x.index_copy(0, i[:2], x[:2] * 2),
            x.index_add(0, i, x[:3]),
            x.index_add(1, i, x[:, :3], alpha=2),
        ),
        (X, ROWS),
    ),
    Sample(
        "index_reduce",
        lambda x, i: (
            x.index_reduce(0, i, x[:3] + 1, "amax"),
            x.index_reduce(0, i, x[:3] + 1, "prod", include_self=False),
        ),
        (X, ROWS),
    ),
    Sample(
        "scatter",
        lambda x, i, s: (x.scatter(0, i, s), x.scatter(1, i, s), x.scatter(0, i, 9.0), x.scatter(-1, i, -1)),
        (X, INDEX, SRC),
    ),
    Sample(
        "scatter_reduce",
        lambda x, i, s: (
            x.scatter_reduce(0, i, s, "sum"),
            x.scatter_reduce(1, i, s, "amax", include_self=False),
            x.scatter_reduce(0, i, s, "mean"),
            x.scatter_reduce(0, i, s, "prod"),
            x.scatter_reduce(0, i, s, "amin"),
        ),
        (X, INDEX, SRC),
    ),
    Sample(
        "scatter_add",
        lambda x, i, s: (x.scatter_add(0, i, s), x.scatter_add(1, torch.zeros_like(i), s)),
        (X, INDEX, SRC),
    ),
    Sample(
        "scatter_add_int_half",
        lambda x, h, i: (x.scatter_add(0, i, x[:2, :3]), h.scatter_add(1, i, h[:2, :3])),
        (X.long(), HALF, INDEX),
    ),
    Sample(
        "masked_fill",
        lambda x, m: (
            x.masked_fill(m, -1),
            x.masked_fill(m, float("-inf")),
            x.masked_fill(m[0], 2.5),
            x.masked_fill(m, float("nan")),
        ),
        (X, MASK),
    ),
    Sample("masked_fill_tensor", lambda x, m, v: x.masked_fill(m, v.sum()), (X, MASK, SRC)),
    Sample(
        "masked_fill_casts_value", lambda x, m: (x.masked_fill(m, 1.5), (x > 3).masked_fill(m, 2)), (X.long(), MASK)
    ),
    Sample("masked_fill_broadcasts_input", lambda x, m: x[:1].masked_fill(m, 0), (X, MASK)),
    Sample("masked_fill_half", lambda x, m: x.masked_fill(m, -1e4), (HALF, MASK)),
    Sample("masked_scatter", lambda x, m, s: (x.masked_scatter(m, s), x.masked_scatter(m[0], s)), (X, MASK, X + 100)),
    Sample("masked_select", lambda x, m: (x.masked_select(m), x.masked_select(m[0]), x[0].masked_select(m)), (X, MASK)),
    Sample(
        "where",
        lambda c, x, y: (torch.where(c, x, y), torch.where(c, x, 2.5), torch.where(c, 1, y), torch.where(c[0], x, y)),
        (MASK, X, X * -1),
    ),
    Sample(
        "where_scalars", lambda c: (torch.where(c, 1, 0), torch.where(c, 1.5, 0.0), torch.where(c, 1, 0.5)), (MASK,)
    ),
    Sample(
        "where_promotes",
        lambda c, i, f: (torch.where(c, i, f), torch.where(c, i, 1.5), torch.where(c, f, f.double().sum())),
        (MASK, X.int(), X),
    ),
    Sample(
        "where_infinities", lambda c, x: (torch.where(c, x, float("-inf")), torch.where(c, float("nan"), x)), (MASK, X)
    ),
    Sample(
        "where_dynamic", lambda c, x: torch.where(c, x, 0), (MASK, X), [(MASK[:2], X[:2])], dynamic=(MASK[:2], X[:2])
    ),
    Sample("fill", lambda x: x.clone().fill_(2.5) + x, (X,)),
    Sample("fill_diagonal", lambda x: (x.clone().fill_diagonal_(9.0),), (X,)),
    Sample("zero", lambda x: torch.zero_(x.clone()) + 1, (X,)),
    Sample("put", lambda x, i: x.put(i, i.float()), (X, torch.tensor([2, 0, 5]))),
]
