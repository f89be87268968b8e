"""Translators of slices, gathers, scatters, concatenation and splitting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.indexing.slicing import FIRST_AXES
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Size, Value, constant
from engine.tensor import UNKNOWN, TensorSpec

_END = 2**31 - 1


@translates("Concat")
def concat(node: Node) -> Value:
    """Translate to torch.cat, or concatenate lists of sizes."""
    values = [value for value in node.inputs if value is not None]
    axis = node.number("axis", 1)
    if len(values) == 1:
        return values[0]
    if all(value.constant is not None and value.constant.size <= 64 for value in values):
        arrays = [value.constant for value in values if value.constant is not None]
        if (
            len({each.dtype for each in arrays}) == 1
            and sum(each.size for each in arrays) <= 64
            and arrays[0].ndim == 1
        ):
            return constant(np.concatenate(arrays))
    result = node.make("torch.cat", *values, dim=axis)
    if result.constant is None and all(value.rank == 1 and value.sizes is not None for value in values):
        sizes: list[Size] = []
        for value in values:
            sizes.extend(value.sizes or ())
        result.sizes = tuple(sizes)
    return result


@translates("Split")
def split(node: Node) -> list[Value] | None:
    """Translate to torch.split."""
    x, axis = node.input(0), node.number("axis", 0)
    count = len(node.outputs)
    sections = node.integers(1, "split")
    if sections is None and node.is_given(1):
        names = list(node.outputs)
        labels = ("input", "split_size_or_sections")
        # A list even for one size, because torch.split applies a single number to all pieces.
        inputs = [x, node.make("Tensor.reshape", node.input(1), shape=(count,))]
        return node.builder.add("torch.split", node.name, inputs, outputs=names, params={"dim": axis}, labels=labels)
    size = x.tensor.shape[axis] if x.tensor is not None and -x.tensor.rank <= axis < x.tensor.rank else None
    if sections is None:
        if size is None:
            return _halved(node, x, count, axis)
        each = -(-size // count)
        sections = tuple(max(min(each, size - k * each), 0) for k in range(count))
    if len(sections) != count:
        return None
    if count == 1:
        return [x]
    if len(set(sections)) == 1 and sections[0] * count == size:
        return _halved(node, x, count, axis)
    names = [name or "" for name in node.outputs]
    return node.builder.add(
        "torch.split",
        node.name,
        [x],
        outputs=names,
        params={"split_size_or_sections": sections, "dim": axis},
    )


def _halved(node: Node, x: Value, count: int, axis: int) -> list[Value]:
    """Translate to torch.chunk, with equal parts."""
    params = {"chunks": count, "dim": axis}
    return node.builder.add("torch.chunk", node.name, [x], outputs=list(node.outputs), params=params)


@translates("Slice")
def cut(node: Node) -> Value:
    """Translate to Tensor.slice."""
    x, names = node.input(0), ("starts", "ends", "axes", "steps")
    known = {name: node.integers(place, name) for place, name in enumerate(names, start=1)}
    starts, ends, axes, steps = (known[name] for name in names)
    count = _length(node, 1) if starts is None else len(starts)
    if axes is None and not node.is_given(3):
        axes = known["axes"] = FIRST_AXES if count is None else tuple(range(count))
    if steps is None and not node.is_given(4):
        steps = known["steps"] = (1,) * (count or len(axes or ()))
    if starts is None or ends is None or axes is None or steps is None or x.rank is None or min(steps, default=1) < 1:
        return _cut_in_run(node, x, known)
    if not len(starts) == len(ends) == len(axes) == len(steps) or not all(-x.rank <= each < x.rank for each in axes):
        found = f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)}, steps {list(steps)}"
        raise ShapeError("bounds do not fit", found=found, expected="as many of each, of axes that exist")
    result = _cut(node, x, axes, starts, ends, steps)
    if result.constant is None and x.sizes is not None and x.constant is None and len(starts) == 1 and x.rank == 1:
        result.sizes = x.sizes[slice(starts[0], ends[0], steps[0])]
    return result


def _length(node: Node, index: int) -> int | None:
    spec = node.input(index).tensor
    return spec.shape[0] if spec is not None and spec.rank == 1 else None


def _cut_in_run(node: Node, x: Value, known: Mapping[str, tuple[int, ...] | None]) -> Value:
    """Slice by bounds of the run, or backwards."""
    operands, labels = [x], ["input"]
    params: dict[str, Any] = {}
    for place, (name, numbers) in enumerate(known.items(), start=1):
        key = "dims" if name == "axes" else name
        if numbers is None:
            operands.append(node.input(place))
            labels.append(key)
        elif key != "steps" or set(numbers) != {1}:
            params[key] = numbers
    if min(known["steps"] or (-1,)) < 0:
        params["backwards"] = True
    result = node.make("Tensor.slice", *operands, labels=labels, **params)
    if result.spec is UNKNOWN and x.tensor is not None:
        spec = TensorSpec((None,) * x.tensor.rank, x.tensor.dtype)
        result.spec = node.builder.annotations[result.name] = spec
    return result


def _cut(
    node: Node, x: Value, axes: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]
) -> Value:
    bounds = [
        (axis, start, min(end, _END), step) for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    ]
    kept = [row for row in bounds if row[1:] != (0, _END, 1)]
    if not kept:
        return x
    dims, first, last, by = (tuple(row[k] for row in kept) for k in range(4))
    if len(kept) == 1:
        return node.make("Tensor.slice", x, dim=dims[0], start=first[0], end=last[0], step=by[0])
    return node.make("Tensor.slice", x, dims=dims, starts=first, ends=last, steps=by, selects=(_END,) * len(kept))


@translates("Gather")
def gather(node: Node) -> Value:
    """Translate to Tensor.select of one known index, or to torch.index_select."""
    x, places, axis = node.input(0), node.input(1), node.number("axis", 0)
    index, size = places.constant, None
    if x.tensor is not None and -x.tensor.rank <= axis < x.tensor.rank:
        size = x.tensor.shape[axis]
    picked = [] if index is None or index.ndim > 1 else index.reshape(-1).tolist()
    if index is not None and index.ndim == 0 and x.rank and (size is None or -size <= picked[0] < size):
        result = node.make("Tensor.select", x, dim=axis, index=picked[0])
    else:
        result = selected(node, x, places, axis)
    sizes = () if x.sizes is None or x.constant is not None else x.sizes
    if picked and result.constant is None and all(-len(sizes) <= k < len(sizes) for k in picked):
        result.sizes = tuple(sizes[k] for k in picked)
    return result


def selected(node: Node, x: Value, index: Value, axis: int = 0) -> Value:
    """Select slices of an axis by an index of any rank; negative positions count from the end."""
    return node.make("torch.index_select", x, index, labels=("input", "index"), dim=axis, counts_back=True)
