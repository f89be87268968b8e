"""ShuffleNetV2 1.0x (Ma et al. 2018), as torchvision defines it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm


def _shuffle(x: Tensor, groups: int = 2) -> Tensor:
    n, c, h, w = x.size()
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class _Unit(nn.Module):
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        half = o // 2
        self.left = None
        if stride == 2:
            self.left = nn.Sequential(conv_norm(i, i, 3, 2, i, act=None), conv_norm(i, half, 1))
        self.right = nn.Sequential(
            conv_norm(i if stride == 2 else half, half, 1),
            conv_norm(half, half, 3, stride, half, act=None),
            conv_norm(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.left is not None:
            return _shuffle(torch.cat([self.left(x), self.right(x)], 1))
        kept, worked = x.chunk(2, dim=1)
        return _shuffle(torch.cat([kept, self.right(worked)], 1))


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean([2, 3])


def shufflenet_v2_x1_0() -> nn.Module:
    """2.3 M parameters, 0.15 G multiply-adds."""
    layers: list[nn.Module] = [conv_norm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for o, depth in ((116, 4), (232, 8), (464, 4)):
        layers += [_Unit(channels, o, 2), *(_Unit(o, o, 1) for _ in range(depth - 1))]
        channels = o
    return nn.Sequential(*layers, conv_norm(464, 1024, 1), _Mean(), nn.Linear(1024, 1000))
