"""Ways for random graphs to grow: element-wise operators and operators that only move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.pnnx import Operator
from tests.engine.compiler.growing import I64, Growing, Maker, Tensor
from tests.engine.compiler.random_operators import along, simple
from tests.engine.graph.build import op

ACTIVATIONS = (
    "nn.SiLU", "nn.Sigmoid", "nn.Tanh", "nn.Mish", "nn.Hardswish", "nn.Hardsigmoid", "nn.GELU", "nn.ELU",
    "nn.Softplus", "nn.SELU", "nn.LogSigmoid", "nn.Softsign", "nn.Tanhshrink",
)  # fmt: skip
UNARY = ("sigmoid(@0)", "tanh(@0)", "mul(@0,0.5)", "add(@0,-1.25)", "mul(@0,sigmoid(@0))", "sqrt(add(abs(@0),1))",
         "exp(neg(abs(@0)))", "square(tanh(@0))", "log(add(abs(@0),1))", "div(@0,add(abs(@0),2))", "erf(@0)",
         "sub(1,@0)", "pow(sigmoid(@0),3)", "clamp(@0,-1,1)")  # fmt: skip
BINARY = ("add(@0,@1)", "add(@1,@0)", "sub(@0,@1)", "mul(@0,sigmoid(@1))", "mul(@1,0.5)", "add(mul(@0,0.5),tanh(@1))",
          "add(@0,mul(@1,@0))")  # fmt: skip
TERNARY = ("add(mul(tanh(@0),@1),@2)", "maximum(@0,minimum(@1,@2))", "mul(add(@0,@1),sigmoid(@2))")
EXACT_UNARY = ("abs(@0)", "neg(@0)", "maximum(@0,0.5)", "minimum(@0,0.5)", "maximum(@0,neg(@0))")
EXACT_BINARY = ("maximum(@0,@1)", "minimum(@0,@1)", "maximum(neg(@0),@1)")


def _expression(g: Growing, operands: list[Tensor], text: str) -> list[Operator]:
    name = g.name()
    return [op("pnnx.Expression", f"expr_{name}", " ".join(each.name for each in operands), name, expr=text)]


def unary(texts: tuple[str, ...]) -> Any:
    def make(g: Growing) -> list[Operator] | None:
        x = g.pick()
        return None if x is None else _expression(g, [x], g.one_of(texts))

    return make


def several(texts: tuple[str, ...], count: int) -> Any:
    """Return an expression of operands that broadcast to each other; often of one shape, as residuals are."""

    def make(g: Growing) -> list[Operator] | None:
        x = g.pick()
        if x is None:
            return None
        is_same = g.chance(0.6)
        found = [x]
        for _ in range(count - 1):
            other = g.pick(lambda y: y.is_float and (y.shape == x.shape if is_same else _meets(x, y)))
            if other is None:
                return None
            found.append(other)
        g.random.shuffle(found)
        return _expression(g, found, g.one_of(texts))

    return make


def _meets(x: Tensor, y: Tensor) -> bool:
    try:
        return math.prod(np.broadcast_shapes(x.shape, y.shape)) > 0
    except ValueError:
        return False


def with_constant(g: Growing) -> list[Operator] | None:
    x = g.pick()
    if x is None:
        return None
    shape = tuple(1 if g.chance(0.5) else size for size in x.shape)[g.between(0, x.rank) :]
    constant, name = g.name(), g.name()
    text = g.one_of(("add(@0,@1)", "mul(@0,@1)", "maximum(@1,@0)", "sub(@1,@0)"))
    return [
        op("pnnx.Attribute", f"constant_{constant}", "", constant, data=g.numbers(*shape)),
        op("pnnx.Expression", f"expr_{name}", f"{x.name} {constant}", name, expr=text),
    ]


def slice_(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 0)
    if x is None:
        return None
    dim, name = g.between(0, x.rank - 1), g.name()
    start = g.between(0, x.shape[dim] - 1)
    end = g.one_of((g.between(start + 1, x.shape[dim]), 2147483647))
    given = {"dim": dim, "start": start, "end": end, "step": g.one_of((1, 1, 1, 2))}
    return [op("Tensor.slice", f"slice_{name}", x.name, name, **given)]


def select(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 1)
    if x is None:
        return None
    dim, name = g.between(0, x.rank - 1), g.name()
    return [op("Tensor.select", f"select_{name}", x.name, name, dim=dim, index=g.between(0, x.shape[dim] - 1))]


def permute(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 1)
    if x is None:
        return None
    dims, name = list(range(x.rank)), g.name()
    g.random.shuffle(dims)
    return [op("Tensor.permute", f"permute_{name}", x.name, name, dims=tuple(dims))]


def reshape(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 0)
    if x is None:
        return None
    factors = [p for size in x.shape for p in _primes(size)]
    if g.chance(0.3):
        g.random.shuffle(factors)
    shape = [1] * g.between(1, 4)
    for number, factor in enumerate(factors):
        shape[min(len(shape) - 1, number * len(shape) // len(factors))] *= factor
    name = g.name()
    return [op("Tensor.reshape", f"reshape_{name}", x.name, name, shape=tuple(shape))]


def _primes(number: int) -> list[int]:
    for k in range(2, number + 1):
        if number % k == 0:
            return [k, *_primes(number // k)]
    return []


def flatten(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 1)
    if x is None:
        return None
    first, name = g.between(0, x.rank - 2), g.name()
    end = g.between(first + 1, x.rank - 1)
    return [op("torch.flatten", f"flatten_{name}", x.name, name, start_dim=first, end_dim=end)]


def expand(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: 1 in x.shape)
    if x is None:
        return None
    sizes, name = tuple(g.between(1, 4) if size == 1 else -1 for size in x.shape), g.name()
    return [op("Tensor.expand", f"expand_{name}", x.name, name, sizes=sizes)]


def split(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 0 and max(x.shape) > 1)
    if x is None:
        return None
    dim = g.one_of([k for k, size in enumerate(x.shape) if size > 1])
    size, label = x.shape[dim], g.name()
    if g.chance(0.4):
        chunks = g.between(2, min(4, size))
        count = -(-size // -(-size // chunks))
        names = [g.name() for _ in range(count)]
        return [op("torch.chunk", f"chunk_{label}", x.name, " ".join(names), chunks=chunks, dim=dim)]
    first = g.between(1, size - 1)
    names = [g.name(), g.name()]
    sizes = (first, size - first)
    return [op("torch.split", f"split_{label}", x.name, " ".join(names), split_size_or_sections=sizes, dim=dim)]


def unbind(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 1 and min(x.shape) <= 4)
    if x is None:
        return None
    dim, label = g.one_of([k for k, size in enumerate(x.shape) if size <= 4]), g.name()
    names = [g.name() for _ in range(x.shape[dim])]
    return [op("torch.unbind", f"unbind_{label}", x.name, " ".join(names), dim=dim)]


def cat(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 0)
    if x is None:
        return None
    dim = 1 if x.rank > 1 and g.chance(0.7) else g.between(0, x.rank - 1)

    def fits(y: Tensor) -> bool:
        return y.dtype == x.dtype and y.rank == x.rank and _without(y, dim) == _without(x, dim)

    parts = [x, *(part for _ in range(g.between(1, 3)) if (part := g.pick(fits)) is not None)]
    g.random.shuffle(parts)
    name = g.name()
    return [
        op("torch.cat", f"cat_{name}", " ".join(each.name for each in parts), name, dim=dim - g.one_of((0, x.rank)))
    ]


def _without(x: Tensor, dim: int) -> tuple[int, ...]:
    return x.shape[:dim] + x.shape[dim + 1 :]


def shuffle(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    channels, name = x.shape[1], g.name()
    kind = g.between(0, 2)
    if kind == 0:
        groups = g.one_of([k for k in range(1, channels + 1) if channels % k == 0])
        return [op("nn.ChannelShuffle", f"shuffle_{name}", x.name, name, groups=groups)]
    if kind == 1:
        return [op("nn.PixelShuffle", f"shuffle_{name}", x.name, name, upscale_factor=g.between(1, 3))]
    return [op("nn.PixelUnshuffle", f"shuffle_{name}", x.name, name, downscale_factor=g.between(1, 3))]


def upsample(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_image)
    if x is None:
        return None
    name, given = g.name(), dict[str, Any](mode=g.one_of(("nearest", "bilinear", "bicubic")))
    if g.chance(0.5):
        given["size"] = tuple(g.between(1, 2 * size + 1) for size in x.shape[2:])
    else:
        given["scale_factor"] = (g.one_of((1.0, 2.0, 3.0, 0.5, 1.5)), g.one_of((1.0, 2.0, 0.75)))
    if given["mode"] != "nearest":
        given["align_corners"] = g.chance(0.5)
    return [op("F.interpolate", f"resize_{name}", x.name, name, **given)]


def pad(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank > 1)
    if x is None:
        return None
    name = g.name()
    numbers = tuple(g.between(0, 2) for _ in range(2 * min(2, x.rank)))
    return [op("F.pad", f"pad_{name}", x.name, name, pad=numbers, mode="constant", value=g.one_of((None, 0.5)))]


def where(g: Growing) -> list[Operator] | None:
    x = g.pick()
    y = None if x is None else g.pick(lambda y: y.is_float and y.shape == x.shape)
    if x is None or y is None:
        return None
    mask, name = g.name(), g.name()
    return [
        op("torch.gt", f"gt_{mask}", f"{x.name} {y.name}", mask),
        op("torch.where", f"where_{name}", f"{mask} {y.name} {x.name}", name),
    ]


def through_integers(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.dtype in (I64, np.dtype(np.bool_), np.dtype(np.float64)))
    if x is None:
        return None
    number, name = g.name(), g.name()
    return [
        op("pnnx.Expression", f"expr_{number}", x.name, number, expr="add(@0,1)"),
        op("Tensor.to", f"to_{name}", number, name, dtype="torch.float"),
    ]


def embedding(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.dtype == I64 and x in g.inputs)
    if x is None:
        return None
    name, width = g.name(), g.between(1, 20)
    given = {"num_embeddings": 5, "embedding_dim": width, "weight": g.numbers(5, width)}
    return [op("nn.Embedding", f"embedding_{name}", x.name, name, **given)]


def top(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.is_float and x.rank > 0)
    if x is None:
        return None
    dim, names = g.between(0, x.rank - 1), (g.name(), g.name())
    return [op("torch.topk", f"topk_{names[0]}", x.name, " ".join(names), k=g.between(1, x.shape[dim]), dim=dim)]


def ordered(g: Growing) -> list[Operator] | None:
    """Return the sorted elements along a dimension, and their indices."""
    x = g.pick(lambda x: x.is_float and x.rank > 0)
    if x is None:
        return None
    names, given = (g.name(), g.name()), {"descending": g.chance(0.5), "dim": g.between(-x.rank, x.rank - 1)}
    return [op("torch.sort", f"sort_{names[0]}", x.name, " ".join(names), **given)]


def moved(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank == 2)
    if x is None:
        return None
    name = g.name()
    return [op("torch.repeat_interleave", f"repeat_{name}", x.name, name, repeats=g.between(1, 3), dim=g.between(0, 1))]


def flip(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank > 0)
    if x is None:
        return None
    name = g.name()
    return [op("torch.flip", f"flip_{name}", x.name, name, dims=(g.between(0, x.rank - 1),))]


def unsqueeze(g: Growing) -> list[Operator] | None:
    x = g.pick(lambda x: x.rank < 4)
    if x is None:
        return None
    name = g.name()
    return [op("torch.unsqueeze", f"unsqueeze_{name}", x.name, name, dim=g.between(-1, x.rank))]


def quantise(g: Growing) -> list[Operator] | None:
    x, name = g.pick(), g.name()
    if x is None:
        return None
    zero = np.array(g.between(0, 127), g.one_of((np.uint8, np.int8)))
    scale = np.array(g.one_of((0.011, 0.05)), np.float32)
    return [op("QuantizeLinear", f"codes_{name}", x.name, name, scale=scale, zero_point=zero)]


def dequantise(g: Growing) -> list[Operator] | None:
    x, name = g.pick(lambda x: x.dtype.name in ("uint8", "int8")), g.name()
    if x is None:
        return None
    scale, zero = np.array(0.03, np.float32), np.array(g.between(0, 127), x.dtype)
    return [op("DequantizeLinear", f"floats_{name}", x.name, name, scale=scale, zero_point=zero)]


EXACT = (
    *[Maker(quantise, is_exact=True, is_discrete=True)] * 2,
    *[Maker(dequantise, is_exact=True)] * 2,
    *[Maker(simple("nn.ReLU"), is_exact=True)] * 2,
    Maker(simple("nn.ReLU6"), is_exact=True),
    Maker(simple("nn.Hardtanh", {"min_val": -0.5, "max_val": 0.75}), is_exact=True),
    Maker(simple("nn.Threshold", {"threshold": 0.1, "value": 2.0}), is_exact=True, is_discrete=True),
    Maker(simple("nn.Hardshrink", {"lambd": 0.5}), is_exact=True, is_discrete=True),
    Maker(unary(EXACT_UNARY), is_exact=True),
    Maker(several(EXACT_BINARY, 2), is_exact=True),
    Maker(simple("nn.Dropout", fits=lambda x: True), is_exact=True),
    Maker(simple("Tensor.clone", fits=lambda x: True), is_exact=True),
    Maker(slice_, is_exact=True),
    Maker(slice_, is_exact=True),
    Maker(select, is_exact=True),
    Maker(permute, is_exact=True),
    Maker(permute, is_exact=True),
    Maker(reshape, is_exact=True),
    Maker(reshape, is_exact=True),
    Maker(flatten, is_exact=True),
    Maker(unsqueeze, is_exact=True),
    Maker(simple("torch.squeeze", {"dim": 0}, {"dim": 1}, {"dim": -1}, fits=lambda x: x.rank > 1), is_exact=True),
    Maker(expand, is_exact=True),
    Maker(split, is_exact=True),
    Maker(split, is_exact=True),
    Maker(unbind, is_exact=True),
    *[Maker(cat, is_exact=True)] * 4,
    Maker(shuffle, is_exact=True),
    Maker(shuffle, is_exact=True),
    Maker(pad, is_exact=True),
    Maker(flip, is_exact=True),
    Maker(where, is_exact=True, is_discrete=True),
    Maker(through_integers, is_exact=True),
    Maker(embedding, is_exact=True),
    Maker(top, is_exact=True, is_discrete=True),
    Maker(ordered, is_exact=True, is_discrete=True),
    Maker(moved, is_exact=True),
    Maker(along("torch.argmax", keepdim=False), is_exact=True, is_discrete=True),
)
"""Operators whose results are the same bits however they are computed."""

SMOOTH = (
    *[Maker(simple(type)) for type in ACTIVATIONS],
    Maker(simple("nn.LeakyReLU", {"negative_slope": 0.1})),
    Maker(simple("F.softplus", {"beta": 2.0, "threshold": 3.0})),
    *[Maker(unary(UNARY))] * 3,
    *[Maker(several(BINARY, 2))] * 8,
    Maker(several(TERNARY, 3)),
    *[Maker(with_constant)] * 3,
    Maker(upsample),
    Maker(upsample),
    Maker(along("torch.cumsum")),
)
"""Operators whose results may differ by rounding."""
