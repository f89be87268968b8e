"""Selection among several kernels for a result: the cheapest by the cost model, unless kernels were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.steps import KernelStep, NotLoweredError

K = TypeVar("K", bound=Kernel)

CANDIDATES: Final = 3
"""Number of kernels that are measured against each other."""


class Selector(Protocol):
    """Function that selects one of several kernels for the same result."""

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """Return the step of a kernel.

        Args:
            operator: name of the operator.
            candidates: the cheapest first, by the cost model; made one by one on demand.
            step_of: returns the step of a kernel.
        """
        ...


def select_first(operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
    """Return the step that costs least by its model."""
    return step_of(next(candidates))


class ExcludingSelector:
    """Selector that skips kernels that failed to compile."""

    def __init__(self, select: Selector) -> None:
        self._select = select
        self._reasons: dict[str, list[str]] = {}

    def exclude(self, operator: str, reason: str) -> bool:
        """Skip the current kernel of an operator from now on; return whether a selection was made for it.

        Args:
            reason: why it failed.
        """
        if operator not in self._reasons:
            return False
        self._reasons[operator].append(reason)
        return True

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """Return the step of a kernel that is not excluded.

        Raises:
            NotLoweredError: none is left; the message says why the best one failed.
        """
        reasons = self._reasons.setdefault(operator, [])
        left = islice(candidates, len(reasons), None)
        first = next(left, None)
        if first is None:
            raise NotLoweredError(reasons[0] if reasons else "there is no kernel for it")
        return self._select(operator, chain((first,), left), step_of)
