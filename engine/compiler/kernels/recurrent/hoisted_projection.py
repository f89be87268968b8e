"""Input projection computed a few steps ahead of the recurrence, between its products.

For a batch of one row a recurrence is bound by loading its weights: each is used for one product. Independent products
fit in between: the input projection of later steps, whose weights serve several steps at once. The results are stored
in a ring of two blocks of steps; the recurrence reads one block while the other is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, vector


@dataclass(frozen=True, slots=True)
class Hoisting:
    """Blocking of the input projection. A job adds part of the input to some vectors of gates for all steps of a block.

    Args:
        width: of the input.
        steps: of a block.
        vectors: of gates in a job.
        depth: input values in a job; ``width`` is a multiple of it.
    """

    width: int
    steps: int
    vectors: int
    depth: int

    @property
    def parts(self) -> int:
        """Number of jobs whose results are summed."""
        return self.width // self.depth

    @property
    def pitch(self) -> int:
        """Floats of a step in the packed copy of the input."""
        return -(-self.width // LINE) * LINE


# The distance of steps is a multiple of this many floats.
LINE = 16


@dataclass(frozen=True, slots=True)
class Job:
    """Code of a job, written into a function.

    Args:
        lanes: of a vector.
        pitch: distance of steps of the result, in floats.
        input, weights, result: addresses.
    """

    f: Function
    hoisted: Hoisting
    lanes: int
    pitch: int
    input: Value
    weights: Value
    result: Value

    def begin(self) -> list[Value]:
        """Load the partial sums, step by step."""
        return [self.f.load(vector(self.lanes), place) for place in self._places()]

    def multiply(self, index: Index, offset: int, sums: Sequence[Value]) -> list[Value]:
        """Add the input value at ``index + offset`` of every step times its weights; return the new sums."""
        f, vectors = self.f, self.hoisted.vectors
        row = f.at(f.at(self.weights, f.mul(index, vectors * self.lanes)), offset * vectors * self.lanes)
        weights = [f.load(vector(self.lanes), f.at(row, k * self.lanes)) for k in range(vectors)]
        at = f.at(f.at(self.input, index), offset)
        result: list[Value] = []
        for step in range(self.hoisted.steps):
            value = f.splat(f.load("float", f.at(at, step * self.hoisted.pitch)), self.lanes)
            result += [
                f.fma(value, weight, total)
                for weight, total in zip(weights, sums[step * vectors : (step + 1) * vectors], strict=True)
            ]
        return result

    def end(self, sums: Sequence[Value]) -> None:
        """Store the sums."""
        for value, place in zip(sums, self._places(), strict=True):
            self.f.store(value, place)

    def _places(self) -> list[Value]:
        steps, vectors = range(self.hoisted.steps), range(self.hoisted.vectors)
        return [self.f.at(self.result, step * self.pitch + k * self.lanes) for step in steps for k in vectors]


def emit_job(module: Module, name: str, hoisted: Hoisting, lanes: int, pitch: int) -> str:
    """Write a function that does a single job, given the addresses of input, weights and result; return its name."""
    f = module.inner(name, [("ptr", each) for each in ("input", "weights", "result")])
    job = Job(f, hoisted, lanes, pitch, *f.parameters)
    unroll = next(each for each in (4, 2, 1) if hoisted.depth % each == 0)
    with f.loop(0, hoisted.depth, unroll, carry=job.begin()) as loop:
        sums = loop.carried
        for k in range(unroll):
            sums = job.multiply(loop.index, k, sums)
        loop.carry(sums)
    job.end(loop.results)
    f.finish()
    return name
