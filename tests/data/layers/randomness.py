"""Samples of random operators, so asked that chance has no say: spreads of 0, certain events, sorted permutations."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(12.0).reshape(3, 4)
Y = torch.arange(15.0).reshape(3, 5)


def sized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.size(1)
    return (
        torch.randn(n, 2) * 0 + 1,
        torch.rand(n, dtype=torch.float64) < 1,
        torch.randint(3, 4, (n,)),
        torch.randint(1, (n, 2)),
        torch.randperm(n).sort()[0],
        torch.normal(2.0, 0.0, (n,)),
    )


def like(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.randn_like(x) * 0 + x,
        torch.rand_like(x) < 1,
        torch.randint_like(x, 1),
        torch.randint_like(x, 2, 3),
        torch.randint_like(x, 1, dtype=torch.int64),
    )


def drawn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.normal(x, 0.0),
        torch.normal(1.0, x * 0),
        torch.normal(x, x * 0),
        torch.bernoulli((x > 3).float()),
        torch.bernoulli(x, 1.0),
        torch.multinomial(x + 1, 4).sort()[0],
        torch.multinomial((x[0] >= 1).float(), 5, True) >= 0,
        torch.poisson(x * 0),
    )


def in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.clone().normal_(3.0, 0.0),
        x.clone().uniform_(2.0, 2.0),
        x.clone().exponential_() >= 0,
        x.clone().random_(4, 5),
        x.clone().random_(1),
        x.clone().bernoulli_(1.0),
    )


SAMPLES = [
    Sample("sized", sized, (X,), [(Y,)], dynamic=(Y,)),
    Sample("like", like, (X,), [(Y,)], dynamic=(Y,)),
    Sample("drawn", drawn, (X,)),
    Sample("in_place", in_place, (X,)),
]
