"""Networks of volumes: a residual video classifier, and a U-Net with instance norms, as for medical scans."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _Residual(nn.Module):
    """Two convolutions of 3×3×3, as in torchvision's r3d_18."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(i, o, 3, stride, 1, bias=False),
            nn.BatchNorm3d(o),
            nn.ReLU(),
            nn.Conv3d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm3d(o),
        )
        self.skip: nn.Module = nn.Identity()
        if i != o or stride > 1:
            self.skip = nn.Sequential(nn.Conv3d(i, o, 1, stride, bias=False), nn.BatchNorm3d(o))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.body(x))


def resnet_of_volumes() -> nn.Module:
    """(N, 3, 8, 112, 112) -> (N, 400), half as wide as r3d_18, one block a stage: 3.7 M parameters."""
    stem = nn.Conv3d(3, 32, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(32), nn.ReLU()
    stages = [_Residual(i, o, stride) for i, o, stride in ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2))]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(256, 400))


def _twice(i: int, o: int) -> nn.Sequential:
    """Two convolutions, each with an instance norm."""
    layers: list[nn.Module] = []
    for channels in (i, o):
        layers += [nn.Conv3d(channels, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        pairs = [*zip((1, *widths), widths, strict=False)]
        self.down = nn.ModuleList(_twice(i, o) for i, o in pairs)
        self.pool = nn.MaxPool3d(2)
        upper = [*zip(widths[:0:-1], widths[-2::-1], strict=True)]
        self.wider = nn.ModuleList(nn.ConvTranspose3d(i, o, 2, 2) for i, o in upper)
        self.up = nn.ModuleList(_twice(2 * o, o) for _, o in upper)
        self.head = nn.Conv3d(widths[0], 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for number, stage in enumerate(self.down):
            x = stage(self.pool(x) if number else x)
            kept.append(x)
        for wider, stage, beside in zip(self.wider, self.up, kept[-2::-1], strict=True):
            x = stage(torch.cat([wider(x), beside], 1))
        return self.head(x)


def unet_of_volumes() -> nn.Module:
    """(N, 1, D, H, W) -> (N, 3, D, H, W), of multiples of 4: 0.5 M parameters."""
    return _UNet()
