"""Samples of moves between channels and space."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

X = torch.randn(2, 8, 4, 6)
CHANNEL_SHUFFLE = """7767517
3 2
pnnx.Input in0 0 1 0 #0=(2,8,4,6)f32
F.channel_shuffle s 1 1 0 1 groups=4 $input=0 #0=(2,8,4,6)f32 #1=(2,8,4,6)f32
pnnx.Output out0 1 0 1
"""

SAMPLES = [
    Sample("nn_pixel_shuffle", nn.PixelShuffle(2), (X,)),
    Sample(
        "F_pixel_shuffle_five_dims_int64", lambda x: F.pixel_shuffle(x, 2), (torch.arange(96).reshape(2, 1, 8, 2, 3),)
    ),
    Sample(
        "F_pixel_shuffle_dynamic",
        lambda x: F.pixel_shuffle(x, 2),
        (X,),
        further=[(torch.randn(1, 4, 1, 1),)],
        dynamic=(torch.randn(3, 12, 5, 2),),
    ),
    Sample("nn_pixel_unshuffle", nn.PixelUnshuffle(2), (X,)),
    Sample("F_pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (X[0],)),
    Sample("nn_channel_shuffle", nn.ChannelShuffle(2), (X,)),
    Sample("aten_channel_shuffle", lambda x: torch.channel_shuffle(x, 4), (X[..., 0],)),
    Sample("F_channel_shuffle", lambda x: torch.channel_shuffle(x, 4), (X,), param=CHANNEL_SHUFFLE),
]
