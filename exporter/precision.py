"""How well a model determines its answers in single precision, by what PyTorch gives in double."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from exporter.errors import SourceError
from exporter.tensors import answer, flatten, to_array

# How many times as far as from its own answers in double precision another's may lie from PyTorch's in single.
_MOST: Final = 4.0


def wavers(
    model: Any, tensors: Sequence[Any], recorded: Mapping[str, NDArray[Any]], comparison: engine.Comparison
) -> str | None:
    """What to say where answers differ no more than PyTorch's own rounding explains; None where that does not.

    Sums that cancel, and choices between what is nearly alike (the best of many boxes), come out otherwise in any other
    order of summation.

    Args:
        model: what was exported.
        tensors: its inputs.
        recorded: PyTorch's answers to them among other values, see record().
        comparison: of those with the pair's.
    """
    own = _own_errors(model, tensors, recorded)
    rows = [row for row in comparison.rows if row.difference.diverges]
    outputs = [(row.difference, row.place) for row in rows if row.place is not None]
    if own is None or any(difference.problem is not None for difference, _ in outputs):
        return None
    differing = [(difference.relative, own[place]) for difference, place in outputs]
    if not all(found <= _MOST * mine for found, mine in differing):
        return None
    found, mine = max(differing, default=(0.0, 0.0))
    return (
        f"the answers differ by {100 * found:.2g} % of the largest value, as PyTorch's own do in double precision "
        f"({100 * mine:.2g} %): single precision does not determine them better"
    )


def _own_errors(model: Any, tensors: Sequence[Any], recorded: Mapping[str, NDArray[Any]]) -> list[float] | None:
    """How far PyTorch's answers lie from those in double precision, as shares of the largest; None if it has none."""
    try:
        result = answer(copy.deepcopy(model).double(), [_doubled(each) for each in tensors])
        double = [to_array(each) for each in flatten(result)]
    except (SourceError, RuntimeError, TypeError, ValueError, AttributeError):
        return None  # it cannot be copied, or mixes precisions itself
    pairs = [(recorded[f"out_{index}"], each) for index, each in enumerate(double)]
    if any(single.shape != each.shape for single, each in pairs):
        return None
    return [_distance(*pair) for pair in pairs]


def _doubled(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _distance(single: NDArray[Any], double: NDArray[Any]) -> float:
    largest = float(np.abs(single).max(initial=0))
    difference = np.abs(single.astype(np.result_type(single, np.float64)) - double)
    return float(difference.max(initial=0)) / largest if largest else 0.0
