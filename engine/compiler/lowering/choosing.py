"""Which of several kernels computes a result: the one that a model of cost puts first, unless somebody has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

from engine.compiler.blueprint import NotYetMadeError
from engine.compiler.kernels.kernel import Convolution, Kernel
from engine.compiler.kernels.ready import Ready
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.steps import KernelStep

K = TypeVar("K", bound=Kernel)

CANDIDATES: Final = 3
"""Kernels that are measured against each other."""


class Choose(Protocol):
    """Takes one of several kernels that compute the same."""

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """The step of a kernel.

        Args:
            operator: name of the one to be computed.
            candidates: the best first, as far as a model of cost can tell; none is made before it is asked for.
            step_of: what would run it.
        """
        ...


def take_first(operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
    """The one that costs least by its model."""
    return step_of(next(candidates))


Wanted = tuple[str, tuple[int, ...]]
"""What code is found by: its name, and the sizes it is to be right for."""


class Code(Protocol):
    """What code there is."""

    def is_made(self, step: KernelStep) -> bool:
        """Whether there is code for a step; what has no open sizes is made anew for every shape."""

    def wanted(self, step: KernelStep) -> Wanted:
        """What code for a step is found by."""

    def has(self, wanted: Wanted) -> bool:
        """Whether it is there."""

    def ready(self, step: KernelStep) -> Ready | None:
        """The kernel with its code; None where there is none, or something else must know which kernel it is."""


class TakingMade:
    """Takes the best kernel of which there is code already: what is a little slower is sooner than what is to be made.

    Args:
        is_best: whether only the best of all will do.

    Attributes:
        others: operators for which it took another than the best, and the code there would have to be.
    """

    def __init__(self, code: Code, *, is_best: bool = False) -> None:
        self._code, self._is_best = code, is_best
        self.others: dict[str, Wanted] = {}

    def __call__(self, operator: str, candidates: Iterator[K], step_of: Callable[[K], KernelStep]) -> KernelStep:
        """One of those that read the weights as the best does: others would have to be packed.

        Raises:
            NotYetMadeError: there is no code for any that will do.
        """
        best = next(candidates)
        alike = (each for each in candidates if isinstance(each, type(best)) and _packing(each) == _packing(best))
        if self._code.is_made(step := step_of(best)):
            return step
        if self._is_best:
            raise NotYetMadeError
        self.others[operator] = self._code.wanted(step)
        for step in map(step_of, alike):
            if self._code.is_made(step):
                return step
        raise NotYetMadeError


def _packing(kernel: Kernel) -> object:
    return kernel.packing if isinstance(kernel, Convolution) else None


class Avoiding:
    """Chooses as another does, among the kernels that come after those that could not be made."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._reasons: dict[str, list[str]] = {}

    def avoid(self, operator: str, reason: str) -> bool:
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
        return self._choose(operator, chain((first,), left), step_of)
