"""Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import present, selected
from engine.tensor import Array, DType, TensorSpec

_BOOL: DType = np.dtype(np.bool_)


@register("Dropout", positional=("input", "ratio", "training_mode"), ignored=("seed", "is_test"))
class OnnxDropout(Layer):
    """Identity with an all-true mask, because models run in inference only.

    PyTorch's dropout has no mask, and a file may say only at run time that it trains.
    """

    ratio: Any = 0.5
    training_mode: Any = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        results = (input, TensorSpec(input.shape, _BOOL))
        return selected(results, present(results, self.annotations))

    def forward(self, input: Array) -> Any:
        specs = [TensorSpec(input.shape, dtype) for dtype in (input.dtype, _BOOL)]
        if np.any(np.asarray(self.training_mode, np.bool_)) and np.any(np.asarray(self.ratio) != 0):
            raise ShapeError("dropout at random is for training", found="training_mode = 1", expected="0")
        return selected((input, np.ones(input.shape, np.bool_)), present(specs, self.annotations))
