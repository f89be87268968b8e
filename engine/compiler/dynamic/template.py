"""Templates: compiled graphs with symbolic sizes, as plain data and one function from sizes to numbers.

Every number of an executable that depends on sizes (addresses, sizes that kernels read, chunks, shapes) is an index
into a *pool* of numbers. Binding a template to sizes computes the pool, and takes the columns from it. A graph has a
handful of templates, each valid for the sizes that pass its guards.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from engine.compiler.addresses import address_in
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.executable import Buffers, Executable, NativeSteps, ReferenceCall, Region, Row, Segment
from engine.compiler.runtime.tables import Layouts
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.graph.symbolic_inputs import SizesOf
from engine.ir.dims import ShapeEnv, terms_of
from engine.ir.tables import Table
from engine.passes import PassReport
from engine.tensor import Array, TensorSpec


class Pool:
    """Distinct numbers of a template, in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._indices: dict[object, int] = {}

    def index(self, value: int) -> int:
        """Return the index of a number."""
        key = (terms_of(value),)
        found = self._indices.setdefault(key, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found

    def indices(self, values: Sequence[int]) -> Array:
        """Return the indices of some numbers."""
        return np.array([self.index(each) for each in values], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicRegion:
    """Tensor in memory, by indices into the pool; see ``Region``.

    Args:
        block: the block of memory; see ``block_of``.
    """

    block: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def bound(self, numbers: Sequence[int]) -> Region:
        """Return the region for the numbers of a pool."""
        return Region(
            address=address_in(self.block, numbers[self.offset]),
            shape=tuple([numbers[each] for each in self.shape]),
            strides=tuple([numbers[each] for each in self.strides]),
            dtype=self.dtype,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicCall:
    """Operator that its numpy layer computes; see ``ReferenceCall``."""

    operator: str
    inputs: tuple[SymbolicRegion | None, ...]
    outputs: tuple[SymbolicRegion | None, ...]

    def bound(self, numbers: Sequence[int]) -> ReferenceCall:
        """Return the call for the numbers of a pool."""
        return ReferenceCall(
            operator=self.operator,
            inputs=tuple([None if each is None else each.bound(numbers) for each in self.inputs]),
            outputs=tuple([None if each is None else each.bound(numbers) for each in self.outputs]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicSteps:
    """Kernels of a template, column by column; see ``NativeSteps``.

    Args:
        chunks, flops, bytes, offsets: indices into the pool.
        blocks: memory blocks of the arguments; see ``block_of``.
    """

    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    operators: tuple[str, ...]
    is_dealt: Array
    ends: Array
    chunks: Array
    flops: Array
    bytes: Array
    offsets: Array
    blocks: Array

    def bound(self, pool: Array) -> NativeSteps:
        """Return the kernels for the numbers of a pool."""
        return NativeSteps(
            functions=self.functions,
            kinds=self.kinds,
            operators=self.operators,
            chunks=pool[self.chunks],
            flops=pool[self.flops],
            bytes=pool[self.bytes],
            is_dealt=self.is_dealt,
            offsets=pool[self.offsets],
            blocks=self.blocks,
            ends=self.ends,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Compiled graph for all sizes that pass its guards.

    Args:
        env: the symbolic sizes, with all guards.
        sizes: computes their values from input specs.
        table: computes the pool; None for sizes that fail a guard.
        segments: first and last step of each, or a call.
        arena_bytes, fault_flag, clean, outputs: as in executables, by indices into the pool.
        buffers: offset and bytes by indices, first and last step, names of operands.
    """

    env: ShapeEnv
    sizes: SizesOf
    table: Table
    code: tuple[bytes, ...]
    constants: Array
    weights: Array
    tables_at: int | None
    steps: SymbolicSteps
    segments: tuple[tuple[int, int, SymbolicCall | None], ...]
    arena_bytes: int
    fault_flag: int | None
    clean: tuple[tuple[int, int], ...]
    outputs: tuple[SymbolicRegion | str, ...]
    buffers: tuple[Row, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    passes: tuple[PassReport, ...] = ()

    @property
    def needs_graph(self) -> bool:
        """Return whether a run needs layers of the graph, or values that it holds."""
        has_calls = any(call is not None for *_, call in self.segments)
        return has_calls or any(isinstance(each, str) for each in self.outputs)

    @property
    def calls(self) -> frozenset[str]:
        """Return the names of the operators that run on the reference."""
        return frozenset(call.operator for *_, call in self.segments if call is not None)

    @property
    def is_fixed(self) -> bool:
        """Return whether a guard fixes a symbolic size to one number."""
        return any(
            found and self.env.is_number(relation, terms) for (relation, terms), found in self.env.guards.items()
        )

    def numbers(self, specs: Sequence[TensorSpec]) -> Array | None:
        """Return the pool for inputs of these shapes; None if the template is not valid for them."""
        sizes = self.sizes(specs)
        return None if sizes is None else self.table(sizes)

    def bound(self, pool: Array) -> Executable:
        """Return the executable for the numbers of a pool."""
        numbers = pool.tolist()
        details: dict[str, Any] = {"reasons": dict(self.reasons), "operators": self.operators, "passes": self.passes}
        return Executable(
            code=self.code,
            constants=self.constants,
            weights=self.weights,
            tables_at=self.tables_at,
            steps=self.steps.bound(pool),
            segments=tuple(
                [
                    Segment(first=first, last=last, call=None if call is None else call.bound(numbers))
                    for first, last, call in self.segments
                ]
            ),
            arena_bytes=numbers[self.arena_bytes],
            outputs=tuple([each if isinstance(each, str) else each.bound(numbers) for each in self.outputs]),
            clean=tuple([(numbers[first], numbers[last]) for first, last in self.clean]),
            fault_flag=None if self.fault_flag is None else numbers[self.fault_flag],
            buffers=Buffers(rows=self.buffers, pool=pool),
            **details,
        )


MAX_TEMPLATES: Final = 8
"""Templates of a graph. Sizes that none of them is valid for get a program of their own."""
MAX_FIXED: Final = 2
"""Templates valid for only one set of sizes, after which no more are compiled: the next would be like them."""


@dataclass(frozen=True, slots=True)
class GraphParts:
    """Parts of its graph that a run of a template needs.

    Args:
        operators: operators that run on the reference, by name.
    """

    graph: RuntimeGraph
    operators: Mapping[str, RuntimeOperator]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Template whose code is loaded.

    Args:
        parts: parts of the graph that a run needs; None if it needs none.
        is_restored: whether it is from the cache.
        layouts: table layouts of all its programs.
    """

    template: Template
    code: object_code.Code | object_code.SharedObjects
    parts: GraphParts | None = None
    is_restored: bool = False
    layouts: Layouts = field(default_factory=Layouts)


class Templates:
    """Templates of a graph; many threads may find, add and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[Loaded, ...] = ()
        self._fixed = 0
        self._is_closed = False
        self._latest: Loaded | None = None  # tried first: similar sizes tend to follow each other

    def part(self, *, is_restored: bool) -> list[Template]:
        """Return the templates from the cache, or those of this process, in the order they were added."""
        return [each.template for each in self._found if each.is_restored == is_restored]

    @property
    def has_room(self) -> bool:
        """Return whether another template may be compiled."""
        return not self._is_closed and len(self._found) < MAX_TEMPLATES and self._fixed < MAX_FIXED

    def close(self) -> None:
        """Compile no more templates: other sizes then get a program of their own."""
        self._is_closed = True

    def find(self, specs: Sequence[TensorSpec]) -> tuple[Loaded, Array] | None:
        """Return the template that is valid for inputs of these shapes, and its pool; None without one."""
        latest = self._latest
        if latest is not None and (numbers := latest.template.numbers(specs)) is not None:
            return latest, numbers
        for each in self._found:
            if each is not latest and (numbers := each.template.numbers(specs)) is not None:
                self._latest = each
                return each, numbers
        return None

    def add(self, template: Template, host: Host, parts: GraphParts | None, *, is_restored: bool = False) -> Loaded:
        """Load a template and keep it.

        Args:
            parts: parts of the graph that a run needs; None if it needs none.
            is_restored: whether it is from the cache.

        Raises:
            CompileError: its code is damaged, or there is no memory.
        """
        loaded = Loaded(template, object_code.load(template.code, host, is_apart=True), parts, is_restored)
        with self._lock:
            self._found = *self._found, loaded
            self._fixed += template.is_fixed
        return loaded

    def remove(self, code: object_code.Code | object_code.SharedObjects) -> None:
        """Forget the template that has this code."""
        with self._lock:
            for each in (each for each in self._found if each.code is code):
                self._fixed -= each.template.is_fixed
            self._found = tuple(each for each in self._found if each.code is not code)
            self._latest = None
