"""How well a model determines its answers in single precision, by what PyTorch gives in double."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import torch

import engine
from exporter.errors import SourceError
from exporter.tensors import answer, flatten

# How many times as far as from its own answers in double precision another's may lie from PyTorch's in single.
_MOST: Final = 4.0


def wavers(model: Any, tensors: Sequence[Any], comparison: engine.Comparison) -> str | None:
    """What to say where answers differ no more than PyTorch's own rounding explains; None where that does not.

    Sums that cancel, and choices between what is nearly alike (the best of many boxes), come out otherwise in any other
    order of summation.

    Args:
        model: what was exported.
        tensors: its inputs.
        comparison: of its answers with the pair's.
    """
    named = {row.output: row for row in comparison.rows if row.output is not None}
    rows = [named[f"out{index}"] for index in range(len(named)) if f"out{index}" in named]
    own = _own_errors(model, tensors)
    if own is None or len(own) != len(rows):
        return None
    differing = [(row.difference, mine) for row, mine in zip(rows, own, strict=True) if row.difference.diverges]
    if any(found.problem is not None or not found.relative <= _MOST * mine for found, mine in differing):
        return None
    found, mine = max(((found.relative, mine) for found, mine in differing), default=(0.0, 0.0))
    return (
        f"the answers differ by {100 * found:.2g} % of the largest value, as PyTorch's own do in double precision "
        f"({100 * mine:.2g} %): single precision does not determine them better"
    )


def _own_errors(model: Any, tensors: Sequence[Any]) -> list[float] | None:
    """How far PyTorch's answers lie from those in double precision, as shares of the largest; None if it has none."""
    try:
        single = [*flatten(answer(model, tensors))]
        double = [*flatten(answer(copy.deepcopy(model).double(), [_doubled(each) for each in tensors]))]
    except (SourceError, RuntimeError, TypeError, ValueError, AttributeError):
        return None  # it cannot be copied, or mixes precisions itself
    if len(single) != len(double) or any(a.shape != b.shape for a, b in zip(single, double, strict=True)):
        return None
    return [_distance(a, b) for a, b in zip(single, double, strict=True)]


def _doubled(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _distance(a: Any, b: Any) -> float:
    a, b = (each.to(torch.float64 if not each.is_complex() else torch.complex128) for each in (a, b))
    largest = float(a.abs().max()) if a.numel() else 0.0
    return float((a - b).abs().max()) / largest if largest else 0.0
