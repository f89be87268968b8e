"""Translators of pooling."""

from __future__ import annotations

from functools import reduce
from typing import Any

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Size, Value
from engine.onnx.translators.convolution import spread, symmetric_padding
from engine.onnx.translators.elementwise import computed
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.onnx.translators.shape import reshaped


@translates("MaxPool")
def max_pool(node: Node) -> Value | list[Value] | None:
    """Translate to nn.MaxPool."""
    x, given = node.input(0), _windows(node)
    rank = len(given["kernel_size"])
    if not 1 <= rank <= 3:
        return None
    given["dilation"], is_alone = spread(node, "dilations", rank), len(node.outputs) == 1 and node.names_results
    if is_alone:
        return node.make(f"nn.MaxPool{rank}d", x, return_indices=False, **given)
    values, indices = node.builder.add(
        f"nn.MaxPool{rank}d", node.name, [x], outputs=("", ""),
        params={"return_indices": True, "indexes_whole": True, **given},
    )  # fmt: skip
    if node.number("storage_order", 0) and any(node.outputs[1:]):
        indices = _by_columns(node, x, indices)
    return node.results((values, indices), ("the largest elements", "their indices"))


def _by_columns(node: Node, x: Value, indices: Value) -> Value:
    """Convert indices into images to such with the spatial axes in reverse order."""
    axes = range(2, node.rank())
    image = reduce(lambda done, k: f"mul({done},size(@1,{k}))", axes, "1")
    place, rest, step = "0", f"remainder(@0,{image})", "1"
    whole = f"sub(@0,{rest})"
    inner = [f"size(@1,{k})" for k in axes]
    for k, size in enumerate(inner):
        below = reduce(lambda done, each: f"mul({done},{each})", inner[k + 1 :], "1")
        place = f"add({place},mul(floor_divide({rest},{below}),{step}))"
        rest, step = f"remainder({rest},{below})", f"mul({step},{size})"
    return node.expression(f"add({whole},{place})", indices, x)


@translates("AveragePool")
def average_pool(node: Node) -> Value | None:
    """Translate to nn.AvgPool."""
    given, is_padding_counted = _windows(node), bool(node.number("count_include_pad", 0))
    return _average(node, node.input(0), given, count_include_pad=is_padding_counted)


def _average(node: Node, x: Value, given: dict[str, Any], **more: Any) -> Value | None:
    rank = len(given["kernel_size"])
    if (dilation := spread(node, "dilations", rank)) != (1,) * rank:
        more["dilation"] = dilation
    return node.make(f"nn.AvgPool{rank}d", x, **given, **more) if 1 <= rank <= 3 else None


@translates("LpPool")
def power_pool(node: Node) -> Value | None:
    """Translate to sum(abs(x)^p)^(1/p) over each window."""
    x, p = node.input(0), node.real("p", 2.0)
    totals = _average(node, _power(node, widened(node, x), p), _windows(node), divisor_override=1)
    return None if totals is None else in_dtype_of(node, _root(node, totals, p), x)


@translates("GlobalLpPool")
def global_power_pool(node: Node) -> Value:
    """Translate to sum(abs(x)^p)^(1/p) of each channel."""
    x, p = node.input(0), node.real("p", 2.0)
    powers = _power(node, widened(node, x), p)
    total = node.make("torch.sum", powers, dim=tuple(range(2, node.rank())), keepdim=True)
    return in_dtype_of(node, _root(node, total, p), x)


def _power(node: Node, x: Value, p: float) -> Value:
    return node.make("torch.square", x) if p == 2 else node.make("torch.pow", node.make("torch.abs", x), other=p)


def _root(node: Node, x: Value, p: float) -> Value:
    return node.make("torch.sqrt", x) if p == 2 else node.make("torch.pow", x, other=1 / p)


def _windows(node: Node) -> dict[str, Any]:
    """Return the parameters of windows."""
    kernel, mode = node.numbers("kernel_shape"), node.text("auto_pad", "NOTSET")
    padding: tuple[int, ...] | str | None = symmetric_padding(node, kernel)
    if mode.startswith("SAME"):
        padding = mode.lower()
    elif padding is None:
        padding = node.numbers("pads")
        if mode != "NOTSET" or len(padding) != 2 * len(kernel):
            found, expected = f"{mode} {list(padding)}", f"{2 * len(kernel)} numbers, SAME_UPPER, SAME_LOWER or VALID"
            raise ParameterError("pads do not fit", found=found, expected=expected)
    return {
        "ceil_mode": bool(node.number("ceil_mode", 0)) and not mode.startswith("SAME"),
        "kernel_size": kernel,
        "padding": padding,
        "stride": spread(node, "strides", len(kernel)),
    }


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Value:
    """Translate to nn.AdaptiveAvgPool or nn.AdaptiveMaxPool with one output element, or to a reduction."""
    x, rank, is_mean = node.input(0), node.rank() - 2, node.type == "GlobalAveragePool"
    if not 1 <= rank <= 3:
        return node.make("torch.mean" if is_mean else "torch.amax", x, dim=tuple(range(2, rank + 2)), keepdim=True)
    if is_mean:
        return node.make(f"nn.AdaptiveAvgPool{rank}d", x, output_size=(1,) * rank)
    return node.make(f"nn.AdaptiveMaxPool{rank}d", x, output_size=(1,) * rank, return_indices=False)


@translates("MaxUnpool")
def max_unpool(node: Node) -> Value:
    """Translate to a scatter into zeros, which output_shape crops or extends."""
    x, kernel = node.input(0), node.numbers("kernel_shape")
    shape, rank = x.shape_as(), len(kernel)
    if shape is None or len(shape) != rank + 2:
        raise ParameterError("kernel_shape does not fit", found=list(kernel), expected=f"{node.rank() - 2} sizes")
    pads, strides = node.numbers("pads") or (0,) * (2 * rank), spread(node, "strides", rank)
    rows = zip(shape[2:], kernel, strides, pads[:rank], pads[rank:], strict=True)
    natural = [*shape[:2], *(_unpooled(*row) for row in rows)]
    count: Size = 1
    for each in natural:
        count = computed("mul", count, each)
    zeros = node.make("torch.zeros", node.sizes([count]), labels=("size",))
    zeros = in_dtype_of(node, zeros, x)
    flat, places = (reshaped(node, each, [-1]) for each in (x, node.input(1)))
    y = reshaped(node, node.make("torch.scatter", zeros, places, flat, dim=0), natural)
    wanted = node.optional(2)
    if wanted is None:
        return y
    more = node.make("torch.flip", node.make("torch.sub", wanted, node.sizes(natural)), dims=(0,))
    pairs = node.make("torch.stack", node.make("torch.zeros_like", more), more, dim=1)
    pairs = node.make("Tensor.reshape", pairs, shape=(-1,))
    return node.make("F.pad", y, pairs, labels=("input", "pad"), mode="constant", value=0.0)


def _unpooled(size: Size, kernel: int, stride: int, before: int, after: int) -> Size:
    return computed("add", computed("mul", size, stride), kernel - stride - before - after)
