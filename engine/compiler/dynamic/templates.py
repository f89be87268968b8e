"""The templates of a graph: a handful, each right for the sizes that pass its guards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.dynamic.template import Template
from engine.compiler.runtime.tables import Layouts
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.tensor import Array, TensorSpec

MOST_TEMPLATES: Final = 8
"""Templates of a graph. Sizes that none of them is right for get a program of their own."""
MOST_FIXED: Final = 2
"""Templates that are right for one set of sizes alone, before no more are made: the next would be, too."""


@dataclass(frozen=True, slots=True)
class GraphParts:
    """What a run of a template needs of the graph that it was made of.

    Args:
        operators: those that run on the reference, by name.
    """

    graph: RuntimeGraph
    operators: Mapping[str, RuntimeOperator]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A template whose code can be called.

    Args:
        parts: what a run needs of the graph; None where that is nothing.
        is_restored: whether it is from the cache.
        layouts: of the tables of all its programs.
    """

    template: Template
    code: object_code.Code | object_code.Joined
    parts: GraphParts | None = None
    is_restored: bool = False
    layouts: Layouts = field(default_factory=Layouts)


class Templates:
    """The templates of a graph; one thread at a time may add."""

    def __init__(self) -> None:
        self._found: tuple[Loaded, ...] = ()
        self._fixed = 0
        self._is_closed = False
        self._latest: Loaded | None = None  # tried first: sizes of one class follow each other

    def part(self, *, is_restored: bool) -> list[Template]:
        """Return the templates from the cache, or those made by this process, in the order they were added."""
        return [each.template for each in self._found if each.is_restored == is_restored]

    @property
    def has_room(self) -> bool:
        """Return whether another template may be made."""
        return not self._is_closed and len(self._found) < MOST_TEMPLATES and self._fixed < MOST_FIXED

    def close(self) -> None:
        """Make no more: sizes that no template is right for get a program of their own."""
        self._is_closed = True

    def find(self, specs: Sequence[TensorSpec]) -> tuple[Loaded, Array] | None:
        """Return the template that is right for inputs of these shapes, and its numbers for them; None without one."""
        latest = self._latest
        if latest is not None and (numbers := latest.template.numbers(specs)) is not None:
            return latest, numbers
        for each in self._found:
            if each is not latest and (numbers := each.template.numbers(specs)) is not None:
                self._latest = each
                return each, numbers
        return None

    def add(self, template: Template, host: Host, parts: GraphParts | None, *, is_restored: bool = False) -> Loaded:
        """Load a template, and keep it.

        Args:
            parts: what a run needs of the graph; None where that is nothing.
            is_restored: whether it is from the cache.

        Raises:
            CompileError: its code is damaged, or there is no memory.
        """
        loaded = Loaded(template, object_code.loaded(template.code, host, is_apart=True), parts, is_restored)
        self._found = *self._found, loaded
        self._fixed += template.is_fixed
        return loaded
