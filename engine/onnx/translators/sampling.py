"""Images and signals made larger, smaller, or taken elsewhere; padding."""

from __future__ import annotations

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.elementwise import literal

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@translates("Pad")
def pad(node: Node) -> Value | list[Value]:
    """F.pad where the amounts are known and PyTorch has the mode; nothing where there is nothing to add."""
    x, mode = node.input(0), node.text("mode", "constant")
    amounts = node.integers(1, "pads" if "pads" in node.attributes else "paddings")
    axes = node.integers(3, "axes")
    if amounts is None or x.rank is None or (node.is_given(3) and axes is None) or mode not in _MODES:
        return _own(node)
    places = tuple(range(x.rank)) if axes is None else tuple(a + x.rank if a < 0 else a for a in axes)
    if len(amounts) != 2 * len(places) or len(set(places)) != len(places) or not all(0 <= a < x.rank for a in places):
        return _own(node)
    pairs = {a: (amounts[k], amounts[k + len(places)]) for k, a in enumerate(places)}
    padded = [a for a, pair in pairs.items() if pair != (0, 0)]
    if not padded:
        return x
    first = min(padded)
    value = _filler(node)
    if value is None or (mode != "constant" and (first < 2 or x.rank - first > 3 or min(amounts) < 0)):
        return _own(node)
    flat = tuple(each for a in range(x.rank - 1, first - 1, -1) for each in pairs.get(a, (0, 0)))
    if mode == "constant":
        return node.make("F.pad", x, pad=flat, mode=mode, value=value)
    return node.make("F.pad", x, pad=flat, mode=_MODES[mode])


def _filler(node: Node) -> float | int | None:
    """The number to pad with, None where an expression would not do."""
    if "value" in node.attributes:
        return node.real("value", 0.0)
    if not node.is_given(2):
        return 0.0 if node.dtype() is None or node.dtype().kind == "f" else 0  # type: ignore[union-attr]
    number = literal(node.optional(2), node.dtype())
    return number if isinstance(number, (int, float)) else None


def _own(node: Node) -> list[Value]:
    return node.same()


@translates("Resize", since=10)
@translates("Upsample")
def resize(node: Node) -> Value | list[Value]:
    """F.interpolate where PyTorch maps the same places; ONNX's own elsewhere."""
    return _interpolated(node) or _own_resize(node)


def _interpolated(node: Node) -> Value | None:
    x = node.input(0)
    if x.tensor is None or not 3 <= x.tensor.rank <= 5 or node.number("antialias", 0) or node.attributes.get("axes"):
        return None
    way = _way(node, x.tensor.rank - 2)
    scales, sizes = _wanted(node)
    rank = x.tensor.rank
    if (
        way is None
        or (scales is None) == (sizes is None)
        or node.text("keep_aspect_ratio_policy", "stretch") != "stretch"
    ):
        return None
    mode, align = way
    params = {"mode": mode} if align is None else {"mode": mode, "align_corners": align}
    if sizes is not None:
        if len(sizes) != rank or any(a != b for a, b in zip(sizes[:2], x.tensor.shape[:2], strict=True)):
            return None
        return node.make("F.interpolate", x, size=sizes[2:], **params)
    if scales is None or len(scales) != rank or scales[:2] != (1.0, 1.0) or min(scales) <= 0:
        return None
    return node.make("F.interpolate", x, scale_factor=scales[2:], recompute_scale_factor=False, **params)


def _way(node: Node, axes: int) -> tuple[str, bool | None] | None:
    """PyTorch's mode, and whether corners are aligned."""
    mode = node.text("mode", "nearest")
    if node.version < 11:
        # Places are x / scale, as asymmetric has it later.
        return ("nearest", None) if mode == "nearest" else None
    places = node.text("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest":
        fits = places == "asymmetric" and node.text("nearest_mode", "round_prefer_floor") == "floor"
        return ("nearest", None) if fits else None
    name = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}
    if (mode, axes) not in name or (mode == "cubic" and node.real("cubic_coeff_a", -0.75) != -0.75):
        return None
    if node.number("exclude_outside", 0):
        return None
    if places in ("half_pixel", "pytorch_half_pixel"):
        return name[mode, axes], False
    return (name[mode, axes], True) if places == "align_corners" else None


def _wanted(node: Node) -> tuple[tuple[float, ...] | None, tuple[int | None, ...] | None]:
    """Scales and sizes, as far as the file says them."""
    if "scales" in node.attributes:
        value = node.attributes["scales"]
        return (tuple(map(float, value)) if isinstance(value, tuple) else None), None
    place = 1 if node.version < 11 else 2
    scales, sizes = node.array(place), node.array(3)
    wanted = node.optional(3)
    if sizes is None and wanted is not None and wanted.sizes is not None and place == 2:
        # Images of any number and channels: the file takes their sizes from the image itself.
        known = tuple(size if isinstance(size, int) else None for size in wanted.sizes)
        own = node.input(0).tensor
        if own is not None and None not in known[2:] and len(known) == own.rank:
            lead = tuple(a if b is None else b for a, b in zip(own.shape[:2], known[:2], strict=True))
            return None, (*lead, *(size for size in known[2:] if size is not None))
    if sizes is not None and sizes.size and sizes.dtype.kind == "i":
        return None, tuple(map(int, sizes.reshape(-1).tolist()))
    if scales is None or not scales.size or scales.dtype.kind != "f":
        return None, None
    return tuple(float(str(np.float32(each))) for each in scales.reshape(-1)), None


def _own_resize(node: Node) -> list[Value]:
    return node.same()


@translates("DepthToSpace")
def depth_to_space(node: Node) -> Value | list[Value]:
    """F.pixel_shuffle in its order of channels."""
    if node.text("mode", "DCR") == "CRD" and node.input(0).rank == 4:
        return node.make("F.pixel_shuffle", node.input(0), upscale_factor=node.number("blocksize", 1))
    return node.same()
