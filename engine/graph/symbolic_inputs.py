"""Symbolic inputs: dynamic dimensions as symbolic sizes, so that one inference holds for all their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.graph.port import Port
from engine.ir.dims import ShapeEnv, is_symbolic
from engine.ir.guards import NO_GUARDS, Guards
from engine.tensor import Dim, Shaped, TensorSpec, dtype_name, named_dtype


def symbolic_specs(
    ports: Sequence[Port], specs: Sequence[TensorSpec], guards: Guards = NO_GUARDS
) -> tuple[ShapeEnv, list[TensorSpec]]:
    """Return the specs of inputs with their dynamic dimensions symbolic; sizes of 0 and 1 stay numbers.

    Dimensions that the file gives one name are one size. Of those without a name, the same axis of several inputs is
    one size where they have the same number now.

    Args:
        specs: of the inputs at hand, in the order of the ports.
        guards: those that an earlier inference has recorded. What follows from them is known from the beginning: of
            ``min(512, n)`` and ``n <= 512`` only ``n`` is left.
    """
    env = ShapeEnv()
    hints: dict[str, int] = {}
    dynamic = []
    for port, spec in zip(ports, specs, strict=True):
        shape: list[Dim] = []
        for axis, (declared, size) in enumerate(zip(_declared(port, spec), spec.sizes, strict=True)):
            if declared is not None:
                shape.append(size)
                continue
            named = port.size_names[axis] if axis < len(port.size_names) else None
            name = named or next((each for each in hints if each.endswith(f".{axis}") and hints[each] == size), None)
            if name is None or hints.get(name, size) != size:
                name = f"{port.name}.{axis}"
            hints[name] = size
            shape.append(env.dynamic(name, size))
        dynamic.append(TensorSpec(tuple(shape), spec.dtype, spec.value))
    env.assume(guards)
    return env, dynamic


class SizesOf:
    """Function from input shapes to the values of the dynamic sizes.

    Args:
        env, dynamic: as ``symbolic_specs`` returns them.
    """

    def __init__(self, env: ShapeEnv, dynamic: Sequence[TensorSpec]) -> None:
        self._dtypes = [spec.dtype for spec in dynamic]
        numbers = {name: number for number, name in enumerate(env.names)}
        # For every dimension the number of its dynamic size, or -1 - its known size.
        self._shapes = [
            [numbers[repr(dim)] if is_symbolic(dim) else -1 - dim for dim in spec.sizes] for spec in dynamic
        ]
        self._count = len(numbers)

    @classmethod
    def like(cls, described: Sequence[Any], count: int) -> SizesOf:
        """Rebuild from what ``described`` returns, with ``count`` dynamic sizes.

        Raises:
            TypeError, ValueError, ParameterError: the data is invalid.
        """
        found = object.__new__(cls)
        found._shapes = [list(map(int, shape)) for shape, _ in described]
        found._dtypes = [named_dtype(name) for _, name in described]
        found._count = count
        if any(number >= count for shape in found._shapes for number in shape):
            raise ValueError("no such dynamic size")
        return found

    def described(self) -> list[tuple[list[int], str]]:
        """Return it as plain data."""
        return [(shape, dtype_name(dtype)) for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]

    def __call__(self, inputs: Shaped) -> list[int] | None:
        """Return the values in the order of the environment; None where the inputs do not fit."""
        found = [-1] * self._count
        for shape, dtype, given in zip(self._shapes, self._dtypes, inputs, strict=True):
            if len(shape) != len(given.shape) or dtype != given.dtype:
                return None
            for number, size in zip(shape, given.shape, strict=True):
                if number < 0:
                    if size != -1 - number:
                        return None
                elif found[number] < 0:
                    found[number] = size
                elif found[number] != size:
                    return None
        return found


def _declared(port: Port, spec: TensorSpec) -> Sequence[Dim]:
    return (None,) * spec.rank if port.spec is None else port.spec.shape
