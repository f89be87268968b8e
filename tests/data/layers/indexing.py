"""Samples of slices, selections and advanced indexing."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(120.0).reshape(4, 5, 6)
SMALL = torch.arange(24.0).reshape(2, 3, 4)
Y = torch.arange(24.0 * 7).reshape(4, 7, 6)
ROWS = torch.tensor([3, 0, -1])
COLS = torch.tensor([1, 4, 2])
MASK = torch.tensor([True, False, True, True])


def assign(x: torch.Tensor, *index: object, value: object) -> torch.Tensor:
    y = x.clone()
    y[index] = value
    return y


SAMPLES = [
    Sample("slice", lambda x: (x[1:3], x[:, ::2], x[:, :, -2:], x[:, 1:-1], x[:, 4:2], x[10:]), (X,)),
    Sample("slice_several", lambda x: (x[1:, :-1, 2], x[0, 1], x[..., 3], x[1:3, 1:4:2, 1:5:3], x[-1, :, 1:]), (X,)),
    Sample("slice_to_0d", lambda x: x[1, 2, 3] * 2, (X,)),
    Sample("slice_runtime_bounds", lambda x: x[:, 1 : x.size(1) - 1, : x.size(1)], (X,), [(Y,)], dynamic=(Y,)),
    Sample("slice_runtime_end", lambda x: x[:, 1 : x.size(1)], (X,), [(Y,)], dynamic=(Y,)),
    Sample("slice_bool_int16", lambda x: ((x > 3)[1:, 2], x.to(torch.int16)[:, 1]), (X,)),
    Sample("slice_by_tensor", lambda x: x[: x.size(0) // 2 + 1, x.shape[1] - 2], (X,), [(Y,)], dynamic=(Y,)),
    Sample("select", lambda x: (x.select(1, 2), x.select(-1, -1), x[0][1][2]), (X,)),
    Sample("select_runtime_index", lambda x: x.select(1, x.size(1) - 3), (X,), [(Y,)], dynamic=(Y,)),
    Sample("select_scatter", lambda x, s: torch.select_scatter(x, s, 1, 2), (X, torch.zeros(4, 6))),
    Sample("narrow", lambda x: (x.narrow(1, 1, 3), x.narrow(-1, 2, 4), x.narrow(0, 1, 0)), (X,)),
    Sample("narrow_runtime_length", lambda x: x.narrow(1, 1, x.size(1) - 1), (X,), [(Y,)], dynamic=(Y,)),
    Sample(
        "slice_copy",
        lambda x: (
            assign(x, slice(1, 3), value=7.5),
            assign(x, slice(None), 2, value=x[:, 0]),
            assign(x, 1, slice(0, 4, 2), slice(None, -1), value=-1),
        ),
        (X,),
    ),
    Sample(
        "slice_copy_runtime_bounds",
        lambda x: assign(x, slice(None), slice(1, x.size(1) - 1), value=x.narrow(1, 1, x.size(1) - 2) * 2),
        (X,),
        [(Y,)],
        dynamic=(Y,),
    ),
    Sample(
        "slice_scatter",
        lambda x, s: (torch.slice_scatter(x, s, 1, 1, 3), torch.slice_scatter(x, s, 1, 0, 4, 2)),
        (X, torch.zeros(4, 2, 6)),
    ),
    Sample(
        "index_list", lambda x: (x[[2, 0]], x[:, [1, 3]], x[[0, 1], [2, 3]], x[[0, 1], :, [2, 3]], x[:, :, [5]]), (X,)
    ),
    Sample("index_mask_list", lambda x: (x[[True, False, True, True]], x[:, [True, False, True, False, True]]), (X,)),
    Sample(
        "index", lambda x, i, j: (x[i], x[:, j], x[i, j], x[i, :, j], x[:, i, j], x[i[:, None], j]), (X, ROWS, COLS)
    ),
    Sample("index_mask", lambda x, m: (x[m], x[:, 0][m], x[x > 60], x[x[..., 0] > 40]), (X, MASK)),
    Sample("index_mask_and_list", lambda x, m, i: x[m, :, i[:1]], (X, MASK, ROWS)),
    Sample("index_int32", lambda x, i: x[i.int()], (X, ROWS)),
    Sample("index_matrix", lambda x, i: x[i], (X, torch.tensor([[0, 1], [2, 3]]))),
    Sample(
        "index_dynamic", lambda x, i: x[:, i], (X, ROWS), [(Y, torch.tensor([6, 6]))], dynamic=(Y, torch.tensor([6, 6]))
    ),
    Sample("index_bfloat16", lambda x, i: x[i], (X.to(torch.bfloat16), ROWS)),
    Sample("take", lambda x, i: (torch.take(x, i), torch.take_along_dim(x, i.reshape(3, 1, 1), 0)), (X, ROWS)),
    Sample(
        "index_select",
        lambda x, i: (x.index_select(0, i + 0), x.index_select(-1, i), x[0, 0].index_select(0, i)),
        (X, torch.tensor([2, 0, 2])),
    ),
    Sample(
        "gather",
        lambda x, i: (torch.gather(x, 1, i), torch.gather(x, -1, i), torch.gather(x, 0, i)),
        (X, torch.randint(0, 4, (4, 3, 2))),
    ),
    Sample("diagonal", lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-2, 0, 1), x.diagonal(9)), (X,)),
    Sample("diag", lambda x: (torch.diag(x), torch.diag(x, 1), torch.diag(x[0]), torch.diag(x[1], -2)), (X[0],)),
    Sample(
        "diag_embed", lambda x: (torch.diag_embed(x), torch.diag_embed(x, 1), torch.diag_embed(x, -1, 0, 2)), (X[0],)
    ),
    Sample("diagflat_trace", lambda x: (torch.diagflat(x), torch.trace(x), torch.diagflat(x, 1)), (X[0],)),
    Sample("tril_triu", lambda x: (x.tril(), x.tril(1), x.triu(), x.triu(-2), x.to(torch.int16).tril(-1)), (X,)),
    Sample("triangle_bool", lambda x: (x > 3).tril(), (X[0],)),
    Sample("unfold", lambda x: (x.unfold(1, 3, 1), x.unfold(2, 2, 3), x.unfold(0, 4, 1), x.unfold(-1, 6, 2)), (X,)),
    Sample("unfold_dynamic", lambda x: x.unfold(1, 3, 2), (X,), [(Y,)], dynamic=(Y,)),
    Sample("nonzero", lambda x: (x > 100).nonzero(), (X,)),
    Sample("argwhere", lambda x: (torch.argwhere(x > 110), torch.nonzero(x[0, 0] > 2)), (X,)),
    Sample("nonzero_as_tuple", lambda x: x[0].nonzero(as_tuple=True), (X,)),
    Sample(
        "diagonal_scatter",
        lambda x, s: (torch.diagonal_scatter(x, s), torch.diagonal_scatter(x, s[:, :2], 1, 1, 2)),
        (X[:3, :4, :3], torch.zeros(3, 3)),
    ),
    Sample("where_one_argument", lambda x: torch.where(x > 100), (X,)),
]
