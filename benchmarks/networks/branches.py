"""MobileOne-S0 (Vasu et al. 2022) as it is trained: branches side by side, which are merged to be deployed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Blocks, channels, and how many convolutions of its kernel stand side by side in each.
_STAGES = ((2, 48), (8, 128), (10, 256), (1, 1024))
_SIDE_BY_SIDE = 4


def _branch(i: int, o: int, kernel: int, stride: int, groups: int) -> nn.Module:
    conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o))


class _Branches(nn.Module):
    """Convolutions of a kernel and of single pixels, and a normalisation where nothing changes size; their sum."""

    def __init__(self, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, count: int = 1) -> None:
        super().__init__()
        kernels = [kernel] * count + ([1] if kernel > 1 else [])
        self.branches = nn.ModuleList(_branch(i, o, each, stride, groups) for each in kernels)
        if i == o and stride == 1:
            self.branches.append(nn.BatchNorm2d(i))

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.branches
        total = first(x)
        for branch in others:
            total = total + branch(x)
        return torch.relu(total)


def mobileone_s0() -> nn.Module:
    """For pictures 224 pixels wide, 1000 classes."""
    layers: list[nn.Module] = [_Branches(3, 48, 3, 2)]
    width = 48
    for blocks, channels in _STAGES:
        for number in range(blocks):
            layers.append(_Branches(width, width, 3, 1 if number else 2, width, _SIDE_BY_SIDE))
            layers.append(_Branches(width, channels, 1, count=_SIDE_BY_SIDE))
            width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
