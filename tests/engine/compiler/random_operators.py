"""Ways for random graphs to grow: operators that have kernels, in all their forms, and operators that have none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.pnnx import Operator
from tests.engine.compiler.growing import Growing, Maker, Tensor
from tests.engine.graph.build import op

Make = Callable[[Growing], list[Operator] | None]


def simple(type: str, *choices: dict[str, Any], fits: Callable[[Tensor], bool] = lambda x: x.is_float) -> Make:
    """Return an operator of one operand with one of these sets of parameters."""

    def make(g: Growing) -> list[Operator] | None:
        x = g.pick(fits)
        if x is None:
            return None
        name = g.name()
        return [op(type, f"{type}_{name}", x.name, name, **(g.one_of(choices) if choices else {}))]

    return make


def conv(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank in (3, 4, 5))
    if x is None:
        return None
    channels, rank = x.shape[1], x.rank - 2
    groups = g.one_of([1, 1, 1, channels, g.one_of(_divisors(channels))])
    out = groups * g.between(1, 40 if groups == 1 else 3)
    kernel = tuple(g.one_of((1, 1, 2, 3, 3, 3, 5)) for _ in range(rank))
    if g.chance(0.5):
        kernel = (g.one_of((1, 3)),) * rank
    plain = g.chance(0.5)
    bias, name = g.chance(0.5), g.name()
    weight = g.numbers(out, channels // groups, *kernel) / np.float32(math.sqrt(channels // groups * math.prod(kernel)))
    given: dict[str, Any] = {
        "in_channels": channels,
        "out_channels": out,
        "kernel_size": kernel,
        "stride": (1,) * rank if plain else tuple(g.between(1, 3) for _ in range(rank)),
        "dilation": (1,) * rank if plain else tuple(g.between(1, 3) for _ in range(rank)),
        "padding": tuple(k // 2 for k in kernel) if plain else tuple(g.between(0, k) for k in kernel),
        "padding_mode": "zeros" if g.chance(0.9) else g.one_of(("reflect", "replicate", "circular")),
        "groups": groups,
        "bias": bias,
        "weight": weight,
    }
    if plain and g.chance(0.2):
        given["padding"] = g.one_of(("same", "valid"))
    elif g.chance(0.15):  # taps that lie in the padding
        given["dilation"] = tuple(g.between(1, 12) for _ in range(rank))
        given["padding"] = tuple(d * (k // 2) for d, k in zip(given["dilation"], kernel, strict=True))
    if bias:
        given["bias"] = g.numbers(out)
    return [op(f"nn.Conv{rank}d", f"conv_{name}", x.name, name, **given)]


def conv_transpose(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    channels = x.shape[1]
    groups = g.one_of([1, 1, channels, g.one_of(_divisors(channels))])
    out = groups * g.between(1, 12 if groups == 1 else 2)
    kernel = tuple(g.between(1, 4) for _ in range(2))
    stride = tuple(g.between(1, 3) for _ in range(2))
    bias, name = g.chance(0.5), g.name()
    given: dict[str, Any] = {
        "in_channels": channels,
        "out_channels": out,
        "kernel_size": kernel,
        "stride": stride,
        "dilation": (1, 1) if g.chance(0.8) else (g.between(1, 2), g.between(1, 2)),
        "padding": tuple(g.between(0, k - 1) for k in kernel),
        "output_padding": tuple(g.between(0, s - 1) for s in stride),
        "groups": groups,
        "bias": bias,
        "weight": g.numbers(channels, out // groups, *kernel) / np.float32(math.sqrt(channels)),
    }
    if bias:
        given["bias"] = g.numbers(out)
    return [op("nn.ConvTranspose2d", f"deconv_{name}", x.name, name, **given)]


def linear(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank > 0)
    if x is None:
        return None
    # Rows of 512 floats lie apart where only linear layers and normalisations read them.
    width, out, bias, name = x.shape[-1], 512 if g.chance(0.1) else g.between(1, 40), g.chance(0.5), g.name()
    given: dict[str, Any] = {"in_features": width, "out_features": out, "bias": bias}
    given["weight"] = g.numbers(out, width) / np.float32(math.sqrt(width))
    if bias:
        given["bias"] = g.numbers(out)
    return [op("nn.Linear", f"linear_{name}", x.name, name, **given)]


def _window(g: Growing, rank: int) -> dict[str, Any]:
    kernel = tuple(g.between(1, 4) for _ in range(rank))
    return {
        "kernel_size": kernel,
        "stride": tuple(g.between(1, 3) for _ in range(rank)),
        "padding": tuple(g.between(0, k // 2) for k in kernel),
        "ceil_mode": g.chance(0.4),
    }


def max_pool(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank in (3, 4, 5))
    if x is None:
        return None
    rank, name = x.rank - 2, g.name()
    given = _window(g, rank) | {"dilation": tuple(g.between(1, 2) for _ in range(rank)), "return_indices": False}
    return [op(f"nn.MaxPool{rank}d", f"max_{name}", x.name, name, **given)]


def max_pool_with_indices(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    name, indices = g.name(), g.name()
    given = _window(g, 2) | {"dilation": (1, 1), "return_indices": True}
    return [op("nn.MaxPool2d", f"max_{name}", x.name, f"{name} {indices}", **given)]


def avg_pool(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank in (3, 4, 5))
    if x is None:
        return None
    rank, name = x.rank - 2, g.name()
    given = _window(g, rank) | {"count_include_pad": g.chance(0.5)}
    if rank > 1 and g.chance(0.3):
        given["divisor_override"] = g.between(1, 5)
    return [op(f"nn.AvgPool{rank}d", f"avg_{name}", x.name, name, **given)]


def adaptive_pool(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    name = g.name()
    sizes = tuple(g.between(1, 2 * size if g.chance(0.2) else size) for size in x.shape[2:])
    return [op("nn.AdaptiveAvgPool2d", f"adaptive_{name}", x.name, name, output_size=sizes)]


def reduction(type: str) -> Make:
    """Return a reduction over some dimensions."""

    def make(g: Growing) -> list[Operator] | None:
        x = g.pick(lambda x: x.is_float and x.rank > 0)
        if x is None:
            return None
        dims = [dim for dim in range(x.rank) if g.chance(0.5)] or [g.between(0, x.rank - 1)]
        if x.rank == 4 and g.chance(0.3):
            dims = [2, 3]
        dims = [dim - x.rank if g.chance(0.3) else dim for dim in dims]
        name = g.name()
        return [op(type, f"{type}_{name}", x.name, name, dim=tuple(dims), keepdim=g.chance(0.5))]

    return make


def along(type: str, **given: Any) -> Make:
    """Return an operator along one dimension."""

    def make(g: Growing) -> list[Operator] | None:
        x = g.pick(lambda x: x.is_float and x.rank > 0)
        if x is None:
            return None
        name = g.name()
        return [op(type, f"{type}_{name}", x.name, name, dim=g.between(-x.rank, x.rank - 1), **given)]

    return make


def layer_norm(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank > 1)
    if x is None:
        return None
    shape, name = x.shape[-g.between(1, min(2, x.rank - 1)) :], g.name()
    given: dict[str, Any] = {"normalized_shape": shape, "eps": 0.1, "elementwise_affine": g.chance(0.6)}
    if given["elementwise_affine"]:
        given |= {"weight": g.numbers(*shape), "bias": g.numbers(*shape)}
    return [op("nn.LayerNorm", f"norm_{name}", x.name, name, **given)]


def batch_norm(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank in (2, 3, 4))
    if x is None:
        return None
    channels, name = x.shape[1], g.name()
    given: dict[str, Any] = {"num_features": channels, "eps": 1e-3, "affine": g.chance(0.6)}
    given |= {"running_mean": g.numbers(channels), "running_var": np.abs(g.numbers(channels)) + np.float32(0.5)}
    if given["affine"]:
        given |= {"weight": g.numbers(channels), "bias": g.numbers(channels)}
    return [op("nn.BatchNorm2d" if x.rank == 4 else "nn.BatchNorm1d", f"bn_{name}", x.name, name, **given)]


def prelu(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank > 1)
    if x is None:
        return None
    count, name = g.one_of((1, x.shape[1])), g.name()
    return [op("nn.PReLU", f"prelu_{name}", x.name, name, num_parameters=count, weight=g.numbers(count))]


def group_norm(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    channels, name = x.shape[1], g.name()
    given: dict[str, Any] = {"num_channels": channels, "num_groups": g.one_of(_divisors(channels)), "eps": 0.1}
    given |= {"affine": True, "weight": g.numbers(channels), "bias": g.numbers(channels)}
    return [op("nn.GroupNorm", f"gn_{name}", x.name, name, **given)]


def recurrent(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank in (2, 3))
    if x is None:
        return None
    type, gates = g.one_of((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    units, layers, ways, name = g.between(1, 40), g.between(1, 2), g.between(1, 2), g.name()
    projected = g.between(1, units - 1) if type == "LSTM" and units > 1 and g.chance(0.3) else 0
    has_bias, width = g.chance(0.7), projected or units
    given: dict[str, Any] = {
        "input_size": x.shape[-1],
        "hidden_size": units,
        "num_layers": layers,
        "bias": has_bias,
        "batch_first": g.chance(0.5),
        "bidirectional": ways == 2,
    }
    if type == "LSTM":
        given["proj_size"] = projected
    for end in [f"l{layer}{suffix}" for layer in range(layers) for suffix in ("", "_reverse")[:ways]]:
        inputs = width * ways if end[1] != "0" else x.shape[-1]
        given[f"weight_ih_{end}"] = g.numbers(gates * units, inputs) / np.float32(math.sqrt(inputs))
        given[f"weight_hh_{end}"] = g.numbers(gates * units, width) / np.float32(math.sqrt(width))
        if has_bias:
            given |= {f"bias_{part}_{end}": g.numbers(gates * units) for part in ("ih", "hh")}
        if projected:
            given[f"weight_hr_{end}"] = g.numbers(projected, units) / np.float32(math.sqrt(units))
    return [op(f"nn.{type}", f"{type}_{name}", x.name, name, **given)]


def grid_sample(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    grid, name = g.name(), g.name()
    places = g.numbers(x.shape[0], g.between(1, 6), g.between(1, 6), 2)
    given: dict[str, Any] = {"mode": g.one_of(("bilinear", "bicubic")), "align_corners": g.chance(0.5)}
    given["padding_mode"] = g.one_of(("zeros", "border", "reflection"))
    return [
        op("pnnx.Attribute", f"grid_{grid}", "", grid, data=places),
        op("F.grid_sample", f"sample_{name}", f"{x.name} {grid}", name, **given),
    ]


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


KERNELS = (
    *[Maker(conv)] * 8,
    Maker(conv_transpose),
    Maker(conv_transpose),
    Maker(linear),
    Maker(linear),
    Maker(max_pool, is_exact=True),
    Maker(max_pool, is_exact=True),
    Maker(max_pool_with_indices, is_exact=True, is_discrete=True),
    Maker(avg_pool),
    Maker(avg_pool),
    Maker(adaptive_pool),
    Maker(reduction("torch.mean")),
    Maker(reduction("torch.mean")),
    Maker(reduction("torch.sum")),
    Maker(reduction("torch.amax"), is_exact=True),
    Maker(along("nn.Softmax")),
    Maker(along("F.log_softmax")),
    Maker(layer_norm),
    Maker(batch_norm),
    Maker(batch_norm),
    Maker(prelu),
    Maker(group_norm),
    Maker(grid_sample),
    Maker(recurrent),
    Maker(recurrent),
)
"""Operators that compute."""
