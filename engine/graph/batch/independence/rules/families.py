"""Layers whose rule is a row: which axes they work along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.graph.batch.independence.rules.table import (
    Axes,
    Rule,
    but_first,
    contracted,
    elementwise,
    none,
    of_matrices,
    rows,
    rule,
)
from engine.layers.convolution import conv, conv_transpose, deform, fold
from engine.layers.convolution.pad import Pad
from engine.layers.creation.matrices import OneHot
from engine.layers.elementwise import arithmetic, comparison, complex, logical, mathematics, piecewise, ternary
from engine.layers.elementwise.base import UnaryFunction
from engine.layers.elementwise.functions import Binary, Unary
from engine.layers.indexing.masking import Copy, Fill, MaskedFill, Triangle, Where
from engine.layers.indexing.slicing import Narrow, Select, Windows
from engine.layers.linear import linear, matmul, square
from engine.layers.linear.block_linear import BlockLinear
from engine.layers.linear.linalg_norm import SingularNorm
from engine.layers.normalisation import layer_norm, norm, softmax
from engine.layers.onnx.attention.state_space import LinearAttention
from engine.layers.onnx.control.text import LabelEncoder, StringConcat
from engine.layers.onnx.learning import trees, vectors
from engine.layers.onnx.products import conv as onnx_conv
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.pooling import adaptive_pool, pool, unpool
from engine.layers.quantised.quantise import (
    Dequantize,
    FakeQuantize,
    IntRepr,
    QuantizePerTensor,
)
from engine.layers.quantised.quantised_product import QuantisedConv2d, QuantisedLinear
from engine.layers.reduction import distance, extremum, reduction, scan
from engine.layers.shape import diagonal, permute, split
from engine.layers.signal.fourier import OneAxis, Shift
from engine.layers.signal.short_time_fourier import Istft, Stft
from engine.layers.sorting import order_statistics, sorting
from engine.layers.sorting.searching import Bucketize, IsIn
from engine.layers.vision import grid, interpolate, shuffle

rule(
    Unary, Binary, UnaryFunction, comparison.Comparison, comparison.Predicate, comparison.IsClose, logical.Logical,
    logical.BitwiseNot, arithmetic.Add, arithmetic.Sub, arithmetic.Div, complex.Complex, complex.Part,
    complex.Conjugate, mathematics.FloatPower, mathematics.NanToNum,
    mathematics.FrExp, piecewise.ReLU, piecewise.Hardtanh, piecewise.Threshold, ternary.Clamp, ternary.Lerp,
    ternary.AddCMul, ternary.AddCDiv, MaskedFill, Where, Copy, Fill, FakeQuantize, QuantizePerTensor, Dequantize,
    IntRepr, StringConcat, LabelEncoder,
)(elementwise)  # fmt: skip
rule(distance.Cdist)(of_matrices)
rule(grid.AffineGrid, takes_sizes=True)(rows(but_first))
rule(matmul.Matmul)(contracted("input", "other"))
rule(matmul.AddMatmul)(contracted("first", "second", added="input"))


def _if_batched(is_batched: Callable[[Any, int], bool]) -> Axes:
    """Return the axes of layers whose operands may come with a batch, as their first axis, or without one."""
    return lambda layer, rank: range(1 if is_batched(layer, rank) else 0, rank)


def _of_images(spatial: Callable[[Any], int]) -> Axes:
    """Return the axes of layers on images, whose batch comes before the channels; an image alone has none."""
    return _if_batched(lambda layer, rank: rank == spatial(layer) + 2)


def _spatial(layer: Any) -> int:
    return layer.spatial_rank  # type: ignore[no-any-return]


def _last(count: int) -> Axes:
    return lambda layer, rank: range(rank - count, rank)


def _dim(layer: Any, rank: int) -> Sequence[int]:
    """Return the axis, the axes or, without any, all axes of the parameter ``dim``."""
    dims = layer.dim if isinstance(layer.dim, (tuple, list)) else () if layer.dim is None else (layer.dim,)
    return checked_axes(dims, rank) if dims else range(rank)


def _moved(layer: Any, rank: int) -> Sequence[int]:
    return layer.axes(rank) or range(rank)


def _padded(layer: Any, rank: int) -> Sequence[int]:
    """Return the axes that are padded; the file has the last one first."""
    return [axis for axis in range(rank) if any(layer.pad[2 * (rank - 1 - axis) :][:2])]


_ROWS: Final[list[tuple[Rule, tuple[type[Any], ...]]]] = [
    (rows(none), (Bucketize, IsIn, complex.ViewAsReal, permute._Permutation)),
    (rows(_last(1)), (complex.ViewAsComplex, diagonal.DiagonalEmbed, linear.Linear, BlockLinear, QuantisedLinear)),
    (rows(_last(1), "input1", "input2"), (linear.Bilinear,)),
    (rows(_last(2)), (square._OfMatrices, Triangle)),
    (rows(_last(3)), (shuffle.PixelShuffle, shuffle.PixelUnshuffle)),
    (rows(lambda layer, rank: range(rank - len(layer.normalized_shape), rank)),
     (layer_norm._TrailingNorm, layer_norm.LayerNormStatistics)),
    (rows(lambda layer, rank: layer.axes(rank), verb="reduces"), (reduction.Reduction,)),
    (rows(lambda layer, rank: (layer.axis(rank),), verb="normalises along"), (softmax._AlongAxis,)),
    (rows(lambda layer, rank: layer._plane(rank)), (diagonal.Diagonal,)),
    (rows(_dim), (
        extremum.ArgExtreme, extremum.ExtremeAndPlace, order_statistics._Chosen, order_statistics.Median,
        order_statistics.Quantile, sorting.KthValue, SingularNorm, scan._Scan,
        scan.RunningExtreme, scan.Diff, sorting.Sort, sorting.ArgSort, sorting.TopK,
        Select, Narrow, Windows, OneAxis,
    )),
    (rows(lambda layer, rank: (checked_axis(layer.dim or 0, rank),)), (split._Pieces,)),
    (rows(_moved), (permute._Mirror, Shift)),
    (rows(_padded), (Pad,)),
    (rows(but_first), (
        onnx_conv.ConvInteger, conv.StridedSameConv, QuantisedConv2d, norm.GroupNorm, norm.LocalResponseNorm,
        interpolate.Interpolate, shuffle.ChannelShuffle,
    )),
    (rows(but_first, "input", "grid"), (grid.GridSample,)),
    (rows(but_first, "query", "key", "value", "past_state", "decay", "beta"), (LinearAttention,)),
    (rows(_of_images(_spatial)), (conv.Conv, conv_transpose.ConvTranspose, pool.Pool, adaptive_pool.AdaptivePool)),
    (rows(_of_images(_spatial), "input", "indices"), (unpool.MaxUnpool,)),
    (rows(_of_images(lambda layer: 2)), (fold.Unfold,)),
    (rows(_of_images(lambda layer: 1)), (fold.Fold,)),
    (rows(_of_images(lambda layer: 2), "input", "offset", "mask"), (deform.DeformConv2d,)),
    (rows(_if_batched(lambda layer, rank: layer.spatial is None or rank == layer.spatial + 2)), (norm.InstanceNorm,)),
    (rows(_if_batched(lambda layer, rank: rank > 1)), (Stft,)),
    (rows(_if_batched(lambda layer, rank: rank > 2)), (Istft,)),
    (rows(_if_batched(lambda layer, rank: rank == 2)),
     (trees.TreeEnsemble, vectors.PairProbabilities)),
    # The number of classes may be that of the largest value in the batch.
    (rows(lambda layer, rank: range(rank if layer.num_classes < 0 else 0)), (OneHot,)),
]  # fmt: skip
"""Rules and the layers they are for."""

for _rule, _layers in _ROWS:
    rule(*_layers)(_rule)
