"""Samples of operators that rearrange elements."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(24.0).reshape(2, 3, 4)
Y = torch.arange(40.0).reshape(2, 5, 4)
EMPTY = torch.zeros(0, 3, 4)
ONES = torch.arange(6.0).reshape(1, 2, 1, 3)
BF16 = torch.arange(24).reshape(2, 3, 4).to(torch.bfloat16)
INTS = torch.arange(12).reshape(3, 4)

SAMPLES = [
    Sample("reshape", lambda x: (x.reshape(4, -1), x.view(24), x.reshape(2, 3, 2, 2), x.sum().reshape(1, 1)), (X,)),
    Sample("reshape_to_0d", lambda x: x[:1, :1, :1].reshape(()) * 2, (X,)),
    Sample("reshape_empty", lambda x: (x.reshape(3, 0), x.reshape(-1, 4)), (EMPTY,)),
    Sample("reshape_transposed", lambda x: x.permute(2, 0, 1).reshape(8, 3), (X,)),
    Sample("reshape_dynamic", lambda x: x.reshape(x.size(0) * x.size(1), 2, 2), (X,), [(Y,)], dynamic=(Y,)),
    Sample("reshape_dynamic_open", lambda x: x.reshape(x.size(0), -1, 2), (X,), [(Y,)], dynamic=(Y,)),
    Sample(
        "reshape_zero_copies",
        lambda x: x.reshape(2, 3, 2, 2),
        (X,),
        param="7767517\n3 2\npnnx.Input in 0 1 0 #0=(2,3,4)f32\n"
        "Tensor.reshape r 1 1 0 1 shape=(0,0,2,2) $input=0 #0=(2,3,4)f32 #1=(2,3,2,2)f32\npnnx.Output out 1 0 1\n",
    ),
    Sample(
        "reshape_several_open",
        lambda x: x.reshape(x.size(0), 3, 4, -1),
        (X,),
        [(torch.arange(48.0).reshape(4, 3, 4),)],
        param="7767517\n3 2\npnnx.Input in 0 1 0 #0=(?,3,?)f32\n"
        "Tensor.reshape r 1 1 0 1 shape=(-1,3,4,-1) $input=0 #0=(?,3,?)f32 #1=(?,3,4,?)f32\npnnx.Output out 1 0 1\n",
    ),
    Sample("reshape_as", lambda x, y: x.reshape_as(y), (X, torch.zeros(4, 6))),
    Sample("view_as", lambda x, y: x.view_as(y), (X, torch.zeros(4, 6))),
    Sample("expand", lambda x: (x.expand(-1, -1, 5, -1), x.expand(2, 4, 2, 2, 3)), (ONES,)),
    Sample("expand_0d", lambda x: x.sum().expand(2, 3), (X,)),
    Sample(
        "expand_dynamic",
        lambda x, y: x.expand(y.size(0), -1, y.size(1), -1),
        (ONES, X),
        [(ONES, torch.zeros(3, 7, 4))],
        dynamic=(ONES, torch.zeros(3, 7, 4)),
    ),
    Sample("expand_as", lambda x, y: x.expand_as(y), (ONES, torch.zeros(4, 2, 5, 3))),
    Sample("repeat", lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 2), x.repeat(0, 1, 1)), (X,)),
    Sample("repeat_dynamic", lambda x: x.repeat(x.size(1), 1, 2), (X,), [(Y,)], dynamic=(Y,)),
    Sample("tile", lambda x: (torch.tile(x, (2,)), torch.tile(x, (2, 1, 3)), torch.tile(x, (2, 1, 1, 2))), (X,)),
    Sample("permute", lambda x: (x.permute(2, 0, 1), x.permute(-1, 1, 0), x.to(torch.int16).permute(0, 2, 1)), (X,)),
    Sample("permute_bfloat16", lambda x: x.permute(2, 0, 1), (BF16,)),
    Sample("transpose", lambda x: (torch.transpose(x, 0, 2), x.transpose(-1, -2), x.swapaxes(0, 1)), (X,)),
    Sample("t", lambda x: (x.t(), x[0].t() + 1), (INTS,)),
    Sample("numpy_T", lambda x: (x.T, x.mT, x.mH), (torch.arange(12.0).reshape(3, 4),)),
    Sample("flatten", lambda x: (torch.flatten(x), torch.flatten(x, 1), x.flatten(0, 1), x.flatten(-2, -1)), (X,)),
    Sample("flatten_0d", lambda x: torch.flatten(x.sum()), (X,)),
    Sample("flatten_dynamic", lambda x: x.flatten(0, 1), (X,), [(Y,)], dynamic=(Y,)),
    Sample("unflatten", lambda x: (x.unflatten(2, (2, 2)), x.unflatten(-1, (-1, 2)), x.unflatten(0, (2, 1))), (X,)),
    Sample(
        "squeeze", lambda x: (x.squeeze(), x.squeeze(0), x.squeeze(-2), x.squeeze((0, 2)), x.squeeze(1) + 1), (ONES,)
    ),
    Sample("unsqueeze", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(2), x.sum().unsqueeze(0)), (X,)),
    Sample("flip", lambda x: (x.flip(0), x.flip((0, 2)), torch.fliplr(x), x.flip(())), (X,)),
    Sample("roll", lambda x: (x.roll(1, 0), x.roll((1, -2), (1, 2)), x.roll(5), x.roll(-3, -1)), (X,)),
    Sample("movedim", lambda x: (x.movedim(0, 2), x.movedim((0, 1), (2, 0)), torch.moveaxis(x, -1, 0)), (X,)),
    Sample("rot90", lambda x: (x.rot90(1, (0, 1)), x.rot90(2, (1, 2)), x.rot90(-1, (0, 2)), x.rot90(4, (0, 1))), (X,)),
    Sample("as_strided", lambda x: torch.as_strided(x, (3, 2), (2, 5)), (X,)),
    Sample(
        "as_strided_of_views",
        lambda x: (
            torch.as_strided(x.permute(2, 0, 1), (2, 3), (12, 4)),
            torch.as_strided((x * 2).transpose(0, 1).reshape(3, 2, 2, 2), (3, 3, 2), (4, 1, 12)),
            torch.as_strided(x.permute(2, 0, 1).reshape(8, 3) + 1, (4, 2), (3, 7)),
        ),
        (X,),
    ),
    Sample(
        "repeat_interleave",
        lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3), x.repeat_interleave(2, dim=-1)),
        (X,),
    ),
    Sample(
        "repeat_interleave_counts",
        lambda x, n: (x.repeat_interleave(n, 1), x[0, 0].repeat_interleave(2)),
        (X, torch.tensor([1, 0, 3])),
    ),
    Sample("broadcast_to", lambda x: torch.broadcast_to(x, (2, 2, 3, 4)), (X,)),
    Sample("flipud", lambda x: torch.flipud(x), (X,)),
    Sample(
        "atleast_0d", lambda x: (torch.atleast_1d(x.sum()), torch.atleast_2d(x.sum()), torch.atleast_3d(x.sum())), (X,)
    ),
    Sample("atleast_1d_2d", lambda x: (torch.atleast_3d(x[0, 0]), torch.atleast_3d(x[0]), torch.atleast_1d(x)), (X,)),
    Sample("repeat_interleave_of_counts", lambda n: torch.repeat_interleave(n), (torch.tensor([1, 0, 3]),)),
    Sample("repeat_interleave_rows", lambda x, n: x[0].repeat_interleave(n, 0), (X, torch.tensor([1, 0, 3]))),
    Sample("clone", lambda x: x.clone() + x, (X,)),
    Sample("contiguous_atleast", lambda x: (torch.atleast_2d(x[0, 0]), torch.ravel(x), x.contiguous() * 2), (X,)),
    Sample("type_as", lambda x, y: (x.type_as(y), y.type_as(x)), (X, INTS)),
    Sample(
        "linalg_diagonal",
        lambda x: (torch.linalg.diagonal(x), torch.linalg.diagonal(x, offset=1), torch.linalg.diagonal(x, dim1=0, dim2=2)),
        (X,),
    ),
    Sample("block_diag", lambda x: x.swapdims(0, 1).ravel(), (X,)),
]
