"""ConvNeXt-T (Liu et al. 2022), as torchvision writes it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.attention import feed_forward


class _ChannelNorm(nn.LayerNorm):
    """Layer normalisation of the channels of images (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Block(nn.Module):
    """x + scale * feed_forward(norm(depthwise(x))), the linear layers on channels that lie last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width, 1e-6)
        self.mlp, self.scale = feed_forward(width), nn.Parameter(0.1 + 0.2 * torch.rand(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + self.scale * y.permute(0, 3, 1, 2)


class _ConvNeXt(nn.Module):
    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _ChannelNorm(widths[0], 1e-6)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if stage:
                layers += [_ChannelNorm(widths[stage - 1], 1e-6), nn.Conv2d(widths[stage - 1], width, 2, 2)]
            layers += [_Block(width) for _ in range(depth)]
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.norm, self.head = _ChannelNorm(widths[-1], 1e-6), nn.Linear(widths[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.avgpool(self.features(x))).flatten(1))


def convnext_tiny() -> nn.Module:
    """3, 3, 9 and 3 blocks of width 96 to 768: 28.6 M parameters, 4.5 G multiply-adds."""
    return _ConvNeXt((96, 192, 384, 768), (3, 3, 9, 3))
