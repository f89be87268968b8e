"""Translators of resizing, padding and pixel shuffle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.elementwise import literal
from engine.pnnx.graph import Parameter

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@translates("Pad")
def pad(node: Node) -> Value:
    """Translate to F.pad, or for the mode wrap, which may repeat the input often, to torch.index_select."""
    x, mode, value, axes = node.input(0), node.text("mode", "constant"), node.optional(2), node.optional(3)
    if not node.names_results and axes is None and value is not None and value.rank == 1:
        value, axes = None, value  # a pair leaves out the value
    if mode not in _MODES:
        raise ParameterError("unknown mode", found=mode[:80], expected=", ".join(_MODES))
    texts, amounts, places = _amounts(node, axes)
    pairs = {axis: (texts[k], texts[k + len(places)]) for k, axis in enumerate(places)}
    if set(texts) <= {"0"}:
        return x
    if mode == "wrap":
        for axis, (before, after) in pairs.items():
            x = _wrapped(node, x, axis, amounts, before, after)
        return x
    first = min(axis for axis, pair in pairs.items() if pair != ("0", "0"))
    rank = max(places) + 1 if x.rank is None else x.rank
    flat = [each for axis in range(rank - 1, first - 1, -1) for each in pairs.get(axis, ("0", "0"))]
    params: dict[str, Any] = {"mode": _MODES[mode]}
    operands, labels = [x], ["input"]
    if amounts:
        operands.append(node.make("pnnx.Expression", x, *amounts, expr=f"[{','.join(flat)}]"))
        labels.append("pad")
    else:
        params["pad"] = tuple(map(int, flat))
    if mode == "constant":
        filler = node.real("value", 0.0) if "value" in node.attributes else literal(value, x.dtype)
        if value is None and "value" not in node.attributes:
            filler = 0.0 if x.dtype is None or x.dtype.kind == "f" else 0
        if filler is None and value is not None:
            operands.append(value if value.rank == 0 else node.make("Tensor.reshape", value, shape=()))
            labels.append("value")
        else:
            params["value"] = filler
    return node.make("F.pad", *operands, labels=labels, **params)


def _wrapped(node: Node, x: Value, axis: int, amounts: Sequence[Value], before: str, after: str) -> Value:
    """Pad an axis by repeating it, after negative amounts have cropped it."""
    kept = f"add(size(@0,{axis}),add(min({before},0),min({after},0)))"
    texts = (f"neg(max({before},0))", f"add({kept},max({after},0))", kept, f"max(neg({before}),0)")
    start, end, count, first = (node.make("pnnx.Expression", x, *amounts, expr=text) for text in texts)
    index = node.make("torch.arange", start, end, labels=("start", "end"), dtype="torch.long")
    index = node.make("pnnx.Expression", index, count, first, expr="add(remainder(@0,@1),@2)")
    return node.make("torch.index_select", x, index, dim=axis)


def _amounts(node: Node, given: Value | None) -> tuple[list[str], list[Value], Sequence[int]]:
    """Return the amounts as texts of an expression, the operands @1, @2, ... of these, and the axes."""
    amounts = node.integers(1, "pads" if "pads" in node.attributes else "paddings")
    rank = len(amounts) // 2 if node.input(0).rank is None and amounts is not None and given is None else node.rank()
    axes = range(rank) if given is None else given.constant
    pads = None if amounts is not None else node.input(1)
    if axes is None and given is not None:  # axes of the run: the amounts of all axes, most of them 0
        shape = (2, -1)
        pads = node.make("Tensor.reshape", node.input(1), shape=shape)
        index = node.make("Tensor.expand", node.make("torch.unsqueeze", given, dim=0), sizes=shape)
        zeros = node.constant(np.zeros((2, rank), pads.dtype or np.int64))
        labels = ("input", "index", "src")
        pads = node.make("torch.scatter", zeros, index, pads, labels=labels, dim=1, counts_back=True)
        pads, axes = node.make("torch.flatten", pads, start_dim=0, end_dim=-1), range(rank)
    places = [int(axis) + rank if axis < 0 else int(axis) for axis in axes]  # type: ignore[union-attr]
    count = 2 * len(places) if amounts is None or pads is not None else len(amounts)
    if count != 2 * len(places) or len(set(places)) != len(places) or not all(0 <= axis < rank for axis in places):
        found = f"{count} for axes {places}"
        raise ShapeError("pads do not fit the axes", found=found, expected=f"{2 * len(places)} numbers")
    if pads is None:
        return [str(each) for each in amounts or ()], [], places
    parts = [node.make("Tensor.select", pads, dim=0, index=k) for k in range(count)]
    return [f"int(@{k + 1})" for k in range(count)], parts, places


@translates("Resize", since=10)
@translates("Upsample")
def resize(node: Node) -> Value | list[Value]:
    """Keep ONNX's layer, restricted to spatial axes if the others keep their sizes, so that it takes any batch."""
    return _interpolated(node) or _own_resize(node)


def _own_resize(node: Node) -> list[Value]:
    """Keep ONNX's layer; before operator set 11 it has no region and uses Upsample's coordinates."""
    if not _is_first(node):
        return node.same()
    inputs, rounding = [node.input(0), None, node.optional(1)], "floor" if node.type == "Upsample" else "simple"
    params = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    return node.same("Resize", inputs, **params)


def _interpolated(node: Node) -> list[Value] | None:
    x, way = node.input(0), _way(node)
    if x.tensor is None or not 3 <= x.tensor.rank <= 5 or "axes" in node.attributes or way is None:
        return None
    scales, sizes = _targets(node)
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


def _is_first(node: Node) -> bool:
    """Return whether the operator is of the time before operator set 11."""
    return node.version < 11 or node.type == "Upsample"


def _way(node: Node) -> Mapping[str, Parameter] | None:
    """Return parameters that differ from the file's; None if the layer needs an operand known only at run time."""
    if node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return None
    if not _is_first(node):
        return {}
    # Coordinates are x / scale, which later versions call asymmetric.
    rounding = "floor" if node.type == "Upsample" else "simple"
    is_nearest = node.text("mode", "nearest") == "nearest"
    return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding} if is_nearest else None


def _targets(node: Node) -> tuple[tuple[float, ...] | None, tuple[int | None, ...] | None]:
    """Return scales and sizes; None for those that the file does not determine."""
    if "scales" in node.attributes:
        value = node.attributes["scales"]
        return (tuple(map(float, value)) if isinstance(value, tuple) else None), None
    place = 1 if _is_first(node) else 2
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
