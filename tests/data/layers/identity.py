"""Samples of operators that leave the value alone. The converter removes most of them, so those are written by hand."""

from __future__ import annotations

import torch
from record import Sample
from written import written

X = torch.randn(2, 3, 4)
IMAGE = torch.randn(1, 2, 3, 4)
MODULES = ("nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")
FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
RAW_DROPOUT = ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")


def assign(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.clone()
    y[0] = 1.0
    return y, x * 2


SAMPLES = [
    Sample("clone", lambda x: (torch.clone(x), x.clone(memory_format=torch.channels_last) + 1), (IMAGE,)),
    Sample("clone_of_integers", lambda i: i.clone(), (torch.arange(3),)),
    Sample(
        "Tensor_clone",
        lambda x: x.clone(),
        (X,),
        param=written({"x": X}, "Tensor.clone x -> y memory_format=torch.contiguous_format"),
    ),
    Sample("assignment_leaves_the_original", assign, (X,)),
    Sample(
        "dropout_modules",
        lambda x: tuple(x + 0 for _ in MODULES),
        (X,),
        param=written({"x": X}, *[f"{type} x -> y{index}" for index, type in enumerate(MODULES)]),
    ),
    Sample(
        "dropout_functions",
        lambda x: tuple(x + 0 for _ in FUNCTIONS),
        (X,),
        param=written(
            {"x": X}, *[f"F.{name} x -> y{index} p=0.3 training=True" for index, name in enumerate(FUNCTIONS)]
        ),
    ),
    Sample(
        "dropout_parameters_as_operands", lambda x: x + 0, (X,), param=written({"x": X}, "F.dropout x 0.3 False -> y")
    ),
    Sample(
        "raw_dropout",
        lambda x: tuple(x + 0 for _ in RAW_DROPOUT),
        (X,),
        param=written({"x": X}, *[f"{type} x 0.3 False -> y{index}" for index, type in enumerate(RAW_DROPOUT)]),
    ),
    Sample(
        "raw_copies",
        lambda x: (x + 0, x + 0, x + 0, x + 0),
        (X,),
        param=written(
            {"x": X},
            "aten::contiguous x 0 -> a",
            "aten::clone x None -> b",
            "aten::detach x -> c",
            "aten::alias x -> d",
        ),
    ),
    Sample("nn_Identity", lambda x: x + 0, (X,), param=written({"x": X}, "nn.Identity x -> y")),
]
