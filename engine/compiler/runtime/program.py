"""Programs: executables whose code is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from engine.compiler.addresses import MemorySpace, port_of, space_of
from engine.compiler.codegen import object_code
from engine.compiler.executable import Executable, Region, Segment
from engine.graph.operator import RuntimeOperator
from engine.tensor import Array, named_dtype

# Fixed cost of every program and of every step of it: tables, names, bookkeeping of the code.
_PROGRAM_BYTES: Final = 64 << 10
_STEP_BYTES: Final = 4 << 10
# Operations of a chunk, where a kernel could not be cut into as many chunks as it has work for.
_CHUNK_FLOPS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a program.

    Args:
        is_cached: whether it was found in the cache.
        time_s: time from optimising the graph, or looking into the cache, to callable code.
        entry_bytes: size of its file in the cache; 0 where it is not kept.
    """

    is_cached: bool = False
    time_s: float = 0.0
    entry_bytes: int = 0


class KernelOutput(NamedTuple):
    """Output that kernels write: its number, and the array it takes."""

    port: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class ConstantValues(Mapping[str, object]):
    """Values of operands that no run changes, by name; those that depend on sizes are computed on first access.

    Args:
        fixed: values for all sizes.
        compute: returns all values.
    """

    def __init__(self, fixed: Mapping[str, object], compute: Callable[[], Mapping[str, object]]) -> None:
        self._fixed = fixed
        self._compute = compute

    @cached_property
    def _values(self) -> Mapping[str, object]:
        return self._compute()

    def __getitem__(self, name: str) -> object:
        return self._fixed[name] if name in self._fixed else self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Executable whose code is loaded; immutable, shared by all instances.

    Args:
        plan: the executable; of a template, with indices into the pool in place of numbers.
        pool: of a template: its numbers for one set of sizes.
        operators: operators that run on the reference, by name.
        known: values of operands that are constant, by name.
        texts: number and name of inputs that hold Python strings, which program memory cannot hold.
        states: numbers of inputs that are part of a state's memory, which a run appends to.
        origin: where it came from.
    """

    plan: Executable
    code: object_code.Code | object_code.SharedObjects
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]
    pool: Array | None = None
    texts: Sequence[tuple[int, str]] = ()
    states: frozenset[int] = frozenset()
    origin: Origin = field(default_factory=Origin)

    def bound(self, pool: Array, known: Mapping[str, object]) -> Program:
        """Return this program, which a template has without numbers, with those for one set of sizes.

        It shares what this one has computed: a constructor would take longer, and every new size waits for it.
        """
        found = object.__new__(Program)
        found.__dict__.update(self.__dict__, pool=pool, known=known)
        return found

    @cached_property
    def executable(self) -> Executable:
        """The executable with its numbers."""
        return self.plan if self.pool is None else self.plan.numbered(self.pool)

    @property
    def is_bound(self) -> bool:
        """Return whether it is a template bound to one set of sizes, sharing code and weights with other sizes."""
        return self.pool is not None

    def number(self, number: int) -> int:
        """Return a number of the plan."""
        return number if self.pool is None else int(self.pool[number])

    def numbers(self, column: Array) -> Array:
        """Return a column of numbers of the plan."""
        return column if self.pool is None else self.pool[column]

    def saved_chunks(self, threads: int) -> float:
        """Return by how many chunks, each about 5 µs of a core, several threads shorten a run."""
        steps = self.plan.steps
        chunks = self.numbers(steps.chunks)
        work = np.maximum(chunks, self.numbers(steps.flops) * (1 / _CHUNK_FLOPS))
        return float((work * (1 - 1 / np.clip(chunks, 1, threads))).sum())

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, with the numbers of their calls."""
        pool = self.pool
        return self.plan.segments if pool is None or not self.has_calls else self.plan.numbered_segments(pool)

    @cached_property
    def outputs(self) -> list[Region | str]:
        """Region of every output, or the name of an operand whose value is kept."""
        outputs, pool = self.plan.outputs, self.pool
        return [each if isinstance(each, str) or pool is None else each.numbered(pool) for each in outputs]

    @cached_property
    def kernel_outputs(self) -> list[KernelOutput]:
        """The outputs that kernels write."""
        pool = self.pool
        if pool is None:
            return self._whole_outputs
        rows = self._whole_outputs
        return [KernelOutput(port, tuple([int(pool[each]) for each in shape]), dtype) for port, shape, dtype in rows]

    @cached_property
    def _whole_outputs(self) -> list[KernelOutput]:
        """The outputs that kernels write, with the plan's numbers."""
        whole = [each for each in self.plan.outputs if isinstance(each, Region) and each.is_whole_output]
        return [KernelOutput(port_of(each.address), each.shape, named_dtype(each.dtype)) for each in whole]

    @cached_property
    def output_bytes(self) -> int:
        """Bytes of the outputs that a run makes."""
        regions = [each for each in self.outputs if isinstance(each, Region)]
        new = [each for each in regions if space_of(each.address) is not MemorySpace.INPUT]
        return sum(math.prod(each.shape) * named_dtype(each.dtype).itemsize for each in new)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that a run of these sizes needs."""
        return self.number(self.plan.arena_bytes)

    @cached_property
    def makes_all_outputs(self) -> bool:
        """Return whether kernels write all outputs, each as an array of its own."""
        whole = self._whole_outputs
        return len({each.port for each in whole}) == len(whole) == len(self.plan.outputs)

    @cached_property
    def has_calls(self) -> bool:
        """Return whether some operators run on the reference."""
        return any(each.call is not None for each in self.plan.segments)

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes of its code, packed weights and tables, which do not depend on sizes."""
        return int(self.plan.constants.nbytes) + self.code.bytes + len(self.plan.steps) * _STEP_BYTES + _PROGRAM_BYTES
