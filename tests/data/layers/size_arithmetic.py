"""Samples whose shapes are computed by tensors: sizes that are unsqueezed, joined, cast, selected from and computed with."""

from __future__ import annotations

import torch
from record import Sample
from torch import Tensor
from written import written

X = torch.randn(2, 3, 8)
OTHER = torch.randn(4, 3, 12)
FURTHER = [[torch.randn(5, 3, 6)], [torch.randn(1, 3, 16)], [OTHER]]


def traced(name, call, opt_level=0):
    """A trace of open sizes; at level 0 every number stays a tensor of its own."""
    return Sample(name, call, (X,), dynamic=(OTHER,), further=FURTHER, opt_level=opt_level)


def chain(name, call, *operators):
    """A graph as converters of other frameworks write it, open in its first and last dimension."""
    text = written({"x": X}, *operators).replace("#x=(2,3,8)f32", "#x=(?,3,?)f32")
    assert "?" in text
    return Sample(name, call, (X,), further=FURTHER, param=text)


def with_positions(x: Tensor) -> Tensor:
    positions = torch.arange(x.size(2)).unsqueeze(0) / torch.as_tensor(x.size(2)).float()
    return x + torch.sin(positions)


def halves(x: Tensor) -> Tensor:
    half = x.size(2) // 2
    return x[:, :, :half] - x[:, :, half : 2 * half]


def mean_of_rows(x: Tensor) -> Tensor:
    return x.sum(2) / torch.as_tensor(x.size(2)).unsqueeze(0).to(x.dtype)


SAMPLES = [
    *(
        traced(f"{name}_{level}", call, level)
        for level in (0, 1)
        for name, call in (
            ("sizes_out", lambda x: (x, torch.stack([torch.as_tensor(x.size(0)), torch.as_tensor(x.size(2))]))),
            ("positions", with_positions),
            ("halves", halves),
            ("mean_of_rows", mean_of_rows),
            ("shape_vector", lambda x: (x, torch._shape_as_tensor(x))),
            ("mask", lambda x: torch.ones(x.size(2), x.size(2)).tril() @ x.transpose(1, 2)),
            ("added_size", lambda x: torch.as_tensor(x.size(0)).unsqueeze(0) + x),
        )
    ),
    chain(
        "unsqueezed_size",
        lambda x: x.reshape(x.size(0), 1, -1),
        "pnnx.Expression x -> n expr=size(@0,0)",
        "torch.unsqueeze n -> v dim=0",
        "pnnx.Expression v -> shape expr=[@0,1,-1]",
        "Tensor.reshape x shape -> y",
    ),
    chain(
        "joined_sizes",
        lambda x: x.reshape(x.size(0), -1),
        "pnnx.Expression x -> n expr=size(@0,0)",
        "torch.unsqueeze n -> v dim=0",
        "pnnx.Expression -> rest expr=-1",
        "torch.cat v rest -> shape dim=0",
        "Tensor.reshape x shape -> y",
    ),
    chain(
        "squeezed_and_cast",
        lambda x: x.reshape(-1, x.size(0) * 3),
        "pnnx.Expression x -> n expr=size(@0,0)",
        "torch.unsqueeze n -> v dim=0",
        "Tensor.to v -> f dtype=torch.float",
        "torch.squeeze f -> s dim=0",
        "pnnx.Expression s -> m expr=int(mul(@0,3))",
        "pnnx.Expression m -> shape expr=[-1,@0]",
        "Tensor.reshape x shape -> y",
    ),
    chain(
        "selected_size",
        lambda x: x.reshape(-1, x.size(2)),
        "aten::_shape_as_tensor x -> all",
        "Tensor.slice all -> last dim=0 start=2 end=3 step=1",
        "pnnx.Expression last -> shape expr=[-1,@0]",
        "Tensor.reshape x shape -> y",
    ),
    chain(
        "counted_positions",
        lambda x: x + torch.arange(x.size(2)),
        "pnnx.Expression x -> n expr=size(@0,2)",
        "torch.unsqueeze n -> v dim=0",
        "torch.squeeze v -> s dim=0",
        "torch.arange s -> p",
        "pnnx.Expression x p -> y expr=add(@0,@1)",
    ),
    chain(
        "unpacked_shape",
        lambda x: (x.reshape(x.size(0), 3 * x.size(2)), torch.tensor(x.size(2) // 2), torch.tensor(x.size(0))),
        "prim::ListUnpack x -> n c l",
        "aten::mul c l -> m",
        "prim::ListConstruct n m -> shape",
        "Tensor.reshape x shape -> y",
        "aten::floordiv l 2 -> half",
        "prim::min n 1000 -> least",
    ),
    chain(
        "numbers_as_tensors",
        lambda x: (
            x / torch.tensor([x.size(2)]).to(x.dtype),
            torch.tensor([1.5, 2.0]),
            torch.tensor(3),
            torch.tensor([[1, 2]], dtype=torch.float64),
            x.double(),
            x.int(),
            x.half(),
        ),
        "aten::size x 2 -> n",
        "prim::ListConstruct n -> list",
        "aten::tensor list None None False -> count",
        "prim::dtype x -> dtype",
        "aten::to count dtype False False None -> divisor",
        "aten::div x divisor -> y",
        "aten::tensor [1.5,2.0] None None False -> fractions",
        "aten::tensor 3 None None False -> three",
        "prim::ListConstruct 1 2 -> row",
        "prim::ListConstruct row -> rows",
        "aten::tensor rows 7 None False -> wide",
        "prim::device x -> device",
        "aten::to x device 7 False False None -> double",
        "aten::to x 3 None device None False False None -> int",
        "Tensor.to x -> halved dtype=torch.half",
        "aten::to x halved False False None -> half",
    ),
]
