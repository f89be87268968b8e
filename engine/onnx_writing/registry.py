"""Table of the functions that write the operators of a layer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from engine.layers.definition.layer import Layer

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """Function that writes a layer as ONNX nodes.

    Args:
        write: takes the writer, the layer, and the operands of its ``forward``; returns its results.
        dynamic: parameters that may be tensors, which are known in a run only.
        folds: whether the result of stored operands is computed now, and stored instead.
        is_exact: whether no node rounds, so that half precision needs no detour over float32.
    """

    write: Callable[..., Any]
    dynamic: tuple[str, ...] = ()
    folds: bool = True
    is_exact: bool = False


_RULES: dict[type[Layer], Rule] = {}


def writes(
    *layers: type[Layer], dynamic: Sequence[str] = (), folds: bool = True, is_exact: bool = False
) -> Callable[[F], F]:
    """Return a decorator that registers a function for layers; see Rule for the keywords."""

    def add(function: F) -> F:
        _RULES.update(dict.fromkeys(layers, Rule(function, tuple(dynamic), folds, is_exact)))
        return function

    return add


def rule_of(layer: type[Layer]) -> Rule | None:
    """Return the rule of a layer; None if it has no counterpart in ONNX."""
    _load()
    return _RULES.get(layer)


@cache
def _load() -> None:
    package = importlib.import_module("engine.onnx_writing.rules")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
