"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import ParameterError
from engine.layers.convolution.window import same_pairs
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.tensor import Array

Pair = tuple[int, int]


@translates("Conv")
def conv(node: Node) -> Value | list[Value]:
    """Translate to nn.Conv with stored weights, after F.pad for asymmetric padding; else keep ONNX's layer."""
    stored = _stored(node)
    padded = None if stored is None else _padded(node, stored[0].shape[2:])
    if stored is None or padded is None:
        return node.same()
    weight, bias = stored
    rank = weight.ndim - 2
    group = node.number("group", 1)
    x, padding = padded
    return node.make(
        f"nn.Conv{rank}d",
        x,
        weights={"weight": weight} if bias is None else {"weight": weight, "bias": bias},
        bias=bias is not None,
        dilation=spread(node, "dilations", rank),
        groups=group,
        in_channels=weight.shape[1] * group,
        kernel_size=tuple(weight.shape[2:]),
        out_channels=weight.shape[0],
        padding=padding,
        padding_mode="zeros",
        stride=spread(node, "strides", rank),
    )


@translates("ConvTranspose")
def conv_transpose(node: Node) -> Value | list[Value]:
    """Translate to nn.ConvTranspose where PyTorch has an equivalent."""
    stored = _stored(node)
    padding = symmetric_padding(node)
    if stored is None or padding is None or node.attributes.get("output_shape"):
        return node.same()
    weight, bias = stored
    rank = weight.ndim - 2
    group = node.number("group", 1)
    stride, dilation = spread(node, "strides", rank), spread(node, "dilations", rank)
    extra = node.numbers("output_padding") or (0,) * rank
    if any(more >= max(s, d) for more, s, d in zip(extra, stride, dilation, strict=False)) or len(extra) != rank:
        return node.same()
    return node.make(
        f"nn.ConvTranspose{rank}d",
        node.input(0),
        weights={"weight": weight} if bias is None else {"weight": weight, "bias": bias},
        bias=bias is not None,
        dilation=dilation,
        groups=group,
        in_channels=weight.shape[0],
        kernel_size=tuple(weight.shape[2:]),
        out_channels=weight.shape[1] * group,
        output_padding=extra,
        padding=padding,
        stride=stride,
    )


@translates("CausalConvWithState", since=27)
def causal_conv(node: Node) -> list[Value] | None:
    """Translate to a depthwise convolution of the past state (or zeros) and the input; the new state is their end."""
    x, weight, past = node.input(0), node.input(1), node.optional(3)
    spec, kernel = x.tensor, weight.tensor
    activation = node.text("activation", "none")
    if spec is None or kernel is None or spec.rank != 3 or kernel.rank != 3 or kernel.shape[2] is None:
        return None
    if spec.shape[1] is None or activation not in ("none", "silu", "swish"):
        return None
    more = kernel.shape[2] - 1
    if past is not None:
        whole = node.make("torch.cat", past, x, dim=2)
    else:
        whole = node.make("F.pad", x, pad=(more, 0), mode="constant", value=0.0) if more else x
    operands = [whole, weight] + ([node.input(2)] if node.is_given(2) else [])
    (y,) = node.builder.add("Conv", node.name, operands, params={"group": spec.shape[1]})
    if activation != "none":
        y = node.make("nn.SiLU", y)
    if more:
        state = node.make("Tensor.slice", whole, dim=2, start=-more, end=2**31 - 1, step=1)
    else:
        state = node.make("Tensor.slice", whole, dim=2, start=0, end=0, step=1)
    return [y, state]


def _padded(node: Node, kernel: Sequence[int]) -> tuple[Value, tuple[int, ...]] | None:
    """Pad the input asymmetrically and return it with the symmetric rest; None if that depends on unknown sizes."""
    x, padding = node.input(0), symmetric_padding(node)
    if padding is not None:
        return x, padding
    pairs = _pairs(node, kernel)
    if pairs is None or any(min(pair) < 0 for pair in pairs):
        return None
    both = tuple(map(min, pairs))
    flat = [amount - least for pair, least in zip(pairs, both, strict=True) for amount in pair]
    if any(flat):
        last_first = [amount for k in range(len(flat) - 2, -1, -2) for amount in flat[k : k + 2]]
        x = node.make("F.pad", x, pad=tuple(last_first), mode="constant", value=0.0)
    return x, both


def _pairs(node: Node, kernel: Sequence[int]) -> list[Pair] | None:
    """Return the padding before and after each axis; None if it depends on unknown sizes."""
    mode, rank, spec = node.text("auto_pad", "NOTSET"), len(kernel), node.input(0).tensor
    if mode == "NOTSET":
        pads = node.numbers("pads")
        return list(zip(pads[:rank], pads[rank:], strict=True)) if len(pads) == 2 * rank else None
    if mode not in ("SAME_UPPER", "SAME_LOWER") or spec is None or spec.rank != rank + 2 or None in spec.shape[2:]:
        return None
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, spread(node, "dilations", rank), strict=True)]
    return list(same_pairs(spec.shape[2:], extents, spread(node, "strides", rank), mode == "SAME_UPPER"))


def _stored(node: Node) -> tuple[Array, Array | None] | None:
    """Return constant weight and bias; None if they are not constant or PyTorch has no module for them."""
    weight, bias = node.array(1), node.array(2)
    if weight is None or (node.is_given(2) and bias is None) or not 3 <= weight.ndim <= 5 or 0 in weight.shape:
        return None
    if weight.dtype.kind != "f" and weight.dtype.name != "bfloat16":
        return None
    given = node.numbers("kernel_shape")
    if given and given != weight.shape[2:]:
        raise ParameterError("kernel_shape contradicts the weight", found=list(given), expected=list(weight.shape[2:]))
    return weight, bias


def spread(node: Node, name: str, rank: int) -> tuple[int, ...]:
    """Return an attribute with one number per axis; ones if the file has none.

    Raises:
        ParameterError: the count is not that of the axes.
    """
    numbers = node.numbers(name) or (1,) * rank
    if len(numbers) != rank:
        raise ParameterError(f"attribute '{name}' does not fit", found=list(numbers), expected=f"{rank} numbers")
    return numbers


def symmetric_padding(node: Node, kernel: Sequence[int] = ()) -> tuple[int, ...] | None:
    """Return the padding if it is symmetric; None if it is not, or depends on sizes."""
    mode = node.text("auto_pad", "NOTSET")
    rank = len(kernel) or (node.rank(1) if node.inputs[1:] else node.rank(0)) - 2
    if mode == "VALID":
        return (0,) * rank
    pads = node.numbers("pads") or (0,) * (2 * rank)
    if mode != "NOTSET" or len(pads) != 2 * rank or pads[:rank] != pads[rank:] or min(pads, default=0) < 0:
        return None
    return pads[:rank]
