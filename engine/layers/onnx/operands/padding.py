"""Padding around windows as ONNX gives it: all starts, then all ends, or so much that the output has a certain size."""

from __future__ import annotations

from typing import TypeAlias

from engine.errors import ParameterError
from engine.layers.convolution.window import same_pairs
from engine.layers.operands.spatial import spread

Pair: TypeAlias = tuple[int, int]
__all__ = ["Pair", "check_auto_pad", "pairs_of", "per_axis", "same_pairs"]

_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def check_auto_pad(auto_pad: str) -> None:
    """Raises:
    ParameterError: for a mode that does not exist.
    """
    if auto_pad not in _MODES:
        raise ParameterError("unknown auto_pad", found=auto_pad, expected=", ".join(_MODES))


def per_axis(values: tuple[int, ...], rank: int, name: str) -> tuple[int, ...]:
    """One number an axis, 1 where nothing is said."""
    return spread(values or (1,), rank, name)


def pairs_of(pads: tuple[int, ...], rank: int) -> list[Pair]:
    """(before, after) an axis.

    Raises:
        ParameterError: for another number of them than two an axis, or a negative one.
    """
    full = pads or (0,) * (2 * rank)
    if len(full) != 2 * rank or min(full) < 0:
        raise ParameterError("pads do not fit", found=list(pads), expected=f"{2 * rank} numbers, at least 0")
    return list(zip(full[:rank], full[rank:], strict=True))
