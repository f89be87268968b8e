"""Transformers and their kin at reduced width."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from building import network, picture
from torch import Tensor, nn

torch.backends.mha.set_fastpath_enabled(False)


class Attention(nn.Module):
    """Written out by hand, as most repositories do."""

    def __init__(self, dim: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.causal = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads, causal
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        if self.causal:
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 8, 8)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, 24)), nn.Parameter(torch.randn(1, 17, 24) * 0.1)
        self.blocks, self.norm, self.head = (
            nn.Sequential(Block(24, 3), Block(24, 3)),
            nn.LayerNorm(24),
            nn.Linear(24, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def windows(x: Tensor, size: int) -> Tensor:
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def unwindows(x: Tensor, size: int, h: int, w: int) -> Tensor:
    b = x.shape[0] // (h * w // size // size)
    return x.view(b, h // size, w // size, size, size, -1).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


class SwinBlock(nn.Module):
    """Shifted windows with a relative position bias and the mask between windows."""

    def __init__(self, dim: int, heads: int, size: int, shift: int, resolution: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.size, self.shift, self.heads = (
            nn.LayerNorm(dim),
            nn.LayerNorm(dim),
            size,
            shift,
            heads,
        )
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.bias = nn.Parameter(torch.randn(heads, size * size, size * size) * 0.1)
        region = torch.zeros(1, resolution, resolution, 1)
        if shift:
            cuts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
            for k, (a, b) in enumerate((a, b) for a in cuts for b in cuts):
                region[:, a, b] = k
        ids = windows(region, size).squeeze(-1)
        self.register_buffer("mask", (ids.unsqueeze(1) != ids.unsqueeze(2)).float() * -100.0)

    def attend(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.bias.unsqueeze(0)
        count = self.mask.shape[0]
        scores = scores.view(n // count, count, self.heads, t, t) + self.mask.unsqueeze(1).unsqueeze(0)
        scores = scores.view(-1, self.heads, t, t).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(n, t, c))

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = self.norm1(x)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = unwindows(self.attend(windows(y, self.size)), self.size, h, w)
        y = torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.stage1 = nn.Sequential(SwinBlock(12, 2, 4, 0, 8), SwinBlock(12, 2, 4, 2, 8))
        self.merge, self.stage2 = PatchMerging(12), SwinBlock(24, 3, 4, 0, 4)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.merge(self.stage1(self.patch(x).permute(0, 2, 3, 1))))
        return self.head(self.norm(x).mean((1, 2)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(dim, dim, 7, padding=3, groups=dim), nn.LayerNorm(dim, eps=1e-6)
        self.up, self.down, self.gamma = (
            nn.Linear(dim, 4 * dim),
            nn.Linear(4 * dim, dim),
            nn.Parameter(torch.ones(dim) * 0.3),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ChannelsFirstNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 4, 4), ChannelsFirstNorm(12))
        self.stage1 = ConvNeXtBlock(12)
        self.down = nn.Sequential(ChannelsFirstNorm(12), nn.Conv2d(12, 20, 2, 2))
        self.stage2, self.norm, self.head = ConvNeXtBlock(20), nn.LayerNorm(20), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(self.norm(x.mean([-2, -1])))


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, 16, 8, 8), nn.Sequential(MixerBlock(16, 16), MixerBlock(16, 16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Bert(nn.Module):
    """Token, position and type embeddings; a padding mask; the encoder of torch itself; a pooler."""

    def __init__(self, vocabulary: int = 50, dim: int = 16) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, dim), nn.Embedding(32, dim)
        self.norm, self.pooler, self.head = nn.LayerNorm(dim), nn.Linear(dim, dim), nn.Linear(dim, 3)
        self.blocks = nn.ModuleList([Block(dim, 2) for _ in range(2)])
        self.register_buffer("ids", torch.arange(32).unsqueeze(0))

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.word(tokens) + self.position(self.ids[:, : tokens.shape[1]]))
        x = x * mask.unsqueeze(-1).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return x, self.head(torch.tanh(self.pooler(x[:, 0])))


class EncoderClassifier(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.word = nn.Embedding(40, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True, activation="gelu")
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(dim, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.word(tokens)).mean(1))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 50, dim: int = 24) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, dim), nn.Embedding(32, dim)
        self.blocks = nn.Sequential(Block(dim, 3, causal=True), Block(dim, 3, causal=True))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        return self.head(self.norm(self.blocks(self.word(tokens) + self.position(positions))))


TOKENS = torch.randint(0, 40, (1, 12))
SAMPLES = [
    network("vit", ViT(), picture(32)),
    network("swin", Swin(), picture(32)),
    network("convnext", ConvNeXt(), picture(32)),
    network("mlp_mixer", Mixer(), picture(32)),
    network("bert", Bert(), TOKENS, torch.ones(1, 12, dtype=torch.int64)),
    network("transformer_encoder", EncoderClassifier(), TOKENS),
    network("gpt", GPT(), TOKENS),
    network(
        "gpt_dynamic",
        GPT(),
        TOKENS,
        dynamic=[torch.randint(0, 40, (2, 17))],
        further=[[torch.randint(0, 40, (1, 7))], [torch.randint(0, 40, (3, 26))]],
    ),
]
