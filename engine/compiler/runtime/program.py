"""A blueprint made callable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.compiler.blueprint import Blueprint
from engine.compiler.codegen import object_code
from engine.graph.operator import RuntimeOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a program came about.

    Args:
        is_cached: whether it was found in the cache.
        time_s: what it took, from optimising the graph or looking into the cache to code that can be called.
        entry_bytes: size of its file in the cache; 0 where it is not kept.
    """

    is_cached: bool = False
    time_s: float = 0.0
    entry_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A blueprint whose code is loaded; immutable, shared by all instances.

    Args:
        operators: those that run on the reference, by name.
        known: values of operands that are constant, by name.
        texts: inputs that are kept by name, and their places: no memory of ours holds what is Python's.
        origin: how it came about.
    """

    blueprint: Blueprint
    code: object_code.Code | object_code.Joined
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]
    texts: Sequence[tuple[int, str]] = ()
    origin: Origin = field(default_factory=Origin)
