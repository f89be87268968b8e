"""Programs: executables whose code is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from engine.compiler.codegen import object_code
from engine.compiler.executable import Executable
from engine.compiler.runtime.tables import Layouts
from engine.graph.operator import RuntimeOperator


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


class ConstantValues(Mapping[str, object]):
    """Values of operands that no run changes, by name; computed on first access.

    Args:
        compute: returns all of them.
    """

    def __init__(self, compute: Callable[[], Mapping[str, object]]) -> None:
        self._compute = compute

    @cached_property
    def _values(self) -> Mapping[str, object]:
        return self._compute()

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Executable whose code is loaded; immutable, shared by all instances.

    Args:
        operators: operators that run on the reference, by name.
        known: values of operands that are constant, by name.
        layouts: table layouts of its instances.
        texts: number and name of inputs that hold Python strings, which program memory cannot hold.
        states: numbers of inputs that are part of a state's memory, which a run appends to.
        is_bound: whether it is a template bound to one set of sizes, sharing code and weights with other sizes.
        origin: where it came from.
    """

    executable: Executable
    code: object_code.Code | object_code.SharedObjects
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]
    layouts: Layouts = field(default_factory=Layouts)
    texts: Sequence[tuple[int, str]] = ()
    states: frozenset[int] = frozenset()
    is_bound: bool = False
    origin: Origin = field(default_factory=Origin)
