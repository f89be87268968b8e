"""Vision transformers with patches of 16 (Dosovitskiy et al. 2020): ViT-Ti/16 and ViT-B/16 at 224x224."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.attention import PreNormBlock

PATCH, SIDE = 16, 14


class _ViT(nn.Module):
    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, SIDE * SIDE + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads, eps=1e-6) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_tiny() -> nn.Module:
    """12 layers of width 192, 3 heads: 5.7 M parameters, 1.3 G multiply-adds."""
    return _ViT(192, 12, 3)


def vit_b16() -> nn.Module:
    """12 layers of width 768, 12 heads: 86.6 M parameters, 17.6 G multiply-adds."""
    return _ViT(768, 12, 12)
