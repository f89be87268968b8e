"""PyTorch's type promotion and broadcasting.

Operands come in three groups: tensors with dimensions, 0-dim tensors, Python numbers. The category (bool < integer
< floating < complex) is the highest of all operands. The dtype is that of the first group, in this order, which
reaches the category; a later group only matters when its category is strictly higher. Python numbers stand for the
default dtypes: int64, float32, complex64. So float16 * 2.5 stays float16, int64 * 2.5 is float32, and uint8 + 300
wraps in uint8. A dimension that is None is dynamic: only a run can tell it.

Source: c10/core/ScalarType.h and at::native::result_type; checked against PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import plain
from engine.ir.ratios import InexactError
from engine.ir.sizes import as_reals, as_whole, has_sizes, holds_sizes, sizes_dtype, specialise_sizes
from engine.tensor import BFLOAT16, UNKNOWN, Array, Dim, DType, Number, Shape, TensorSpec, format_shape

_BOOL: Final[DType] = np.dtype(np.bool_)
_INT64: Final[DType] = np.dtype(np.int64)
_FLOAT16: Final[DType] = np.dtype(np.float16)
_FLOAT32: Final[DType] = np.dtype(np.float32)
_FLOAT64: Final[DType] = np.dtype(np.float64)
_COMPLEX64: Final[DType] = np.dtype(np.complex64)
_COMPLEX128: Final[DType] = np.dtype(np.complex128)


class Category(Enum):
    """Kind of number; as an operand, a Python number of that kind whose value is unknown before a run."""

    BOOL = 0
    INTEGER = 1
    FLOATING = 2
    COMPLEX = 3


_DEFAULTS: Final = {
    Category.BOOL: _BOOL,
    Category.INTEGER: _INT64,
    Category.FLOATING: _FLOAT32,
    Category.COMPLEX: _COMPLEX64,
}
_KINDS: Final = {
    "b": Category.BOOL,
    "i": Category.INTEGER,
    "u": Category.INTEGER,
    "f": Category.FLOATING,
    "c": Category.COMPLEX,
}


@lru_cache(maxsize=256)
def dtype_category(dtype: DType) -> Category:
    """Return the category of a dtype.

    Raises:
        ShapeError: for dtypes that are not numbers, such as strings and objects.
    """
    if dtype == BFLOAT16:
        return Category.FLOATING
    if dtype.kind not in _KINDS:
        raise ShapeError("a tensor has a dtype without arithmetic", found=dtype, expected="a numeric dtype")
    return _KINDS[dtype.kind]


def category(operand: object) -> Category:
    """Return the category of a tensor, a TensorSpec or a Python number; UNKNOWN counts as an integer (a size).

    Raises:
        ShapeError: for anything else.
    """
    if isinstance(operand, (np.ndarray, np.generic, TensorSpec)):
        dtype = operand.dtype
        return dtype_category(sizes_dtype(operand) if dtype.hasobject and holds_sizes(operand) else dtype)
    if isinstance(operand, Category):
        return operand
    if isinstance(operand, bool):
        return Category.BOOL
    if isinstance(operand, int) or operand is UNKNOWN:
        return Category.INTEGER
    if isinstance(operand, float):
        return Category.FLOATING
    if isinstance(operand, complex):
        return Category.COMPLEX
    raise ShapeError(
        "an operand is neither a tensor nor a number", found=repr(operand), expected="a tensor or a number"
    )


def highest(categories: Iterable[Category]) -> Category:
    """Return the highest of some categories."""
    return max(categories, key=lambda one: one.value)


@lru_cache(maxsize=1024)
def promote_types(a: DType, b: DType) -> DType:
    """Return the common dtype of two tensors of one group: int64 + float16 is float16, uint8 + int8 is int16."""
    if a == b:
        return a
    low, high = sorted((dtype_category(a), dtype_category(b)), key=lambda one: one.value)
    if high is Category.COMPLEX:
        return _COMPLEX128 if {a, b} & {_COMPLEX128, _FLOAT64} else _COMPLEX64
    if high is Category.FLOATING:
        if low is not Category.FLOATING:
            return a if dtype_category(a) is high else b
        if BFLOAT16 in (a, b):  # numpy refuses to mix it with float16
            other = a if b == BFLOAT16 else b
            return _FLOAT32 if other == _FLOAT16 else other
    return np.promote_types(a, b)


def result_type(*operands: object) -> DType:
    """Return the common dtype of operands.

    Args:
        operands: arrays and TensorSpecs of any rank, Python numbers, UNKNOWN (counts as an integer) and categories.

    Raises:
        ShapeError: for an operand that is neither a tensor nor a number.
    """
    dims: DType | None = None
    zeros: DType | None = None
    number: DType | None = None
    for operand in operands:
        if isinstance(operand, (np.ndarray, np.generic, TensorSpec)):
            dtype = sizes_dtype(operand) if operand.dtype.hasobject and holds_sizes(operand) else operand.dtype
            if operand.shape:
                dims = dtype if dims is None else promote_types(dims, dtype)
            else:
                zeros = dtype if zeros is None else promote_types(zeros, dtype)
        else:
            default = _DEFAULTS[category(operand)]
            number = default if number is None else promote_types(number, default)
    found = _prefer(dims, _prefer(zeros, number))
    if found is None:
        raise ShapeError("no operand determines the dtype", found="none", expected="a tensor or a number")
    return found


def _prefer(higher: DType | None, lower: DType | None) -> DType | None:
    """Return the dtype of a group and of one with lower priority."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    return _prevailing(higher, lower)


@lru_cache(maxsize=1024)
def _prevailing(higher: DType, lower: DType) -> DType:
    above, below = dtype_category(higher), dtype_category(lower)
    if below.value <= above.value:
        return higher
    if above is Category.FLOATING:
        return _COMPLEX128 if higher == _FLOAT64 else _COMPLEX64
    return lower


def float_dtype(dtype: DType) -> DType:
    """Return the dtype of a function with fractional results: float32, the default, for integers and bools."""
    return dtype if dtype_category(dtype).value >= Category.FLOATING.value else _FLOAT32


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the parts of a complex number; real dtypes are returned unchanged."""
    return {_COMPLEX64: _FLOAT32, _COMPLEX128: _FLOAT64}.get(dtype, dtype)


def cast(value: Array | np.generic | Number, dtype: DType) -> Array:
    """Return a value as an array of a dtype, without warnings; an array of that dtype is returned itself.

    Integers wrap, fractions are cut towards zero, an imaginary part is dropped, as PyTorch's ``Tensor.to`` does.
    A Python number becomes a read-only 0-dim array.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype == dtype else _convert(value, dtype)
    if has_sizes(value):
        return _convert(np.array(value, np.object_), dtype)
    if isinstance(value, np.generic):
        return _convert(np.asarray(value), dtype)
    is_plain = value and not isinstance(value, complex)  # equal zeros may differ in sign
    return _shared_number(value, dtype) if is_plain else _number(value, dtype)


def _convert(array: Array, dtype: DType) -> Array:
    if array.dtype.hasobject and holds_sizes(array):
        cut = _cast_sizes(array, dtype)
        if cut is not None:
            return cut
        array = specialise_sizes(array)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and dtype.kind not in "cb":
            array = array.real
        if dtype.kind in "iu" and dtype.itemsize < 4 and dtype_category(array.dtype) is Category.FLOATING:
            array = array.astype(np.int64)  # as PyTorch; float -> 8 bits directly is undefined beyond its range
        return array.astype(dtype, copy=False)


def _cast_sizes(array: Array, dtype: DType) -> Array | None:
    """Return symbolic numbers in a dtype; None where only numbers are cast."""
    if dtype == _FLOAT32:
        try:
            return as_reals(array)
        except InexactError:
            return None
    if dtype.kind != "i" or dtype.itemsize < 4:
        return None
    whole, bounds = as_whole(array), np.iinfo(dtype)
    return whole if dtype == _INT64 or all(bounds.min <= size <= bounds.max for size in whole.flat) else None


def _number(value: Number, dtype: DType) -> Array:
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value + 2**63) % 2**64 - 2**63
    array = _convert(np.array(value), dtype)
    array.setflags(write=False)
    return array


_shared_number = lru_cache(maxsize=4096, typed=True)(_number)


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape of an elementwise result; a dynamic dimension stays dynamic unless the other decides.

    Raises:
        ShapeError: when two dimensions differ and neither is 1, naming both shapes.
    """
    result: Shape = ()
    for shape in shapes:
        result = _broadcast(result, shape)
    # numpy's numbers equal Python's and would replace them in caches; generated code needs Python's.
    return tuple(None if dim is None else plain(dim) for dim in result)


def broadcast_sizes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an elementwise result whose operands are of known or symbolic sizes.

    Raises:
        ShapeError: as ``broadcast_shapes`` says.
    """
    return tuple([dim for dim in broadcast_shapes(*map(tuple, shapes)) if dim is not None])


def _broadcast(a: Shape, b: Shape) -> Shape:
    short, long = sorted((a, b), key=len)
    lead = len(long) - len(short)
    dims = [_broadcast_dim(m, n, a, b) for m, n in zip(short, long[lead:], strict=True)]
    return long[:lead] + tuple(dims)


def _broadcast_dim(m: Dim, n: Dim, a: Shape, b: Shape) -> Dim:
    for one, other in ((m, n), (n, m)):  # a symbolic size broadcasts with 1 whatever its value
        if type(one) is int and one == 1:
            return other
    if m == n or m == 1:
        return n
    if n == 1:
        return m
    if m is None or n is None:
        return n if m is None else m
    raise ShapeError("shapes do not broadcast", found=f"{format_shape(a)} and {format_shape(b)}",
                     expected="each dimension equal or 1, counted from the last")  # fmt: skip


def is_reduced(dtype: DType) -> bool:
    """Return whether PyTorch computes in float32 and rounds every result: float16 and bfloat16."""
    return dtype in (_FLOAT16, BFLOAT16)
