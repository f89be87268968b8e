"""Samples of convolutions and transposed convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

SIGNAL, IMAGE, VOLUME = torch.randn(2, 4, 11), torch.randn(2, 4, 9, 8), torch.randn(1, 4, 5, 6, 4)
# The converter takes complex convolutions apart.
COMPLEX = """7767517
4 3
pnnx.Input in0 0 1 0 #0=(1,2,4,4)c64
pnnx.Input in1 0 1 1 #1=(2,2,2,2)c64
F.conv2d c 2 1 0 1 2 bias=None $input=0 $weight=1 #0=(1,2,4,4)c64 #1=(2,2,2,2)c64 #2=(1,2,3,3)c64
pnnx.Output out0 1 0 2
"""


def extremes() -> torch.Tensor:
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 0, 0], x[0, 1, 2, 3], x[0, 0, 5, 5], x[0, 1, 5, 0] = float("nan"), float("inf"), 300.0, -300.0
    return x


SAMPLES = [
    Sample("nn_conv1d", nn.Conv1d(4, 5, 3), (SIGNAL,)),
    Sample("nn_conv1d_same_even", nn.Conv1d(4, 6, 4, padding="same", dilation=1, groups=2), (SIGNAL,)),
    Sample("nn_conv1d_circular", nn.Conv1d(4, 3, 5, padding=3, padding_mode="circular"), (SIGNAL,)),
    Sample("nn_conv1d_unbatched", nn.Conv1d(4, 5, 2, stride=2, bias=False), (SIGNAL[0],)),
    Sample("nn_conv2d", nn.Conv2d(4, 6, 3), (IMAGE,)),
    Sample("nn_conv2d_pointwise", nn.Conv2d(4, 7, 1), (IMAGE,)),
    Sample("nn_conv2d_pointwise_strided", nn.Conv2d(4, 7, 1, stride=2, groups=1), (IMAGE,)),
    Sample("nn_conv2d_depthwise", nn.Conv2d(4, 4, 3, padding=1, groups=4), (IMAGE,)),
    Sample("nn_conv2d_depthwise_multiplied", nn.Conv2d(4, 12, 5, stride=2, padding=2, groups=4), (IMAGE,)),
    Sample("nn_conv2d_everything", nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2, bias=False), (IMAGE,)),
    Sample("nn_conv2d_same", nn.Conv2d(4, 3, (4, 3), padding="same", dilation=(1, 2)), (IMAGE,)),
    Sample("nn_conv2d_valid", nn.Conv2d(4, 3, 2, padding="valid"), (IMAGE,)),
    Sample("nn_conv2d_reflect", nn.Conv2d(4, 3, 3, padding=2, padding_mode="reflect"), (IMAGE,)),
    Sample("nn_conv2d_replicate", nn.Conv2d(4, 3, 3, padding=(0, 3), padding_mode="replicate"), (IMAGE,)),
    Sample("nn_conv2d_circular_same", nn.Conv2d(4, 3, 4, padding="same", padding_mode="circular"), (IMAGE,)),
    Sample("nn_conv2d_unbatched", nn.Conv2d(4, 3, 3, padding=1), (IMAGE[0],)),
    Sample("nn_conv2d_batchnorm", nn.Sequential(nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)), (IMAGE,)),
    Sample("nn_conv2d_size_one", nn.Conv2d(4, 1, (9, 8)), (IMAGE,)),
    Sample("nn_conv2d_extremes", nn.Conv2d(2, 2, 3), (extremes(),)),
    Sample(
        "nn_conv2d_dynamic",
        nn.Conv2d(4, 3, 3, stride=2, padding=1),
        (IMAGE,),
        further=[(torch.randn(3, 4, 1, 12),), (torch.randn(0, 4, 5, 5),)],
        dynamic=(torch.randn(5, 4, 11, 6),),
    ),
    Sample("nn_conv2d_f64", nn.Conv2d(4, 3, 3).double(), (IMAGE.double(),), rtol=1e-12, atol=1e-13),
    Sample("nn_conv3d", nn.Conv3d(4, 6, (2, 3, 1), (1, 2, 1), (1, 0, 1), groups=2), (VOLUME,)),
    Sample("nn_conv3d_same_unbatched", nn.Conv3d(4, 2, 2, padding="same"), (VOLUME[0],)),
    Sample("F_conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), (SIGNAL, torch.randn(3, 4, 2), torch.randn(3))),
    Sample(
        "F_conv2d",
        lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 0), groups=2),
        (IMAGE, torch.randn(6, 2, 3, 3)),
    ),
    Sample(
        "F_conv2d_same",
        lambda x, w, b: F.conv2d(x, w, b, padding="same", dilation=2),
        (IMAGE, torch.randn(3, 4, 3, 2), torch.randn(3)),
    ),
    Sample(
        "F_conv2d_dynamic_weight",
        lambda x, w: F.conv2d(x, w),
        (IMAGE, torch.randn(3, 4, 3, 2)),
        dynamic=(torch.randn(3, 4, 7, 7), torch.randn(5, 4, 2, 4)),
        further=[(torch.randn(1, 4, 8, 9), torch.randn(2, 4, 1, 3))],
    ),
    Sample(
        "F_conv2d_int64", F.conv2d, (torch.arange(50).reshape(1, 2, 5, 5), torch.arange(-12, 12).reshape(3, 2, 2, 2))
    ),
    Sample("F_conv2d_f16", F.conv2d, (IMAGE.half(), torch.randn(3, 4, 3, 3).half()), rtol=2e-3, atol=2e-3),
    Sample("F_conv2d_bf16", F.conv2d, (IMAGE.bfloat16(), torch.randn(3, 4, 3, 3).bfloat16()), rtol=2e-2, atol=2e-2),
    Sample("F_conv3d", lambda x, w: F.conv3d(x, w, padding=1), (VOLUME, torch.randn(2, 4, 2, 3, 2))),
    Sample("nn_convtranspose1d", nn.ConvTranspose1d(4, 3, 4, 3, 1, 2, dilation=2), (SIGNAL,)),
    Sample("nn_convtranspose1d_unbatched", nn.ConvTranspose1d(4, 6, 2, bias=False, groups=2), (SIGNAL[0],)),
    Sample("nn_convtranspose2d", nn.ConvTranspose2d(4, 3, 2, 2), (IMAGE,)),
    Sample(
        "nn_convtranspose2d_everything",
        nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), groups=2, bias=False, dilation=(1, 2)),
        (IMAGE,),
    ),
    Sample("nn_convtranspose2d_depthwise", nn.ConvTranspose2d(4, 8, 4, 2, 1, groups=4), (IMAGE,)),
    Sample(
        "nn_convtranspose2d_dynamic",
        nn.ConvTranspose2d(4, 3, 3, 2, 1),
        (IMAGE,),
        further=[(torch.randn(1, 4, 3, 2),)],
        dynamic=(torch.randn(3, 4, 6, 7),),
    ),
    Sample("nn_convtranspose3d", nn.ConvTranspose3d(4, 2, (2, 3, 1), (1, 2, 2), (0, 1, 0), (0, 1, 1)), (VOLUME,)),
    Sample("F_conv_transpose1d", F.conv_transpose1d, (SIGNAL, torch.randn(4, 3, 3), torch.randn(3))),
    Sample(
        "F_conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        (IMAGE, torch.randn(4, 3, 3, 3)),
    ),
    Sample("F_conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, stride=2), (VOLUME, torch.randn(4, 2, 2, 1, 2))),
    Sample(
        "F_conv2d_complex",
        F.conv2d,
        (torch.randn(1, 2, 4, 4, dtype=torch.complex64), torch.randn(2, 2, 2, 2, dtype=torch.complex64)),
        param=COMPLEX,
    ),
]
