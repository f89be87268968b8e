"""Samples of modules that have parameters in common: the converter hands these to all but the first as operands."""

from __future__ import annotations

import torch
from record import Sample
from torch import Tensor, nn


class LanguageModel(nn.Module):
    """An embedding that is the weight of the last layer, and of one with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.head, self.other = nn.Linear(8, 20, bias=False), nn.Linear(8, 20)
        self.head.weight = self.other.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(ids)
        return self.head(x), self.other(x), x @ self.embedding.weight.T


class Square(nn.Module):
    """Two linear layers of as many outputs as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Convolutions(nn.Module):
    """A filter that is walked forwards, then backwards; norms of one weight; one slope."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.ConvTranspose2d(4, 4, 3), nn.Conv2d(4, 4, 3)
        self.back.weight = self.there.weight
        self.norms = nn.ModuleList([nn.GroupNorm(2, 4), nn.GroupNorm(4, 4)])
        self.norms[1].weight, self.norms[1].bias = self.norms[0].weight, self.norms[0].bias
        self.slopes = nn.ModuleList([nn.PReLU(4), nn.PReLU(4)])
        self.slopes[1].weight = self.slopes[0].weight

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.slopes[1](self.back(self.slopes[0](self.there(x))))
        return tuple(norm(x) for norm in self.norms)


class Recurrent(nn.Module):
    """Some of the weights of a layer, with a state that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(8, 8), nn.GRU(8, 8)
        self.second.weight_ih_l0 = self.first.weight_ih_l0
        self.second.bias_hh_l0 = self.first.bias_hh_l0
        self.state = nn.Parameter(torch.randn(1, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x, self.state)[0], self.state)[0]


class States(nn.Module):
    """Layers that begin with a state that was learned."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 5)
        self.h, self.c, self.state = (nn.Parameter(torch.randn(*each)) for each in ((4, 3, 4), (4, 3, 4), (1, 7, 5)))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found, (h, c) = self.lstm(x, (self.h, self.c))
        return *self.gru(found, self.state), h, c


class Memory(nn.Module):
    """Questions that a run computes about what was learned, and learned ones about what a run computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.memory, self.questions = nn.Parameter(torch.randn(1, 5, 8)), nn.Parameter(torch.randn(1, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x, self.memory, self.memory)[0]
        return self.second(self.questions, x, x)[0]


SAMPLES = [
    Sample("language_model", LanguageModel(), (torch.randint(0, 20, (2, 5)),)),
    Sample("square", Square(), (torch.randn(5, 8),)),
    Sample("convolutions", Convolutions(), (torch.randn(2, 4, 6, 5),)),
    Sample("recurrent", Recurrent(), (torch.randn(5, 2, 8),)),
    Sample("states", States(), (torch.randn(3, 7, 6),)),
    Sample("memory", Memory(), (torch.randn(1, 4, 8),)),
]
