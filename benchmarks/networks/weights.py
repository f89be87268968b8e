"""Random weights that keep values of order one through the whole network, as trained weights do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.networks import Network

SEED = 20_26
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def settled(make: Callable[[], nn.Module], network: Network) -> nn.Module:
    """A network with seeded weights, and batch-norm statistics close to those of its own activations.

    Convolutions and linear layers get He's initialisation, batch norms random scales and shifts. One forward of random
    inputs sets the running statistics; each is then moved a little, because no batch matches them exactly.
    """
    torch.manual_seed(SEED)
    module = make().eval()
    for each in module.modules():
        _initialise(each)
    norms = [each for each in module.modules() if isinstance(each, _NORMS)]
    for norm in norms:
        norm.train()
        norm.momentum = None  # statistics of this one forward, not a moving average with the initial ones
    with torch.no_grad():
        if norms:
            module(example(network, batch=2))
        for norm in norms:
            _move(norm)
    return module.eval().requires_grad_(False)


def example(network: Network, batch: int) -> Tensor:
    """An input; the first items of a larger batch are those of a smaller one."""
    items = []
    for index in range(batch * network.shape[0]):
        generator = torch.Generator().manual_seed(SEED + index)
        shape = (1, *network.shape[1:])
        if network.vocabulary:
            items.append(torch.randint(0, network.vocabulary, shape, generator=generator))
        else:
            items.append(torch.randn(shape, generator=generator))
    return torch.cat(items)


def _initialise(layer: nn.Module) -> None:
    if isinstance(layer, _CONVOLUTIONS):
        # The fan of a transposed convolution as wide as its stride is its input channels alone.
        fan = layer.in_channels if layer.transposed else layer.weight[0].numel()
        nn.init.normal_(layer.weight, 0, (2 / fan) ** 0.5)
    elif isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, 0, (1 / layer.in_features) ** 0.5)
    elif isinstance(layer, _NORMS):
        nn.init.uniform_(layer.weight, 0.7, 1.3)
        nn.init.normal_(layer.bias, 0, 0.1)
    elif isinstance(layer, nn.LayerNorm):
        nn.init.uniform_(layer.weight, 0.8, 1.2)
        if layer.bias is not None:
            nn.init.normal_(layer.bias, 0, 0.1)


def _move(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise ValueError("a batch norm without running statistics cannot be settled")
    mean += 0.1 * variance.sqrt() * torch.randn_like(mean)
    variance *= torch.empty_like(variance).uniform_(0.8, 1.25)
