"""Language models over 128 tokens: BERT (Devlin et al. 2018), MiniLM (Wang et al. 2020), and a small GPT-2."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.attention import PreNormBlock, SelfAttention, SpelledAttention, feed_forward

TOKENS = 128


class _BertLayer(nn.Module):
    """norm(x + attention(x)), then norm(x + feed_forward(x))."""

    def __init__(self, width: int, heads: int, *, is_spelled: bool = False) -> None:
        super().__init__()
        attention = SpelledAttention if is_spelled else SelfAttention
        self.attention, self.norm1 = attention(width, heads), nn.LayerNorm(width, 1e-12)
        self.mlp, self.norm2 = feed_forward(width), nn.LayerNorm(width, 1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class _Bert(nn.Module):
    """Indices (N, T) -> hidden states (N, T, C); one segment, no padding.

    Args:
        most_tokens: learned positions; None for exactly as many as the example has tokens, so that none is cut off.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        heads: int,
        *,
        is_spelled: bool = False,
        most_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.word, self.segment = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, most_tokens or TOKENS, width))
        self.is_open = most_tokens is not None
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.Sequential(*(_BertLayer(width, heads, is_spelled=is_spelled) for _ in range(depth)))

    def forward(self, indices: Tensor) -> Tensor:
        position = self.position[:, : indices.shape[1]] if self.is_open else self.position
        return self.layers(self.norm(self.word(indices) + self.segment + position))


class _GPT(nn.Module):
    """Indices (N, T) -> logits (N, T, vocabulary)."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(1, TOKENS, width))
        self.blocks = nn.Sequential(
            *(PreNormBlock(width, heads, causal=True, approximate="tanh", eps=1e-5) for _ in range(depth))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, indices: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.word(indices) + self.position)))


def bert_mini() -> nn.Module:
    """4 layers of width 256 (Turc et al. 2019), 4 heads, 30522 words: 11.0 M parameters, 0.4 G multiply-adds."""
    return _Bert(30522, 256, 4, 4)


def bert_mini_open() -> nn.Module:
    """Build the same for up to 512 tokens."""
    return _Bert(30522, 256, 4, 4, most_tokens=512)


def bert_base() -> nn.Module:
    """12 layers of width 768, 12 heads, 30522 words: 109 M parameters, 11 G multiply-adds in linear layers."""
    return _Bert(30522, 768, 12, 12)


def minilm_l6() -> nn.Module:
    """6 layers of width 384, 12 heads, 30522 words: 22.6 M parameters, 1.4 G multiply-adds in linear layers."""
    return _Bert(30522, 384, 6, 12, is_spelled=True)


def minilm_l6_open() -> nn.Module:
    """Build the same for up to 512 tokens."""
    return _Bert(30522, 384, 6, 12, is_spelled=True, most_tokens=512)


def gpt_small() -> nn.Module:
    """6 layers of width 384, 6 heads, 8192 words: 17 M parameters, 1.8 G multiply-adds in linear layers."""
    return _GPT(8192, 384, 6, 6)
