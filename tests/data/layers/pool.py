"""Samples of pooling with windows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

SIGNAL, IMAGE, VOLUME = torch.randn(2, 3, 11), torch.randn(2, 3, 9, 8), torch.randn(1, 2, 5, 6, 4)
NAN = torch.tensor([[[1.0, float("nan"), 3.0, -float("inf"), 300.0, float("nan"), -300.0, float("inf"), 0.0]]])
LOWEST = torch.full((1, 1, 5, 5), -float("inf"))


class Second(nn.Module):
    """Only the second result of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)[1]


def param(operator: str, *shapes: str) -> str:
    """A file with one operator, whose inputs are 0, 1, ... and whose output is the next."""
    inputs = "".join(f"pnnx.Input in{k} 0 1 {k} #{k}={shape}\n" for k, shape in enumerate(shapes[:-1]))
    n = len(shapes) - 1
    wires = " ".join(str(k) for k in range(n + 1))
    kind, _, rest = operator.partition(" ")
    return (
        f"7767517\n{n + 2} {n + 1}\n{inputs}{kind} op {n} 1 {wires} {rest} #{n}={shapes[-1]}\npnnx.Output out 1 0 {n}\n"
    )


SAMPLES = [
    Sample("nn_maxpool1d", nn.MaxPool1d(3, 2, 1), (SIGNAL,)),
    Sample("nn_maxpool1d_unbatched", nn.MaxPool1d(2), (SIGNAL[0],)),
    Sample("nn_maxpool2d", nn.MaxPool2d(2), (IMAGE,)),
    Sample("nn_maxpool2d_everything", nn.MaxPool2d((3, 2), (2, 3), (1, 0), (2, 1), ceil_mode=True), (IMAGE,)),
    Sample("nn_maxpool2d_indices", nn.MaxPool2d(3, 2, 1, ceil_mode=True, return_indices=True), (IMAGE,)),
    Sample("nn_maxpool2d_indices_alone", Second(nn.MaxPool2d(2, return_indices=True)), (IMAGE,)),
    Sample(
        "nn_maxpool2d_dynamic",
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        (IMAGE,),
        further=[(torch.randn(1, 3, 2, 5),), (torch.randn(0, 3, 4, 4),)],
        dynamic=(torch.randn(3, 3, 12, 5),),
    ),
    Sample("nn_maxpool3d", nn.MaxPool3d((2, 3, 1), (1, 2, 3), (1, 1, 0)), (VOLUME,)),
    Sample("nn_maxpool3d_indices_unbatched", nn.MaxPool3d(2, return_indices=True), (VOLUME[0],)),
    Sample("F_max_pool1d", lambda x: F.max_pool1d(x, 3, dilation=2), (SIGNAL,)),
    Sample("F_max_pool1d_indices_nan", lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), (NAN,)),
    Sample("F_max_pool1d_nan", lambda x: F.max_pool1d(x, 3, 2, 1), (NAN,)),
    Sample("F_max_pool2d", lambda x: F.max_pool2d(x, (3, 2), padding=1), (IMAGE,)),
    Sample("F_max_pool2d_f64", lambda x: F.max_pool2d(x, 3), (IMAGE.double(),)),
    Sample("F_max_pool2d_f16", lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE.half(),)),
    Sample("F_max_pool2d_bf16", lambda x: F.max_pool2d(x, 3, return_indices=True), (IMAGE.bfloat16(),)),
    Sample("F_max_pool2d_int64", lambda x: F.max_pool2d(x, 3, 2, 1), ((IMAGE * 9).long(),)),
    Sample("F_max_pool2d_nothing_exceeds", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (LOWEST,)),
    Sample("F_max_pool3d", lambda x: F.max_pool3d(x, 2, (2, 1, 2), ceil_mode=True, return_indices=True), (VOLUME,)),
    Sample("nn_avgpool1d", nn.AvgPool1d(3, 2, 1), (SIGNAL,)),
    Sample("nn_avgpool1d_without_padding", nn.AvgPool1d(4, 3, 2, ceil_mode=True, count_include_pad=False), (SIGNAL,)),
    Sample("nn_avgpool2d", nn.AvgPool2d((3, 2), (2, 3), (1, 0)), (IMAGE,)),
    Sample("nn_avgpool2d_ceil", nn.AvgPool2d(3, 2, 1, ceil_mode=True), (IMAGE,)),
    Sample(
        "nn_avgpool2d_ceil_without_padding", nn.AvgPool2d(4, 3, 2, ceil_mode=True, count_include_pad=False), (IMAGE,)
    ),
    Sample("nn_avgpool2d_divisor", nn.AvgPool2d(2, divisor_override=3), (IMAGE[0],)),
    Sample("nn_avgpool3d", nn.AvgPool3d((2, 3, 2), 2, (1, 1, 0), count_include_pad=False), (VOLUME,)),
    Sample("F_avg_pool1d", lambda x: F.avg_pool1d(x, 2), (SIGNAL[0],)),
    Sample("F_avg_pool1d_infinite", lambda x: F.avg_pool1d(x, 2, 1), (NAN,)),
    Sample(
        "F_avg_pool2d", lambda x: F.avg_pool2d(x, 9, padding=2, ceil_mode=True, stride=4), (torch.randn(1, 2, 11, 14),)
    ),
    Sample("F_avg_pool2d_int64", lambda x: F.avg_pool2d(x, 2), ((IMAGE * 9).long(),)),
    Sample("F_avg_pool2d_f16", lambda x: F.avg_pool2d(x, 3), (IMAGE.half(),), rtol=1e-3, atol=1e-3),
    Sample("F_avg_pool3d", lambda x: F.avg_pool3d(x, 2, 1, divisor_override=-5), (VOLUME,)),
    Sample(
        "F_avg_pool2d_dynamic",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (IMAGE,),
        further=[(torch.randn(1, 3, 1, 5),)],
        dynamic=(torch.randn(3, 3, 12, 5),),
    ),
    Sample("nn_lppool1d", nn.LPPool1d(2, 3), (SIGNAL,)),
    Sample("nn_lppool1d_ceil", nn.LPPool1d(1.5, 4, 3, ceil_mode=True), (SIGNAL.abs(),)),
    Sample("nn_lppool2d", nn.LPPool2d(2, (3, 2), (2, 1)), (IMAGE,)),
    Sample("nn_lppool2d_odd_power", nn.LPPool2d(3, 2, ceil_mode=True), (IMAGE,)),
    Sample("F_lp_pool1d", lambda x: F.lp_pool1d(x, 3.0, 2), (SIGNAL,)),
    Sample("F_lp_pool2d", lambda x: F.lp_pool2d(x, 2, 3, 2), (IMAGE[0],)),
    Sample(
        "nn_lppool3d",
        nn.LPPool3d(2, 2),
        (VOLUME,),
        param=param(
            "nn.LPPool3d norm_type=2 kernel_size=(2,2,2) stride=(2,2,2) ceil_mode=False",
            "(1,2,5,6,4)f32",
            "(1,2,2,3,2)f32",
        ),
    ),
    Sample(
        "F_lp_pool3d",
        lambda x: F.lp_pool3d(x, 2.0, 2),
        (VOLUME,),
        param=param("F.lp_pool3d norm_type=2.0 kernel_size=2 stride=None", "(1,2,5,6,4)f32", "(1,2,2,3,2)f32"),
    ),
    Sample(
        "nn_maxunpool2d",
        lambda x, i: F.max_unpool2d(x, i, 3, 2, 1),
        F.max_pool2d(IMAGE[..., :7], 3, 2, 1, return_indices=True),
        param=param(
            "nn.MaxUnpool2d kernel_size=(3,3) stride=(2,2) padding=(1,1)",
            "(2,3,5,4)f32",
            "(2,3,5,4)i64",
            "(2,3,9,7)f32",
        ),
    ),
    Sample(
        "nn_maxunpool2d_without_stride",
        lambda x, i: F.max_unpool2d(x, i, (3, 2)),
        F.max_pool2d(IMAGE[0], (3, 2), return_indices=True),
        param=param("nn.MaxUnpool2d kernel_size=(3,2) stride=None", "(3,3,4)f32", "(3,3,4)i64", "(3,9,8)f32"),
    ),
    Sample(
        "aten_fractional_max_pool2d",
        lambda x, u: F.fractional_max_pool2d(x, (2, 3), (4, 5), return_indices=True, _random_samples=u),
        (IMAGE, torch.rand(2, 3, 2)),
    ),
    Sample(
        "aten_fractional_max_pool2d_one_window",
        lambda x, u: F.fractional_max_pool2d(x, 2, 1, _random_samples=u),
        (IMAGE[0], torch.rand(1, 3, 2)),
    ),
]
