"""Translators of resizing, padding and pixel shuffle."""

from __future__ import annotations

from collections.abc import Mapping

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.elementwise import literal
from engine.pnnx.graph import Parameter

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@translates("Pad")
def pad(node: Node) -> Value | list[Value]:
    """Translate to F.pad if the amounts are known and PyTorch has the mode; return the input if they are all 0."""
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
    """Return the number to pad with; None if it is not a constant."""
    if "value" in node.attributes:
        return node.real("value", 0.0)
    if not node.is_given(2):
        return 0.0 if node.dtype() is None or node.dtype().kind == "f" else 0  # type: ignore[union-attr]
    number = literal(node.optional(2), node.dtype())
    return number if isinstance(number, (int, float)) else None


def _own(node: Node) -> list[Value]:
    """Keep ONNX's layer; the first version names its amounts ``paddings``."""
    return node.same(paddings=None, pads=node.attributes.get("pads", node.attributes.get("paddings")))


@translates("Resize", since=10)
@translates("Upsample")
def resize(node: Node) -> Value | list[Value]:
    """Keep ONNX's layer, restricted to spatial axes if the others keep their sizes, so that it takes any batch."""
    return _interpolated(node) or _own_resize(node)


def _own_resize(node: Node) -> list[Value]:
    """Keep ONNX's layer; before operator set 11 it has no region and uses Upsample's coordinates."""
    if node.version >= 11:
        return node.same()
    inputs = [node.input(0), None, node.optional(1)]
    if node.type == "Upsample":
        return node.same(inputs=inputs)
    return node.same(inputs=inputs, coordinate_transformation_mode="asymmetric", nearest_mode="simple")


def _interpolated(node: Node) -> list[Value] | None:
    x, way = node.input(0), _way(node)
    if x.tensor is None or not 3 <= x.tensor.rank <= 5 or "axes" in node.attributes or way is None:
        return None
    scales, sizes = _wanted(node)
    rank = x.tensor.rank
    if (scales is None) == (sizes is None) or node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes: dict[str, Parameter] = {"axes": tuple(range(2, rank))}
    if sizes is not None:
        if len(sizes) != rank or any(a != b for a, b in zip(sizes[:2], x.tensor.shape[:2], strict=True)):
            return None
        return node.same("Resize", [x], **axes, **way, sizes=tuple(size or 0 for size in sizes[2:]))
    if scales is None or len(scales) != rank or scales[:2] != (1.0, 1.0):
        return None
    return node.same("Resize", [x], **axes, **way, scales=scales[2:])


def _way(node: Node) -> Mapping[str, Parameter] | None:
    """Return parameters that differ from the file's; None if the layer needs an operand known only at run time."""
    if node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return None
    if node.version >= 11:
        return {}
    # Coordinates are x / scale, which later versions call asymmetric.
    rounding = "floor" if node.type == "Upsample" else "simple"
    is_nearest = node.text("mode", "nearest") == "nearest"
    return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding} if is_nearest else None


def _wanted(node: Node) -> tuple[tuple[float, ...] | None, tuple[int | None, ...] | None]:
    """Return scales and sizes; None for those that the file does not determine."""
    if "scales" in node.attributes:
        value = node.attributes["scales"]
        return (tuple(map(float, value)) if isinstance(value, tuple) else None), None
    place = 1 if node.version < 11 else 2
    scales, sizes = node.array(place), node.array(3)
    wanted = node.optional(3)
    if sizes is None and wanted is not None and wanted.sizes is not None and place == 2:
        # The file takes batch and channels from the image itself.
        known = tuple(size if isinstance(size, int) else None for size in wanted.sizes)
        own = node.input(0).tensor
        if own is not None and None not in known[2:] and len(known) == own.rank:
            lead = tuple(a if b is None else b for a, b in zip(own.shape[:2], known[:2], strict=True))
            return None, (*lead, *(size for size in known[2:] if size is not None))
    if sizes is not None and sizes.size and sizes.dtype.kind == "i":
        return None, tuple(map(int, sizes.reshape(-1).tolist()))
    if scales is None or not scales.size or scales.dtype.kind != "f":
        return None, None
    return tuple(map(float, scales.reshape(-1).tolist())), None
