"""Code of a recurrence that computes its own input projection, block by block of steps.

Layers that follow each other then run in parallel: a block is projected as soon as the layer below has finished it. All
steps of a block share the weights of the projection.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Index, Module, Value, as_value, vector
from engine.compiler.kernels.recurrent.blocking import Hoisting
from engine.compiler.kernels.recurrent.progress import publish, wait_for
from engine.compiler.kernels.recurrent.writer import Writer

_UNROLLED = (4, 2, 1)


def emit_projection(module: Module, name: str, hoisted: Hoisting, lanes: int, pitch: int) -> str:
    """Write the function that projects the input of a block to some vectors of gates; return its name.

    Arguments: input of the first step, distance of the inputs of two steps, bias, weights, result.

    Args:
        pitch: distance of the results of two steps, in floats.
    """
    names = [("ptr", "input"), ("i64", "stride"), ("ptr", "bias"), ("ptr", "weights"), ("ptr", "result")]
    f = module.inner(name, names)
    input, stride, bias, weights, result = f.parameters
    places, type_ = [k * lanes for k in range(hoisted.vectors)], vector(lanes)
    rows = [f.at(input, f.mul(stride, step)) for step in range(hoisted.steps)]
    begun = [f.load(type_, f.at(bias, place)) for place in places]
    unroll = next(each for each in _UNROLLED if hoisted.width % each == 0)
    with f.loop(0, hoisted.width, unroll, carry=begun * hoisted.steps) as loop:
        sums = loop.carried
        for k in range(unroll):
            line = f.at(f.at(weights, f.mul(loop.index, len(places) * lanes)), k * len(places) * lanes)
            vectors = [f.load(type_, f.at(line, place)) for place in places]
            values = [f.splat(f.load("float", f.at(f.at(row, loop.index), k)), lanes) for row in rows]
            products = [(value, each) for value in values for each in vectors]
            sums = [f.fma(*pair, total) for pair, total in zip(products, sums, strict=True)]
        loop.carry(sums)
    targets = [f.at(result, step * pitch + place) for step in range(hoisted.steps) for place in places]
    for total, target in zip(loop.results, targets, strict=True):
        f.store(total, target)
    f.finish()
    return name


@dataclass(frozen=True, slots=True)
class HoistedWriter:
    """Writer of the blocks of steps.

    Args:
        function: name of the function that projects the input of a block to some vectors of gates.
    """

    writer: Writer
    hoisted: Hoisting
    function: str

    def steps(self) -> None:
        """Write the loop over blocks; the last block is shifted back to be complete, and repeats no step."""
        writer, size = self.writer, self.hoisted.steps
        f, kernel = writer.f, writer.kernel
        assert writer.gates is not None
        with f.loop(0, -(-kernel.steps // size)) as block:
            first = f.mul(block.index, size)
            origin, end = f.minimum(first, kernel.steps - size), f.minimum(f.add(first, size), kernel.steps)
            if writer.below is not None:
                wait_for(f, writer.below, f.add(origin, size))
            self._project(origin, writer.gates)
            with f.loop(first, end) as step:
                row = f.sub(step.index, origin)
                writer.step(step.index, f.at(writer.gates, f.mul(row, kernel.gate_floats)))
            if writer.own is not None:
                publish(f, writer.own, end)

    def _project(self, origin: Index, gates: Value) -> None:
        """Write the projection of all gates of a block."""
        f, kernel = self.writer.f, self.writer.kernel
        stride = self.writer.of_direction([as_value(each) for each in kernel.source.steps])
        source = f.at(self.writer.source, f.mul(origin, stride))
        bias = f.at(self.writer.weights, len(kernel.panels) * kernel.panel_floats)
        with f.loop(0, kernel.gate_floats, self.hoisted.vectors * kernel.host.lanes) as gate:
            weights = f.at(f.at(bias, kernel.gate_floats), f.mul(gate.index, self.hoisted.width))
            places = f.at(bias, gate.index), weights, f.at(gates, gate.index)
            f.call(self.function, [source, stride, *places])
