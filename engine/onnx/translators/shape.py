"""Translators of shape operators and size arithmetic; known sizes are propagated as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError, UnsupportedOperatorError
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Size, Value, constant
from engine.tensor import CODES, Array, DType, dtype_name, product

TORCH_NAMES = {
    "f32": "torch.float", "f64": "torch.double", "f16": "torch.half", "bf16": "torch.bfloat16", "i64": "torch.long",
    "i32": "torch.int", "i16": "torch.short", "i8": "torch.int8", "u8": "torch.uint8", "bool": "torch.bool",
    "c64": "torch.complex64", "c128": "torch.complex128",
}  # fmt: skip


def reshaped(node: Node, x: Value, sizes: Sequence[Size]) -> Value:
    """Reshape a value; sizes may be known only at run time."""
    shape = x.shape_as()
    if shape is not None and tuple(sizes) == shape:
        return x
    if len(sizes) == 2 and shape is not None and len(shape) > 2 and sizes[0] == shape[0] and _is_rest(sizes[1], shape):
        return node.make("torch.flatten", x, start_dim=1, end_dim=-1)
    known = [size if isinstance(size, int) else None for size in sizes]
    if known.count(None) == 1 and -1 not in known and 0 not in known:
        known = [-1 if size is None else size for size in known]
    if None not in known:
        return node.make("Tensor.reshape", x, shape=tuple(size for size in known if size is not None))
    return node.make("Tensor.reshape", x, node.sizes(sizes))


def _is_rest(size: Size, shape: Sequence[Size]) -> bool:
    """Return whether a size is the product of all axes but the first."""
    rest = product([each if isinstance(each, int) else None for each in shape[1:]])
    return size == -1 and shape[0] != 0 or (rest is not None and size == rest)


@translates("Reshape")
def reshape(node: Node) -> Value:
    """Translate to Tensor.reshape; before operator set 5 the sizes are an attribute."""
    x, own, allows_zero = node.input(0), node.input(0).shape_as(), node.number("allowzero", 0)
    wanted = constant(np.array(node.numbers("shape"))) if "shape" in node.attributes else node.input(1)
    if wanted.sizes is None or any(size == 0 and (own is None or k >= len(own)) for k, size in enumerate(wanted.sizes)):
        return node.make("Tensor.reshape", x, wanted, labels=("input", "shape"), zero_copies=not allows_zero)
    if allows_zero and 0 in wanted.sizes:
        return node.make("Tensor.reshape", x, wanted, labels=("input", "shape"))
    sizes = [own[k] if size == 0 and own is not None else size for k, size in enumerate(wanted.sizes)]
    if -1 in sizes and own is not None and None not in (x.tensor.shape if x.tensor else (None,)):
        rest = product([size for size in sizes if isinstance(size, int) and size != -1])
        whole = product(x.tensor.shape) if x.tensor else None
        if rest and whole is not None and all(isinstance(size, int) for size in sizes) and whole % rest == 0:
            sizes[sizes.index(-1)] = whole // rest
    return reshaped(node, x, sizes)


@translates("Flatten")
def flatten(node: Node) -> Value:
    """Translate to torch.flatten."""
    return as_matrix(node, node.input(0), node.number("axis", 1))


def as_matrix(node: Node, x: Value, axis: int) -> Value:
    """Flatten the axes before ``axis`` and those from it on; no axes become one of size 1."""
    if x.rank is None:
        if axis < 0:
            raise UnsupportedOperatorError("the number of axes is not known before a run")
        rows = reduce(lambda text, k: f"mul({text},size(@0,{k}))", range(axis), "1")
        return node.make("Tensor.reshape", x, node.expression(f"[{rows},-1]", x))
    if not -x.rank <= axis <= x.rank:
        raise ShapeError("axis is out of range", found=axis, expected=f"{-x.rank} to {x.rank}")
    axis += x.rank if axis < 0 else 0
    if axis in (0, x.rank):
        whole = node.make("torch.flatten", x, start_dim=0, end_dim=-1)
        return node.make("torch.unsqueeze", whole, dim=0 if axis == 0 else 1)
    if x.rank - axis > 1:
        x = node.make("torch.flatten", x, start_dim=axis, end_dim=-1)
    return node.make("torch.flatten", x, start_dim=0, end_dim=axis - 1) if axis > 1 else x


@translates("Transpose")
def transpose(node: Node) -> Value:
    """Translate to torch.permute."""
    x, order = node.input(0), node.numbers("perm")
    if not order and x.rank is None:
        return node.make("aten::numpy_T", x)
    order = order or tuple(range(node.rank()))[::-1]
    return x if order in ((), (0,)) else node.make("torch.permute", x, dims=order)


@translates("Squeeze")
def squeeze(node: Node) -> Value:
    """Translate to torch.squeeze."""
    x, axes = node.input(0), node.integers(1, "axes")
    if x.constant is None and x.sizes is not None and len(x.sizes) == 1 and x.rank == 1:
        result = node.make("torch.squeeze", x, dim=(0,))
        result.sizes = x.sizes
        return result
    if axes is None:
        given = node.optional(1)
        return node.make(
            "torch.squeeze", x, *(() if given is None else (given,)), labels=("input", "dim")[: 1 + (given is not None)]
        )
    shape = x.tensor.shape if x.tensor is not None else ()
    if any(-len(shape) <= axis < len(shape) and shape[axis] not in (None, 1) for axis in axes):
        raise ShapeError("an axis to leave out is not of size 1", found=str(x.tensor), expected=1)
    return node.make("torch.squeeze", x, dim=axes)


@translates("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    """Translate to torch.unsqueeze."""
    x, axes = node.input(0), node.integers(1, "axes")
    if axes is None:
        return node.make("torch.unsqueeze", x, node.input(1), labels=("input", "dim"))
    if x.rank is None:
        return node.make("torch.unsqueeze", x, dim=axes)
    rank = x.rank + len(axes)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes)
    if len(set(places)) != len(places) or (places and not 0 <= places[0] <= places[-1] < rank):
        raise ShapeError("axes do not fit", found=list(axes), expected=f"different ones of {rank} axes")
    result = x
    for place in places:
        result = node.make("torch.unsqueeze", result, dim=place)
    if result.constant is None and x.sizes is not None and rank == 1:
        result.sizes = x.sizes
    return result


@translates("Shape")
def shape_of(node: Node) -> Value:
    """Translate to aten::_shape_as_tensor; a constant if all sizes are known."""
    bounds: dict[str, Any] = {key: node.number(key, 0) for key in ("start", "end") if key in node.attributes}
    result = node.make("aten::_shape_as_tensor", node.input(0), **bounds)
    sizes = node.input(0).shape_as()
    if sizes is not None and result.constant is None:
        result.sizes = sizes[bounds.get("start", 0) : bounds.get("end")]
    return result


@translates("Size")
def size_of(node: Node) -> Value:
    """Translate to the product of all sizes; a constant if they are known."""
    return node.make("torch.prod", node.make("aten::_shape_as_tensor", node.input(0)))


@translates("Cast", "CastLike")
def cast(node: Node) -> Value:
    """Translate to Tensor.to, or return the input if it has the dtype already."""
    x = node.input(0)
    to = node.dtype(1) if node.type == "CastLike" else onnx_dtype(node.number("to", 0))
    if to is None:
        return node.make("Tensor.type_as", x, node.input(1))
    # numpy takes None for float64.
    return x if x.dtype is not None and x.dtype == to else converted(node, x, to)


def converted(node: Node, x: Value, to: DType) -> Value:
    """Convert a value to a dtype, by what the operator says of small floats."""
    options: dict[str, Any] = {} if node.number("saturate", 1) else {"saturate": False}
    if node.text("round_mode", "up") != "up":
        options["round_mode"] = node.text("round_mode", "up")
    result = node.make("Tensor.to", x, dtype=torch_name(to), **options)
    if result.constant is None and to.kind == "i":
        result.sizes = x.sizes
    return result


def in_dtype(node: Node, x: Value, attribute: str, default: int) -> Value:
    """Convert a value to the dtype that an attribute names."""
    return converted(node, x, onnx_dtype(node.number(attribute, default)))


def torch_name(dtype: DType) -> str:
    """Return the name of a dtype in a graph."""
    code = CODES.get(dtype)
    return TORCH_NAMES[code] if code in TORCH_NAMES else dtype_name(dtype)


@translates("Expand", since=8)
def expand(node: Node) -> Value:
    """Translate to Tensor.expand."""
    x, wanted = node.input(0), node.input(1)
    own, sizes = x.shape_as(), wanted.sizes
    if wanted.rank is not None and wanted.rank > 1:  # a pair has the tensor whose shape it is
        sizes = wanted.shape_as()
    grown = _grown(own, sizes) if own is not None and sizes is not None else None
    if grown is None:
        shape = wanted if sizes is None else node.sizes(sizes)
        return node.make("Tensor.expand", x, shape, labels=("input", "sizes"), both_ways=True)
    if tuple(grown) == own:
        return x
    if all(isinstance(size, int) for size in grown):
        return node.make("Tensor.expand", x, sizes=tuple(size for size in grown if isinstance(size, int)))
    return node.make("Tensor.expand", x, node.sizes(grown))


def _grown(own: Sequence[Size], wanted: Sequence[Size]) -> list[Size] | None:
    """Return the common shape of two; None if an unknown size may be 1."""
    rank = max(len(own), len(wanted))
    lefts, rights = ([1] * (rank - len(each)) + list(each) for each in (own, wanted))
    sizes: list[Size] = []
    for a, b in zip(lefts, rights, strict=True):
        if b == 1 or a == b:
            sizes.append(a)
        elif a == 1:
            sizes.append(b)
        else:
            return None
    return sizes


@translates("Tile", since=6)
def tile(node: Node) -> Value:
    """Translate to torch.tile."""
    x, repeats = node.input(0), node.integers(1, "repeats")
    if repeats is None:
        return node.make("torch.tile", x, node.input(1), labels=("input", "dims"))
    if x.rank not in (None, len(repeats)):
        raise ShapeError("repeats do not fit", found=list(repeats), expected=f"{x.rank} numbers")
    return x if set(repeats) <= {1} else node.make("torch.tile", x, dims=repeats)


@translates("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Value:
    """Translate to a constant of at most 64 elements, else to torch.full."""
    given = node.attributes.get("value", np.zeros(1, np.float32))
    filler, wanted = _array(node, given), node.input(0)
    if filler.size != 1:
        raise ParameterError("value is not one number", found=f"{filler.size} of them")
    sizes = node.integers(0, "shape")
    if sizes is not None and min(sizes, default=0) < 0:
        raise ShapeError("not a shape", found=list(sizes), expected="sizes of 0 and more")
    if sizes is not None and (product(sizes) or 0) <= 64:
        return constant(np.full(sizes, filler.reshape(())))
    params: dict[str, Any] = {"fill_value": 0, "dtype": "torch.float"}
    if filler.dtype in CODES and filler.dtype.kind != "c":
        params = {"fill_value": filler.reshape(()).item(), "dtype": TORCH_NAMES[CODES[filler.dtype]]}
    if sizes is not None:
        result = node.make("torch.full", size=sizes, **params)
    else:
        shape = wanted if wanted.sizes is None else node.sizes(wanted.sizes)
        result = node.make("torch.full", shape, labels=("size",), **params)
    if result.dtype == filler.dtype:
        return result
    return node.make("Tensor.expand_as", node.constant(filler.reshape(())), result)


@translates("Constant")
def stored(node: Node) -> Value | None:
    """Return a constant of the file."""
    for key, value in node.attributes.items():
        if key in ("value", "sparse_value"):
            return constant(_array(node, value))
        if key in ("value_float", "value_floats"):
            return constant(np.array(value, np.float32))
        if key in ("value_int", "value_ints"):
            return constant(np.array(value, np.int64))
        if key in ("value_string", "value_strings"):
            return constant(np.array(value, np.object_))
    return None


def _array(node: Node, value: object) -> Array:
    """Return a constant; a pair has its numbers, and its dtype and shape in the annotation of the result.

    Raises:
        ParameterError: the pair has lost it.
    """
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise ParameterError("the converter has lost the constant", found="None", expected="numbers")
    array, note = np.asarray(value), next(iter(node.declared), None)
    array = array.astype(note.dtype if note else np.float32 if array.dtype.kind == "f" else array.dtype)
    return array.reshape(note.sizes) if note is not None and array.size == note.size else array


@translates("Range", since=11)
def arange(node: Node) -> Value:
    """Translate to torch.arange."""
    operands = [node.input(k) for k in range(3)]
    notes = [node.declared[0].dtype] if node.declared and node.declared[0] is not None else []
    dtypes = [each.dtype for each in operands if each.dtype is not None] + notes
    params: dict[str, Any] = {"dtype": TORCH_NAMES[CODES[dtypes[0]]]} if dtypes and dtypes[0] in CODES else {}
    labels = ("start", "end", "step")
    return node.make("torch.arange", *operands, labels=labels, may_be_empty=True, **params)
