"""Samples of deformable convolution; recording them needs torchvision."""

from __future__ import annotations

import torch
from record import Sample
from torch import nn
from torchvision.ops import DeformConv2d, deform_conv2d

X = torch.randn(2, 4, 6, 7)


class Deformed(nn.Module):
    def __init__(self, conv: DeformConv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.conv(*operands)


def operands(conv: DeformConv2d, groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input, offset and mask for groups of offsets."""
    taps = conv.kernel_size[0] * conv.kernel_size[1]
    h, w = nn.Conv2d(4, 1, conv.kernel_size, conv.stride, conv.padding, conv.dilation)(X).shape[2:]
    return X, torch.randn(2, 2 * groups * taps, h, w) * 2, torch.rand(2, groups * taps, h, w)


PLAIN, EVERYTHING = DeformConv2d(4, 5, 3, padding=1), DeformConv2d(4, 6, (2, 3), (2, 1), (1, 2), (1, 2), 2, bias=False)
PARAM = """7767517
7 6
pnnx.Input in0 0 1 0 #0=(1,2,5,5)f32
pnnx.Input in1 0 1 1 #1=(3,2,2,2)f32
pnnx.Input in2 0 1 2 #2=(1,8,4,5)f32
pnnx.Input in3 0 1 3 #3=(1,4,4,5)f32
pnnx.Input in4 0 1 4 #4=(3)f32
pnnx.custom_op.torchvision.deform_conv2d d 5 1 0 1 2 3 4 5 arg_5=1 arg_6=1 arg_7=0 arg_8=1 arg_9=1 arg_10=2 arg_11=1 arg_12=1 arg_13={} $arg_0=0 $arg_1=1 $arg_2=2 $arg_3=3 $arg_4=4 #5=(1,3,4,5)f32
pnnx.Output out0 1 0 5
"""
CUSTOM = (
    torch.randn(1, 2, 5, 5),
    torch.randn(3, 2, 2, 2),
    torch.randn(1, 8, 4, 5),
    torch.rand(1, 4, 4, 5),
    torch.randn(3),
)

SAMPLES = [
    Sample("module", Deformed(PLAIN), operands(PLAIN, 1)[:2]),
    Sample("module_mask", Deformed(PLAIN), operands(PLAIN, 2)),
    Sample("module_everything", Deformed(EVERYTHING), operands(EVERYTHING, 2)),
    Sample(
        "custom_op",
        lambda x, w, o, m, b: deform_conv2d(x, o, w, b, padding=(0, 1), dilation=(1, 2), mask=m),
        CUSTOM,
        param=PARAM.format(True),
    ),
    Sample(
        "custom_op_without_mask",
        lambda x, w, o, m, b: deform_conv2d(x, o, w, b, padding=(0, 1), dilation=(1, 2)),
        CUSTOM,
        param=PARAM.format(False),
    ),
]
