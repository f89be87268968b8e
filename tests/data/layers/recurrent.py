"""Samples of recurrent networks: layers, directions, projections, states, layouts, and every order of outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from record import Sample
from torch import Tensor, nn

X = torch.randn(5, 2, 3)
LONG = torch.randn(40, 2, 3)


class Network(nn.Module):
    """A recurrent module and what is made of its outputs."""

    def __init__(self, kind: type[nn.RNNBase], take: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.network = kind(3, 4, **options)
        self.take = take

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        state = None if not states else states if len(states) == 2 else states[0]
        output, final = self.network(x, state)
        return self.take(output, *final) if isinstance(final, tuple) else self.take(output, final)


def every(*values: Tensor) -> tuple[Tensor, ...]:
    return values


def network(
    name: str, kind: type[nn.RNNBase], *inputs: Tensor, take: Callable[..., Any] = every, **options: Any
) -> Sample:
    sample = {key: options.pop(key) for key in ("further", "dynamic", "rtol", "atol") if key in options}
    return Sample(f"{kind.__name__}_{name}", Network(kind, take, **options), inputs, **sample)


def kinds(name: str, *inputs: Tensor, **options: Any) -> list[Sample]:
    return [network(name, kind, *inputs, **options) for kind in (nn.LSTM, nn.GRU, nn.RNN)]


def states(count: int, batch: int = 2, *widths: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(count, batch, width) for width in widths or (4,))


def used(order: str) -> Callable[..., Any]:
    """Use outputs in this order, so that the converter lists them in it."""
    return lambda o, h, c=None: tuple({"o": o, "h": h, "c": c}[letter] * (k + 1) for k, letter in enumerate(order))


SAMPLES = [
    *kinds("plain", X, further=[(torch.randn(5, 2, 3) * 50,)]),
    *kinds("batch_first", X, batch_first=True),
    *kinds("unbatched", X[:, 0]),
    *kinds("two_ways", X, bidirectional=True),
    *kinds("deep", X, num_layers=3, bidirectional=True, batch_first=True),
    *kinds("no_bias", X, bias=False, num_layers=2),
    *kinds("single_step", X[:1]),
    *kinds("many_steps", LONG, atol=2e-6),
    *kinds("dynamic", X, batch_first=True, dynamic=(torch.randn(3, 7, 3),), further=[(torch.randn(1, 4, 3),)]),
    *kinds("double", X.double(), dtype=torch.float64),
    network("relu", nn.RNN, X, nonlinearity="relu", bidirectional=True),
    network("projected", nn.LSTM, X, proj_size=2),
    network("projected_deep", nn.LSTM, X, proj_size=2, num_layers=2, bidirectional=True),
    network("state", nn.GRU, X, *states(2), num_layers=2),
    network("state", nn.RNN, X, *states(2), bidirectional=True, batch_first=False),
    network("states", nn.LSTM, X, *states(2, 2, 4, 4), num_layers=2),
    network("states_projected", nn.LSTM, X, *states(2, 2, 2, 4), proj_size=2, bidirectional=True),
    network("states_batch_first", nn.LSTM, X, *states(1, 5, 4, 4), batch_first=True),
    network("states_unbatched", nn.LSTM, X[:, 0], torch.randn(1, 4), torch.randn(1, 4)),
    *[network(f"order_{order}", nn.LSTM, X, take=used(order)) for order in ("ohc", "cho", "hoc", "hco", "oh", "ho", "o", "h")],
    *[network(f"order_{order}_projected", nn.LSTM, X, take=used(order), proj_size=2) for order in ("cho", "och", "hc", "ch", "oc", "co", "c")],
    *[network(f"order_{order}", kind, X, take=used(order)) for kind in (nn.GRU, nn.RNN) for order in ("ho", "o", "h")],
]  # fmt: skip
