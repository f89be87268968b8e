"""Parameters by their declared kind: from what the file or a run says to what a layer's field expects.

The file's numbers are loosely typed (``alpha=1`` for a float, ``stride=2`` for a pair), and a parameter may
also arrive as an operand at run time, as a 0-dim array or a list.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.limits import INT_RANGE, MAX_ITEMS
from engine.tensor import UNKNOWN, DType, parse_dtype

type_hints = typing.get_type_hints


def coerce(value: object, hint: Any) -> Any:
    """``value`` as the kind a field declares.

    Raises:
        ParameterError: when it is not of that kind; names found and expected.
    """
    plain = _plain(value)
    if _is_single(value) and not any(typing.get_origin(option) is tuple for option in _options(hint)):
        plain = value.item()  # type: ignore[attr-defined]  # an array
    check_number(plain)
    if hint is Any:
        return plain
    options = _options(hint)
    if plain is None and type(None) in options:
        return None
    if type(plain) in options:  # an int stays an int where a float would also do
        return plain
    for option in options:
        accepted, result = _accept(plain, option)
        if accepted:
            return result
    raise ParameterError("wrong kind of value", found=_show(plain), expected=describe_kind(hint))


def check_number(value: object) -> None:
    """Refuse what no graph can mean: an integer beyond 64 bits, or a list far longer than any real one.

    Raises:
        ParameterError: naming the number, or the length.
    """
    if isinstance(value, int):
        if value not in INT_RANGE:
            raise ParameterError("an integer is out of range", found=value, expected="64 bits")
    elif isinstance(value, (tuple, list)):
        if len(value) > MAX_ITEMS:
            raise ParameterError("a list is too long", found=f"{len(value):,} items", expected=f"at most {MAX_ITEMS:,}")
        for item in value:
            check_number(item)


def describe_kind(hint: Any) -> str:
    """A field's kind in words: ``int``, ``list of int or None``."""
    return " or ".join(_describe(option) for option in _options(hint))


def is_tensor_kind(hint: Any) -> bool:
    """Whether what is declared so can only be a tensor, or a list of tensors."""
    options = [option for option in _options(hint) if option is not type(None)]
    return bool(options) and all(_is_tensor(option) for option in options)


def _is_tensor(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin in (list, tuple, Sequence):
        return all(item is Ellipsis or is_tensor_kind(item) for item in typing.get_args(kind))
    kind = origin or kind
    return isinstance(kind, type) and issubclass(kind, np.ndarray)


def _plain(value: object) -> object:
    """Run-time values as Python ones: 0-dim and numpy scalars as numbers, vectors and lists as tuples.

    A tensor of one element in a list is a number, whatever its dimensions, as in PyTorch.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 else tuple(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(item.item() if _is_single(item) else _plain(item) for item in value)
    return value


def _is_single(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1


def _options(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        # bool before int before float: the narrowest kind that fits wins.
        return tuple(sorted(typing.get_args(hint), key=_narrowness))
    return (hint,)


def _narrowness(kind: Any) -> int:
    order: list[Any] = [bool, int, float, complex]
    return order.index(kind) if kind in order else len(order)


def _accept(value: object, kind: Any) -> tuple[bool, Any]:
    if typing.get_origin(kind) is tuple:
        return _accept_tuple(value, typing.get_args(kind)[0])
    if typing.get_origin(kind) is np.dtype or kind is DType:
        return _accept_dtype(value)
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    return (value is None, None) if kind is type(None) else (False, None)


def _accept_tuple(value: object, item: Any) -> tuple[bool, Any]:
    if value is None:  # an empty list is written as None, (), or []
        return True, ()
    items = value if isinstance(value, tuple) else (value,)
    found = []
    for each in items:
        accepted, result = _accept_item(each, item)
        if not accepted:
            return False, None
        found.append(result)
    return True, tuple(found)


def _accept_item(value: object, hint: Any) -> tuple[bool, Any]:
    options = _options(hint)
    if value is UNKNOWN and type(None) in options:  # an open dimension
        return True, None
    if type(value) in options:
        return True, value
    for option in options:
        accepted, result = _accept(value, option)
        if accepted:
            return True, result
    return False, None


def _accept_dtype(value: object) -> tuple[bool, Any]:
    if isinstance(value, (str, int, np.dtype)) and not isinstance(value, bool):
        return True, parse_dtype(value)
    return False, None


def _accept_bool(value: object) -> tuple[bool, Any]:
    return (True, bool(value)) if isinstance(value, bool) or value in (0, 1) else (False, None)


def _accept_int(value: object) -> tuple[bool, Any]:
    if isinstance(value, (bool, int)):
        return True, int(value)
    if isinstance(value, float) and value.is_integer() and int(value) in INT_RANGE:
        return True, int(value)
    return False, None


def _accept_float(value: object) -> tuple[bool, Any]:
    return (True, float(value)) if isinstance(value, (bool, int, float)) else (False, None)


def _accept_complex(value: object) -> tuple[bool, Any]:
    return (True, value) if isinstance(value, complex) else _accept_float(value)


def _accept_str(value: object) -> tuple[bool, Any]:
    return (True, value) if isinstance(value, str) else (False, None)


_SCALARS: Final[dict[Any, Callable[[object], tuple[bool, Any]]]] = {
    bool: _accept_bool,
    int: _accept_int,
    float: _accept_float,
    complex: _accept_complex,
    str: _accept_str,
}


def _describe(kind: Any) -> str:
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is tuple:
        return f"list of {describe_kind(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is np.dtype:
        return "dtype"
    return str(getattr(kind, "__name__", kind))


def _show(value: object) -> str:
    text = repr(list(value[:100])) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
