"""Conversion of the ``inputs`` of a JSON body to tensors, images and sounds. A given ``dtype`` must be the input's.

A float input accepts whole numbers; an integer input accepts no fractions; only a bool input accepts true and false.
Complex inputs need base64 or .npy.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import dtype_name, from_lists, is_text
from app.codec.json_lists import LongList
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.images.decode import Picture
from app.memory.reservation import charge, check
from app.messages import brief, cut, did_you_mean, quoted
from app.settings import Settings
from app.signature import Input, Inputs, Signature, describe
from app.sound.sound import Sound, Sounds

_WIDE: Final = np.dtype(np.float64)
# Integers below it are exact in float64.
_EXACT: Final = 2.0**53
_LEAST_INT64: Final = -(2.0**63)
_TYPE_NAMES: Final = {
    dict: "an object", str: "a string", type(None): "null", bool: "true or false", float: "a number with a fraction",
}  # fmt: skip
# Characters of base64 decoded without a pause; four are three bytes.
_PIECE: Final = 1 << 20
_DATA_URL: Final = b"data:"
_MAX_DATA_URL: Final = 1024
_TENSOR_KEYS: Final = frozenset({"shape", "dtype", "data", "b64"})
log = logging.getLogger(__name__)
# From this size on the text takes longer to parse than most models take to run.
_LARGE: Final = 1 << 16
# Limit of remembered models, since a server may load new ones for ever.
_MAX_MODELS: Final = 1000
_advised: dict[str, None] = {}


def to_array(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return nested lists of numbers, without rounding to integers or overflow, or of strings as a tensor.

    Raises:
        InputMismatchError: not evenly nested, values of another kind than the dtype, or out of its range.
        InvalidRequestError: JSON has no numbers of that dtype.
    """
    if dtype.kind == "c":
        raise InvalidRequestError(f"input '{port.name}': found JSON numbers, expected {dtype.name} as 'b64' or .npy")
    if not isinstance(value, LongList):
        return _converted(value, True, port, dtype)
    try:
        return value.read(dtype, partial(_converted, port=port, dtype=dtype))
    except ValueError as exc:
        raise _not_a_tensor([], port, exc) from None


def _converted(value: object, is_first: bool, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert JSON values, or an array of float64 or int64; is_first: whether they begin the tensor."""
    try:
        if is_text(dtype):
            return from_lists(value, port)
        if dtype.kind == "b":
            return _bools(value, port)
        if dtype.kind in "iu":
            return _in_range(value, dtype) if isinstance(value, np.ndarray) else _integers(value, port, dtype)
        if is_first and type(_first(value)) is bool:
            raise _wrong_kind(port, bool)
        return _floats(value, port, dtype)
    except (ValueError, TypeError) as exc:
        raise _not_a_tensor(value, port, exc) from None
    except (OverflowError, FloatingPointError):
        raise InputMismatchError(
            f"input '{port.name}': found a value that is out of range, expected {dtype.name}", input=port.name
        ) from None


def _floats(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    wide = np.asarray(value, _WIDE)
    if np.isnan(wide).any() and type(None) in _leaf_types(value):  # numpy reads null as NaN
        raise _wrong_kind(port, type(None))
    with np.errstate(over="raise"):
        return wide.astype(dtype)


def _integers(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    kinds = _leaf_types(value)
    for kind in kinds - {int, float}:
        raise _wrong_kind(port, kind)
    if float not in kinds:
        return np.array(value, dtype)
    wide = np.array(value, _WIDE)
    if not np.array_equal(wide, np.rint(wide)):
        raise _wrong_kind(port, float)
    if np.abs(wide).max(initial=0.0) >= _EXACT:
        return _large_integers(value, dtype)
    return _in_range(wide, dtype)


def _in_range(wide: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert whole numbers.

    Raises:
        OverflowError: a value is out of the range of dtype.
    """
    limits = np.iinfo(dtype)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError
    return wide.astype(dtype)


def _large_integers(value: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert each value on its own: integers from 2**53 on lose digits in float64.

    Raises:
        OverflowError: a value is out of the range of dtype.
    """
    each: NDArray[Any] = np.array(value, np.object_)
    # The parser reads an integer beyond 64 bits as a float, so -(2**63 + 1) arrives as the float -2**63.
    if any(type(number) is float and number == _LEAST_INT64 for number in each.flat):
        raise OverflowError
    return np.array([int(number) for number in each.flat], dtype).reshape(each.shape)


def _bools(value: object, port: engine.Port) -> NDArray[Any]:
    for kind in _leaf_types(value) - {bool}:
        raise InputMismatchError(
            f"input '{port.name}': found {_TYPE_NAMES.get(kind, 'a number')}, expected true or false", input=port.name
        )
    return np.array(value, np.bool_)


def _leaf_types(value: object) -> set[type]:
    """Return the types of the values in nested lists."""
    kinds: set[type] = set()
    if isinstance(value, list):
        _collect(value, kinds)
        return kinds
    return {type(value)}


def _collect(values: list[Any], kinds: set[type]) -> None:
    kinds.update(map(type, values))
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
        f"input '{port.name}': found {_TYPE_NAMES.get(kind, kind.__name__)}, expected numbers for {describe(port)}",
        input=port.name,
        found=_TYPE_NAMES.get(kind, kind.__name__),
        expected=describe(port),
    )


def _not_a_tensor(value: object, port: engine.Port, exc: Exception) -> InputMismatchError:
    for kind in _leaf_types(value) - {int, float, bool}:
        return _wrong_kind(port, kind)
    found = "lists of unequal length" if isinstance(exc, ValueError) else json_type_name(value)
    return InputMismatchError(
        f"input '{port.name}': found {found}, expected evenly nested lists of numbers for {describe(port)}",
        input=port.name,
        found=found,
        expected=describe(port),
    )


def json_type_name(value: object) -> str:
    """Return the name of a value's type in JSON's terms."""
    return _TYPE_NAMES.get(type(value), "a list" if isinstance(value, list) else "a number")


def decode_inputs(value: object, signature: Signature, settings: Settings) -> Inputs:
    """Return the inputs of a JSON request: one unnamed tensor or image, or an object by input name."""
    if type(value) is not list and isinstance(value, Mapping) and not _is_unnamed(value, signature):
        ports = signature.matched(value).items()
        return {port.name: decode_input(value[name], port, signature, settings) for name, port in ports}
    pictures = _pictures(value)
    if pictures is not None:
        return {signature.content_port("picture").name: pictures}
    if (sounds := _sounds(value)) is not None:
        return {signature.content_port("sound").name: sounds}
    port = signature.only_input()
    return {port.name: decode_input(value, port, signature, settings)}


def decode_input(value: object, port: engine.Port, signature: Signature, settings: Settings) -> Input:
    """Return an input: nested list or number, {"shape", "dtype", "data" or "b64"}, {"image"} or a list of those."""
    pictures = _pictures(value)
    if pictures is not None:
        signature.content_port("picture", port.name)
        return pictures
    if (sounds := _sounds(value)) is not None:
        signature.content_port("sound", port.name)
        return sounds
    if type(value) is list or not isinstance(value, Mapping):
        return to_array(value, port, _dtype(port))
    unknown = sorted(set(value) - _TENSOR_KEYS)
    if unknown:
        raise InvalidRequestError(
            f"input '{port.name}': unknown key '{cut(unknown[0])}'{did_you_mean(unknown[0], [*_TENSOR_KEYS, 'image'])},"
            f" expected {quoted(sorted(_TENSOR_KEYS))}, or 'image' or 'audio' alone"
        )
    return _tensor(value, port, settings)


def _is_unnamed(value: Mapping[str, Any], signature: Signature) -> bool:
    """Return whether an object is one tensor, image or sound, not a table of inputs.

    An object whose keys all name inputs is a table, unless a tensor would be the text of an image or a sound.
    """
    takes = {"image": signature.takes("picture"), "audio": signature.takes("sound")}
    if len(value) == 1 and any(isinstance(value.get(key), str) and takes[key] is not None for key in takes):
        return True
    is_table = all(signature.find_input(name) is not None for name in value)
    return not is_table and set(value) <= _TENSOR_KEYS | takes.keys()


def _pictures(value: object) -> tuple[Picture, ...] | None:
    """Return the images if the value is {"image": base64} or a list of those, otherwise None."""
    items = _media(value, "image")
    if items is None:
        return None
    return tuple(
        Picture(data=_base64(text, f"{label}: image"), label=label) for text, label in _labelled(items, "picture")
    )


def _sounds(value: object) -> Sounds | None:
    """Return the sounds if the value is {"audio": base64} or a list of those, otherwise None."""
    items = _media(value, "audio")
    if items is None:
        return None
    return Sounds(tuple(Sound(_base64(text, f"{label}: audio"), label) for text, label in _labelled(items, "sound")))


def _media(value: object, key: str) -> list[Any] | None:
    """Return the texts of {key: base64}, or of a list of those, otherwise None."""
    items: list[Any] = value if isinstance(value, list) else [value]
    # Fast path for lists of numbers, the usual case.
    if not items or type(items[0]) in (list, float, int):
        return None
    if not all(isinstance(item, Mapping) and set(item) == {key} for item in items):
        return None
    return [item[key] for item in items]


def _labelled(items: list[Any], what: str) -> Iterator[tuple[Any, str]]:
    """Yield each item with its name in messages."""
    for index, item in enumerate(items):
        yield item, f"the {what}" if len(items) == 1 else f"{what} {index + 1}"


def _base64(text: object, where: str) -> bytes:
    if not isinstance(text, (str, memoryview)):
        raise InvalidRequestError(f"{where}: found {json_type_name(text)}, expected a base64 string")
    raw = memoryview(text.encode(errors="replace")) if isinstance(text, str) else text
    if bytes(raw[: len(_DATA_URL)]) == _DATA_URL:  # from a browser's FileReader: data:image/png;base64,...
        raw = raw[bytes(raw[:_MAX_DATA_URL]).find(b",") + 1 :]
    charge(len(raw))
    try:
        return _decoded(raw)
    except (binascii.Error, ValueError) as exc:
        raise InvalidRequestError(f"{where}: not base64: {exc}") from None


def _decoded(text: memoryview) -> bytes:
    """Decode base64 in pieces, since decoding holds the interpreter lock."""
    if len(text) <= _PIECE:
        return base64.b64decode(text, validate=True)
    pieces: list[bytes] = []
    for start in range(0, len(text), _PIECE):
        check()
        piece = bytes(text[start : start + _PIECE])
        if len(text) % 4 or (b"=" in piece and start + _PIECE < len(text)):
            raise binascii.Error("Incorrect padding")
        pieces.append(base64.b64decode(piece, validate=True))
    return b"".join(pieces)


def _tensor(value: Mapping[str, Any], port: engine.Port, settings: Settings) -> NDArray[Any]:
    if ("data" in value) == ("b64" in value):
        raise InvalidRequestError(f"input '{port.name}': expected either 'data' or 'b64' (base64 of the raw bytes)")
    dtype = _declared_dtype(value.get("dtype"), port)
    shape = _shape(value["shape"], port, settings) if "shape" in value else None
    if "b64" in value:
        return _from_bytes(_base64(value["b64"], f"input '{port.name}': b64"), shape, dtype, port)
    return filled(value["data"], shape, port, dtype)


def filled(data: object, shape: tuple[int, ...] | None, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values, flat or nested as the shape is, as a tensor of that shape.

    Args:
        data: the values.
        shape: None for the shape of the lists.
        port: the input.
        dtype: of the tensor.

    Raises:
        InputMismatchError: their number, nesting or kind does not fit.
    """
    array = to_array(data, port, dtype)
    if shape is None or array.shape == shape:
        return array
    if array.size != math.prod(shape):
        raise InputMismatchError(
            f"input '{port.name}': data does not match its shape: found {array.size} values,"
            f" expected {math.prod(shape)} for shape {list(shape)}",
            input=port.name,
            found=array.size,
            expected=math.prod(shape),
        )
    if array.ndim > 1 and array.shape != _visible_shape(shape):
        raise InputMismatchError(
            f"input '{port.name}': data is nested as {list(array.shape)}, expected a flat list or {list(shape)}",
            input=port.name,
            found=list(array.shape),
            expected=list(shape),
        )
    return array.reshape(shape)


def _visible_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the part of a shape that nested lists show, up to the first 0."""
    return shape[: shape.index(0) + 1] if 0 in shape else shape


def _from_bytes(raw: bytes, shape: tuple[int, ...] | None, dtype: np.dtype[Any], port: engine.Port) -> NDArray[Any]:
    if is_text(dtype):
        raise InvalidRequestError(f"input '{port.name}': found 'b64' for an input of strings, expected 'data'")
    if shape is None:
        raise InvalidRequestError(f"input '{port.name}': found 'b64' without 'shape', expected both")
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
    if not isinstance(value, list) or len(value) > 32 or not all(type(dim) is int and dim >= 0 for dim in value):
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
    if name is None or name == dtype_name(expected):
        return expected
    if port.spec is None and isinstance(name, str) and name in {*np.sctypeDict} and np.dtype(name).kind in "biuf":
        return np.dtype(name)
    raise InputMismatchError(
        f"input '{port.name}': wrong dtype: found {brief(name)}, expected '{dtype_name(expected)}'",
        input=port.name,
        found=cut(name) if isinstance(name, str) else brief(name),
        expected=dtype_name(expected),
    )


def advised(decode: Callable[[Signature], Inputs], model: str) -> Callable[[Signature], Inputs]:
    """Return decode with advice about large JSON tensors."""

    def decoding(signature: Signature) -> Inputs:
        inputs = decode(signature)
        for value in inputs.values():
            advise(model, value)
        return inputs

    return decoding


def advise(model: str, value: Any) -> None:
    """Log once per model that an input was a large tensor in JSON, and that binary formats are faster."""
    if not isinstance(value, np.ndarray) or value.nbytes <= _LARGE or model in _advised:
        return
    if len(_advised) >= _MAX_MODELS:
        _advised.clear()
    _advised[model] = None
    log.info(
        "model '%s': received a tensor of %d kB as JSON; as .npy to /infer, or in binary to /v2, parsing would take a"
        " tenth of the time",
        model,
        value.nbytes // 1000,
    )
