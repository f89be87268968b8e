"""JSON values -> tensors. The model's dtype rules: JSON only knows numbers.

Whole numbers fit a float input; numbers with a fraction never fit an integer one; true and false fit bool only. A
``dtype`` that is spelt out must be the input's. Complex inputs need base64 or .npy.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.images.decode import Picture
from app.memory.budget import charge, check
from app.settings import Settings
from app.signature import Input, Inputs, Signature, describe
from app.wording import brief, cut, did_you_mean, quoted

_TENSOR_KEYS: Final = frozenset({"shape", "dtype", "data", "b64"})
# Values that are converted at a time.
_PIECE: Final = 1 << 18
_SPELLINGS: Final = {
    dict: "an object", str: "a string", type(None): "null", bool: "true or false", float: "a number with a fraction",
}  # fmt: skip


def decode_inputs(value: object, signature: Signature, settings: Settings) -> Inputs:
    """The ``inputs`` of a JSON request: one unnamed tensor or picture, or an object by input name."""
    if isinstance(value, Mapping) and not _is_unnamed(value, signature):
        ports = {name: signature.input(name) for name in value}
        return {port.name: decode_input(value[name], port, signature, settings) for name, port in ports.items()}
    pictures = _pictures(value)
    if pictures is not None:
        return {signature.picture_port().name: pictures}
    port = signature.only_input()
    return {port.name: decode_input(value, port, signature, settings)}


def decode_input(value: object, port: engine.Port, signature: Signature, settings: Settings) -> Input:
    """One input: a nested list or number, {"shape", "dtype", "data" or "b64"}, {"image"} or a list of those."""
    pictures = _pictures(value)
    if pictures is not None:
        signature.picture_port(port.name)
        return pictures
    if not isinstance(value, Mapping):
        return _array(value, port, _dtype(port))
    unknown = sorted(set(value) - _TENSOR_KEYS)
    if unknown:
        raise InvalidRequestError(
            f"input '{port.name}': unknown key '{cut(unknown[0])}'{did_you_mean(unknown[0], [*_TENSOR_KEYS, 'image'])},"
            f" expected {quoted(sorted(_TENSOR_KEYS))}, or 'image' alone"
        )
    return _tensor(value, port, settings)


def _is_unnamed(value: Mapping[str, Any], signature: Signature) -> bool:
    """Whether an object is one tensor or picture, not a table of inputs; an input's name wins over a keyword."""
    names = {name for port in signature.inputs for name in (port.name, *port.aliases)}
    return bool(value) and not set(value) & names and set(value) <= _TENSOR_KEYS | {"image"}


def _pictures(value: object) -> tuple[Picture, ...] | None:
    """The pictures, when the value is {"image": base64} or a list of those."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, Mapping) and set(item) == {"image"} for item in items):
        return None
    labels = ["the picture"] if len(items) == 1 else [f"picture {index + 1}" for index in range(len(items))]
    return tuple(
        Picture(data=_base64(item["image"], f"{label}: image"), label=label)
        for item, label in zip(items, labels, strict=True)
    )


def _base64(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidRequestError(f"{where}: found {_spelling(text)}, expected a base64 string")
    if text.startswith("data:"):  # what a browser's FileReader gives: data:image/png;base64,...
        text = text.partition(",")[2]
    charge(len(text) * 2)  # its bytes as text, and what they say
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise InvalidRequestError(f"{where}: not base64: {exc}") from None


def _tensor(value: Mapping[str, Any], port: engine.Port, settings: Settings) -> NDArray[Any]:
    if ("data" in value) == ("b64" in value):
        raise InvalidRequestError(f"input '{port.name}': expected either 'data' or 'b64' (base64 of the raw bytes)")
    dtype = _declared_dtype(value.get("dtype"), port)
    shape = _shape(value["shape"], port, settings) if "shape" in value else None
    if "b64" in value:
        return _from_bytes(_base64(value["b64"], f"input '{port.name}': b64"), shape, dtype, port)
    array = _array(value["data"], port, dtype)
    if shape is None or array.shape == shape:
        return array
    if array.size != math.prod(shape):
        raise InputMismatchError(
            f"input '{port.name}': data does not fill its shape: found {array.size} values,"
            f" expected {math.prod(shape)} for shape {list(shape)}",
            input=port.name,
            found=array.size,
            expected=math.prod(shape),
        )
    return array.reshape(shape)


def _from_bytes(raw: bytes, shape: tuple[int, ...] | None, dtype: np.dtype[Any], port: engine.Port) -> NDArray[Any]:
    if shape is None:
        raise InvalidRequestError(f"input '{port.name}': b64 needs 'shape'")
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise InputMismatchError(
            f"input '{port.name}': b64 holds {len(raw)} bytes, expected {expected} for {list(shape)} {dtype.name}",
            input=port.name,
            found=len(raw),
            expected=expected,
        )
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _shape(value: object, port: engine.Port, settings: Settings) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(dim) is int and dim >= 0 for dim in value) or len(value) > 32:
        raise InvalidRequestError(f"input '{port.name}': shape: expected a list of whole numbers, none negative")
    # Zeros do not make a shape small: [0, 10**12] would still have to be addressed.
    elements = math.prod(dim for dim in value if dim)
    if elements > settings.max_elements:
        raise RequestTooLargeError(
            f"input '{port.name}': shape has too many elements: found {elements}, expected at most"
            f" {settings.max_elements}",
            input=port.name,
            found=elements,
            limit=settings.max_elements,
        )
    return tuple(value)


def _dtype(port: engine.Port) -> np.dtype[Any]:
    return np.dtype(np.float32) if port.spec is None else port.spec.dtype


def _declared_dtype(name: object, port: engine.Port) -> np.dtype[Any]:
    expected = _dtype(port)
    if name is None or name == expected.name:
        return expected
    if port.spec is None and isinstance(name, str) and name in {*np.sctypeDict} and np.dtype(name).kind in "biuf":
        return np.dtype(name)
    raise InputMismatchError(
        f"input '{port.name}': wrong dtype: found {brief(name)}, expected '{expected.name}'",
        input=port.name,
        found=cut(name) if isinstance(name, str) else brief(name),
        expected=expected.name,
    )


def _array(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Nested lists of numbers as a tensor of that dtype, nothing rounded to a whole number, nothing out of range."""
    try:
        if dtype.kind == "b":
            return _bools(value, port)
        if dtype.kind in "iu":
            return _integers(value, port, dtype)
        if dtype.kind == "c":
            raise InvalidRequestError(f"input '{port.name}' is {dtype.name}: send it as 'b64' or .npy")
        return _floats(value, port, dtype)
    except (ValueError, TypeError) as exc:
        raise _not_a_tensor(value, port, exc) from None
    except (OverflowError, FloatingPointError):
        raise InputMismatchError(
            f"input '{port.name}': a value is out of range, expected values of {dtype.name}", input=port.name
        ) from None


def _floats(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    if type(_first(value)) is bool:
        raise _wrong_kind(port, bool)
    wide = _numbers(value, np.dtype(np.float64))
    if np.isnan(wide).any() and type(None) in _leaf_types(value):  # numpy reads null as NaN
        raise _wrong_kind(port, type(None))
    with np.errstate(over="raise"):
        return wide.astype(dtype)


def _integers(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    kinds = _leaf_types(value)
    for kind in kinds - {int, float}:
        raise _wrong_kind(port, kind)
    if float not in kinds:
        return _numbers(value, dtype)
    wide = _numbers(value, np.dtype(np.float64))
    if not np.array_equal(wide, np.rint(wide)):
        raise _wrong_kind(port, float)
    limits = np.iinfo(dtype)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError
    return wide.astype(dtype)


def _bools(value: object, port: engine.Port) -> NDArray[Any]:
    for kind in _leaf_types(value) - {bool}:
        raise InputMismatchError(
            f"input '{port.name}': found {_SPELLINGS.get(kind, 'a number')}, expected true or false", input=port.name
        )
    return _numbers(value, np.dtype(np.bool_))


def _numbers(value: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What np.array makes of nested lists, made of pieces: other threads cannot run while it works on one.

    Raises:
        ValueError: the lists are not evenly nested.
    """
    row = _size(value[0]) if isinstance(value, list) and value else 0
    if not isinstance(value, list) or row * len(value) <= _PIECE:
        return np.array(value, dtype)
    step = max(1, _PIECE // row)
    whole: NDArray[Any] | None = None
    for start in range(0, len(value), step):
        check()
        piece = np.array(value[start : start + step], dtype) if row <= _PIECE else _numbers(value[start], dtype)[None]
        if whole is None:
            whole = np.empty((len(value), *piece.shape[1:]), dtype)
        if piece.shape[1:] != whole.shape[1:]:
            raise ValueError("the lists are not evenly nested")
        whole[start : start + step] = piece
    assert whole is not None
    return whole


def _size(value: object) -> int:
    """How many values nested lists hold, if all are as long as the first ones."""
    size = 1
    while isinstance(value, list) and value:
        size *= len(value)
        value = value[0]
    return size


def _leaf_types(value: object) -> set[type]:
    """The types of what is no list, in nested lists."""
    kinds: set[type] = set()
    if isinstance(value, list):
        _collect(value, kinds)
        return kinds
    return {type(value)}


def _collect(values: list[Any], kinds: set[type]) -> None:
    kinds.update(map(type, values))  # one set for all of them: a body may hold millions of empty lists
    if list in kinds:
        kinds.discard(list)
        for item in values:
            if type(item) is list:
                _collect(item, kinds)


def _first(value: object) -> object:
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _wrong_kind(port: engine.Port, kind: type) -> InputMismatchError:
    return InputMismatchError(
        f"input '{port.name}': found {_SPELLINGS.get(kind, kind.__name__)}, expected numbers for {describe(port)}",
        input=port.name,
        found=_SPELLINGS.get(kind, kind.__name__),
        expected=describe(port),
    )


def _not_a_tensor(value: object, port: engine.Port, exc: Exception) -> InputMismatchError:
    for kind in _leaf_types(value) - {int, float, bool}:
        return _wrong_kind(port, kind)
    found = "lists of unequal length" if isinstance(exc, ValueError) else _spelling(value)
    return InputMismatchError(
        f"input '{port.name}': found {found}, expected evenly nested lists of numbers for {describe(port)}",
        input=port.name,
        found=found,
        expected=describe(port),
    )


def _spelling(value: object) -> str:
    return _SPELLINGS.get(type(value), "a list" if isinstance(value, list) else "a number")
