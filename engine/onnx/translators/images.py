"""Translators of sampling, blocks, patches, crops and regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError, UnsupportedOperatorError
from engine.layers.onnx.operands.padding import pairs_of, per_axis
from engine.layers.operands.spatial import FLOATING, tensor
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of


@translates("GridSample")
def grid_sample(node: Node) -> Value:
    """Translate to F.grid_sample, computed in the wider of the two dtypes."""
    x, grid = node.input(0), node.input(1)
    params: dict[str, Any] = {
        "mode": node.text("mode", "linear"),
        "padding_mode": node.text("padding_mode", "zeros"),
        "align_corners": bool(node.number("align_corners", 0)),
    }
    if x.tensor is not None and params["mode"] != "nearest":
        tensor(x.tensor, "input", FLOATING)
    if x.dtype == grid.dtype:
        return node.make("F.grid_sample", x, grid, **params)
    dtypes = {each.dtype for each in (x, grid)}
    is_wide = None in dtypes or any(dtype == np.float64 or dtype.kind in "iu" for dtype in dtypes if dtype is not None)
    operands = (node.make("Tensor.to", each, dtype="torch.double" if is_wide else "torch.float") for each in (x, grid))
    return in_dtype_of(node, node.make("F.grid_sample", *operands, **params), x)


@translates("AffineGrid")
def affine_grid(node: Node) -> Value:
    """Translate to F.affine_grid."""
    theta, size, aligned = node.input(0), node.integers(1, "size"), bool(node.number("align_corners", 0))
    if size is not None:
        return node.make("F.affine_grid", theta, size=size, align_corners=aligned)
    return node.make("F.affine_grid", theta, node.input(1), labels=("theta", "size"), align_corners=aligned)


@translates("DepthToSpace", "SpaceToDepth")
def shuffle(node: Node) -> Value:
    """Translate to F.pixel_shuffle or F.pixel_unshuffle."""
    x, size, mode = node.input(0), node.number("blocksize", 1), node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise ParameterError("unknown mode", found=mode[:80], expected="DCR or CRD")
    if x.rank not in (4, None):
        raise ShapeError("input does not fit", found=f"{x.rank} dimensions", expected="4")
    order: dict[str, Any] = {"block_first": True} if mode == "DCR" else {}
    if node.type == "DepthToSpace":
        return node.make("F.pixel_shuffle", x, upscale_factor=size, **order)
    return node.make("F.pixel_unshuffle", x, downscale_factor=size, **order)


@translates("Col2Im", since=18)
def fold(node: Node) -> Value:
    """Translate to F.fold, of an image with the padding around it, which is cut off."""
    x, sizes, block = node.input(0), node.input(1), node.input(2)
    rank = None if sizes.tensor is None or sizes.rank != 1 else sizes.tensor.shape[0]
    if rank is None:
        raise UnsupportedOperatorError("the number of axes of the image is not known before a run")
    one = (1,) * (rank == 1)
    stride, dilation = (one + per_axis(node.numbers(name), rank, name) for name in ("strides", "dilations"))
    pairs = pairs_of(node.numbers("pads"), rank)
    sizes = node.make("torch.add", sizes, node.constant(np.array([sum(pair) for pair in pairs])))
    if rank == 1:  # F.fold takes one size for both axes
        sizes, block = (node.make("torch.cat", node.constant(np.array([1])), each, dim=0) for each in (sizes, block))
    labels = ("input", "output_size", "kernel_size")
    result = node.make("F.fold", x, sizes, block, labels=labels, stride=stride, dilation=dilation, any_rank=True)
    if rank == 1:
        result = node.make("torch.squeeze", result, dim=(2,))
    cut = tuple(-each for pair in pairs[::-1] for each in pair)
    return node.make("F.pad", result, pad=cut, mode="constant", value=0) if any(cut) else result


@translates("CenterCropPad", since=18)
def centred(node: Node) -> Value:
    """Translate to F.pad, by half of what is missing or too much; the odd element is at the end."""
    x, rank, sizes = node.input(0), node.rank(), node.integers(1, "shape")
    axes = [axis + rank if axis < 0 else axis for axis in node.numbers("axes") or range(rank)]
    if not all(0 <= axis < rank for axis in axes) or (sizes is not None and len(sizes) != len(axes)):
        raise ShapeError("shape does not fit", found=f"{sizes} for axes {axes}", expected=f"axes of {rank}")
    terms = []
    for axis in reversed(range(rank)):
        place = axes.index(axis) if axis in axes else None
        wanted = "" if place is None else f"int(@{place + 1})" if sizes is None else str(sizes[place])
        more = f"sub({wanted},size(@0,{axis}))"
        before = f"sub(floor_divide(max({more},0),2),floor_divide(max(neg({more}),0),2))"
        terms += ["0", "0"] if place is None else [before, f"sub({more},{before})"]
    places = range(len(axes)) if sizes is None else ()
    parts = [node.make("Tensor.select", node.input(1), dim=0, index=k) for k in places]
    amounts = node.make("pnnx.Expression", x, *parts, expr=f"[{','.join(terms)}]")
    return node.make("F.pad", x, amounts, labels=("input", "pad"), mode="constant", value=0)


@translates("MaxRoiPool")
def pooled_regions(node: Node) -> Value:
    """Translate to torchvision's operator."""
    sizes, scale = node.numbers("pooled_shape"), node.real("spatial_scale", 1.0)
    return node.make("torchvision.ops.RoIPool", node.input(0), node.input(1), output_size=sizes, spatial_scale=scale)


@translates("RoiAlign", since=10)
def regions(node: Node) -> Value:
    """Translate to torchvision's operator, whose regions begin with the number of their image."""
    x, rois = node.input(0), node.input(1)
    images = in_dtype_of(node, node.make("torch.unsqueeze", node.input(2), dim=-1), rois)
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    mode: dict[str, Any] = {"mode": node.text("mode", "avg")}
    return node.make(
        "torchvision.ops.RoIAlign",
        x,
        node.make("torch.cat", images, rois, dim=1),
        output_size=(node.number("output_height", 1), node.number("output_width", 1)),
        spatial_scale=node.real("spatial_scale", 1.0),
        sampling_ratio=node.number("sampling_ratio", 0),
        aligned=node.text("coordinate_transformation_mode", default) == "half_pixel",
        **mode,
    )
