"""Code of a recurrence that computes its own input projection, block by block of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.compiler.codegen.ir import Index, Value, as_value
from engine.compiler.kernels.recurrent.block import copy_row
from engine.compiler.kernels.recurrent.hoisted_projection import Hoisting
from engine.compiler.kernels.recurrent.progress import publish, wait_for
from engine.compiler.kernels.recurrent.writer import Writer


@dataclass(frozen=True, slots=True)
class HoistedWriter:
    """Writer of the blocks of steps.

    Args:
        busy: name of the function that computes a panel and a job together.
        job: name of the function that does a job alone.
    """

    writer: Writer
    hoisted: Hoisting
    busy: str
    job: str

    def steps(self) -> None:
        """Write the jobs of the first block; then each block's recurrence mixed with the jobs of the next block."""
        f, size = self.writer.f, self.hoisted.steps
        self._open(0)
        self._jobs_alone(0, 0)
        with f.loop(0, self._blocks) as block:
            following = f.add(block.index, 1)
            has_next = f.less(following, self._blocks)
            with f.when(has_next):
                self._open(following)
            first = f.mul(block.index, size)
            with f.loop(first, f.minimum(f.add(first, size), self.writer.kernel.steps)) as step:
                row = f.sub(step.index, self._origin(block.index))
                source = f.at(self._half(block.index), f.mul(row, self.writer.kernel.gate_floats))

                @contextmanager
                def meanwhile(number: Index, call: Index, arguments: Sequence[Value]) -> Iterator[None]:
                    job = f.add(f.mul(f.sub(number, first), self._calls), call)
                    is_free = f.binary("and", has_next, f.less(job, self._jobs))
                    with f.when(is_free):
                        f.call(self.busy, [*arguments, *self._places(following, job)])
                    with f.unless(is_free):
                        yield

                self.writer.step(step.index, source, meanwhile)
            if self.writer.own is not None:
                publish(f, self.writer.own, f.minimum(f.add(first, size), self.writer.kernel.steps))
            if self._jobs > self._calls * size:
                with f.when(has_next):
                    self._jobs_alone(following, self._calls * size)

    @property
    def _blocks(self) -> int:
        return -(-self.writer.kernel.steps // self.hoisted.steps)

    @property
    def _calls(self) -> int:
        """Calls per step: one per panel, because there is one tile."""
        return len(self.writer.kernel.panels)

    @property
    def _jobs(self) -> int:
        """Jobs per block of steps."""
        kernel = self.writer.kernel
        return kernel.gate_floats // (self.hoisted.vectors * kernel.host.lanes) * self.hoisted.parts

    def _origin(self, block: Index) -> Index:
        """Return the first step of a block; the last block is shifted back to be complete."""
        f, size = self.writer.f, self.hoisted.steps
        return f.minimum(f.mul(block, size), self.writer.kernel.steps - size)

    @property
    def _ring(self) -> Value:
        writer = self.writer
        assert writer.ring is not None
        return writer.f.at(writer.ring, writer.f.mul(writer.direction, writer.kernel.ring_floats))

    def _half(self, block: Index) -> Value:
        """Return the address of a block's gates."""
        f = self.writer.f
        return f.at(self._ring, f.mul(f.divmod(block, 2)[1], self.hoisted.steps * self.writer.kernel.gate_floats))

    @property
    def _input(self) -> Value:
        """Address of the packed input of the current block."""
        return self.writer.f.at(self._ring, 2 * self.hoisted.steps * self.writer.kernel.gate_floats)

    @property
    def _weights(self) -> Value:
        """Address of the bias, which is followed by the weights of each job."""
        kernel = self.writer.kernel
        return self.writer.f.at(self.writer.weights, len(kernel.panels) * kernel.panel_floats)

    def _open(self, block: Index) -> None:
        """Copy the input of a block as soon as it is available, and initialise its gates with the bias."""
        f, kernel, hoisted = self.writer.f, self.writer.kernel, self.hoisted
        if self.writer.below is not None:
            wait_for(f, self.writer.below, f.add(self._origin(block), hoisted.steps))
        stride = self.writer.of_direction([as_value(each) for each in kernel.source.steps])
        with f.loop(0, hoisted.steps) as step:
            number = f.add(self._origin(block), step.index)
            source = f.at(self.writer.source, f.mul(number, stride))
            target = f.at(self._input, f.mul(step.index, hoisted.pitch))
            copy_row(f, source, target, hoisted.width, kernel.host.lanes, pads=False)
            gates = f.at(self._half(block), f.mul(step.index, kernel.gate_floats))
            copy_row(f, self._weights, gates, kernel.gate_floats, kernel.host.lanes, pads=False)

    def _jobs_alone(self, block: Index, first: int) -> None:
        """Write calls of the jobs of a block from number ``first`` on."""
        with self.writer.f.loop(first, self._jobs) as job:
            self.writer.f.call(self.job, self._places(block, job.index))

    def _places(self, block: Index, job: Index) -> list[Value]:
        """Return the addresses of input, weights and result of a job; jobs with the same result are consecutive."""
        f, kernel, hoisted = self.writer.f, self.writer.kernel, self.hoisted
        floats = hoisted.vectors * kernel.host.lanes
        result, part = f.divmod(job, hoisted.parts)
        return [
            f.at(self._input, f.mul(part, hoisted.depth)),
            f.at(self._weights, f.add(kernel.gate_floats, f.mul(job, hoisted.depth * floats))),
            f.at(self._half(block), f.mul(result, floats)),
        ]
