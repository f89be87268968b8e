"""UltraFace in its slim form: faces in a small picture, from separable convolutions at four scales."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm


def _separable(i: int, o: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv_norm(i, i, 3, stride, groups=i), conv_norm(i, o, 1))


def _head(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, i, 3, 1, 1, groups=i), nn.ReLU(), nn.Conv2d(i, o, 1))


class _UltraFace(nn.Module):
    """A picture (N, 3, H, W) -> scores and corners of boxes (N, boxes, 6)."""

    def __init__(self) -> None:
        super().__init__()
        near = [conv_norm(3, 16, 3, 2), _separable(16, 32), _separable(32, 32, 2), _separable(32, 32)]
        near += [_separable(32, 64, 2), *(_separable(64, 64) for _ in range(3))]
        middle = [_separable(64, 128, 2), _separable(128, 128), _separable(128, 128)]
        far = [_separable(128, 256, 2), _separable(256, 256)]
        extra = [conv_norm(256, 64, 1), _separable(64, 256, 2)]
        self.scales = nn.ModuleList(nn.Sequential(*layers) for layers in (near, middle, far, extra))
        boxes = list(zip((64, 128, 256, 256), (3, 2, 2, 3), strict=True))
        self.scores = nn.ModuleList(_head(width, 2 * count) for width, count in boxes)
        self.corners = nn.ModuleList(_head(width, 4 * count) for width, count in boxes)

    def forward(self, x: Tensor) -> Tensor:
        scores, corners = [], []
        for scale, score, corner in zip(self.scales, self.scores, self.corners, strict=True):
            x = scale(x)
            scores.append(score(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 2))
            corners.append(corner(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return torch.cat((torch.cat(scores, 1).softmax(2), torch.cat(corners, 1)), 2)


def ultraface() -> nn.Module:
    """0.3 M parameters; 4,420 boxes at 240 x 320."""
    return _UltraFace()
