"""A PyTorch module that is to stay one operator, and a network around it; examples/custom_operator.py computes it.

pnnx-serve export examples/custom_operator_model.py:Net --shape 2,3 --shape 5 \
    --module-operator custom_operator_model.Sub --plugin examples/custom_operator.py --name sub
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Sub(nn.Module):
    """Two operands, two results, and a weight of every kind: parameter, buffer, submodule, constant."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("k", torch.tensor([0.5, 2.0]))
        self.lin = nn.Linear(3, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        wide = self.lin(x) + torch.tensor([0.0, 1.0, 2.0, 3.0]) * y.mean()
        narrow = (x @ self.w) * self.k[0] + self.k[1]
        return wide, narrow


class Net(nn.Module):
    """Uses the second result first, so the converter lists it first."""

    def __init__(self) -> None:
        super().__init__()
        self.sub = Sub()

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        wide, narrow = self.sub(x, y)
        return narrow.relu(), wide.tanh()
