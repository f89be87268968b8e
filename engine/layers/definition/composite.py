"""Operators that are written in core operators instead of with rules of their own.

``compose`` is the whole definition. It gets a function that applies a layer to operands, and its own operands. With
arrays it computes the result, with specs it infers it, with operands of a graph it writes the operators of the
decomposition (engine/passes/decomposition.py), and with abstract batches it follows the items of a batch. So it may
ask operands for ``shape`` and ``dtype``, and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import update_wrapper
from typing import Any, ClassVar, TypeAlias

import numpy as np

from engine.layers.definition.layer import Layer
from engine.layers.operands.precision import working_dtype
from engine.limits import check_results
from engine.promotion import cast
from engine.tensor import UNKNOWN, TensorSpec, spec_of

CallLayer: TypeAlias = Callable[..., Any]
"""Function that applies a layer to operands: tensors, numbers and None, in the order of its ``forward``."""


class UnknownSizeError(Exception):
    """A composition depends on a size, or on another property of an operand, that only a run decides."""


class Composite(Layer):
    """Base of operators with a decomposition; half precision is computed in float32 and rounded once."""

    infers_itself = True

    compose: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "compose" in cls.__dict__:
            cls.forward = _forward_of(cls.compose)

    def infer(self, *operands: Any, **attributes: Any) -> Any:
        if any(UNKNOWN in each for each in operands if isinstance(each, list | tuple)):
            return UNKNOWN
        try:
            return self.compose(inferred, *operands, **attributes)
        except UnknownSizeError:
            return UNKNOWN

    def flops(self, output: TensorSpec, *operands: object) -> int:
        counts = []

        def counted(layer: Layer, *given: Any) -> Any:
            result = inferred(layer, *given)
            first = result[0] if isinstance(result, tuple | list) else result
            counts.append(layer.flops(first, *given) if isinstance(first, TensorSpec) else 0)
            return result

        with suppress(UnknownSizeError):
            self.compose(counted, *operands)
        return sum(counts)


def inferred(layer: Layer, *operands: Any) -> Any:
    """Return the description of a layer's result, given those of its operands."""
    is_unknown = any(each is UNKNOWN for each in operands) and not layer.takes_unknown
    return UNKNOWN if is_unknown else layer.infer(*map(spec_of, operands))


def _computed(layer: Layer, *operands: Any) -> Any:
    return layer.forward(*operands)


def _forward_of(compose: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ``forward`` that computes a composition; it has the same operands."""

    def forward(self: Composite, *operands: Any, **attributes: Any) -> Any:
        specs = {name: spec_of(each) for name, each in attributes.items()}
        announced = self.infer(*map(spec_of, operands), **specs)
        check_results(announced)
        wide = {name: _wide(each) for name, each in attributes.items()}
        return _rounded(self.compose(_computed, *map(_wide, operands), **wide), announced)

    update_wrapper(forward, compose)
    forward.__annotations__ = {name: hint for name, hint in compose.__annotations__.items() if name != "call"}
    kept = [each for each in inspect.signature(compose).parameters.values() if each.name != "call"]
    forward.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return forward


def _wide(operand: Any) -> Any:
    if isinstance(operand, list | tuple):
        return [_wide(each) for each in operand]
    return cast(operand, working_dtype(operand.dtype)) if isinstance(operand, np.ndarray) else operand


def _rounded(result: Any, announced: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_rounded, result, announced))
    return cast(result, announced.dtype) if isinstance(announced, TensorSpec) else result
