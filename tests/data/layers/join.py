"""Samples of cat and stack."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(24.0).reshape(2, 3, 4)
Y = torch.arange(8.0).reshape(2, 1, 4) - 100
INTS = torch.arange(6).reshape(2, 3)
LEGACY = torch.zeros(0)

SAMPLES = [
    Sample("cat", lambda x, y: (torch.cat((x, y, x), 1), torch.cat((x, x), -1), torch.cat((x, x))), (X, Y)),
    Sample(
        "cat_promotes",
        lambda i, d, b: (torch.cat((i, d), 1), torch.cat((i, b)), torch.cat((b, d), 1)),
        (INTS, torch.ones(2, 2, dtype=torch.float64), torch.ones(2, 3, dtype=torch.bool)),
    ),
    Sample("cat_ignores_legacy_empty", lambda x, e: torch.cat((e, x, e), 1), (X, LEGACY)),
    Sample("cat_bfloat16", lambda x: torch.cat((x, x), 1), (X.to(torch.bfloat16),)),
    Sample("cat_dynamic", lambda x, y: torch.cat((x, y), 1), (X, Y), [(Y, X)], dynamic=(Y, X)),
    Sample("cat_list", lambda x: torch.cat(torch.where(x > 4)), (torch.arange(9.0),)),
    Sample("stack", lambda x, y: (torch.stack((x, y)), torch.stack((x, y, x), 2), torch.stack((x, y), -1)), (X, X + 1)),
    Sample("stack_0d", lambda x: torch.stack((x.sum(), x.amax())), (X,)),
    Sample("stack_promotes", lambda i, d: torch.stack((i, d)), (INTS, INTS.double())),
    Sample(
        "hstack_vstack",
        lambda x, y: (
            torch.hstack((x, y)),
            torch.vstack((x, x)),
            torch.dstack((x, x)),
            torch.column_stack((x[0], x[0])),
        ),
        (X, Y),
    ),
    Sample("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), (torch.arange(3.0), torch.arange(2.0))),
    Sample("broadcast_tensors", lambda x, y: torch.broadcast_tensors(x, y, x[0, 0]), (X, Y)),
    Sample(
        "broadcast_tensors_dynamic", lambda x, y: torch.broadcast_tensors(x, y), (X, Y), [(Y, X)], dynamic=(Y, X)
    ),
    Sample(
        "pad_sequence",
        lambda x, y, i: (
            torch.nn.utils.rnn.pad_sequence([x[0], y[0], x[1, :2]]),
            torch.nn.utils.rnn.pad_sequence([y[0], x[0]], batch_first=True, padding_value=-1.5, padding_side="left"),
            torch.nn.utils.rnn.pad_sequence([i[0], i[0, :2], i[1, 1:]], batch_first=True, padding_value=7.0),
        ),
        (X, Y, INTS),
    ),
    Sample("block_diag", lambda x, y: torch.block_diag(x, y), (torch.ones(2, 3), torch.ones(1, 2))),
]
