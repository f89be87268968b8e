"""Arithmetic on symbolic sizes, for the functions that expressions of sizes use."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from engine.ir import ratios
from engine.ir.dims import largest, plain, smallest
from engine.ir.ratios import FLOAT32_BITS, FLOAT64_BITS, InexactError, is_real, ratio
from engine.ir.sizes import size_array


def _cut_quotient(a: Any, b: Any) -> Any:
    """Return a quotient rounded towards zero."""
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


_OF_WHOLE: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "floor_divide": operator.floordiv,
        "trunc_divide": _cut_quotient,
        "remainder": operator.mod,
        "neg": operator.neg,
        "abs": abs,
        "square": lambda size: size * size,
        **dict.fromkeys(("ceil", "floor", "round", "trunc"), plain),
        **dict.fromkeys(("max", "maximum"), largest),
        **dict.fromkeys(("min", "minimum"), smallest),
    }
)
_OF_REAL: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "add": ratios.add,
        "sub": ratios.subtract,
        "mul": ratios.multiply,
        "div": ratios.divide,
        "neg": ratios.negative,
        "floor_divide": lambda a, b, bits: ratio(ratios.floor(ratios.divide(a, b, bits)), 1, bits),
        "floor": lambda a, bits: ratio(ratios.floor(a), 1, bits),
        "ceil": lambda a, bits: ratio(ratios.ceil(a), 1, bits),
        "trunc": lambda a, bits: ratio(ratios.truncate(a), 1, bits),
    }
)


def compute_sizes(name: str, args: Sequence[Any]) -> Any:
    """Return the result of a function of arrays and numbers, some of them symbolic: an array if one of them is one.

    Raises:
        InexactError: it cannot be computed with symbolic sizes, only with their values.
    """
    if not any(isinstance(arg, np.ndarray) for arg in args):
        return _computed(name, args, FLOAT64_BITS)
    arrays = [_objects(arg) for arg in args]
    compute = np.frompyfunc(lambda *items: _computed(name, items, FLOAT32_BITS), len(arrays), 1)
    return size_array(compute(*arrays))


def _computed(name: str, args: Sequence[Any], bits: int) -> Any:
    if name == "div" or any(map(is_real, args)):
        if name not in _OF_REAL:
            raise InexactError(name)
        return partial(_OF_REAL[name], bits=bits)(*args)
    if name not in _OF_WHOLE or any(isinstance(arg, bool) for arg in args):
        raise InexactError(name)
    return _OF_WHOLE[name](*args)


def _objects(arg: Any) -> Any:
    if isinstance(arg, np.ndarray):
        if arg.dtype.kind not in "iO" and arg.dtype != np.float32:
            raise InexactError(arg.dtype)
        return arg.astype(np.object_)
    if not isinstance(arg, (int, float)):
        raise InexactError(arg)
    return np.array(arg, np.object_)
