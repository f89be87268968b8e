"""What lowerings of one graph have in common, whatever the sizes: found once, and asked for by all that come later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.compiler.lowering.terms.term import Term
from engine.tensor import TensorSpec


@dataclass(slots=True)
class Remembered:
    """Of one graph of operators.

    Attributes:
        images: names of operands that lie channels-last, by the kinds of all.
        terms: expressions of operators, by the name of each and the kinds of its operands.
    """

    images: dict[object, Collection[str]] = field(default_factory=dict)
    terms: dict[object, Term | None] = field(default_factory=dict)


def kinds_of(values: Sequence[object]) -> object | None:
    """All that an expression depends on, of what is known of some operands; None where that may be more.

    A constant is the same in all lowerings. Of a tensor it matters how many dimensions it has, its dtype, and whether
    it is a single element; a number may have been computed from sizes.
    """
    kinds: list[object] = []
    for value in values:
        if isinstance(value, TensorSpec) and value.value is None:
            kinds.append((value.rank, value.dtype.char, value.size == 1))
        elif isinstance(value, np.ndarray):
            kinds.append(None)
        else:
            return None
    return tuple(kinds)
