"""Templates: executables with indices into a pool of numbers, and one function from sizes to this pool.

A graph has a handful of templates, each valid for the sizes that pass its guards.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.executable import Executable
from engine.compiler.runtime.program import Program
from engine.errors import CompileError
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.graph.symbolic_inputs import SizesOf
from engine.ir.dims import ShapeEnv, hint, terms_of
from engine.ir.tables import Table
from engine.tensor import Array, Shaped, specs_of

MAX_TEMPLATES: Final = 8
"""Templates of a graph. Sizes that none of them is valid for get a program of their own."""
MAX_FIXED: Final = 2
"""Templates valid for only one set of sizes, after which no more are compiled: the next would be like them."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Compiled graph for all sizes that pass its guards.

    Args:
        env: the symbolic sizes, with all guards.
        sizes: computes their values from input specs.
        table: computes the pool; None for sizes that fail a guard.
        executable: the compiled graph, with indices into the pool in place of numbers.
        checks: indices of the numbers that must not be negative, or the plan would leave its memory.
        elements: number of input elements that it is optimised for.
    """

    env: ShapeEnv
    sizes: SizesOf
    table: Table
    executable: Executable
    checks: Sequence[int] = ()
    elements: int = 1

    @property
    def is_fixed(self) -> bool:
        """Return whether a guard fixes a symbolic size to one number."""
        return any(
            found and self.env.is_number(relation, terms) for (relation, terms), found in self.env.guards.items()
        )

    def numbers(self, inputs: Shaped) -> Array | None:
        """Return the pool for inputs of these shapes; None if the template is not valid for them."""
        sizes = self.sizes(inputs)
        pool = None if sizes is None else self.table(sizes)
        if pool is not None and any(pool[each] < 0 for each in self.checks):
            raise CompileError("a plan does not stay inside its memory", found=" and ".join(map(str, specs_of(inputs))))
        return pool


def input_elements(inputs: Shaped) -> int:
    """Return the number of elements of inputs; symbolic sizes count as their hints."""
    return sum([math.prod(hint(each.shape)) for each in inputs])


@dataclass(frozen=True, slots=True)
class GraphParts:
    """Parts of its graph that a run of a template needs.

    Args:
        operators: operators that run on the reference, by name.
        known: values of operands that are the same in all runs of all sizes, by name.
    """

    graph: RuntimeGraph
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]


@dataclass(slots=True)
class Loaded:
    """Template whose code is loaded.

    Args:
        parts: parts of the graph that a run needs; None if it needs none.
        is_restored: whether it is from the cache.
        is_checked: whether its plan was checked with numbers.
        program: its program without numbers; None before the first run.
    """

    template: Template
    code: object_code.Code | object_code.SharedObjects
    parts: GraphParts | None = None
    is_restored: bool = False
    is_checked: bool = False
    program: Program | None = None


class Templates:
    """Templates of a graph; many threads may find, add and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[Loaded, ...] = ()
        self._fixed = 0
        self._is_closed = False

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

    def find(self, inputs: Shaped) -> tuple[Loaded, Array] | None:
        """Return the template that is valid for inputs of these shapes, and its pool; None without one.

        Of several, the one that is optimised for the most similar sizes is taken.
        """
        found = self._found
        if len(found) > 1:
            elements = max(1, input_elements(inputs))
            found = tuple(sorted(found, key=lambda each: abs(math.log(elements / each.template.elements))))
        for each in found:
            if (numbers := each.template.numbers(inputs)) is not None:
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
        loaded = Loaded(template, object_code.load(template.executable.code, host, is_apart=True), parts, is_restored)
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
