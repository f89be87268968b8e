"""Recipes of random ONNX nodes: an operator with operands and attributes that are often, but not always, valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.engine.onnx_files.models import onnx

if TYPE_CHECKING:
    from tests.fuzz.onnx_graphs import Draft

FLOATS: Final = ("float32", "float32", "float32", "float32", "float64", "float16")
INTEGERS: Final = ("int64", "int64", "int32", "int8", "uint8", "int16")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A node to be added: its operands are names of values, or constants.

    Args:
        captured: values of the surrounding graph that its subgraphs use.
    """

    type: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    captured: Sequence[str] = ()


class Draw:
    """Random choices of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """Return an integer; both ends included."""
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """Return true for this share of draws."""
        return bool(self.random.random() < share)

    def choice(self, items: Sequence[Any]) -> Any:
        """Return an item."""
        return items[self.integer(0, len(items) - 1)]

    def opset(self, first: int, newest: int) -> int:
        """Return an operator set."""
        return self.choice((self.integer(first, newest), 11, 13, 17, newest))

    def size(self) -> int:
        """Return a size, mostly small."""
        return self.choice((1, 2, 3, 3, 4, 5, 6, 8, 8, 16, 17))

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return a shape of at most 4,000 elements."""
        while True:
            found = tuple(self.size() for _ in range(rank))
            if np.prod(found, initial=1) <= 4000:
                return found

    def dtype(self) -> str:
        """Return a dtype of an input."""
        return self.choice((*FLOATS, *FLOATS, *INTEGERS, "bool"))

    def array(self, shape: Sequence[int], dtype: str) -> Any:
        """Return values."""
        kind = np.dtype(dtype).kind
        if kind == "f":
            found = self.random.standard_normal(tuple(shape)) * self.choice((1, 1, 3))
            return np.asarray(found.astype(dtype))
        if kind == "b":
            return np.asarray(self.random.random(tuple(shape)) < 0.5)
        low, high = (0, 256) if dtype == "uint8" else (-128, 128) if dtype == "int8" else (-20, 20)
        return np.asarray(self.random.integers(low, high, tuple(shape)).astype(dtype))

    def moved(self, value: Any) -> Any:
        """Return floats with other last bits."""
        if value.dtype.kind != "f":
            return value
        bits = 4 * np.finfo(value.dtype).eps if value.dtype.itemsize < 8 else 1e-6
        return np.asarray(value * (1 + bits * self.random.standard_normal(value.shape)), value.dtype)


Recipe = Callable[["Draft"], Call | None]
RECIPES: Final[list[Recipe]] = []


def recipe(weight: int = 1) -> Callable[[Recipe], Recipe]:
    """Decorator: draw a recipe this often."""

    def add(function: Recipe) -> Recipe:
        RECIPES.extend([function] * weight)
        return function

    return add


def pick(d: Draft, kinds: str = "f", rank: Sequence[int] = range(9), dtypes: Sequence[str] = ()) -> str | None:
    """Return a value of a kind; later values are more likely."""
    fitting = [
        name
        for name, value in d.values.items()
        if value.dtype.kind in kinds and value.ndim in rank and (not dtypes or value.dtype.name in dtypes)
    ]
    if not fitting:
        return None
    return fitting[-1 - min(len(fitting) - 1, int(d.draw.random.exponential(2.0)))]


def axis_of(d: Draft, value: Any) -> int:
    """Return an axis, perhaps counted from the end."""
    axis = d.draw.integer(0, max(0, value.ndim - 1))
    return axis - value.ndim if d.draw.chance(0.4) and value.ndim and d.opset >= 11 else axis


def longs(items: Any) -> Any:
    """Return an operand of integers."""
    return np.asarray(items, np.int64)


UNARY: Final = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Shrink",
    "Gelu",
    "Swish",
    "Shape",
    "Size",
    "NonZero",
    "Flatten",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Dropout",
    "BitwiseNot",
    "Det",
    "LpNormalization",
    "MeanVarianceNormalization",
]
_PLAIN_ATTRIBUTES: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "Celu": {"alpha": (0.5, 2.0)},
    "Elu": {"alpha": (0.5, 2.0)},
    "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.2, 0.6)},
    "LeakyRelu": {"alpha": (0.3, -0.2, 0.0)},
    "Selu": {"alpha": (1.5,), "gamma": (0.9,)},
    "ThresholdedRelu": {"alpha": (0.3, 1.5)},
    "Shrink": {"lambd": (0.3, 1.0), "bias": (0.1, -0.2)},
    "Gelu": {"approximate": ("none", "tanh")},
    "Shape": {"start": (0, 1, -1, -7), "end": (1, -1, 2, 9)},
    "Flatten": {"axis": (0, 1, 2, -1)},
    "IsInf": {"detect_negative": (0, 1), "detect_positive": (0, 1)},
    "LpNormalization": {"axis": (0, -1, 1), "p": (1, 2)},
    "MeanVarianceNormalization": {"axes": ([0, 1], [-1], [1], [0])},
    "Swish": {"alpha": (0.5, 1.7)},
}


@recipe(12)
def unary(d: Draft) -> Call | None:
    """One operand."""
    type = d.draw.choice(UNARY)
    kinds = {"Not": "b", "BitwiseNot": "iu"}.get(type, "f" if d.draw.chance(0.8) else "fiu")
    x = pick(d, kinds)
    known = _PLAIN_ATTRIBUTES.get(type, {})
    if x is None or (type == "MeanVarianceNormalization" and d.values[x].ndim != 4):
        return None
    return Call(
        type=type,
        inputs=[x],
        attributes={key: d.draw.choice(each) for key, each in known.items() if d.draw.chance(0.6)},
    )


@recipe(12)
def binary(d: Draft) -> Call | None:
    """Two or more operands, which broadcast."""
    x = pick(d, "fiu")
    if x is None:
        return None
    value = d.values[x]
    type = d.draw.choice(
        [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Min",
            "Max",
            "Mean",
            "Sum",
            "Mod",
            "PRelu",
            "Equal",
            "Greater",
            "Less",
            "GreaterOrEqual",
            "LessOrEqual",
            "BitShift",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
        ]
    )
    attributes: dict[str, Any] = {}
    if type == "Mod":
        attributes["fmod"] = int(value.dtype.kind == "f" or d.draw.chance(0.3))
    if type == "BitShift":
        attributes["direction"] = d.draw.choice(("LEFT", "RIGHT"))
    other = _other(d, value)
    if type == "Pow" and value.dtype.kind != "f":
        return None
    if type == "PRelu" and not isinstance(other, np.ndarray) and d.values[other].shape != value.shape:
        return None  # the slope must broadcast to x; onnxruntime also does the reverse
    if type in ("Div", "Mod") and value.dtype.kind != "f":
        if not isinstance(other, np.ndarray):
            return None
        other = np.where(other == 0, other.dtype.type(3), other)
    if type == "BitShift" and isinstance(other, np.ndarray):
        other = np.abs(other) % 7
    given = [x, other]
    if type in ("Min", "Max", "Mean", "Sum") and d.draw.chance(0.4):
        given.append(_other(d, value))
    if d.draw.chance(0.3) and type != "PRelu" and not isinstance(other, np.ndarray):
        given.reverse()
    return Call(type=type, inputs=given, attributes=attributes)


def _other(d: Draft, value: Any) -> Any:
    """Return an operand that broadcasts with a value."""
    if d.draw.chance(0.5):
        same = [name for name, each in d.values.items() if each.dtype == value.dtype]
        found = d.draw.choice(same)
        try:
            np.broadcast_shapes(d.values[found].shape, value.shape)
        except ValueError:
            pass
        else:
            return found
    rank = d.draw.integer(0, value.ndim)
    shape = [size if d.draw.chance(0.6) else 1 for size in value.shape[value.ndim - rank :]]
    return d.draw.array(shape, value.dtype.name)


@recipe(2)
def logical(d: Draft) -> Call | None:
    """Truths."""
    x = pick(d, "b")
    return x and Call(type=d.draw.choice(("And", "Or", "Xor", "Equal")), inputs=[x, _other(d, d.values[x])])


@recipe(4)
def cast(d: Draft) -> Call | None:
    """Another dtype; a float that becomes an integer is in its range."""
    x = pick(d, "fiub")
    to = d.draw.choice(("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"))
    if x is None:
        return None
    value = d.values[x]
    limit = 127 if to in ("int8", "uint8") else 1000
    low = 0 if to == "uint8" else -limit
    if to not in ("float32", "float64") and value.size and not (low < value.min() and value.max() < limit):
        return None
    if d.opset >= 15 and d.draw.chance(0.2):
        return Call(type="CastLike", inputs=[x, np.zeros(1, to)])
    return Call(type="Cast", inputs=[x], attributes={"to": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to))})


@recipe(6)
def reduction(d: Draft) -> Call | None:
    """Reductions, with axes as attribute or operand."""
    x = pick(d, "fi", range(1, 6))
    if x is None:
        return None
    type = "Reduce" + d.draw.choice(
        ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    )
    value = d.values[x]
    if value.dtype.kind != "f" and type[6:] not in ("Max", "Min", "Sum", "SumSquare", "L1"):
        return None  # onnxruntime rounds logarithms, roots and overflows in its own way
    count = d.draw.integer(0, value.ndim)
    axes = sorted(d.draw.random.permutation(value.ndim)[:count].tolist())
    if d.draw.chance(0.3) and d.opset >= 11:
        axes = [axis - value.ndim for axis in axes]
    attributes: dict[str, Any] = {"keepdims": d.draw.integer(0, 1)}
    is_operand = d.opset >= (13 if type == "ReduceSum" else 18)
    if is_operand:
        attributes["noop_with_empty_axes"] = d.draw.integer(0, 1)
        return Call(type=type, inputs=[x, longs(axes)] if axes or d.draw.chance(0.5) else [x], attributes=attributes)
    return Call(type=type, inputs=[x], attributes=attributes | ({"axes": axes} if axes else {}))


@recipe(3)
def row(d: Draft) -> Call | None:
    """Softmaxes, extremes, running sums and sorting along an axis."""
    x = pick(d, "f", range(1, 6)) if d.draw.chance(0.8) else pick(d, "fi", range(1, 6))
    if x is None:
        return None
    value = d.values[x]
    axis = axis_of(d, value)
    type = d.draw.choice(["Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "CumSum", "TopK", "Unique"])
    if type in ("ArgMax", "ArgMin"):
        more = {"select_last_index": d.draw.integer(0, 1)} if d.opset >= 12 else {}
        return Call(type=type, inputs=[x], attributes={"axis": axis, "keepdims": d.draw.integer(0, 1), **more})
    if type == "CumSum":
        attributes = {"exclusive": d.draw.integer(0, 1), "reverse": d.draw.integer(0, 1)}
        return Call(type=type, inputs=[x, np.asarray(axis, np.int64)], attributes=attributes)
    if type == "TopK":
        k = d.draw.integer(1, value.shape[axis])
        if d.opset < 10:
            return Call(type=type, inputs=[x], attributes={"axis": axis, "k": k}, outputs=2)
        more = {"largest": d.draw.integer(0, 1)} if d.opset >= 11 else {}
        return Call(type=type, inputs=[x, longs([k])], attributes={"axis": axis, **more}, outputs=2)
    if type == "Unique":
        attributes = {"sorted": 1} | ({"axis": axis} if d.draw.chance(0.5) else {})
        return Call(type=type, inputs=[x], attributes=attributes, outputs=4)
    return Call(type=type, inputs=[x], attributes={"axis": axis} if d.draw.chance(0.8) else {})


@recipe(4)
def product(d: Draft) -> Call | None:
    """Products of matrices."""
    x = pick(d, "f", range(1, 5))
    if x is None:
        return None
    value = d.values[x]
    size = d.draw.size()
    if value.ndim == 2 and d.draw.chance(0.5):
        flipped, across = d.draw.integer(0, 1), d.draw.integer(0, 1)
        inner = value.shape[0 if flipped else 1]
        weight = d.draw.array((size, inner) if across else (inner, size), value.dtype.name)
        outer = value.shape[1 if flipped else 0]
        bias = d.draw.array(d.draw.choice(((size,), (1,), (), (outer, 1), (outer, size), (1, size))), value.dtype.name)
        attributes = {
            "transA": flipped,
            "transB": across,
            "alpha": d.draw.choice((1.0, 0.5)),
            "beta": d.draw.choice((1.0, 2.0)),
        }
        return Call(
            type="Gemm",
            inputs=[x, weight] if d.opset >= 11 and d.draw.chance(0.3) else [x, weight, bias],
            attributes=attributes,
        )
    if d.draw.chance(0.2) and value.ndim >= 2:
        rank = value.ndim
        return (
            Call(
                type="Einsum",
                inputs=[x, d.draw.array((value.shape[-1], size), value.dtype.name)],
                attributes={"equation": "...ij,jk->...ki"},
            )
            if rank
            else None
        )
    lead = tuple(each if d.draw.chance(0.5) else 1 for each in value.shape[:-2]) if d.draw.chance(0.3) else ()
    if d.draw.chance(0.2):
        return Call(type="MatMul", inputs=[x, d.draw.array((value.shape[-1],), value.dtype.name)])
    return Call(type="MatMul", inputs=[x, d.draw.array((*lead, value.shape[-1], size), value.dtype.name)])


def _window(d: Draft, sizes: Sequence[int], *, dilates: bool = True) -> dict[str, Any]:
    rank = len(sizes)
    attributes: dict[str, Any] = {"kernel_shape": [d.draw.integer(1, min(4, size)) for size in sizes]}
    if d.draw.chance(0.6):
        attributes["strides"] = [d.draw.integer(1, 3) for _ in sizes]
    if dilates and d.draw.chance(0.3):
        attributes["dilations"] = [d.draw.integer(1, 2) for _ in sizes]
    elif d.draw.chance(0.4):  # onnxruntime's pools forget dilations in SAME padding
        attributes["auto_pad"] = d.draw.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    if "auto_pad" not in attributes and d.draw.chance(0.6):
        attributes["pads"] = [d.draw.integer(0, 2) for _ in range(2 * rank)]
    return attributes


@recipe(5)
def convolution(d: Draft) -> Call | None:
    """Convolutions, also transposed."""
    x = pick(d, "f", (3, 4, 5), ("float32", "float16", "float64"))
    if x is None:
        return None
    value = d.values[x]
    channels, sizes = value.shape[1], value.shape[2:]
    attributes = _window(d, sizes)
    groups = d.draw.choice([each for each in range(1, channels + 1) if channels % each == 0])
    out = groups * d.draw.integer(1, 3)
    # A stride above the window in SAME padding: onnxruntime does not multiply the size by the stride.
    is_transposed = d.draw.chance(0.35) and not attributes.get("auto_pad", "").startswith("SAME")
    shape = (channels, out // groups) if is_transposed else (out, channels // groups)
    weight = d.draw.array((*shape, *attributes["kernel_shape"]), value.dtype.name)
    if groups > 1 or d.draw.chance(0.3):
        attributes["group"] = groups
    if is_transposed:
        strides = attributes.get("strides", [1] * len(sizes))
        if d.draw.chance(0.3):
            attributes["output_padding"] = [d.draw.integer(0, max(0, each - 1)) for each in strides]
        elif d.draw.chance(0.2):
            attributes["output_shape"] = [
                size * stride + d.draw.integer(0, 1) for size, stride in zip(sizes, strides, strict=True)
            ]
            attributes.pop("pads", None)
    if d.draw.chance(0.3):
        attributes.pop("kernel_shape")
    given = [x, weight, d.draw.array((out,), value.dtype.name)] if d.draw.chance(0.6) else [x, weight]
    return Call(type="ConvTranspose" if is_transposed else "Conv", inputs=given, attributes=attributes)


@recipe(4)
def pool(d: Draft) -> Call | None:
    """Pools."""
    x = pick(d, "f", (3, 4, 5))
    if x is None:
        return None
    type = d.draw.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    attributes = _window(
        d, d.values[x].shape[2:], dilates=d.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[type]
    )
    if d.draw.chance(0.4) and d.opset >= (18 if type == "LpPool" else 10):
        attributes["ceil_mode"] = 1
    if type == "AveragePool" and d.draw.chance(0.5):
        attributes["count_include_pad"] = 1
    if type == "LpPool":
        attributes["p"] = d.draw.integer(1, 3)
    return Call(type=type, inputs=[x], attributes=attributes, outputs=d.draw.integer(1, 2) if type == "MaxPool" else 1)


@recipe(4)
def normalisation(d: Draft) -> Call | None:
    """Normalisations."""
    x = pick(d, "f", (2, 3, 4, 5))
    if x is None:
        return None
    value = d.values[x]
    name, channels = value.dtype.name, value.shape[1]
    weight, bias, mean = (d.draw.array((channels,), name) for _ in range(3))
    eps = {"epsilon": d.draw.choice((1e-5, 1e-2))}
    type = d.draw.choice(
        [
            "BatchNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "GroupNormalization",
            "LRN",
            "RMSNormalization",
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
        ]
    )
    if type == "BatchNormalization":
        return Call(type=type, inputs=[x, weight, bias, mean, np.abs(mean) + value.dtype.type(0.5)], attributes=eps)
    if type == "InstanceNormalization":
        return Call(type=type, inputs=[x, weight, bias], attributes=eps)
    if type == "LRN":
        return Call(type=type, inputs=[x], attributes={"size": d.draw.choice((1, 3, 5)), "alpha": 0.1, "bias": 2.0})
    if type == "GroupNormalization":
        groups = d.draw.choice([each for each in range(1, channels + 1) if channels % each == 0])
        size = groups if d.opset < 21 else channels
        return Call(type=type, inputs=[x, weight[:size], bias[:size]], attributes={"num_groups": groups, **eps})
    axis = d.draw.integer(-value.ndim, -1)
    rest = value.shape[axis:]
    scale, shift = d.draw.array(rest, name), d.draw.array(rest, name)
    if type == "SkipLayerNormalization":
        return Call(
            type=type,
            inputs=[x, x, d.draw.array(value.shape[-1:], name)],
            attributes=eps,
            domain="com.microsoft",
        )
    if type == "LayerNormalization" and d.draw.chance(0.5):
        return Call(type=type, inputs=[x, scale, shift], attributes={"axis": axis, **eps}, outputs=d.draw.integer(1, 3))
    return Call(type=type, inputs=[x, scale], attributes={"axis": axis, **eps})


@recipe(8)
def movement(d: Draft) -> Call | None:
    """Shapes, slices, joins and pads."""
    x = pick(d, "fiub", range(1, 6))
    if x is None:
        return None
    value = d.values[x]
    rank, shape = value.ndim, value.shape
    type = d.draw.choice(
        [
            "Reshape",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Concat",
            "Split",
            "Slice",
            "Slice",
            "Pad",
            "Pad",
            "Tile",
            "Expand",
            "Trilu",
            "ReverseSequence",
            "DepthToSpace",
            "SpaceToDepth",
            "CenterCropPad",
            "EyeLike",
        ]
    )
    axis = axis_of(d, value)
    if type == "Reshape":
        sizes = [each for each in shape if each != 1] or [1]
        if len(sizes) > 1 and d.draw.chance(0.6):
            k = d.draw.integer(0, len(sizes) - 2)
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
        if d.draw.chance(0.4):
            sizes.insert(d.draw.integer(0, len(sizes)), 1)
        if d.draw.chance(0.5):
            sizes[d.draw.integer(0, len(sizes) - 1)] = -1
        elif sizes[0] == shape[0]:
            sizes[0] = 0
        return Call(type=type, inputs=[x, longs(sizes)])
    if type == "Transpose":
        order = d.draw.random.permutation(rank).tolist()
        return Call(type=type, inputs=[x], attributes={"perm": order} if d.draw.chance(0.8) else {})
    if type in ("Squeeze", "Unsqueeze"):
        axes = [k for k, each in enumerate(shape) if each == 1] if type == "Squeeze" else [d.draw.integer(0, rank)]
        if d.opset >= 13:
            return Call(type=type, inputs=[x, longs(axes)] if axes else [x])
        return Call(type=type, inputs=[x], attributes={"axes": axes} if axes else {})
    if type == "Concat":
        return Call(type=type, inputs=[x, _other(d, value), x][: d.draw.integer(1, 3)], attributes={"axis": axis})
    if type == "Split":
        size = shape[axis]
        first = d.draw.integer(0, size)
        parts = [first, size - first]
        if d.draw.chance(0.4):
            more = {"num_outputs": 2} if d.opset >= 18 else {}
            return Call(type=type, inputs=[x], attributes={"axis": axis, **more}, outputs=2)
        if d.opset >= 13:
            return Call(type=type, inputs=[x, longs(parts)], attributes={"axis": axis}, outputs=2)
        return Call(type=type, inputs=[x], attributes={"axis": axis, "split": parts}, outputs=2)
    if type == "Slice":
        axes = sorted(d.draw.random.permutation(rank)[: d.draw.integer(1, rank)].tolist())
        starts = [d.draw.integer(-shape[k], shape[k]) for k in axes]
        ends = [d.draw.choice((d.draw.integer(-shape[k], shape[k]), 2**31 - 1, -(2**31))) for k in axes]
        if d.opset < 10:
            return Call(type=type, inputs=[x], attributes={"axes": axes, "starts": starts, "ends": ends})
        steps = [d.draw.choice((1, 1, 2, -1, -2, 3)) for _ in axes]
        # Unlike the specification, onnxruntime takes the largest end of a negative step for the smallest.
        ends = [-(2**31) if step < 0 and end == 2**31 - 1 else end for step, end in zip(steps, ends, strict=True)]
        return Call(type=type, inputs=[x, longs(starts), longs(ends), longs(axes), longs(steps)])
    if type == "Pad":
        mode = d.draw.choice(("constant", "constant", "reflect", "edge", *(("wrap",) if d.opset >= 19 else ())))
        pads = [d.draw.integer(-1 if d.draw.chance(0.2) else 0, 2) for _ in range(2 * rank)]
        if d.opset < 11:
            return Call(type=type, inputs=[x], attributes={"mode": mode, "pads": pads, "value": 0.5})
        if mode == "wrap":  # of a part that is cut off too, onnxruntime wraps what is left
            pads = [abs(each) for each in pads]
        fill = [np.asarray(1, value.dtype)] if mode == "constant" and d.draw.chance(0.5) else []
        return Call(type=type, inputs=[x, longs(pads), *fill], attributes={"mode": mode})
    if type == "Tile":
        return Call(type=type, inputs=[x, longs([d.draw.integer(1, 3) for _ in shape])])
    if type == "Expand":
        return Call(type=type, inputs=[x, longs([d.draw.integer(1, 3) if each == 1 else each for each in shape])])
    if type == "Trilu":
        return Call(
            type=type,
            inputs=[x, np.asarray(d.draw.integer(-2, 2), np.int64)],
            attributes={"upper": d.draw.integer(0, 1)},
        )
    if type == "ReverseSequence":
        lengths = longs([d.draw.integer(1, shape[0]) for _ in range(shape[1] if rank > 1 else 0)])
        return Call(type=type, inputs=[x, lengths], attributes={"time_axis": 0, "batch_axis": 1})
    if type in ("DepthToSpace", "SpaceToDepth"):
        more = {"mode": d.draw.choice(("DCR", "CRD"))} if type == "DepthToSpace" and d.opset >= 11 else {}
        return Call(type=type, inputs=[x], attributes={"blocksize": 2, **more})
    if type == "CenterCropPad":
        return Call(type=type, inputs=[x, longs([d.draw.integer(1, 8) for _ in shape])])
    return Call(type=type, inputs=[x], attributes={"k": d.draw.integer(-1, 1)})


@recipe(5)
def indexing(d: Draft) -> Call | None:
    """Gathers and scatters."""
    x = pick(d, "fiub", range(1, 5))
    if x is None:
        return None
    value = d.values[x]
    shape, rank = value.shape, value.ndim
    axis = axis_of(d, value)
    size = shape[axis]
    low = -size if d.opset >= 11 else 0
    type = d.draw.choice(
        [
            "Gather",
            "GatherElements",
            "GatherND",
            "ScatterElements",
            "ScatterND",
            "Compress",
            "Where",
            "OneHot",
            "TensorScatter",
        ]
    )
    index = lambda *sizes: d.draw.random.integers(low, size, sizes)  # noqa: E731
    if type == "Gather":
        places = index(*d.draw.shape(d.draw.integer(0, 2))[:2])
        return Call(
            type=type, inputs=[x, np.asarray(places, d.draw.choice(("int64", "int32")))], attributes={"axis": axis}
        )
    if type in ("GatherElements", "ScatterElements"):
        sizes = [d.draw.integer(1, each) for each in shape]
        if type == "GatherElements":
            return Call(type=type, inputs=[x, longs(index(*sizes))], attributes={"axis": axis})
        order = np.argsort(d.draw.random.random([*sizes[: axis % rank], size, *sizes[axis % rank + 1 :]]), axis % rank)
        places = np.take(order, range(sizes[axis]), axis % rank)
        more = {"reduction": d.draw.choice(("none", "add", "mul", "max", "min"))} if d.opset >= 18 else {}
        return Call(
            type=type,
            inputs=[x, longs(places), d.draw.array(sizes, value.dtype.name)],
            attributes={"axis": axis, **more},
        )
    if type in ("GatherND", "ScatterND"):
        depth, count = d.draw.integer(1, rank), d.draw.integer(1, 4)
        places = np.stack([d.draw.random.integers(0, shape[k], count) for k in range(depth)], -1)
        if type == "GatherND":
            return Call(type=type, inputs=[x, longs(places)])
        places = np.unique(places, axis=0)
        more = {"reduction": d.draw.choice(("none", "add", "mul", "max", "min"))} if d.opset >= 18 else {}
        return Call(
            type=type,
            inputs=[x, longs(places), d.draw.array((len(places), *shape[depth:]), value.dtype.name)],
            attributes=more,
        )
    if type == "Compress":
        mask = d.draw.random.random(size) < 0.5
        return Call(type=type, inputs=[x, mask], attributes={"axis": axis} if d.draw.chance(0.7) else {})
    if type == "Where":
        mask = pick(d, "b")
        return Call(
            type=type,
            inputs=[mask if mask and d.draw.chance(0.7) else d.draw.array(shape, "bool"), x, _other(d, value)],
        )
    if type == "OneHot":
        ids = pick(d, "i")
        return ids and Call(
            type=type,
            inputs=[ids, longs(5), np.array([0, 2], np.float32)],
            attributes={"axis": d.draw.choice((-1, 0, 1))},
        )
    return None


@recipe(3)
def image(d: Draft) -> Call | None:
    """Resampling of images."""
    x = pick(d, "f", (3, 4, 5), ("float32",) if d.draw.chance(0.8) else ())
    if x is None:
        return None
    value = d.values[x]
    scales = np.array([1, 1, *(d.draw.choice((0.5, 1.0, 1.5, 2.0, 0.7)) for _ in value.shape[2:])], np.float32)
    if d.opset < 10:
        mode = d.draw.choice(("nearest", "linear"))
        whole = np.maximum(1, np.floor(scales))
        return Call(
            type="Upsample",
            inputs=[x] if d.opset < 9 else [x, whole.astype(np.float32)],
            attributes={"mode": mode} | ({"scales": whole.tolist()} if d.opset < 9 else {}),
        )
    if d.opset == 10:
        return Call(type="Resize", inputs=[x, scales], attributes={"mode": d.draw.choice(("nearest", "linear"))})
    if d.draw.chance(0.2) and value.ndim == 4 and d.opset >= 16:
        grid = d.draw.random.uniform(-1.2, 1.2, (value.shape[0], d.draw.size(), d.draw.size(), 2)).astype(value.dtype)
        linear, cubic = ("bilinear", "bicubic") if d.opset < 20 else ("linear", "cubic")
        attributes = {
            "mode": d.draw.choice((linear, "nearest", cubic)),
            "padding_mode": d.draw.choice(("zeros", "border", "reflection")),
            "align_corners": d.draw.integer(0, 1),
        }
        return Call(type="GridSample", inputs=[x, grid], attributes=attributes)
    mode = d.draw.choice(("nearest", "linear", "cubic"))
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"] + (
        ["half_pixel_symmetric"] if d.opset >= 19 else []
    )
    attributes = {"mode": mode, "coordinate_transformation_mode": d.draw.choice(ways)}
    if mode == "nearest":
        attributes["nearest_mode"] = d.draw.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": d.draw.choice((-0.75, -0.5)), "exclude_outside": d.draw.integer(0, 1)}
    if d.opset >= 18 and d.draw.chance(0.3):
        attributes["antialias"] = 1
    region = np.zeros(0, np.float32) if d.opset < 13 else ""
    if d.draw.chance(0.5):
        sizes = longs([*value.shape[:2], *(d.draw.size() for _ in value.shape[2:])])
        if d.opset >= 18 and d.draw.chance(0.4):
            attributes |= {
                "axes": [*range(2, value.ndim)],
                "keep_aspect_ratio_policy": d.draw.choice(("stretch", "not_larger", "not_smaller")),
            }
            sizes = sizes[2:]
        return Call(
            type="Resize",
            inputs=[x, region, np.zeros(0, np.float32) if d.opset < 13 else "", sizes],
            attributes=attributes,
        )
    return Call(type="Resize", inputs=[x, region, scales], attributes=attributes)


@recipe(4)
def recurrent(d: Draft) -> Call | None:
    """Recurrent layers."""
    x = pick(d, "f", (3,), ("float32",))
    if x is None:
        return None
    type = d.draw.choice(("LSTM", "GRU", "RNN"))
    steps, batch, size = d.values[x].shape
    hidden, gates = d.draw.choice((1, 3, 8)), {"LSTM": 4, "GRU": 3, "RNN": 1}[type]
    direction = d.draw.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    f = lambda *shape: d.draw.array(shape, "float32") * np.float32(0.5)  # noqa: E731
    given: list[Any] = [x, f(ways, gates * hidden, size), f(ways, gates * hidden, hidden)]
    bias, lengths = f(ways, 2 * gates * hidden), np.array([d.draw.integer(1, steps) for _ in range(batch)], np.int32)
    state, cell = f(ways, batch, hidden), f(ways, batch, hidden)
    given += [
        bias if d.draw.chance(0.7) else "",
        lengths if d.draw.chance(0.3) else "",
        state if d.draw.chance(0.5) else "",
    ]
    if type == "LSTM":
        given += [cell if d.draw.chance(0.5) else "", f(ways, 3 * hidden) if d.draw.chance(0.2) else ""]
    while given[-1] == "":
        given.pop()
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if d.draw.chance(0.2):
        attributes["clip"] = 0.7
    if type == "GRU" and d.draw.chance(0.5):
        attributes["linear_before_reset"] = 1
    if type == "LSTM" and d.draw.chance(0.1):
        attributes["input_forget"] = 1
    if d.draw.chance(0.2):
        names = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["HardSigmoid", "Softsign"], "RNN": ["Relu"]}[type]
        attributes["activations"] = names * ways
    return Call(type=type, inputs=given, attributes=attributes, outputs=3 if type == "LSTM" else 2)


@recipe(6)
def quantised(d: Draft) -> Call | None:
    """Quantised values and products."""
    integers = pick(d, "iu", range(1, 6), ("int8", "uint8"))
    floats = pick(d, "f", range(1, 6), ("float32",))
    scale = np.asarray(d.draw.choice((0.02, 0.05, 0.1)), np.float32)
    draw = d.draw
    if integers is None or draw.chance(0.35):
        if floats is None:
            return None
        value = d.values[floats]
        type = draw.choice(("QuantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear", "DynamicQuantizeMatMul"))
        if type == "DynamicQuantizeLinear":
            return Call(type=type, inputs=[floats], outputs=3)
        if type == "DynamicQuantizeMatMul":
            weight = draw.array((value.shape[-1], draw.size()), draw.choice(("int8", "uint8")))
            return Call(type=type, inputs=[floats, weight, scale], domain="com.microsoft")
        kind = draw.choice(("int8", "uint8"))
        zero = np.asarray(draw.integer(-3, 3) if kind == "int8" else draw.integer(0, 255), kind)
        if d.opset >= 13 and draw.chance(0.3):
            axis = axis_of(d, value)
            scales = (draw.random.random(value.shape[axis]) * 0.1 + 0.01).astype(np.float32)
            return Call(type=type, inputs=[floats, scales, np.full(len(scales), zero)], attributes={"axis": axis})
        return Call(type=type, inputs=[floats, scale, zero])
    value = d.values[integers]
    name = value.dtype.name
    zero = np.asarray(draw.integer(-3, 3) if name == "int8" else draw.integer(0, 255), name)
    kind = draw.choice(("int8", "uint8"))
    other_zero = np.asarray(draw.integer(-3, 3) if kind == "int8" else draw.integer(100, 140), kind)
    types = [
        "DequantizeLinear",
        "MatMulInteger",
        "QLinearMatMul",
        "QLinearAdd",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "MatMulIntegerToFloat",
    ]
    if value.ndim == 4:
        types += ["ConvInteger", "QLinearConv", "QLinearConv", "QLinearGlobalAveragePool", "QLinearAveragePool"]
    type = draw.choice(types)
    if type == "DequantizeLinear":
        return Call(type=type, inputs=[integers, scale, zero] if draw.chance(0.7) else [integers, scale])
    if type in ("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat"):
        weight = draw.array((value.shape[-1], draw.size()), kind)
        if type == "MatMulInteger":
            return Call(
                type=type, inputs=[integers, weight, zero, other_zero] if draw.chance(0.7) else [integers, weight]
            )
        if type == "MatMulIntegerToFloat":
            return Call(type=type, inputs=[integers, weight, scale, scale, zero, other_zero], domain="com.microsoft")
        return Call(type=type, inputs=[integers, scale, zero, weight, scale, other_zero, scale * np.float32(20), zero])
    if type in ("ConvInteger", "QLinearConv"):
        out = draw.integer(1, 4)
        attributes = _window(d, value.shape[2:])
        weight = draw.array((out, value.shape[1], *attributes["kernel_shape"]), kind)
        if type == "ConvInteger":
            return Call(type=type, inputs=[integers, weight, zero, other_zero], attributes=attributes)
        scales = (
            (draw.random.random(out) * 0.1 + 0.01).astype(np.float32) if draw.chance(0.5) and kind == "int8" else scale
        )
        flat = np.zeros(out, kind) if scales.ndim else other_zero
        bias = [draw.array((out,), "int32")] if draw.chance(0.5) else []
        return Call(
            type=type,
            inputs=[integers, scale, zero, weight, scales, flat, scale * np.float32(20), zero, *bias],
            attributes=attributes,
        )
    if type in ("QLinearAdd", "QLinearMul"):
        return Call(
            type=type,
            inputs=[integers, scale, zero, _other(d, value), scale, zero, scale * np.float32(3), zero],
            domain="com.microsoft",
        )
    more: dict[str, Any] = {"alpha": 0.3} if type == "QLinearLeakyRelu" else {}
    if type == "QLinearGlobalAveragePool":
        more = {"channels_last": 0}
    if type == "QLinearAveragePool":
        more = _window(d, value.shape[2:], dilates=False)
    return Call(type=type, inputs=[integers, scale, zero, scale, zero], attributes=more, domain="com.microsoft")


@recipe(3)
def clip_and_ranges(d: Draft) -> Call | None:
    """Bounds, ranges and fills."""
    type = d.draw.choice(("Clip", "Clip", "Range", "ConstantOfShape"))
    if type == "Range":
        kind = d.draw.choice(("int64", "float32"))
        return Call(
            type=type,
            inputs=[
                np.asarray(each, kind) for each in (d.draw.integer(-3, 2), d.draw.integer(3, 9), d.draw.integer(1, 2))
            ],
        )
    if type == "ConstantOfShape":
        shape = pick(d, "i", (1,), ("int64",))
        return shape and Call(
            type=type, inputs=[shape], attributes={"value": onnx.numpy_helper.from_array(np.array([2.5], np.float32))}
        )
    x = pick(d, "f")
    if x is None:
        return None
    low, high = np.asarray(-0.5, d.values[x].dtype), np.asarray(0.8, d.values[x].dtype)
    if d.opset < 11:
        return Call(type=type, inputs=[x], attributes={"min": -0.5, "max": 0.8} if d.draw.chance(0.6) else {"max": 0.8})
    return Call(type=type, inputs=d.draw.choice(([x, low, high], [x, "", high], [x, low], [x])))


@recipe(2)
def attention(d: Draft) -> Call | None:
    """Attention of four axes, and embeddings of places."""
    x = pick(d, "f", (4,), ("float32",))
    if x is None:
        return None
    batch, heads, steps, size = d.values[x].shape
    f = lambda *shape: d.draw.array(shape, "float32")  # noqa: E731
    if d.draw.chance(0.3):
        if size % 2:
            return None
        tables = [f(batch, steps, size // 2) for _ in range(2)]
        return Call(type="RotaryEmbedding", inputs=[x, *tables], attributes={"interleaved": d.draw.integer(0, 1)})
    keys = d.draw.size()
    given: list[Any] = [x, f(batch, heads, keys, size), f(batch, heads, keys, d.draw.size())]
    if d.draw.chance(0.5):
        shape = d.draw.choice(((steps, keys), (batch, 1, steps, keys), (1, heads, steps, keys)))
        given.append(f(*shape) if d.draw.chance(0.6) else d.draw.random.random(shape) < 0.7)
    attributes: dict[str, Any] = {"is_causal": d.draw.integer(0, 1)}
    if d.draw.chance(0.3):
        attributes["softcap"] = 2.0
    if d.draw.chance(0.3):
        attributes["scale"] = 0.3
    return Call(type="Attention", inputs=given, attributes=attributes)


@recipe(4)
def control_flow(d: Draft) -> Call | None:
    """Branches and loops whose bodies are drawn as well."""
    from tests.fuzz.onnx_graphs import Draft

    helper = onnx.helper
    x = pick(d, "fi")
    if x is None or d.prefix.count("b") > 1 or d.opset < 11:
        return None

    def body(mark: str, more: dict[str, Any]) -> Draft:
        inner = Draft(d.draw, d.opset, {**d.values, **more}, prefix=f"{d.prefix}b{len(d.nodes)}{mark}_")
        for _ in range(d.draw.integer(1, 4)):
            inner.grow()
        return inner

    def graph(inner: Draft, given: list[Any], outputs: list[str]) -> Any:
        tensors = [onnx.numpy_helper.from_array(value, name) for name, value in inner.weights.items()]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(inner.values[name].dtype), None)
            for name in outputs
        ]
        return helper.make_graph(inner.nodes, "body", given, ports, tensors)

    def named(inner: Draft, name: str) -> str:
        """Return a value made in the body."""
        made = f"{inner.prefix}out_{len(inner.nodes)}"
        inner.nodes.append(helper.make_node("Identity", [name], [made]))
        inner.values[made] = inner.values[name]
        return made

    kind = d.draw.choice(("If", "If", "Loop", "Loop", "Scan"))

    def tensor(name, dtype, shape):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    if kind == "If":
        branches = []
        dtype = d.values[x].dtype
        for mark in "te":
            inner = body(mark, {})
            same = [name for name, each in inner.values.items() if each.dtype == dtype]
            branches.append((inner, named(inner, same[-1])))
        condition = pick(d, "b", (0,)) or np.asarray(d.draw.chance(0.5))
        made = {
            f"{side}_branch": graph(inner, [], [out])
            for side, (inner, out) in zip(("then", "else"), branches, strict=True)
        }
        return Call(type="If", inputs=[condition], attributes=made, captured=_used(d, [each for each, _ in branches]))
    value = d.values[x]
    mark = f"{d.prefix}c{len(d.nodes)}"
    if kind == "Loop":
        more = {f"{mark}i": np.asarray(0, np.int64), f"{mark}k": np.asarray(True), f"{mark}s": value}
        inner = body("l", more)
        same = [name for name, each in inner.values.items() if each.dtype == value.dtype and each.shape == value.shape]
        outputs = [named(inner, f"{mark}k"), named(inner, same[-1]), named(inner, [*inner.values][-2])]
        given = [
            tensor(f"{mark}i", np.int64, ()),
            tensor(f"{mark}k", bool, ()),
            tensor(f"{mark}s", value.dtype, value.shape),
        ]
        trips = np.asarray(d.draw.integer(0, 4), np.int64)
        return Call(
            type="Loop",
            inputs=[trips, d.draw.choice(("", np.asarray(True))), x],
            attributes={"body": graph(inner, given, outputs)},
            outputs=2,
            captured=_used(d, [inner]),
        )
    if value.ndim < 1:
        return None
    part = value[0]
    more = {f"{mark}s": np.zeros((), np.float32), f"{mark}e": part}
    inner = body("s", more)
    same = [name for name, each in inner.values.items() if each.dtype == np.float32 and each.shape == ()]
    outputs = [named(inner, same[-1]), named(inner, [*inner.values][-1])]
    given = [tensor(f"{mark}s", np.float32, ()), tensor(f"{mark}e", part.dtype, part.shape)]
    attributes = {
        "body": graph(inner, given, outputs),
        "num_scan_inputs": 1,
        "scan_input_directions": [d.draw.integer(0, 1)],
        "scan_output_directions": [d.draw.integer(0, 1)],
    }
    return Call(
        type="Scan", inputs=[np.zeros((), np.float32), x], attributes=attributes, outputs=2, captured=_used(d, [inner])
    )


def _used(d: Draft, bodies: Sequence[Draft]) -> list[str]:
    """Return the values of the surrounding graph that bodies use."""
    from tests.fuzz.onnx_graphs import _captured

    names = {name for inner in bodies for each in inner.nodes for name in (*each.input, *_captured(each))}
    return [name for name in d.values if name in names]
