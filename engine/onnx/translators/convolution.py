"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.window import same_pairs
from engine.layers.operands.axes import may_match
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Axis, Size, Value
from engine.onnx.translators.elementwise import computed
from engine.tensor import Array

Pair = tuple[int, int]


@translates("Conv")
def conv(node: Node) -> Value | None:
    """Translate to nn.Conv with stored weights, after F.pad for asymmetric padding; else to F.conv."""
    stored, kernel = _stored(node), _kernel(node)
    rank = len(kernel)
    if not 1 <= rank <= 3:
        return None
    given: dict[str, Any] = {"dilation": spread(node, "dilations", rank), "groups": node.number("group", 1),
                             "stride": spread(node, "strides", rank)}  # fmt: skip
    padded = None if stored is None else _padded(node, stored[0].shape[2:])
    if stored is None or padded is None:
        pairs = _pairs(node, kernel)
        if pairs is None:
            given["padding"] = "same" if node.text("auto_pad", "") == "SAME_UPPER" else "same_lower"
        else:
            given["padding"] = tuple(amount for side in zip(*pairs, strict=True) for amount in side)
        operands = [value for value in node.inputs if value is not None]
        return node.make(f"F.conv{rank}d", *operands, labels=("input", "weight", "bias")[: len(operands)], **given)
    weight, bias = stored
    x, padding = padded
    return node.make(
        f"nn.Conv{rank}d",
        x,
        weights={"weight": weight} if bias is None else {"weight": weight, "bias": bias},
        bias=bias is not None,
        in_channels=weight.shape[1] * given["groups"],
        kernel_size=tuple(weight.shape[2:]),
        out_channels=weight.shape[0],
        padding=padding,
        padding_mode="zeros",
        **given,
    )


@translates("ConvTranspose")
def conv_transpose(node: Node) -> Value | None:
    """Translate to nn.ConvTranspose, or F.conv_transpose; output_shape and other padding crop or extend its result."""
    stored, kernel, padding = _stored(node), _kernel(node), symmetric_padding(node)
    rank = len(kernel)
    if not 1 <= rank <= 3:
        return None
    stride, dilation = spread(node, "strides", rank), spread(node, "dilations", rank)
    extra = node.numbers("output_padding") or (0,) * rank
    given: dict[str, Any] = {"dilation": dilation, "groups": node.number("group", 1), "stride": stride}
    is_plain = padding is not None and not node.attributes.get("output_shape")
    crops: list[tuple[Size, Size]] = []
    if is_plain and all(more < max(s, d) for more, s, d in zip(extra, stride, dilation, strict=True)):
        given |= {"padding": padding, "output_padding": extra}
    else:
        crops = _crops(node, kernel, stride, dilation, extra)
    flat = [amount for pair in crops[::-1] for amount in pair]
    adds_bias = node.is_given(2) and not all(isinstance(amount, int) and amount <= 0 for amount in flat)
    y = _transposed(node, stored, rank, has_bias=node.is_given(2) and not adds_bias, given=given)
    if any(flat):
        known = tuple(amount for amount in flat if isinstance(amount, int))
        pads: list[Value] = [] if len(known) == len(flat) else [node.sizes(flat)]
        more: dict[str, Any] = {"labels": ("input", "pad")} if pads else {"pad": known}
        y = node.make("F.pad", y, *pads, mode="constant", value=0.0, **more)
    if not adds_bias:
        return y
    return node.make("torch.add", y, node.make("Tensor.reshape", node.input(2), shape=(-1, *(1,) * rank)))


def _transposed(
    node: Node, stored: tuple[Array, Array | None] | None, rank: int, *, has_bias: bool, given: dict[str, Any]
) -> Value:
    """Append the transposed convolution itself."""
    if stored is None:
        operands = [node.input(k) for k in range(2 + has_bias)]
        labels = ("input", "weight", "bias")[: len(operands)]
        return node.make(f"F.conv_transpose{rank}d", *operands, labels=labels, **given)
    weight, bias = stored
    return node.make(
        f"nn.ConvTranspose{rank}d",
        node.input(0),
        weights={"weight": weight, "bias": bias} if has_bias and bias is not None else {"weight": weight},
        bias=has_bias,
        in_channels=weight.shape[0],
        kernel_size=tuple(weight.shape[2:]),
        out_channels=weight.shape[1] * given["groups"],
        **given,
    )


def _crops(node: Node, kernel: Sequence[Any], stride: Sequence[int], dilation: Sequence[int],
           extra: Sequence[int]) -> list[tuple[Size, Size]]:  # fmt: skip
    """Return what the whole result gains before and after each axis; negative amounts crop."""
    mode, rank, shape = node.text("auto_pad", "NOTSET"), len(kernel), node.input(0).shape_as()
    wanted, pads = node.numbers("output_shape")[-rank:], node.numbers("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank or (wanted and len(wanted) != rank):
        raise ParameterError("pads or output_shape do not fit", found=[*pads, *wanted], expected=f"{rank} axes")
    crops: list[tuple[Size, Size]] = []
    for k, more in enumerate(extra):
        size: Size = kernel[k] if kernel[k] is not None else Axis(node.input(1), 2 + k)
        extent = computed("add", computed("mul", size, dilation[k]), 1 - dilation[k])
        if wanted:
            if shape is None:
                raise ShapeError("the rank of input 0 is not known before a run", expected="a declared shape")
            whole = computed("add", computed("mul", computed("sub", shape[2 + k], 1), stride[k]), extent)
            total = computed("add", computed("sub", whole, wanted[k]), more)
        elif mode.startswith("SAME"):
            total = computed("add", extent, more - stride[k])
        else:
            after = more - pads[rank + k] if mode == "NOTSET" else more
            crops.append((-pads[k] if mode == "NOTSET" else 0, after))
            continue
        # SAME_UPPER puts the odd element at the end; every other mode at the start.
        before = computed("floor_divide", total if mode == "SAME_UPPER" else computed("add", total, 1), 2)
        before = computed("maximum", before, 0)
        crops.append((computed("mul", before, -1), computed("add", computed("sub", more, total), before)))
    return crops


@translates("DeformConv", since=19)
def deform_conv(node: Node) -> Value:
    """Translate to engine.DeformConv2d, after F.pad for asymmetric padding."""
    kernel, bias, mask = _kernel(node), node.optional(3), node.optional(4)
    if mask is None and bias is not None and bias.rank == 4 and not node.names_results:
        bias, mask = None, bias
    if bias is not None and bias.rank == 0:  # of one channel, as the converter writes it
        bias = node.make("Tensor.reshape", bias, shape=(1,))
    padded = _padded(node, kernel)
    if padded is None or len(kernel) != 2:
        raise ParameterError("pads do not fit", found=list(node.numbers("pads")), expected="4 numbers, at least 0")
    operands = {"input": padded[0], "offset": node.input(2), "weight": node.input(1), "bias": bias, "mask": mask}
    present = {name: value for name, value in operands.items() if value is not None}
    return node.make(
        "engine.DeformConv2d",
        *present.values(),
        labels=tuple(present),
        dilation=spread(node, "dilations", 2),
        groups=node.number("group", 1),
        padding=padded[1],
        stride=spread(node, "strides", 2),
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
    y = node.make("F.conv1d", *operands, labels=("input", "weight", "bias")[: len(operands)], groups=spec.shape[1])
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
    if pairs is None:
        return None
    both = tuple(map(min, pairs))
    flat = [amount - least for pair, least in zip(pairs, both, strict=True) for amount in pair]
    if any(flat):
        last_first = [amount for k in range(len(flat) - 2, -1, -2) for amount in flat[k : k + 2]]
        x = node.make("F.pad", x, pad=tuple(last_first), mode="constant", value=0.0)
    return x, both


def _pairs(node: Node, kernel: Sequence[int]) -> list[Pair] | None:
    """Return the padding before and after each axis; None if it depends on unknown sizes.

    Raises:
        ParameterError: the file contradicts itself.
    """
    mode, rank, spec = node.text("auto_pad", "NOTSET"), len(kernel), node.input(0).tensor
    if mode == "VALID":
        return [(0, 0)] * rank
    if mode == "NOTSET":
        pads = node.numbers("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads) < 0:
            expected = f"{2 * rank} numbers, at least 0"
            raise ParameterError("pads do not fit", found=list(pads), expected=expected)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ParameterError("unknown auto_pad", found=mode, expected="NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    if spec is None or spec.rank != rank + 2 or None in spec.shape[2:] or None in kernel:
        return None
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, spread(node, "dilations", rank), strict=True)]
    return list(same_pairs(spec.shape[2:], extents, spread(node, "strides", rank), mode == "SAME_UPPER"))


def _kernel(node: Node) -> tuple[Any, ...]:
    """Return the sizes of the kernel, None for unknown ones.

    Raises:
        ParameterError: kernel_shape contradicts the weight.
    """
    given, spec = node.numbers("kernel_shape"), node.input(1).tensor
    if spec is None:
        return given or (None,) * (node.rank() - 2)
    kernel = spec.shape[2:]
    if given and not may_match(given, kernel):
        raise ParameterError("kernel_shape contradicts the weight", found=list(given), expected=list(kernel))
    return given or kernel


def _stored(node: Node) -> tuple[Array, Array | None] | None:
    """Return constant weight and bias; None if they are not constant or PyTorch has no module for them."""
    weight, bias = node.array(1), node.array(2)
    if weight is None or (node.is_given(2) and bias is None) or not 3 <= weight.ndim <= 5 or 0 in weight.shape:
        return None
    if weight.dtype.kind != "f" and weight.dtype.name != "bfloat16":
        return None
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
