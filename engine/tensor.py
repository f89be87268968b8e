"""Descriptions of values: dtypes, shapes and what is known of a value before it is computed.

A dimension is an ``int``, or ``None`` when it is unknown before a run. A value that is not a tensor (a Python
number, string, list, tuple, dict or None) stands for itself; ``UNKNOWN`` stands for a value unknown before a run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from engine.errors import ParameterError, ShapeError
from engine.ir.sizes import holds_sizes, sizes_dtype

Array: TypeAlias = NDArray[Any]
Dim: TypeAlias = int | None
Shape: TypeAlias = tuple[Dim, ...]
DType: TypeAlias = np.dtype[Any]
Number: TypeAlias = bool | int | float | complex

BFLOAT16: Final[DType] = np.dtype(ml_dtypes.bfloat16)

# PNNX code -> numpy dtype of the value. complex32 has no numpy dtype and is widened to complex64 when read.
DTYPES: Final[dict[str, DType]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
    "c32": np.dtype(np.complex64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
CODES: Final[dict[DType, str]] = {dtype: code for code, dtype in DTYPES.items() if code != "c32"}

_TORCH_NAMES: Final[dict[str, str]] = {
    "float": "f32", "float32": "f32", "double": "f64", "float64": "f64", "half": "f16", "float16": "f16",
    "bfloat16": "bf16", "uint8": "u8", "int8": "i8", "short": "i16", "int16": "i16", "int": "i32",
    "int32": "i32", "long": "i64", "int64": "i64", "bool": "bool", "complex32": "c32", "chalf": "c32",
    "complex64": "c64", "cfloat": "c64", "complex128": "c128", "cdouble": "c128",
    "qint8": "i8", "quint8": "u8", "qint32": "i32",
}  # fmt: skip
# torch.ScalarType numbers, as raw aten:: operators carry them.
_SCALAR_TYPES: Final = (
    "u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "c32", "c64", "c128", "bool", "i8", "u8", "i32", "bf16",
)  # fmt: skip
# Dtypes of ONNX that graphs of PyTorch do not have.
_OTHERS: Final[dict[str, DType]] = {
    str(np.dtype(kind).name): np.dtype(kind)
    for kind in (
        np.uint16, np.uint32, np.uint64, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4,
        ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, np.object_,
    )
}  # fmt: skip
_OTHERS["string"] = np.dtype(np.object_)
KNOWN: Final[frozenset[DType]] = frozenset({*CODES, *_OTHERS.values()})
"""All dtypes that tensors of a graph may have."""


def parse_dtype(value: object) -> DType:
    """Return the numpy dtype for ``torch.float``, a torch ScalarType number, a PNNX code, a numpy dtype or its class.

    Raises:
        ParameterError: for a dtype neither PyTorch nor PNNX knows.
    """
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_SCALAR_TYPES):
        return DTYPES[_SCALAR_TYPES[value]]
    if isinstance(value, str):
        name = value.removeprefix("torch.")
        code = _TORCH_NAMES.get(name, value)
        if code in DTYPES:
            return DTYPES[code]
        if name in _OTHERS:
            return _OTHERS[name]
    raise ParameterError("unknown dtype", found=repr(value), expected="a torch dtype such as torch.float")


@lru_cache(maxsize=64)
def named_dtype(name: str) -> DType:
    """Return the dtype whose ``dtype_name`` is this, from a graph of PyTorch or ONNX.

    Raises:
        ParameterError: there is none.
    """
    return parse_dtype(name)


def dtype_name(dtype: DType) -> str:
    """Return the name of a dtype in JSON and messages: numpy's, or ``string`` for texts, which numpy calls objects."""
    return "string" if dtype.hasobject else str(dtype.name)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of a tensor, and its elements where they are known before it is computed.

    Args:
        shape: its dimensions, None for a dynamic one.
        dtype: of its elements.
        value: elements, read-only, of small tensors that sizes are computed with; None if unknown. ``==`` ignores it.
    """

    shape: Shape
    dtype: DType
    value: Array | None = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Return whether every dimension is known."""
        return None not in self.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as numbers.

        Raises:
            ShapeError: a dimension is dynamic.
        """
        if None in self.shape:
            raise ShapeError("a dimension is dynamic", found=format_shape(self.shape))
        return cast(tuple[int, ...], self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements, None while a dimension is dynamic."""
        return product(self.shape)

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} {dtype_name(self.dtype)}"


Shaped: TypeAlias = Sequence[TensorSpec | Array]
"""Inputs of which only shapes and dtypes count."""


class _Unknown:
    """The type of ``UNKNOWN``, a value that is unknown before a run."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


def specs_of(inputs: Shaped) -> list[TensorSpec]:
    """Return the specs of inputs, without their elements."""
    return [TensorSpec(each.shape, each.dtype) for each in inputs]


def is_known(value: object) -> bool:
    """Return whether a value is fully known before the run: no tensor and no UNKNOWN in it."""
    if isinstance(value, (list, tuple)):
        return all(is_known(item) for item in value)
    if isinstance(value, dict):
        return all(is_known(item) for item in value.values())
    return value is not UNKNOWN and not isinstance(value, TensorSpec)


def known_value(value: object) -> object:
    """Return a value as far as it is known before the run: UNKNOWN for tensors with unknown elements."""
    if isinstance(value, TensorSpec):
        return UNKNOWN if value.value is None else value.value
    if isinstance(value, list):
        return [known_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(known_value(item) for item in value)
    return value


def scalar_tensor(number: Number) -> Array:
    """Return a Python number as the 0-dim tensor that PyTorch makes of it: bool, int64, float32 or complex64."""
    dtype = np.float32 if isinstance(number, float) else np.complex64 if isinstance(number, complex) else None
    with np.errstate(over="ignore"):
        array = np.asarray(number, dtype)
    array.flags.writeable = False
    return array


def format_shape(shape: Iterable[Dim], names: Iterable[str | None] = ()) -> str:
    """Return a shape as text for messages, ``[1, 3, ?, ?]``; named dynamic dimensions show their name."""
    pairs = zip(shape, itertools.chain(names, itertools.repeat(None)), strict=False)
    return "[" + ", ".join(name or "?" if dim is None else str(dim) for dim, name in pairs) + "]"


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of dimensions; None while one of them is dynamic and none is zero."""
    known = tuple(dims)
    try:
        return math.prod(known)  # type: ignore[arg-type]
    except TypeError:  # one is dynamic
        return 0 if 0 in known else None


def spec_of(value: object, *, with_value: bool = False) -> object:
    """Return the description of a computed value: arrays become specs, containers item by item.

    Args:
        with_value: whether the specs hold the elements too.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = sizes_dtype(value) if value.dtype.hasobject and holds_sizes(value) else value.dtype
        return TensorSpec(value.shape, dtype, np.asarray(value) if with_value else None)
    if isinstance(value, list):
        return [spec_of(item, with_value=with_value) for item in value]
    if isinstance(value, tuple):
        return tuple(spec_of(item, with_value=with_value) for item in value)
    if isinstance(value, dict):
        return {key: spec_of(item, with_value=with_value) for key, item in value.items()}
    return value


def is_close(a: Array, b: Array) -> bool:
    """Return whether two results are equal up to the order of sums; the docs state these tolerances.

    Floats may differ by 1e-3 of themselves and 1e-4 of the largest finite magnitude in ``b``; all else must be equal.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biuO":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    found, expected = a.astype(wide), b.astype(wide)
    scale = float(np.max(np.abs(np.nan_to_num(expected, posinf=0, neginf=0)), initial=1e-30))
    return bool(np.allclose(found, expected, rtol=1e-3, atol=1e-4 * scale, equal_nan=True))
