"""Common parts of the networks: seeded weights, batch-norm statistics like in training, samples at two batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from record import Sample
from torch import Tensor, nn


def settled(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with batch-norm statistics and affine weights that are not the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    for each in module.modules():
        if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d)) and each.running_mean is not None:
            each.running_mean.normal_(0, 0.1, generator=generator)
            each.running_var.uniform_(0.5, 1.5, generator=generator)
            each.weight.data.uniform_(0.5, 1.5, generator=generator)
            each.bias.data.normal_(0, 0.1, generator=generator)
    return module.eval()


def network(
    name: str,
    module: nn.Module | Callable[..., Any],
    *inputs: Tensor,
    dynamic: Sequence[Tensor] = (),
    further: Sequence[Sequence[Tensor]] = (),
    batches: bool = True,
    atol: float = 2e-5,
) -> Sample:
    """A sample of a whole network; by default with a second input set at batch 3."""
    if isinstance(module, nn.Module):
        settled(module)
    more = [[torch.cat([_other(x, k) for k in range(3)]) for x in inputs]] if batches else []
    return Sample(name, module, inputs, dynamic=dynamic, further=[*more, *further], rtol=1e-4, atol=atol)


def _other(x: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if x.dtype.is_floating_point:
        return torch.randn(x.shape, generator=generator)
    return torch.randint(0, int(x.max()) + 1, x.shape, generator=generator).to(x.dtype)


def picture(size: int = 32, channels: int = 3) -> Tensor:
    return torch.randn(1, channels, size, size)


def conv_bn(
    i: int, o: int, k: int = 3, s: int = 1, groups: int = 1, act: nn.Module | None = None, d: int = 1
) -> nn.Sequential:
    layers = [nn.Conv2d(i, o, k, s, d * (k // 2), d, groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, act if act is not None else nn.ReLU())
