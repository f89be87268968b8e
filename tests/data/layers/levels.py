"""Samples that the converter simplified less, at optimisation level 0 or 1: names repeat, numbers are tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from record import Sample
from torch import Tensor, nn

X = torch.randn(2, 3, 6, 6)
INTS = torch.arange(12).reshape(3, 4)


class Shared(nn.Module):
    """A convolution, a normalisation and an activation, each used twice; optimisation level 0 repeats their names."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.head = nn.Linear(6, 6)
        self.block[1].running_mean.normal_()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.head(self.block(x)) - self.block(x * 2))


class Recurring(nn.Module):
    """A recurrent layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.rnn(x)[0])[0]


def size_as(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A size that becomes a tensor of a dtype before it is computed with."""
    return lambda x: x * torch.tensor(x.size(1)).to(dtype)


def both(name: str, call: Callable[..., object], *inputs: Tensor) -> list[Sample]:
    return [Sample(f"{name}_level{level}", call, inputs, opt_level=level) for level in (0, 1)]


def assigned(x: Tensor) -> Tensor:
    """Parts of a tensor that are assigned to: by slices, by numbers, by both, and with what is spread and converted."""
    y = x * 1
    y[:, 1:3] = x[:, :1]
    y[1, ::2, 0] = 7
    y[0, 2] = x[1, 0, :, :1].long()
    y[..., -1] = y[..., 0] - 1
    return y + 1


def copied_to_parts(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:3].copy_(x[:, :1])
    y[1, ..., 0].copy_(x[0, ..., -1])
    y[:, :, 1:].copy_(y[:, :, :-1] * 2)
    return y + 1


def copied(x: Tensor) -> Tensor:
    """Another tensor copied to all of one, spread and converted."""
    return torch.zeros(x.shape, dtype=torch.int64).copy_(x[:1]) + x.long()


def both_open(name: str, call: Callable[..., object], x: Tensor, *further: Tensor) -> list[Sample]:
    options = {"further": [(each,) for each in further], "dynamic": further[:1]}
    return [Sample(f"{name}_level{level}", call, (x,), opt_level=level, **options) for level in (0, 1)]


SAMPLES = [
    *both("assigned", assigned, X),
    *both_open("assigned_open", copied_to_parts, X, torch.randn(3, 5, 7, 8), torch.randn(4, 4, 5, 5)),
    *both("copied", copied, X * 3),
    *both("shared", Shared(), X),
    *both("shared_recurrent", Recurring(), torch.randn(2, 5, 4)),
    *both("number_to_double", size_as(torch.float64), INTS),
    *both("number_to_float", lambda x: x / torch.tensor(x.size(1)).to(torch.float32).sqrt(), X),
    *both("number_of_ints_to_float", size_as(torch.float32), INTS),
    Sample("number_to_int_level0", lambda x: (x > 3) * torch.tensor(x.size(1)).to(torch.int32), (INTS,), opt_level=0),
    *both("numbers_returned", lambda x: (torch.tensor(x.size(1)).to(torch.float64), torch.tensor(x.size(0))), INTS),
    *both("attention", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)),
]
