"""What all operators behind a waist announce, where they were asked before for a tensor of the same shape."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from engine.graph.operator import RuntimeOperator
from engine.graph.waists import Behind, Narrowing, waists_of
from engine.limits import check_results
from engine.tensor import TensorSpec

# Different ones that are known, of a graph.
MOST_SPECS: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Rest:
    """What operators from one on announce, up to the next that something is kept of, or the end.

    Args:
        specs: of all results; those that are equal are one, also among all that is kept: the collector of garbage
            looks at every one.
        largest: the place of the one that takes most memory.
        last: number of the operator after them.
        after: what follows.
    """

    specs: tuple[TensorSpec, ...]
    largest: int
    last: int
    after: _Rest | None


class Rests:
    """What is kept of a graph.

    Args:
        operators: in execution order.
    """

    def __init__(self, operators: Sequence[RuntimeOperator]) -> None:
        # Before a user's own layer, which may announce anything, nothing is known of all.
        foreign = max((number for number, op in enumerate(operators) if op.layer and op.layer.is_foreign), default=-1)
        waists = {number: operand for number, operand in waists_of(operators).items() if number > foreign}
        self.behind: Behind[_Rest] = Behind(waists)
        self._names = [each.name for op in operators for each in op.outputs]
        self._begins = [0, *accumulate(len(op.outputs) for op in operators)]
        self._specs: dict[object, TensorSpec] = {}

    def looked_for(self) -> Ahead:
        """What asks, in one walk through the operators."""
        return Ahead(self)

    def put(self, rest: _Rest | None, first: int, values: MutableMapping[str, object]) -> None:
        """Announce what is kept.

        Raises:
            ShapeError: there is no room for it.
        """
        while rest is not None:
            check_results(rest.specs[rest.largest])
            begin, end = self._begins[first], self._begins[rest.last]
            values.update(zip(self._names[begin:end], rest.specs, strict=True))
            first, rest = rest.last, rest.after

    def made(self, first: int, last: int, values: Mapping[str, object], after: _Rest | None) -> _Rest | None:
        """What some operators announced, and what follows; None where values decide."""
        found = [values[name] for name in self._names[self._begins[first] : self._begins[last]]]
        specs = [each for each in found if isinstance(each, TensorSpec) and each.value is None and each.is_static]
        if len(specs) < len(found) or not specs:
            return None
        sizes = [(each.size or 0) * each.dtype.itemsize for each in specs]
        if len(self._specs) > MOST_SPECS:
            self._specs.clear()
        shared = tuple(self._specs.setdefault((each.shape, each.dtype), each) for each in specs)
        return _Rest(shared, sizes.index(max(sizes)), last, after)

    @property
    def count(self) -> int:
        """Of all operators."""
        return len(self._begins) - 1


class Ahead:
    """Looks ahead in one walk through the operators.

    Args:
        rests: of the graph.
    """

    def __init__(self, rests: Rests) -> None:
        self._rests, self._narrowing = rests, Narrowing()
        self._met: list[tuple[int, object]] = []
        self._last = rests.count
        self._after: _Rest | None = None

    def knows(self, number: int, values: MutableMapping[str, object]) -> bool:
        """Whether it is known what an operator and all after it announce; then it is among the values.

        Raises:
            ShapeError: there is no room for it.
        """
        behind = self._rests.behind
        operand = behind.waist(number)
        spec = None if operand is None else values[operand.name]
        if not isinstance(spec, TensorSpec) or spec.value is not None or not spec.is_static:
            return False
        if not self._narrowing.is_worth(spec.shape):
            return False
        key = spec.shape, spec.dtype
        found = behind.find(number, key)
        if found is not None:
            self._rests.put(found, number, values)
            self._last, self._after = number, found
        elif behind.comes_again(number, key):
            self._met.append((number, key))
        return found is not None

    @property
    def keeps(self) -> bool:
        """Whether what is announced now is kept with all that follows."""
        return bool(self._met)

    def keep(self, values: Mapping[str, object]) -> None:
        """All is announced: what came again is kept."""
        for number, key in reversed(self._met):
            rest = self._rests.made(number, self._last, values, self._after)
            if rest is None:
                self._rests.behind.give_up(number)
                return
            self._rests.behind.keep(number, key, rest)
            self._last, self._after = number, rest
