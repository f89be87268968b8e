"""The input's product, some steps ahead of the recurrence and between its products.

With one row a batch a recurrence waits for its weights: each is read for one product. Products that wait for nothing
fit in between: those of the steps after the next ones, whose weights serve several steps at once. What they give lies
in a ring of two blocks of steps, of which the recurrence reads one while the other is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, vector


@dataclass(frozen=True, slots=True)
class Ahead:
    """How the product is cut: a job is some vectors of gates for all steps of a block, summed over a part of the input.

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
        """Jobs that are summed up."""
        return self.width // self.depth

    @property
    def pitch(self) -> int:
        """Floats of a step of the input, as it is copied together."""
        return -(-self.width // LINE) * LINE


# Floats that steps are kept apart by a multiple of.
LINE = 16


@dataclass(frozen=True, slots=True)
class Job:
    """A job while it is written into a function.

    Args:
        lanes: of a vector.
        pitch: distance of steps of the result, in floats.
        input, weights, result: addresses.
    """

    f: Function
    ahead: Ahead
    lanes: int
    pitch: int
    input: Value
    weights: Value
    result: Value

    def begin(self) -> list[Value]:
        """The sums so far, step by step."""
        return [self.f.load(vector(self.lanes), place) for place in self._places()]

    def multiply(self, index: Index, offset: int, sums: Sequence[Value]) -> list[Value]:
        """The sums with one more input value of every step, the one at ``index + offset``, times its weights."""
        f, vectors = self.f, self.ahead.vectors
        row = f.at(f.at(self.weights, f.mul(index, vectors * self.lanes)), offset * vectors * self.lanes)
        weights = [f.load(vector(self.lanes), f.at(row, k * self.lanes)) for k in range(vectors)]
        at = f.at(f.at(self.input, index), offset)
        result: list[Value] = []
        for step in range(self.ahead.steps):
            value = f.splat(f.load("float", f.at(at, step * self.ahead.pitch)), self.lanes)
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
        steps, vectors = range(self.ahead.steps), range(self.ahead.vectors)
        return [self.f.at(self.result, step * self.pitch + k * self.lanes) for step in steps for k in vectors]


def emit_job(module: Module, name: str, ahead: Ahead, lanes: int, pitch: int) -> str:
    """Write a function that does a job by itself: addresses of input, weights and result; its name."""
    f = module.inner(name, [("ptr", each) for each in ("input", "weights", "result")])
    job = Job(f, ahead, lanes, pitch, *f.parameters)
    unroll = next(each for each in (4, 2, 1) if ahead.depth % each == 0)
    with f.loop(0, ahead.depth, unroll, carry=job.begin()) as loop:
        sums = loop.carried
        for k in range(unroll):
            sums = job.multiply(loop.index, k, sums)
        loop.carry(sums)
    job.end(loop.results)
    f.finish()
    return name
