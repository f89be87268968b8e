"""Samples of pooling to a given size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

SIGNAL, IMAGE, VOLUME = torch.randn(2, 3, 11), torch.randn(2, 3, 9, 8), torch.randn(1, 2, 5, 6, 4)
NAN = torch.tensor([[[1.0, float("nan"), 3.0, -float("inf"), 300.0, float("nan"), -300.0, float("inf"), 0.0]]])
# Where several elements are the largest, and where some are NaN; the size divides into 1 and 4, not into 3.
TIES = torch.randint(0, 3, (2, 3, 8, 8)).float()
HOLES = torch.where(torch.rand(2, 3, 8, 8) < 0.1, torch.nan, TIES)

SAMPLES = [
    Sample("nn_adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(4), (SIGNAL,)),
    Sample("nn_adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((4, 3)), (IMAGE,)),
    Sample("nn_adaptive_avg_pool2d_global", nn.AdaptiveAvgPool2d(1), (IMAGE,)),
    Sample("nn_adaptive_avg_pool2d_larger", nn.AdaptiveAvgPool2d((11, 16)), (IMAGE[0],)),
    Sample("nn_adaptive_avg_pool2d_keep", nn.AdaptiveAvgPool2d((None, 3)), (IMAGE,)),
    Sample("nn_adaptive_avg_pool3d", nn.AdaptiveAvgPool3d((2, 4, 3)), (VOLUME,)),
    Sample("F_adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), (SIGNAL[0],)),
    Sample("F_adaptive_avg_pool1d_nan", lambda x: F.adaptive_avg_pool1d(x, 4), (NAN,)),
    Sample("F_adaptive_avg_pool2d_f64", lambda x: F.adaptive_avg_pool2d(x, 5), (IMAGE.double(),), rtol=1e-13),
    Sample("F_adaptive_avg_pool2d_f16", lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGE.half(),), rtol=1e-3, atol=1e-3),
    Sample("F_adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (None, 2, None)), (VOLUME,)),
    Sample(
        "F_adaptive_avg_pool2d_dynamic",
        lambda x: F.adaptive_avg_pool2d(x, (None, 3)),
        (IMAGE,),
        further=[(torch.randn(1, 3, 2, 2),), (torch.randn(0, 3, 2, 2),)],
        dynamic=(torch.randn(3, 3, 12, 5),),
    ),
    Sample(
        "F_adaptive_avg_pool2d_dynamic_size",
        lambda x: F.adaptive_avg_pool2d(x, (x.size(2) // 2, 3)),
        (IMAGE,),
        further=[(torch.randn(1, 3, 3, 2),)],
        dynamic=(torch.randn(3, 3, 12, 5),),
    ),
    Sample(
        "F_interpolate_area",
        lambda x: F.interpolate(x, scale_factor=0.5, mode="area"),
        (IMAGE,),
        further=[(torch.randn(1, 3, 3, 2),)],
        dynamic=(torch.randn(3, 3, 12, 5),),
    ),
    Sample("nn_adaptive_max_pool1d", nn.AdaptiveMaxPool1d(4), (SIGNAL,)),
    Sample("nn_adaptive_max_pool2d", nn.AdaptiveMaxPool2d((4, None)), (IMAGE,)),
    Sample("nn_adaptive_max_pool2d_indices", nn.AdaptiveMaxPool2d((4, 3), return_indices=True), (IMAGE,)),
    Sample("nn_adaptive_max_pool3d", nn.AdaptiveMaxPool3d(2), (VOLUME,)),
    Sample("nn_adaptive_max_pool3d_indices", nn.AdaptiveMaxPool3d((2, 4, 3), return_indices=True), (VOLUME[0],)),
    Sample("F_adaptive_max_pool1d_indices_nan", lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), (NAN,)),
    Sample("F_adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (5, 3)), (IMAGE,)),
    Sample("F_adaptive_max_pool2d_bf16", lambda x: F.adaptive_max_pool2d(x, 2), (IMAGE.bfloat16(),)),
    Sample("F_adaptive_max_pool2d_indices", lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True)[1], (IMAGE[0],)),
    *[
        Sample(f"F_adaptive_max_pool2d_{name}_to_{size}", lambda x, size=size: F.adaptive_max_pool2d(x, size, return_indices=True), (x,))
        for name, x in (("ties", TIES), ("nan", HOLES))
        for size in (1, 3, 4)
    ],
    Sample("F_adaptive_max_pool2d_global", lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1)), (HOLES,)),
    Sample("F_adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (None, 2, 1)), (VOLUME,)),
]
