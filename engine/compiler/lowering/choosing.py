"""Which of several kernels computes a result: the one that a model of cost puts first, unless somebody has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from engine.compiler.kernels.kernel import Kernel
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
