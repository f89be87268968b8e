"""A blueprint made callable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.compiler import machine
from engine.compiler.blueprint import Blueprint
from engine.compiler.host import Host
from engine.compiler.storage import ALIGNMENT
from engine.graph.operator import RuntimeOperator
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A blueprint whose code is loaded; immutable, shared by all instances.

    Args:
        operators: those that run on the reference, by name.
        known: values of operands that are constant, by name.
    """

    blueprint: Blueprint
    code: machine.Code
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]


def load(
    blueprint: Blueprint, host: Host, operators: Mapping[str, RuntimeOperator], known: Mapping[str, object]
) -> Program:
    """Make a blueprint's code callable."""
    code = machine.Code(blueprint.code, host)
    return Program(blueprint=blueprint, code=code, operators=operators, known=known)


def aligned_bytes(count: int) -> Array:
    """A zeroed block of memory that begins on a cache line."""
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]
