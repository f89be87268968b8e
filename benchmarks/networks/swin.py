"""Swin-T (Liu et al. 2021), as torchvision writes it: windows of 7x7, every other block's shifted by 3."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.attention import feed_forward

WINDOW, SIDE = 7, 56


class _WindowAttention(nn.Module):
    """Attention within windows (N * windows, T, C), to which distances and, where windows are shifted, borders add."""

    def __init__(self, width: int, heads: int, mask: Tensor | None) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, heads) * 0.02)
        self.register_buffer("places", _distances())
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale).matmul(k.transpose(-2, -1))
        scores = scores + self.table[self.places].view(t, t, -1).permute(2, 0, 1).unsqueeze(0)
        if self.mask is not None:
            windows = self.mask.shape[0]
            scores = scores.view(n // windows, windows, self.heads, t, t) + self.mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, t, t)
        return self.proj(torch.softmax(scores, -1).matmul(v).transpose(1, 2).reshape(n, t, c))


def _distances() -> Tensor:
    """Return the table entry of every pair of positions in a window."""
    axes = torch.arange(WINDOW)
    places = torch.stack(torch.meshgrid(axes, axes, indexing="ij")).flatten(1)
    down, across = places[:, :, None] - places[:, None, :] + WINDOW - 1
    return (down * (2 * WINDOW - 1) + across).flatten()


def _mask(side: int, shift: int) -> Tensor:
    """Return the mask between pixels that only a shift made neighbours: (windows, T, T), 0 or -100."""
    parts = torch.zeros(side, side)
    for number, (first, last) in enumerate(((0, side - WINDOW), (side - WINDOW, side - shift), (side - shift, side))):
        parts[first:last] += 3 * number
        parts[:, first:last] += number
    windows = parts.view(side // WINDOW, WINDOW, side // WINDOW, WINDOW).permute(0, 2, 1, 3).reshape(-1, WINDOW**2)
    return torch.where(windows[:, None] == windows[:, :, None], 0.0, -100.0)


class _Block(nn.Module):
    """x + attention(norm(x)) in windows, then x + feed_forward(norm(x)); images (N, H, W, C)."""

    def __init__(self, width: int, heads: int, side: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1 = nn.LayerNorm(width, 1e-5)
        self.attention = _WindowAttention(width, heads, _mask(side, shift) if shift else None)
        self.norm2, self.mlp = nn.LayerNorm(width, 1e-5), feed_forward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attended(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def _attended(self, x: Tensor) -> Tensor:
        n, height, width, c = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.view(n, height // WINDOW, WINDOW, width // WINDOW, WINDOW, c).permute(0, 1, 3, 2, 4, 5)
        x = self.attention(x.reshape(-1, WINDOW**2, c))
        x = x.view(n, height // WINDOW, width // WINDOW, WINDOW, WINDOW, c).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(n, height, width, c)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class _Merging(nn.Module):
    """Four neighbouring pixels as one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * width, 1e-5), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.reduction(self.norm(torch.cat(parts, -1)))


class _Swin(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...], heads: tuple[int, ...]) -> None:
        super().__init__()
        self.patch, self.first_norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width, 1e-5)
        stages: list[nn.Module] = []
        for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            side, wide = SIDE >> stage, width << stage
            shift = WINDOW // 2 if side > WINDOW else 0
            stages += [_Merging(wide // 2)] if stage else []
            stages += [_Block(wide, count, side, shift * (index % 2)) for index in range(depth)]
        self.stages, wide = nn.Sequential(*stages), width << (len(depths) - 1)
        self.norm, self.avgpool, self.head = nn.LayerNorm(wide, 1e-5), nn.AdaptiveAvgPool2d(1), nn.Linear(wide, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stages(self.first_norm(self.patch(x).permute(0, 2, 3, 1))))
        return self.head(self.avgpool(x.permute(0, 3, 1, 2)).flatten(1))


def swin_tiny() -> nn.Module:
    """2, 2, 6 and 2 blocks of width 96 to 768: 28.3 M parameters, 4.5 G multiply-adds."""
    return _Swin(96, (2, 2, 6, 2), (3, 6, 12, 24))
