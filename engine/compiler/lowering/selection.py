"""Which of several kernels computes a result: the one that a model of cost puts first, unless somebody has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.steps import KernelStep, NotLoweredError

K = TypeVar("K", bound=Kernel)

CANDIDATES: Final = 3
"""Kernels that are measured against each other."""


class Selector(Protocol):
    """Takes one of several kernels that compute the same."""

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """The step of a kernel.

        Args:
            operator: name of the one to be computed.
            candidates: the best first, as far as a model of cost can tell; none is made before it is asked for.
            step_of: what would run it.
        """
        ...


def select_first(operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
    """The one that costs least by its model."""
    return step_of(next(candidates))


class ExcludingSelector:
    """Chooses as another does, among the kernels that come after those that could not be made."""

    def __init__(self, select: Selector) -> None:
        self._select = select
        self._reasons: dict[str, list[str]] = {}

    def exclude(self, operator: str, reason: str) -> bool:
        """Take the next best kernel for an operator from now on; whether there was ever a choice for it.

        Args:
            reason: why the one before cannot be made.
        """
        if operator not in self._reasons:
            return False
        self._reasons[operator].append(reason)
        return True

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """The step of a kernel that may be possible to make.

        Raises:
            NotLoweredError: none is left; it says why the best one was not possible.
        """
        reasons = self._reasons.setdefault(operator, [])
        left = islice(candidates, len(reasons), None)
        first = next(left, None)
        if first is None:
            raise NotLoweredError(reasons[0] if reasons else "there is no kernel for it")
        return self._select(operator, chain((first,), left), step_of)
