"""Conversion of parameters of a file or a run to the declared types of a layer's fields.

The file's numbers are loosely typed (``alpha=1`` for a float, ``stride=2`` for a pair), and a parameter may
also arrive as an operand at run time, as a 0-dim array or a list.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from engine.errors import ParameterError
from engine.ir.dims import Dim
from engine.layers.definition import hints
from engine.limits import INT_RANGE, MAX_ITEMS

type_hints = typing.get_type_hints
_ROUNDED: Final = re.compile(r"int\((-?[0-9]{1,15}(?:\.[0-9]{1,15})?)\)")
_field_hints: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()


def field_hints(declared: type) -> dict[str, Any]:
    """Return the declared type of every field of a dataclass, in order.

    Each class of the hierarchy is read once, and class variables are skipped: all operators declare their fields when
        the
    package is imported, and evaluating annotations would dominate that time.

    Raises:
        NameError, and all other errors of evaluating an annotation.
    """
    hints_of: dict[str, Any] = {}
    for base in reversed(declared.__mro__):
        if dataclasses.is_dataclass(base):
            hints_of |= _own_hints(base)
    return {each.name: hints_of[each.name] for each in dataclasses.fields(declared)}


def _own_hints(declared: type) -> dict[str, Any]:
    """Return the types of the fields that the class itself annotates."""
    known = _field_hints.get(declared)
    if known is None:
        names = {each.name for each in dataclasses.fields(declared)}
        own = {name: hint for name, hint in inspect.get_annotations(declared).items() if name in names}
        scope = vars(sys.modules[declared.__module__]) if declared.__module__ in sys.modules else {}
        holder = types.SimpleNamespace(__annotations__=own)
        known = _field_hints[declared] = typing.get_type_hints(holder, scope, dict(vars(declared)))
    return known


def coerce(value: object, hint: Any) -> Any:
    """Return ``value`` converted to the type of a field.

    Raises:
        ParameterError: it cannot be converted; names both.
    """
    plain = _plain(value)
    if _is_single(value) and not any(hints.is_list(option) for option in hints.options(hint)):
        plain = value.item()  # type: ignore[attr-defined]  # an array
    check_number(plain)
    if hint is Any:
        return plain
    options = hints.options(hint)
    if plain is None and type(None) in options:
        return None
    if type(plain) in options:  # an int stays an int even if a float is allowed
        return plain
    for option in options:
        accepted, result = hints.accept(plain, option)
        if accepted:
            return result
    raise ParameterError("wrong kind of value", found=_show(plain), expected=hints.describe(hint))


def coerce_named(name: str, value: object, hint: Any) -> Any:
    """Return ``coerce(value, hint)``; errors name the parameter."""
    words = hints.words(hint)
    if words and isinstance(value, str) and value not in words:
        expected = (" or " if len(words) == 2 else ", ").join(words)
        raise ParameterError(f"unknown {name}", found=value, expected=expected)
    try:
        return coerce(value, hint)
    except ParameterError as error:
        raise error.at(f"parameter '{name}'") from None


def check_number(value: object) -> None:
    """Refuse an integer beyond 64 bits, or a list far longer than any real one.

    Raises:
        ParameterError: naming the number, or the length.
    """
    if isinstance(value, int):
        if not isinstance(value, Dim) and value not in INT_RANGE:
            raise ParameterError("an integer is out of range", found=value, expected="64 bits")
    elif isinstance(value, (tuple, list)):
        if len(value) > MAX_ITEMS:
            raise ParameterError("a list is too long", found=f"{len(value):,} items", expected=f"at most {MAX_ITEMS:,}")
        for item in value:
            check_number(item)


def check_rate(p: object) -> None:
    """Refuse an invalid dropout rate, even where nothing is dropped.

    Raises:
        ParameterError: naming the rate.
    """
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ParameterError("the dropout rate is out of range", found=_show(p), expected="0 to 1")


def holds_list(hint: Any) -> bool:
    """Return whether a parameter of this type may be a list."""
    return any(hints.is_list(option) for option in hints.options(hint))


def is_tensor_hint(hint: Any) -> bool:
    """Return whether a value of this type can only be a tensor, or a list of tensors."""
    options = [option for option in hints.options(hint) if option is not type(None)]
    return bool(options) and all(_is_tensor(option) for option in options)


def is_single_hint(hint: Any) -> bool:
    """Return whether a value of this type is one number or one tensor, not a list or text."""
    options = [option for option in hints.options(hint) if option is not type(None)]
    return bool(options) and all(option in (bool, int, float, complex) or _is_array(option) for option in options)


def _is_array(hint: Any) -> bool:
    hint = typing.get_origin(hint) or hint
    hint = getattr(hint, "__value__", hint)  # NDArray is a `type` alias since numpy 2.5
    hint = typing.get_origin(hint) or hint
    return isinstance(hint, type) and issubclass(hint, np.ndarray)


def _is_tensor(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (list, tuple, Sequence):
        return all(item is Ellipsis or is_tensor_hint(item) for item in typing.get_args(hint))
    return _is_array(hint)


def _plain(value: object) -> object:
    """Return run-time values as Python ones: 0-dim arrays and numpy scalars as numbers, vectors and lists as tuples.

    A tensor of one element in a list is a number, whatever its dimensions, as in PyTorch; so is the text ``int(8)``,
    which the converter writes into lists of sizes that a model has rounded.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 else tuple(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(item.item() if _is_single(item) else _plain(item) for item in value)
    if isinstance(value, str) and (rounded := _ROUNDED.fullmatch(value)):
        return int(float(rounded[1]))
    return value


def _is_single(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1


def _show(value: object) -> str:
    text = repr(list(value[:100])) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
