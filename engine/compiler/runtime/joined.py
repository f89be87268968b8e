"""The outputs of a whole batch, into which the kernels of each of its parts write theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.runtime.instance import Instance
from engine.graph.batch.batch_axes import Axes
from engine.graph.batch.batching import joined
from engine.tensor import Array


class Joined:
    """Arrays for the outputs of all parts; none for those that kernels do not make, or whose parts lie apart.

    Args:
        instance: what runs the parts, or is like those that do.
        count: of parts.
        axes: along which each output holds the batch; None where it is the same for every part.
    """

    def __init__(self, instance: Instance, count: int, axes: Axes) -> None:
        self._axes, self._count = axes, count
        made = zip(instance.made, axes, strict=True) if instance.makes_all_outputs else ()
        self._arrays = {
            port: np.empty((count * shape[0], *shape[1:]), dtype) for (port, shape, dtype), axis in made if axis == 0
        }

    def part(self, number: int) -> Mapping[int, Array]:
        """Where a part's outputs are to be written, by number of the output."""
        found = {}
        for output, array in self._arrays.items():
            size = array.shape[0] // self._count
            found[output] = array[number * size : (number + 1) * size]
        return found

    def join(self, answers: Sequence[Sequence[Array]]) -> list[Array]:
        """The outputs of the batch, given those of every part.

        Raises:
            InputError: they do not fit together.
        """
        each = enumerate(zip(zip(*answers, strict=True), self._axes, strict=True))
        return [
            self._arrays[number] if number in self._arrays else joined(parts, axis) for number, (parts, axis) in each
        ]
