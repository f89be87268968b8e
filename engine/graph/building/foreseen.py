"""What operators announce, for operands they have been asked about before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engine.graph.building.rests import Rests
from engine.graph.operator import RuntimeOperator
from engine.recurring import Recurring
from engine.tensor import TensorSpec

# Of a graph: some 5 MB.
MOST_KEPT: Final = 12_000
MOST_MET: Final = 50_000


class Foreseen:
    """Specs of results by specs of operands; where values decide, or a user's own layer, nothing is kept.

    It holds shapes and dtypes one after the other: the collector of garbage looks at each tuple once.

    Args:
        operators: of the graph, in execution order.

    Attributes:
        rests: what all of them announce from one on.
    """

    def __init__(self, operators: Sequence[RuntimeOperator]) -> None:
        self.rests = Rests(operators)
        self._specs: Recurring[object, tuple[Any, ...]] = Recurring(MOST_KEPT, MOST_MET)

    def find(self, op: RuntimeOperator, inputs: Sequence[object]) -> list[object] | None:
        """What the operator's results are known to be."""
        key = _key(op, inputs)
        found = None if key is None else self._specs.find(key)
        return None if found is None else [TensorSpec(*found[k : k + 2]) for k in range(0, len(found), 2)]

    def keep(self, op: RuntimeOperator, inputs: Sequence[object], results: Sequence[object]) -> None:
        """These are its results."""
        key = _key(op, inputs)
        if key is None or not self._specs.comes_again(key):
            return
        specs = [each for each in results if isinstance(each, TensorSpec) and each.value is None]
        if len(specs) == len(results):
            self._specs.keep(key, tuple(part for each in specs for part in (each.shape, each.dtype)))


def _key(op: RuntimeOperator, inputs: Sequence[object]) -> object | None:
    if op.layer is None or op.layer.is_foreign:
        return None
    key: list[object] = [op.name]
    for each in inputs:
        if not isinstance(each, TensorSpec) or each.value is not None:
            return None
        key += each.shape, each.dtype
    return tuple(key)
