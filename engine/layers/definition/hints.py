"""Declared types of a layer's fields, and tests whether a value has one.

Numbers, words and dtypes; lists of those, as ``tuple[int, ...]``, ``list[int]`` or ``Sequence[int]``, of a fixed length
as ``tuple[int, int]``; ``Literal``; any of these or None; ``Any``.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.ir.dims import plain
from engine.ir.ratios import Ratio
from engine.limits import INT_RANGE
from engine.tensor import UNKNOWN, DType, parse_dtype

Accepted = tuple[bool, Any]
REFUSED: Final[Accepted] = (False, None)

_LISTS: Final = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)


def options(hint: Any) -> tuple[Any, ...]:
    """Return the types that a declaration allows, the narrowest first, which wins if several fit."""
    hint = _bare(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(sorted((_bare(option) for option in typing.get_args(hint)), key=_narrowness))
    return (hint,)


def is_readable(hint: Any) -> bool:
    """Return whether a parameter of a file can be of this type."""
    return all(_is_readable(option) for option in options(hint))


def is_list(hint: Any) -> bool:
    """Return whether it stands for several values."""
    return (typing.get_origin(hint) or hint) in (tuple, *_LISTS)


def words(hint: Any) -> tuple[str, ...]:
    """Return the texts that a declaration allows."""
    choices = [option for option in options(hint) if typing.get_origin(option) is typing.Literal]
    return tuple(each for option in choices for each in typing.get_args(option) if isinstance(each, str))


def accept(value: object, hint: Any) -> Accepted:
    """Return whether a Python value is of a type, and the value converted to it."""
    if hint in (Any, object):
        return True, value
    if typing.get_origin(hint) is typing.Literal:
        found = [each for each in typing.get_args(hint) if type(each) is type(value) and each == value]
        return (True, found[0]) if found else REFUSED
    if is_list(hint):
        return _accept_list(value, hint)
    if _is_dtype(hint):
        return _accept_dtype(value)
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    return (True, None) if hint is type(None) and value is None else REFUSED


def describe(hint: Any) -> str:
    """Return a declaration in words: ``int``, ``list of int or None``."""
    return " or ".join(_describe(option) for option in options(hint))


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _narrowness(hint: Any) -> int:
    order: list[Any] = [bool, int, float, complex]
    return order.index(hint) if hint in order else len(order) + (hint in (Any, object))


def _is_readable(hint: Any) -> bool:
    if is_list(hint):
        return all(item is Ellipsis or is_readable(item) for item in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal or _is_dtype(hint):
        return True
    return any(hint is known for known in (Any, object, type(None), *_SCALARS))


def _is_dtype(hint: Any) -> bool:
    return typing.get_origin(hint) is np.dtype or hint in (DType, np.dtype)


def _accept_list(value: object, hint: Any) -> Accepted:
    """Accept a list of one type of items; a single item counts as a list of it, None as an empty one."""
    items = () if value is None else value if isinstance(value, tuple) else (value,)
    inner = typing.get_args(hint)
    is_tuple = (typing.get_origin(hint) or hint) is tuple
    is_fixed = is_tuple and bool(inner) and inner[-1] is not Ellipsis
    if is_fixed and len(inner) != len(items):
        return REFUSED
    each = inner if is_fixed else (*inner[:1], Any)[:1] * len(items)
    results = [_accept_item(item, option) for item, option in zip(items, each, strict=True)]
    if not all(accepted for accepted, _ in results):
        return REFUSED
    found = [result for _, result in results]
    return True, found if (typing.get_origin(hint) or hint) is list else tuple(found)


def _accept_item(value: object, hint: Any) -> Accepted:
    allowed = options(hint)
    if value is UNKNOWN and type(None) in allowed:  # a dynamic dimension
        return True, None
    if type(value) in allowed:
        return True, value
    return next((result for option in allowed if (result := accept(value, option))[0]), REFUSED)


def _accept_dtype(value: object) -> Accepted:
    if isinstance(value, (str, int, np.dtype)) and not isinstance(value, bool):
        return True, parse_dtype(value)
    return REFUSED


def _accept_bool(value: object) -> Accepted:
    return (True, bool(value)) if isinstance(value, bool) or value in (0, 1) else REFUSED


def _accept_int(value: object) -> Accepted:
    if isinstance(value, (bool, int)):
        return True, plain(value)
    if isinstance(value, Ratio) and value.by == 1:
        return True, value.size
    is_whole = isinstance(value, float) and value.is_integer() and int(value) in INT_RANGE
    return (True, int(value)) if is_whole else REFUSED  # type: ignore[call-overload]


def _accept_float(value: object) -> Accepted:
    return (True, float(value)) if isinstance(value, (bool, int, float)) else REFUSED


def _accept_complex(value: object) -> Accepted:
    return (True, value) if isinstance(value, complex) else _accept_float(value)


def _accept_str(value: object) -> Accepted:
    return (True, value) if isinstance(value, str) else REFUSED


_SCALARS: Final[dict[Any, Callable[[object], Accepted]]] = {
    bool: _accept_bool,
    int: _accept_int,
    float: _accept_float,
    complex: _accept_complex,
    str: _accept_str,
}


def _describe(hint: Any) -> str:
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(each) for each in typing.get_args(hint))
    if is_list(hint):
        inner = [item for item in typing.get_args(hint) if item is not Ellipsis]
        if len(inner) > 1 or (inner and (typing.get_origin(hint) or hint) is tuple and Ellipsis not in hint.__args__):
            return f"list of {len(inner)}: {', '.join(map(describe, inner))}"
        return f"list of {describe(inner[0])}" if inner else "list"
    return "dtype" if _is_dtype(hint) else str(getattr(hint, "__name__", hint))
