"""Text to speech after VITS (Kim et al. 2021): text encoder, predicted durations, flow, and HiFi-GAN generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

WIDTH = 96
SYMBOLS = 178
RATES = (8, 8, 4)


class _TextLayer(nn.Module):
    """Attention over the symbols, then two convolutions."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Conv1d(WIDTH, 4 * WIDTH, 3, padding=1), nn.Conv1d(4 * WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, WIDTH // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) * (WIDTH // self.heads) ** -0.5).softmax(-1)
        x = self.norm1(x + self.out((weights @ v).transpose(1, 2).reshape(n, t, WIDTH)))
        return self.norm2(x + self.narrow(self.wide(x.transpose(1, 2)).relu()).transpose(1, 2))


class _Coupling(nn.Module):
    """Inverse of an affine coupling: one half, less what gated convolutions make of the other half."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        half = WIDTH // 2
        self.before, self.after = nn.Conv1d(half, WIDTH, 1), nn.Conv1d(WIDTH, half, 1)
        self.gated = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, 5, padding=2) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        y = self.before(first)
        for gated, skip in zip(self.gated, self.skip, strict=True):
            a, b = gated(y).chunk(2, 1)
            y = y + skip(a.tanh() * b.sigmoid())
        return torch.cat((second - self.after(y) * 0.1, first), 1)


class _Residual(nn.Module):
    """HiFi-GAN's second residual block: dilated convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d, padding=d) for d in (1, 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(leaky_relu(x, 0.1)) * 0.5
        return x


class _Vits(nn.Module):
    """Symbols (1, T) -> waveform (1, 1, 256 times the frames), whose number the predicted durations decide."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.text = nn.Sequential(*(_TextLayer() for _ in range(3)))
        self.duration = nn.Sequential(
            nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv1d(WIDTH, 1, 1), nn.Sigmoid()
        )
        self.flow = nn.Sequential(*(_Coupling() for _ in range(2)))
        widths = [128, 64, 32, 16]
        self.begin, self.end = nn.Conv1d(WIDTH, widths[0], 7, padding=3), nn.Conv1d(widths[-1], 1, 7, padding=3)
        pairs = list(zip(widths[:-1], widths[1:], RATES, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose1d(i, o, 2 * rate, rate, rate // 2) for i, o, rate in pairs)
        self.residual = nn.ModuleList(_Residual(width) for width in widths[1:])

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.text(self.embed(symbols)).transpose(1, 2)
        frames = torch.ceil(self.duration(x) * 4)[:, 0]
        end = frames.cumsum(-1)
        time = torch.arange(frames.sum().long(), device=x.device)[None, None]
        path = (time < end[..., None]) & (time >= (end - frames)[..., None])
        x = self.begin(self.flow(x @ path.to(x.dtype)))
        for up, residual in zip(self.up, self.residual, strict=True):
            x = residual(up(leaky_relu(x, 0.1)))
        return self.end(leaky_relu(x)).tanh()


def vits() -> nn.Module:
    """Make a small VITS: 2 M parameters, about two frames of 256 samples for each symbol."""
    return _Vits()
