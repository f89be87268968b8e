"""Inputs of shapes that machine code ran for before: most runs are such, and there is little left to ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.compiler.runtime.instance import NotFiniteError
from engine.compiler.runtime.instances import Instances, key_of
from engine.graph.building.inference import UnforeseenResultError
from engine.graph.running.reference import as_outputs
from engine.tensor import Array, TensorSpec


class Again:
    """Runs inputs of some shapes, as long as there is code for them.

    Args:
        instances: the graph's.
    """

    __slots__ = ("_instances", "_key")

    def __init__(self, instances: Instances, specs: Sequence[TensorSpec]) -> None:
        self._instances = instances
        self._key: Final = key_of(specs)

    @property
    def is_held(self) -> bool:
        """Whether the code is there, and the memory it runs in."""
        return self._instances.holds(self._key)

    def run(self, inputs: Sequence[Array]) -> list[Array] | None:
        """The outputs, laid flat; None where they are to be found in another way, and nothing is known of them.

        Raises:
            RunCancelledError: nobody wants it any more.
            EngineError: an operator refuses its operands or fails; names the operator.
        """
        instance = self._instances.again(self._key)
        if instance is None:
            return None
        try:
            outputs = instance.run(inputs)
        except (NotFiniteError, UnforeseenResultError):
            return None
        is_flat = instance.gives_new_arrays and all(type(each) is np.ndarray for each in outputs)
        return outputs if is_flat else as_outputs(outputs)
