"""Refusals of an operator: by its parameters when it is bound, else by its operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from engine import Annotations, EngineError, TensorSpec, registry
from engine.layers import BoundLayer, bind


def tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, np.dtype(dtype))


def build(type: str, n_inputs: int, attributes: Mapping[str, TensorSpec] | None = None, **params: Any) -> BoundLayer:
    return bind(
        registry[type],
        n_inputs=n_inputs,
        params=params,
        attributes={name: zeros(spec) for name, spec in (attributes or {}).items()},
        annotations=Annotations(outputs=(None,)),
    )


def zeros(operand: object) -> object:
    return np.zeros(operand.shape, operand.dtype) if isinstance(operand, TensorSpec) else operand


def refusal(type: str, *operands: object, attributes: Mapping[str, TensorSpec] | None = None, **params: Any) -> str:
    """The message, which inference (of specs) and the run (of zeros) must agree on."""
    try:
        layer = build(type, len(operands), attributes, **params)
    except EngineError as error:
        return str(error)
    with pytest.raises(EngineError) as inferred:
        layer.infer(operands)
    with pytest.raises(EngineError) as run:
        layer.forward([zeros(operand) for operand in operands])
    assert str(run.value) == str(inferred.value)
    return str(inferred.value)
