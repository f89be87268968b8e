"""Small tensors whose elements are known before a run: sizes that a graph computes with tensors.

PyTorch's exports compute shapes by tensors as well: ``size``, ``unsqueeze``, ``cat``, ``reshape``. Where all
operands of an operator are known, so is its result, and with it the shapes that follow.

Where an ONNX file takes the whole shape of a tensor (``Shape`` into ``ConstantOfShape``, ``Expand``, ``Reshape``), the
converter drops the operator that asks for it and passes the tensor itself. No list of sizes has several axes, so such
a tensor can only stand for its shape. (A vector of floats may be the factors of a resize.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.ir.dims import is_symbolic
from engine.ir.sizes import has_sizes, holds_sizes, specialise_sizes
from engine.layers.definition.layer import Layer
from engine.tensor import UNKNOWN, TensorSpec, is_known, known_value, spec_of

RANDOM_MODULES: Final = frozenset({"engine.layers.creation.randomness", "engine.layers.creation.distribution"})
"""Modules of layers that give another value in every run."""

MAX_ELEMENTS: Final = 64
"""Largest tensor whose elements are tracked."""

SHAPE_PARAMETERS: Final = ("shape", "size")
"""Parameters that are the shape of a result."""


def is_repeatable(layer: Layer) -> bool:
    """Return whether a layer always gives the same outputs for the same inputs; no for layers from outside."""
    module = type(layer).__module__
    return module.startswith("engine.layers.") and module not in RANDOM_MODULES


def with_values(layer: Layer, result: Any, inputs: list[object], forward: Callable[[list[object]], Any]) -> Any:
    """Return the result of infer(), with elements if these are few and follow from known inputs.

    Args:
        result: the layer's announcement.
        inputs: descriptions of the operator's inputs.
        forward: computes the operator's outputs from its input values.
    """
    result = result if layer.takes_unknown else _of_its_own(result, inputs)
    if is_known(result) or layer.loops or not _is_small(layer, result):
        return result
    values = [known_value(value) for value in inputs]
    if not all(is_known(value) and _fits(value) for value in values) or not is_repeatable(layer):
        return result
    if has_sizes(values):
        return _with_sizes(layer, result, values, forward)
    try:
        with np.errstate(all="ignore"):
            return spec_of(forward(values), with_value=True)
    except Exception:  # whatever it is, a run shows it, at its place
        return result


def _with_sizes(layer: Layer, result: Any, values: list[object], forward: Callable[[list[object]], Any]) -> Any:
    """Return the announcement with its elements, some of which depend on symbolic sizes.

    Most layers cannot compute with these, and get their values.
    """
    for convert in (list, specialise_sizes) if layer.takes_sizes else (specialise_sizes,):
        try:
            with np.errstate(all="ignore"):
                return _valued(result, forward(convert(values)))
        except Exception:  # whatever it is, a run shows it, at its place
            continue
    return result


def _valued(announced: Any, value: Any) -> Any:
    """Return announced specs with elements; their dtypes are those of the announcement."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject and isinstance(announced, TensorSpec):
        numbers = value if holds_sizes(value) else value.astype(announced.dtype)
        return TensorSpec(value.shape, announced.dtype, numbers)
    if isinstance(value, (tuple, list)) and isinstance(announced, (tuple, list)):
        return type(value)(_valued(*pair) for pair in zip(announced, value, strict=True))
    return spec_of(value, with_value=True)


def _of_its_own(result: Any, inputs: list[object]) -> Any:
    """Return the announced specs without elements of operands: ``return input`` only states shape and dtype."""
    theirs = [each.value for each in inputs if isinstance(each, TensorSpec) and each.value is not None]
    if not theirs:
        return result
    if isinstance(result, tuple):
        return tuple(_of_its_own(item, inputs) for item in result)
    if isinstance(result, TensorSpec) and any(result.value is value for value in theirs):
        return TensorSpec(result.shape, result.dtype)
    return result


def _is_small(layer: Layer, result: Any) -> bool:
    if isinstance(result, TensorSpec):
        size = result.size
        return size is not None and (type(size) is int or not is_symbolic(size)) and size <= MAX_ELEMENTS
    if isinstance(result, (tuple, list)):
        return all(_is_small(layer, item) for item in result)
    return result is not UNKNOWN or layer.gives_numbers


def _fits(value: object) -> bool:
    return not isinstance(value, np.ndarray) or value.size <= MAX_ELEMENTS


def is_dropped_shape(value: object) -> bool:
    """Return whether a value has a shape but cannot be a list of sizes."""
    if not isinstance(value, (np.ndarray, TensorSpec)) or len(value.shape) < 2:
        return False
    # A single integer stands for a number, whatever its dimensions.
    return not (value.size == 1 and value.dtype.kind in "iub")


def shape_list(value: Any) -> list[Any]:
    """Return the shape of a tensor or of its spec; UNKNOWN for dynamic dimensions."""
    return [UNKNOWN if size is None else size for size in value.shape]
