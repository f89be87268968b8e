"""Operators on elements that PyTorch has under other names or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.tensor import Array, TensorSpec


@register("onnx.Dropout")
class TrainingDropout(Layer):
    """The input; refuses to run where a run asks for dropout at random. F.dropout does not take this from a run.

    The core has no operator that refuses a run by a value.
    """

    def infer(self, input: TensorSpec, ratio: Any, training_mode: Any) -> TensorSpec:
        return input

    def forward(self, input: Array, ratio: Any, training_mode: Any) -> Array:
        if np.any(training_mode) and np.any(ratio):
            raise ShapeError("dropout at random is for training", found="training_mode = 1", expected="0")
        return input
