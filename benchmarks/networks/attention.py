"""Transformer layers that the language and the picture models share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence (N, T, C) to itself; queries, keys and values from one linear layer."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        # Not as one tensor of five dimensions: ncnn has no more than four, of which the batch is none.
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class SpelledAttention(SelfAttention):
    """The same, written out as exporters of language models do: product, scale, softmax, product."""

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        width = c // self.heads
        q, k, v = (y.view(n, t, self.heads, width).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / width**0.5, -1)
        return self.proj(torch.matmul(weights, v).transpose(1, 2).reshape(n, t, c))


class MaskedAttention(nn.Module):
    """Attention alone: queries, keys and values (N, 3, heads, T, width), and a mask that broadcasts to the scores."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(*x.unbind(1), attn_mask=self.mask)


def masked_attention() -> nn.Module:
    """384 positions, as long as BERT's questions and answers are, and a number for every score."""
    return MaskedAttention(torch.randn(1, 1, 384, 384))


def padded_attention() -> nn.Module:
    """The same length, of which the last third is no text."""
    return MaskedAttention(torch.where(torch.arange(384) < 256, 0.0, -torch.inf).view(1, 1, 1, 384))


def window_attention() -> nn.Module:
    """The same length, of which every position sees itself and the 63 before it."""
    behind = torch.arange(384).view(-1, 1) - torch.arange(384)
    return MaskedAttention(torch.where((behind >= 0) & (behind < 64), 0.0, -torch.inf).view(1, 1, 384, 384))


class SummedAttention(nn.Module):
    """Attention alone, as papers' code writes it: Einstein summations of (N, 3, T, heads, width)."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.unbind(1)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def summed_attention() -> nn.Module:
    """As many positions as a picture of 56 × 56 has."""
    return SummedAttention()


def feed_forward(width: int, approximate: str = "none") -> nn.Sequential:
    """Four times as wide, GELU, and back."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))


class PreNormBlock(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, approximate: str = "none", eps: float) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, eps), SelfAttention(width, heads, causal=causal)
        self.norm2, self.mlp = nn.LayerNorm(width, eps), feed_forward(width, approximate)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
