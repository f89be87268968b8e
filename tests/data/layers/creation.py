"""Samples of operators that make tensors from parameters."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(12.0).reshape(3, 4)
Y = torch.arange(15.0).reshape(3, 5)
INTS = torch.tensor([[0, 2, 1], [3, 0, 2]])

SAMPLES = [
    Sample(
        "zeros_ones",
        lambda x: (
            torch.zeros(x.size(1), 2),
            torch.ones(2, x.size(1), dtype=torch.int64),
            torch.zeros_like(torch.empty(x.size(1))),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "full",
        lambda x: (
            torch.full((x.size(1), 2), 2.5),
            torch.full((x.size(1),), 3),
            torch.full((x.size(1),), float("-inf")),
            torch.full((x.size(1),), 1, dtype=torch.float64),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "like",
        lambda x, i: (
            torch.zeros_like(x) + x,
            torch.ones_like(i) + i,
            torch.full_like(x, 2.5) + x,
            torch.full_like(i, 2.7) + i,
        ),
        (X, INTS),
    ),
    Sample(
        "like_outputs",
        lambda x: (
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int32),
            torch.full_like(x, 7, dtype=torch.int64),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample("full_like_tensor", lambda x: torch.full_like(x, float("inf")), (X,), [(Y,)], dynamic=(Y,)),
    Sample(
        "new",
        lambda x: (
            x.new_zeros(x.size(1), 2),
            x.new_ones(x.size(1)),
            x.new_full((x.size(1),), 2.5),
            x.new_zeros((x.size(1),), dtype=torch.int64),
            torch.zeros_like(x.new_empty(x.size(1))),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "arange",
        lambda x: (
            torch.arange(x.size(1)),
            torch.arange(2, x.size(1)),
            torch.arange(0, x.size(1), 2),
            torch.arange(0.0, x.size(1), 0.7),
            torch.arange(x.size(1), dtype=torch.float32),
            torch.arange(x.size(1), 0, -1),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "linspace_logspace",
        lambda x: (
            torch.linspace(0, 1, x.size(1)),
            torch.linspace(-2, 5, x.size(1), dtype=torch.float64),
            torch.logspace(0, 2, x.size(1)),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "eye",
        lambda x: (torch.eye(x.size(1)), torch.eye(3, x.size(1)), torch.eye(x.size(1), dtype=torch.int64)),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "meshgrid",
        lambda a, b: (*torch.meshgrid(a, b, indexing="ij"), *torch.meshgrid(b, a, indexing="xy")),
        (torch.arange(3.0), torch.arange(2.0)),
    ),
    Sample(
        "meshgrid_three", lambda a, b: torch.meshgrid(a, b, b, indexing="xy"), (torch.arange(3.0), torch.arange(2.0))
    ),
    Sample("one_hot", lambda i: (torch.nn.functional.one_hot(i, 5), torch.nn.functional.one_hot(i)), (INTS,)),
    Sample(
        "tril_indices",
        lambda x: (torch.tril_indices(x.size(1), 3), torch.triu_indices(3, x.size(1), 1)),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "scalar_tensor",
        lambda x: (torch.scalar_tensor(x.size(1)), torch.tensor(2.5) + x[0, 0]),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "hann_window",
        lambda x: (
            torch.hann_window(x.size(1)),
            torch.hamming_window(x.size(1)),
            torch.blackman_window(x.size(1)),
            torch.hann_window(x.size(1), False),
        ),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample("numel", lambda x: (x.numel() * x, torch.zeros(x.numel())), (X,), [(Y,)], dynamic=(Y,)),
    Sample("sizes_as_outputs", lambda x: (x, x.size(1), x.shape[0] * x.size(1)), (X,), [(Y,)], dynamic=(Y,)),
    Sample("item", lambda x: x.sum().item() * x, (X,)),
]
