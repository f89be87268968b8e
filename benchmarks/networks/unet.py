"""UNet (Ronneberger et al. 2015) with batch norm and padded convolutions: 64-128-256-512-1024."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm

WIDTHS = (64, 128, 256, 512, 1024)


def _double(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(i, o), conv_norm(o, o))


class _UNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        pairs = list(zip(WIDTHS[:-1], WIDTHS[1:], strict=True))
        self.inc = _double(3, WIDTHS[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _double(i, o)) for i, o in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in reversed(pairs))
        self.merge = nn.ModuleList(_double(2 * i, i) for i, _ in reversed(pairs))
        self.outc = nn.Conv2d(WIDTHS[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.outc(x)


def unet() -> nn.Module:
    """31.0 M parameters, 55 G multiply-adds at 256x256; two classes."""
    return _UNet(2)
