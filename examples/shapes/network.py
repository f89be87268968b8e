"""Network of the shapes model: two scales, anchor-free, boxes decoded in the graph as in exports of YOLOv8."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STRIDES = 8, 16


class Convolution(nn.Sequential):
    """Convolution, normalisation, SiLU."""

    def __init__(self, channels: int, filters: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(filters), nn.SiLU()
        )


class Split(nn.Module):
    """C2f block: half of the channels goes through two convolutions, then both halves and the result are mixed."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.half = filters // 2
        self.enter = Convolution(channels, filters, 1)
        self.first = Convolution(self.half, self.half)
        self.second = Convolution(self.half, self.half)
        self.mix = Convolution(filters + self.half, filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, worked = self.enter(x).chunk(2, 1)
        found = worked + self.second(self.first(worked))
        mixed: Tensor = self.mix(torch.cat((kept, worked, found), 1))
        return mixed


class Head(nn.Module):
    """Head with distances to the four sides, in strides, and class logits: (N, 4 + classes, H, W)."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.box = Convolution(channels, width)
        self.distances = nn.Conv2d(width, 4, 1)
        self.kind = Convolution(channels, width)
        self.logits = nn.Conv2d(width, classes, 1)
        nn.init.constant_(self.distances.bias, 1.5)
        nn.init.constant_(self.logits.bias, -5.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((F.softplus(self.distances(self.box(x))), self.logits(self.kind(x))), 1)


class Detector(nn.Module):
    """Detector: (N, 3, size, size) float32 in 0..1 -> (N, 4 + classes, anchors).

    Rows 0 to 3 are cx, cy, w, h in pixels of the input, the others scores of 0 to 1.
    """

    centers: Tensor
    strides: Tensor

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 16, stride=2), Convolution(16, 24, stride=2), Split(24, 24))
        self.fine = nn.Sequential(Convolution(24, 48, stride=2), Split(48, 48))
        self.coarse = nn.Sequential(Convolution(48, 72, stride=2), Split(72, 72))
        self.merge = Split(48 + 72, 48)
        self.heads = nn.ModuleList([Head(48, 32, classes), Head(72, 32, classes)])
        self.register_buffer("centers", torch.cat([_centers(size // stride) * stride for stride in STRIDES], 1))
        self.register_buffer("strides", torch.cat([torch.full((1, (size // s) ** 2), float(s)) for s in STRIDES], 1))

    def locate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return corners x0 y0 x1 y1 (N, 4, anchors) in pixels, and logits (N, classes, anchors)."""
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        merged = self.merge(torch.cat((fine, F.interpolate(coarse, scale_factor=2, mode="nearest")), 1))
        found = torch.cat([head(y).flatten(2) for head, y in zip(self.heads, (merged, coarse), strict=True)], 2)
        distances, logits = found.split((4, found.shape[1] - 4), 1)
        before, after = (distances * self.strides).chunk(2, 1)
        return torch.cat((self.centers - before, self.centers + after), 1), logits

    def forward(self, x: Tensor) -> Tensor:
        corners, logits = self.locate(x)
        low, high = corners.chunk(2, 1)
        return torch.cat(((low + high) / 2, high - low, logits.sigmoid()), 1)


def _centers(cells: int) -> Tensor:
    """Return the centres of the cells of a square grid, x and y, row by row: (2, cells * cells)."""
    steps = torch.arange(cells) + 0.5
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack((x.flatten(), y.flatten()))
