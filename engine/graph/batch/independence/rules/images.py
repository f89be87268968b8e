"""Rules of operators on images and signals: the batch is the first axis, channels are the second."""

from __future__ import annotations

from typing import Any

from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Use
from engine.graph.batch.independence.values import Items, Mixed, MixesError, Value
from engine.layers.convolution import conv, conv_transpose, deform, fold
from engine.layers.normalisation import norm
from engine.layers.onnx.products import conv as onnx_conv
from engine.layers.onnx.vision import resize
from engine.layers.pooling import adaptive_pool, max_pool, pool, unpool
from engine.layers.quantised.quantised_product import QuantisedConv2d
from engine.layers.signal import short_time_fourier as short_time
from engine.layers.vision import grid, interpolate


def first_axis(use: Use, *names: str) -> Items:
    """Return the abstract value of operands whose batch axis is the first, if no other operand depends on the batch.

    Raises:
        MixesError: they do not.
    """
    use.only(*names)
    found = {use.batch(name) for name in names if use[name].is_given}
    if any(items.axis != 0 for items in found):
        raise MixesError("works along the batch axis")
    if len(found) != 1:
        raise MixesError("combines operands that hold the batch differently")
    return found.pop()


def _check_batched(use: Use, rank: int) -> None:
    """Check that an input has an axis for the batch before its channels.

    Raises:
        MixesError: it is a single image.
    """
    if use["input"].rank != rank + 2:
        raise MixesError("takes the batch axis as channels")


@rule(conv.Conv, conv_transpose.ConvTranspose)
def convolution(use: Use) -> Value:
    """Follow every image filtered by the same weights."""
    _check_batched(use, use.layer.spatial_rank)  # type: ignore[attr-defined]
    return first_axis(use, "input")


@rule(onnx_conv.ConvInteger, conv.StridedSameConv, QuantisedConv2d)
def batched_convolution(use: Use) -> Value:
    """Follow a convolution that takes no single images."""
    return first_axis(use, "input")


@rule(deform.DeformConv2d)
def deformed(use: Use) -> Value:
    """Follow images that are filtered at positions of their own."""
    if use["input"].rank != 4:
        raise MixesError("takes the batch axis as channels")
    return first_axis(use, "input", "offset", "mask")


@rule(pool.Pool, adaptive_pool.AdaptivePool)
def pooled(use: Use) -> Value:
    """Follow one element of each window of a channel, and its position in the channel."""
    _check_batched(use, use.layer.spatial_rank)  # type: ignore[attr-defined]
    return first_axis(use, "input")


@rule(max_pool.MaxPool)
def max_pooled(use: Use) -> Value:
    """Follow a max pool; positions of ONNX files are those in the whole tensor."""
    items, layer = pooled(use), use.layer
    if not layer.counts_in_whole or layer.returns == 0:  # type: ignore[attr-defined]
        return items
    return (items, _PLACES) if isinstance(layer.returns, slice) else _PLACES  # type: ignore[attr-defined]


_PLACES = Mixed("names places in the whole batch")


@rule(unpool.MaxUnpool)
def unpooled(use: Use) -> Value:
    """Follow elements that are put back to their positions in each channel."""
    _check_batched(use, use.layer.spatial_rank)  # type: ignore[attr-defined]
    return first_axis(use, "input", "indices")


@rule(norm.BatchNorm)
def batch_norm(use: Use) -> Value:
    """Follow channels with constant statistics; otherwise they depend on the batch."""
    if not use["running_mean"].is_given or not use["running_var"].is_given:
        raise MixesError("normalises with the statistics of the batch")
    return first_axis(use, "input")


@rule(norm.InstanceNorm)
def instance_norm(use: Use) -> Value:
    """Follow every channel of every image by itself."""
    spatial = use.layer.spatial  # type: ignore[attr-defined]
    if spatial is not None:
        _check_batched(use, spatial)
    return first_axis(use, "input")


@rule(norm.GroupNorm, norm.LocalResponseNorm)
def first_only(use: Use) -> Value:
    """Follow every image by itself, with shared weights."""
    return first_axis(use, "input")


@rule(fold.Unfold)
def unfolded(use: Use) -> Value:
    """Follow windows of every image as columns."""
    _check_batched(use, 2)
    return first_axis(use, "input")


@rule(fold.Fold)
def folded(use: Use) -> Value:
    """Follow columns of every image summed into it."""
    if use["input"].rank != 3:
        raise MixesError("takes the batch axis as channels")
    return first_axis(use, "input")


@rule(interpolate.Interpolate)
def interpolated(use: Use) -> Value:
    """Follow every channel of every image interpolated."""
    return first_axis(use, "input")


@rule(grid.GridSample)
def sampled(use: Use) -> Value:
    """Follow every image sampled at positions of its own."""
    return first_axis(use, "input", "grid")


@rule(grid.AffineGrid, takes_sizes=True)
def affine(use: Use) -> Value:
    """Follow a sampling grid for each matrix."""
    return first_axis(use, "theta")


@rule(resize.Resize, takes_sizes=True)
def resized(use: Use) -> Value:
    """Follow some axes resampled; the batch axis by a scale of one, or to its own size."""
    items, layer, source = use.batch("input"), use.layer, use["input"]
    if layer.coordinate_transformation_mode == "tf_crop_and_resize":  # type: ignore[attr-defined]
        raise MixesError("cuts a region out of the batch")
    known = {name: each.known() for name, each in use.named.items() if name != "input" and each.is_given}
    if any(values is None for values in known.values()):
        raise MixesError("takes sizes that are unknown before a run")
    others: list[Any] = []
    for k, spec in enumerate(source.specs):
        given = {name: values[k] for name, values in known.items() if values is not None}
        wanted = layer._targets(spec.rank, **given)  # type: ignore[attr-defined]
        found = {} if wanted is None else layer._axes_of(spec.shape, wanted)  # type: ignore[attr-defined]
        axis = found.get(items.axis)
        if wanted is None or (axis is not None and (axis.scale != 1 or axis.count != axis.size)):
            raise MixesError("resamples the batch axis")
        others.append({key: (each.scale, each.count) for key, each in found.items() if key != items.axis})
    if any(each != others[0] for each in others):
        raise MixesError("takes a parameter that depends on the number of items")
    return items


@rule(short_time.Stft, short_time.Istft)
def spectrum(use: Use) -> Value:
    """Follow signals to the spectra of their windows, or back; the last axes are those of one signal."""
    name = next(iter(use.named))
    back = isinstance(use.layer, short_time.Istft)
    if use[name].rank < (3 if back else 2):
        raise MixesError("works along the batch axis")
    return first_axis(use, name)
