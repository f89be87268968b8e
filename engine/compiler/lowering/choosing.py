"""Which of several kernels computes a result: the one that a model of cost puts first, unless somebody has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.steps import KernelStep

K = TypeVar("K", bound=Kernel)

CANDIDATES: Final = 3
"""Kernels that are measured against each other."""


class Choose(Protocol):
    """Takes one of several kernels that compute the same."""

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> K:
        """A kernel.

        Args:
            operator: name of the one to be computed.
            candidates: the best first, as far as a model of cost can tell; none is made before it is asked for.
            step_of: what would run it.
        """
        ...


def take_first(operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> K:
    """The one that costs least by its model."""
    return next(candidates)


class Avoiding:
    """Chooses as another does, among the kernels that come after those that could not be made."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._skipped: dict[str, int] = {}

    def avoid(self, operator: str) -> bool:
        """Take the next best kernel for an operator from now on; whether there was ever a choice for it."""
        if operator not in self._skipped:
            return False
        self._skipped[operator] += 1
        return True

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> K:
        """A kernel that may be possible to make.

        Raises:
            NotLoweredError: none is left.
        """
        left = islice(candidates, self._skipped.setdefault(operator, 0), None)
        first = next(left, None)
        if first is None:
            raise NotLoweredError("none of its kernels can be made")
        return self._choose(operator, chain((first,), left), step_of)
