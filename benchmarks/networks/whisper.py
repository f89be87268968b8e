"""The encoder of Whisper-tiny (Radford et al. 2022): half a minute of sound as 3000 frames of 80 frequencies."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.attention import PreNormBlock

FREQUENCIES, FRAMES = 80, 3000


class _Encoder(nn.Module):
    """Spectrogram (N, F, T) -> hidden states (N, T / 2, C)."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(FREQUENCIES, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.position = nn.Parameter(torch.randn(FRAMES // 2, width) * 0.02)
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads, eps=1e-5) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(x))))
        return self.norm(self.blocks(x.permute(0, 2, 1) + self.position))


def whisper_tiny_encoder() -> nn.Module:
    """4 layers of width 384, 6 heads, 1500 positions: 8.2 M parameters, 18 G multiply-adds."""
    return _Encoder(384, 4, 6)
