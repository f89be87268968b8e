"""ResNet-18 and ResNet-50 (He et al. 2015), and ResNeXt-50 (Xie et al. 2017), as torchvision defines them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm


class _BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, i: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_norm(i, width, 3, stride), conv_norm(width, width, act=None))
        self.downsample = _downsample(i, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.downsample(x))


class _Bottleneck(nn.Module):
    expansion, groups = 4, 1

    def __init__(self, i: int, width: int, stride: int) -> None:
        super().__init__()
        inner = width if self.groups == 1 else 2 * width
        self.body = nn.Sequential(
            conv_norm(i, inner, 1),
            conv_norm(inner, inner, 3, stride, groups=self.groups),
            conv_norm(inner, 4 * width, 1, act=None),
        )
        self.downsample = _downsample(i, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.downsample(x))


class _InGroups(_Bottleneck):
    """Twice as wide inside, in 32 groups."""

    groups = 32


def _downsample(i: int, o: int, stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 and i == o else conv_norm(i, o, 1, stride, act=None)


def _resnet(block: type[_BasicBlock] | type[_Bottleneck], depths: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            layers.append(block(channels, width, 2 if stage > 0 and index == 0 else 1))
            channels = width * block.expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def resnet18() -> nn.Module:
    """11.7 M parameters, 1.8 G multiply-adds."""
    return _resnet(_BasicBlock, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    """25.6 M parameters, 4.1 G multiply-adds."""
    return _resnet(_Bottleneck, (3, 4, 6, 3))


def resnext50() -> nn.Module:
    """25.0 M parameters, 4.2 G multiply-adds; four to 32 channels a group."""
    return _resnet(_InGroups, (3, 4, 6, 3))
