"""Padding of windows in ONNX: all starts, then all ends, or ``auto_pad``."""

from __future__ import annotations

from typing import TypeAlias

from engine.errors import ParameterError
from engine.layers.convolution.window import same_pairs
from engine.layers.operands.spatial import spread

Pair: TypeAlias = tuple[int, int]
__all__ = ["Pair", "check_auto_pad", "pairs_of", "per_axis", "same_pairs"]

_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def check_auto_pad(auto_pad: str) -> None:
    """Refuse an unknown mode.

    Raises:
        ParameterError: the mode does not exist.
    """
    if auto_pad not in _MODES:
        raise ParameterError("unknown auto_pad", found=auto_pad, expected=", ".join(_MODES))


def per_axis(values: tuple[int, ...], rank: int, name: str) -> tuple[int, ...]:
    """Return one number per axis, 1 by default."""
    return spread(values or (1,), rank, name)


def pairs_of(pads: tuple[int, ...], rank: int) -> list[Pair]:
    """Return (before, after) for each axis.

    Raises:
        ParameterError: there are not two per axis, or one is negative.
    """
    full = pads or (0,) * (2 * rank)
    if len(full) != 2 * rank or min(full) < 0:
        raise ParameterError("pads do not fit", found=list(pads), expected=f"{2 * rank} numbers, at least 0")
    return list(zip(full[:rank], full[rank:], strict=True))
