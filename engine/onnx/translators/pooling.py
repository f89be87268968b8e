"""Translators of pooling."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.convolution import spread, symmetric_padding


@translates("MaxPool")
def max_pool(node: Node) -> Value | list[Value]:
    """Translate to nn.MaxPool if only the values are used and PyTorch supports the padding."""
    kernel = node.numbers("kernel_shape")
    padding = _padding(node, kernel)
    if padding is None or any(node.outputs[1:]):
        return node.same()
    rank = len(kernel)
    return node.make(
        f"nn.MaxPool{rank}d",
        node.input(0),
        ceil_mode=_ceil(node),
        dilation=spread(node, "dilations", rank),
        kernel_size=kernel,
        padding=padding,
        return_indices=False,
        stride=spread(node, "strides", rank),
    )


@translates("AveragePool")
def average_pool(node: Node) -> Value | list[Value]:
    """Translate to nn.AvgPool if PyTorch supports the padding."""
    kernel = node.numbers("kernel_shape")
    padding = _padding(node, kernel)
    if padding is None or set(spread(node, "dilations", len(kernel))) != {1} or _ceil(node):
        return node.same()
    return node.make(
        f"nn.AvgPool{len(kernel)}d",
        node.input(0),
        ceil_mode=False,
        count_include_pad=bool(node.number("count_include_pad", 0)),
        kernel_size=kernel,
        padding=padding,
        stride=spread(node, "strides", len(kernel)),
    )


def _padding(node: Node, kernel: tuple[int, ...]) -> tuple[int, ...] | None:
    if not 1 <= len(kernel) <= 3 or (node.dtype() is not None and node.dtype().kind in "iu"):  # type: ignore[union-attr]
        return None
    padding = symmetric_padding(node, kernel)
    if padding is None or any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        return None
    return padding


def _ceil(node: Node) -> bool:
    return bool(node.number("ceil_mode", 0)) and node.text("auto_pad", "NOTSET") == "NOTSET"


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Value | list[Value]:
    """Translate to nn.AdaptiveAvgPool or nn.AdaptiveMaxPool with one output element."""
    rank = (node.input(0).rank or 0) - 2
    if not 1 <= rank <= 3:
        return node.same()
    kind = "Avg" if node.type == "GlobalAveragePool" else "Max"
    if kind == "Max":
        return node.make(f"nn.AdaptiveMaxPool{rank}d", node.input(0), output_size=(1,) * rank, return_indices=False)
    return node.make(f"nn.AdaptiveAvgPool{rank}d", node.input(0), output_size=(1,) * rank)
