"""Answers whose numbers the order of operations decides, an order that no operator promises.

PyTorch itself answers otherwise there from one algorithm to another: of a constant 3e38 its group_norm gives NaN, its
batch_norm -inf and its layer_norm 0; whether NaN among the weights of a convolution meets the zeros around an image
depends on the library that computes it; and a transform spreads NaN and infinities as its factors have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import engine
from engine.layers.attention.attention import ScaledDotProductAttention
from engine.layers.attention.encoder import TransformerEncoderLayer
from engine.layers.attention.multihead import MultiheadAttention
from engine.layers.convolution.conv import Conv, StridedSameConv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.linear.einsum import Einsum
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import AddMatmul, Matmul
from engine.layers.normalisation.layer_norm import LayerNorm, LayerNormStatistics
from engine.layers.normalisation.norm import BatchNorm, GroupNorm, InstanceNorm, Norm
from engine.layers.onnx.products.conv import Windowed
from engine.layers.onnx.vision.resize import Resize
from engine.layers.signal.fourier import OneAxis, SeveralAxes
from engine.layers.signal.short_time_fourier import InverseSpectrogram, Istft, Spectrogram, Stft
from engine.layers.vision.grid import AffineGrid
from engine.tensor import BFLOAT16, Array, Shape

_CONVOLUTIONS: Final = (Conv, ConvTranspose, StridedSameConv, Windowed)
_ATTENTION: Final = (MultiheadAttention, ScaledDotProductAttention, TransformerEncoderLayer)
_TRANSFORMS: Final = (InverseSpectrogram, Istft, OneAxis, SeveralAxes, Spectrogram, Stft)
_STANDARDISING: Final = (BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNormStatistics)
_PRODUCTS: Final = (AddMatmul, Einsum, Linear, Matmul)
SUMS: Final = (*_CONVOLUTIONS, *_ATTENTION, *_TRANSFORMS, *_STANDARDISING, *_PRODUCTS, AffineGrid, Norm,
               Resize)  # fmt: skip
"""Layers whose machine code adds up in another order than numpy: where a sum overflows decides what they give."""

_ANGLES: Final = re.compile(r"\b(sin|cos|tan)\b", re.IGNORECASE)
# The last bit of larger operands is a turn of an angle, more than the span of a softmax, or (of statistics that are
# folded into a factor and a summand) more than the difference of the two.
_LARGEST_ANGLE: Final = 4e8
_LARGEST_OF_SCORES: Final = 1e3
_LARGEST_STATISTIC: Final = 1e4
# What the last bits of float32 operands may change where an output is far smaller than they are, as tails are, and
# distances from a mean.
_ROUNDING: Final = 8 * float(np.finfo(np.float32).eps)
_WIDEST_TAIL: Final = 2048.0
# A row of equal sums has no spread but their last bits, which are divided by sqrt(eps): 1e-5 unless a file says
# otherwise. The sums are about one where weights and biases are all there is.
_STANDARDISED_ROUNDING: Final = _ROUNDING / 1e-5**0.5


def has(graph: engine.RuntimeGraph, layers: tuple[type, ...]) -> bool:
    """Return whether a graph has one of these layers, or one that the operands may turn into such."""
    definitions = [op.definition for op in graph.operators if op.definition is not None]
    return any(issubclass(each, layers) for layer in definitions for each in (type(layer), *layer.canonical_layers))


def is_ill_conditioned(graph: engine.RuntimeGraph, inputs: Sequence[Any]) -> bool:
    """Return whether the last bits of the operands decide the whole answer."""
    largest = _largest(inputs)
    return (
        (largest > _LARGEST_ANGLE and any(_ANGLES.search(f"{op.type} {op.params}") for op in graph.operators))
        or (largest > _LARGEST_OF_SCORES and has(graph, _ATTENTION))
        or (largest > _LARGEST_STATISTIC and len(inputs) > 1 and has(graph, (BatchNorm, InstanceNorm)))
    )


def has_any_infinity(graph: engine.RuntimeGraph, output: Array) -> bool:
    """Return whether a complex number that is not finite may as well be any other that is not.

    A product of complex numbers has four of real ones in it, and a BLAS multiplies by 1 + 0i once more.
    """
    return output.dtype.kind == "c" and has(graph, _PRODUCTS)


def undecided(graph: engine.RuntimeGraph, inputs: Sequence[Any], expected: Sequence[Array]) -> list[Array | None]:
    """Return for each output the elements of which the algorithm decides whether they are finite.

    Those are the elements that depend on a number of the inputs that is not finite: they change with what stands in
    its place, or a factor of 0 makes NaN of it. Of a convolution they are whole channels, since a library may multiply
    weights by the padding; a complex number is free in both of its parts, also where they are an axis.

    Returns:
        A mask an output, None where every element is decided.
    """
    is_free = [
        _is_floating(each) and (has(graph, _TRANSFORMS) or (has(graph, _CONVOLUTIONS) and number > 0))
        for number, each in enumerate(map(np.asarray, inputs))
    ]
    if not any(free and not _is_finite(each) for free, each in zip(is_free, inputs, strict=True)):
        return [None] * len(expected)
    session = engine.Session(graph, backend="reference")
    random = np.random.default_rng(0)
    first, second = (
        session.run([_finite(each, random) if free else each for free, each in zip(is_free, inputs, strict=True)])
        for _ in range(2)
    )
    return [
        (_changed(a, b) | ~np.isfinite(its)).any(_related_axes(graph, inputs, its.shape), keepdims=True)
        for a, b, its in zip(first, second, expected, strict=True)
    ]


def _finite(value: Any, random: np.random.Generator) -> Any:
    """Return an array with other random numbers instead of those that are not finite."""
    if _is_finite(value):
        return value
    parts = random.standard_normal((2, *value.shape))
    numbers = parts[0] + 1j * parts[1] if value.dtype.kind == "c" else parts[0]
    return np.where(np.isfinite(value), value, numbers.astype(value.dtype))


def _changed(a: Array, b: Array) -> Array:
    return (a != b) & ~(np.isnan(a) & np.isnan(b))


def _related_axes(graph: engine.RuntimeGraph, inputs: Sequence[Any], output: Shape) -> tuple[int, ...]:
    """Return the last axes that hold numbers that go together: both parts of one, all places of an image."""
    count = int(output[-1:] == (2,)) if has(graph, _TRANSFORMS) else np.ndim(inputs[1]) - 2
    return tuple(range(max(0, len(output) - count), len(output)))


def rounding_of(inputs: Sequence[Any], graph: engine.RuntimeGraph | None = None) -> float:
    """Return what the last bits of the inputs may change in any output, and of weights where the graph is given."""
    rounding = _ROUNDING * min(_largest(inputs), _WIDEST_TAIL)
    if graph is None or not has(graph, _STANDARDISING) or not any(_is_constant(each) for each in _arrays(inputs)):
        return rounding
    return max(rounding, _STANDARDISED_ROUNDING)


def _arrays(inputs: Sequence[Any]) -> list[Array]:
    return [np.asarray(each) for each in inputs if isinstance(each, (np.ndarray, np.generic))]


def _is_constant(array: Array) -> bool:
    return array.size > 0 and bool((array == array.reshape(-1)[0]).all())


def _largest(inputs: Sequence[Any]) -> float:
    """Return the largest finite magnitude among inputs."""
    real = [each for each in _arrays(inputs) if each.dtype.kind in "fiu" or each.dtype == BFLOAT16]
    finite = [each[np.isfinite(each)].astype(np.float64) for each in real]
    return max((float(np.abs(each).max(initial=0)) for each in finite), default=0.0)


def _is_finite(value: Any) -> bool:
    return all(bool(np.isfinite(each).all()) for each in _arrays([value]) if _is_floating(each))


def _is_floating(array: Array) -> bool:
    return array.dtype.kind in "fc" or array.dtype == BFLOAT16
