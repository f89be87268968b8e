"""Layers of a recurrent network in a pipeline: each runs in parallel, some steps behind the one below.

A chunk computes the lowest layer that has not begun yet, whichever chunk number a thread took. So no thread ever waits
for a layer that no thread computes, whatever the number of threads; a single thread computes the layers in order.

Arguments: zeroed words: a ticket counter, then the count of steps of every layer but the last, a cache line each; then
the arguments of each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from engine.compiler.codegen.ir import Module, Sizes, Value, as_value
from engine.compiler.kernels.kernel import Kernel, start
from engine.compiler.kernels.recurrent.progress import next_ticket
from engine.compiler.kernels.recurrent.recurrence import Recurrence

_POINTER_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class RecurrentStack(Kernel):
    """Several recurrent layers.

    Args:
        layers: the lowest first, each of one chunk.
    """

    kind = "recurrent"
    layers: tuple[Recurrence, ...]

    def dynamic(self, sizes: Sizes) -> Self:
        return self.with_dynamic(sizes, "layers")

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        return [least for each in self.layers for least in each.min_sizes]

    @property
    def chunks(self) -> int:
        return len(self.layers)

    @property
    def flops(self) -> int:
        return sum(each.flops for each in self.layers)

    def emit(self, module: Module) -> None:
        for layer in {each.name: each for each in self.layers}.values():
            layer.emit(module)
        f, (words,), _chunk = start(module, self, 1)
        number, first = next_ticket(f, words), 1
        for k, layer in enumerate(self.layers):
            with f.when(f.compare("eq", number, Value(str(k), "i64"))):
                f.call(layer.name, [f.at(f.parameters[0], first, _POINTER_BYTES), as_value(0)])
            first += layer.addresses
        f.finish()
