"""Samples of operators with several pieces of one tensor as outputs."""

from __future__ import annotations

import torch
from record import Sample

X = torch.arange(48.0).reshape(2, 6, 4)
Y = torch.arange(72.0).reshape(2, 9, 4)

SAMPLES = [
    Sample("split", lambda x: (*x.split(4, 1), *x.split([1, 2, 3], 1), *x.split(3, -1), *x.split(1)), (X,)),
    Sample("split_list_is_the_output", lambda x: x.split(4, 1), (X,)),
    Sample("split_part_used", lambda x: x.split([1, 2, 3], 1)[1], (X,)),
    Sample("split_single", lambda x: x.split(6, 1)[0] + 1, (X,)),
    Sample("split_dynamic", lambda x: x.split([1, 1], 0), (X,), [(Y,)], dynamic=(Y,)),
    Sample("chunk", lambda x: (*x.chunk(4, 1), *x.chunk(3, 2), *x.chunk(2)), (X,)),
    Sample("chunk_part_used", lambda x: x.chunk(3, 1)[2], (X,)),
    Sample("chunk_single", lambda x: x.chunk(1, 1)[0] + 1, (X,)),
    Sample(
        "unsafe_chunk",
        lambda x: (
            *torch.unsafe_chunk(x, 3, 1),
            *torch.unsafe_split(x, 4, 1),
            *torch.unsafe_split_with_sizes(x, (2, 4), 1),
        ),
        (X,),
    ),
    Sample(
        "tensor_split",
        lambda x: (*x.tensor_split(4, 1), *x.tensor_split((1, 5), 1), *x.tensor_split((2, 2, 9), 1)),
        (X,),
    ),
    Sample("tensor_split_first", lambda x: x.tensor_split((1,), 2)[1], (X,)),
    Sample("unbind", lambda x: (*x.unbind(), *x.unbind(2), *x.unbind(-2)), (X,)),
    Sample("unbind_list_is_the_output", lambda x: x.unbind(0), (X,)),
    Sample("unbind_iteration", lambda x: sum(x), (X,)),
    Sample("hsplit", lambda x: (*torch.hsplit(x, 2), *torch.vsplit(x, 2), *torch.dsplit(x, 2)), (X,)),
]
