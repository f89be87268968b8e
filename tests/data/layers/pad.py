"""Samples of padding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

SIGNAL, IMAGE, VOLUME = torch.randn(2, 3, 6), torch.randn(2, 3, 5, 4), torch.randn(1, 2, 4, 3, 5)

SAMPLES = [
    Sample("nn_zeropad2d", nn.ZeroPad2d((1, 2, 0, 3)), (IMAGE,)),
    Sample("nn_zeropad2d_negative", nn.ZeroPad2d((-1, 2, 1, -2)), (IMAGE,)),
    Sample("nn_constantpad1d", nn.ConstantPad1d((2, 1), -1.5), (SIGNAL,)),
    Sample("nn_constantpad2d", nn.ConstantPad2d(1, 7.0), (IMAGE[0],)),
    Sample("nn_constantpad3d", nn.ConstantPad3d((0, 1, 2, 0, -1, 1), 300.0), (VOLUME,)),
    Sample("nn_reflectionpad1d", nn.ReflectionPad1d((5, 2)), (SIGNAL,)),
    Sample("nn_reflectionpad2d", nn.ReflectionPad2d((3, 0, 1, 4)), (IMAGE,)),
    Sample("nn_replicationpad1d", nn.ReplicationPad1d((1, 8)), (SIGNAL[0],)),
    Sample("nn_replicationpad2d", nn.ReplicationPad2d((0, 2, -1, 9)), (IMAGE,)),
    Sample("nn_replicationpad3d", nn.ReplicationPad3d((1, 2, 3, 4, 5, 6)), (VOLUME,)),
    Sample("F_pad_last_axis", lambda x: F.pad(x, (3, 4), value=1.25), (IMAGE,)),
    Sample("F_pad_every_axis", lambda x: F.pad(x, (1, 0, 2, 1, 0, 1, 1, 2)), (IMAGE,)),
    Sample("F_pad_infinity", lambda x: F.pad(x, (1, 1), value=float("-inf")), (SIGNAL,)),
    Sample("F_pad_nan", lambda x: F.pad(x, (1, 1), value=float("nan")), (SIGNAL,)),
    Sample("F_pad_crop", lambda x: F.pad(x, (-2, -1, -1, 0)), (IMAGE,)),
    Sample("F_pad_reflect_negative", lambda x: F.pad(x, (-2, 3), mode="reflect"), (SIGNAL,)),
    Sample("F_pad_reflect_3d", lambda x: F.pad(x, (1, 2, 2, 0, 3, 1), mode="reflect"), (VOLUME,)),
    Sample("F_pad_replicate", lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (IMAGE,)),
    Sample("F_pad_circular_1d", lambda x: F.pad(x, (6, 2), mode="circular"), (SIGNAL,)),
    Sample("F_pad_circular_2d", lambda x: F.pad(x, (-1, 2, 4, -1), mode="circular"), (IMAGE,)),
    Sample("F_pad_circular_3d", lambda x: F.pad(x, (1, 2, 3, 0, 1, 4), mode="circular"), (VOLUME,)),
    Sample("F_pad_int64", lambda x: F.pad(x, (1, 2), value=7), (torch.arange(6).reshape(2, 3),)),
    Sample("F_pad_bool", lambda x: F.pad(x, (1, 2), value=True), (torch.tensor([[True, False, False]]),)),
    Sample("F_pad_f16_reflect", lambda x: F.pad(x, (2, 2), mode="reflect"), (SIGNAL.half(),)),
    Sample("F_pad_bf16", lambda x: F.pad(x, (2, 2), value=0.3), (SIGNAL.bfloat16(),)),
    Sample("F_pad_size_one", lambda x: F.pad(x, (2, 3), mode="replicate"), (torch.tensor([[[4.0]]]),)),
    Sample(
        "F_pad_to_a_multiple",
        lambda x: F.pad(x, (0, -x.size(3) % 4, 0, -x.size(2) % 4)),
        (IMAGE,),
        further=[(torch.randn(1, 3, 7, 9),)],
        dynamic=(torch.randn(3, 3, 6, 7),),
    ),
    Sample(
        "F_pad_dynamic_reflect",
        lambda x: F.pad(x, (1, x.size(3) - 1, 2, 0), mode="reflect"),
        (IMAGE,),
        further=[(torch.randn(1, 3, 3, 9),)],
        dynamic=(torch.randn(3, 3, 6, 7),),
    ),
]
