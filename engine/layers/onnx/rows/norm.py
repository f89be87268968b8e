"""Normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.normalisation.layer_norm import LayerNorm, RMSNorm
from engine.layers.normalisation.norm import BatchNorm, GroupNorm, InstanceNorm, batch_statistics
from engine.layers.onnx.operands.adapter import Adapter, check_fits, only_present, selected, shape_of
from engine.layers.operands.axes import checked_axis, may_equal, may_match
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, tensor
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, TensorSpec, format_shape

_FLOAT32: DType = np.dtype(np.float32)
_RESULTS = ("the input normalised", "the mean", "the inverse deviation")


@register("BatchNormalization", ignored=("spatial", "is_test", "consumed_inputs"))
class OnnxBatchNorm(Layer):
    """(x - mean) / sqrt(var + epsilon) * scale + bias per channel, with given statistics.

    With training_mode the statistics are the input's own, as in files that standardise stored weights; the running
    statistics are given * momentum + own * (1 - momentum).

    Shapes:
        input (N, C, ...), scale, bias, mean, var (C,)  ->  as input; with training_mode also mean, var (C,)
    """

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        BatchNorm(eps=self.epsilon).infer(input, mean, var, scale, bias)
        return self._used(input, mean, var)

    def forward(self, input: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Any:
        norm = BatchNorm(eps=self.epsilon)
        # No PyTorch layer accepts integers or statistics of another dtype; the result has the input's dtype.
        if not self.training_mode:
            return cast(norm.forward(input, mean, var, scale, bias), input.dtype)
        result = cast(norm.forward(input, None, None, scale, bias), input.dtype)
        own = batch_statistics(widened(input)) if len(self.annotations.outputs) > 1 else ()
        pairs = zip((mean, var), own, strict=False)
        running = [given * self.momentum + now * (1 - self.momentum) for given, now in pairs]
        return self._used(result, *(cast(new, given.dtype) for new, given in zip(running, (mean, var), strict=False)))

    def _used(self, *results: Any) -> Any:
        """Return the results that the operator has outputs for."""
        count = len(self.annotations.outputs)
        if count > (3 if self.training_mode else 1):
            raise ParameterError("too many outputs", found=count, expected="3 with training_mode, else 1")
        return results[0] if count == 1 else results[:count]


@register("InstanceNormalization")
class OnnxInstanceNorm(Adapter):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with the statistics of each channel of each instance.

    Shapes:
        input (N, C, ...), scale, bias (C,)  ->  as input
    """

    epsilon: float = 1e-5

    canonicalises = False

    def infer(self, input: TensorSpec, scale: TensorSpec, bias: TensorSpec) -> Any:
        return InstanceNorm(eps=self.epsilon).infer(input, None, None, scale, bias)

    def forward(self, input: Array, scale: Array, bias: Array) -> Any:
        return InstanceNorm(eps=self.epsilon).forward(input, None, None, scale, bias)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return output.size or 0


@register("GroupNormalization", ignored=("stash_type",))
class OnnxGroupNorm(Layer):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with the statistics of a group of channels of one instance.

    Shapes:
        input (N, C, ...), scale, bias (C,) or, in older files, (num_groups,)  ->  as input
    """

    num_groups: int
    epsilon: float = 1e-5

    def infer(self, input: TensorSpec, scale: TensorSpec, bias: TensorSpec) -> TensorSpec:
        self._norm.infer(tensor(input, "input", FLOATING))
        for each in (scale, bias):
            size = shape_of(each)
            fits = len(size) == 1 and (may_equal(size[0], input.shape[1]) or size[0] == self.num_groups)
            check_fits(fits, "scale or bias", size, f"[{input.shape[1]}] or [{self.num_groups}]")
        return input

    def forward(self, input: Array, scale: Array, bias: Array) -> Array:
        self.infer(*(TensorSpec(each.shape, each.dtype) for each in (input, scale, bias)))
        return self._norm.forward(input, self._spread(scale, input), self._spread(bias, input))

    @property
    def _norm(self) -> GroupNorm:
        return GroupNorm(num_groups=self.num_groups, eps=self.epsilon)

    def _spread(self, values: Array, input: Array) -> Array:
        channels = input.shape[1]
        return values if len(values) == channels else values.repeat(channels // self.num_groups)


def _broadcasts(weight: Any, input: TensorSpec) -> None:
    shape = shape_of(weight)
    if weight is not None and not may_match(broadcast_shapes(shape, input.shape), input.shape):
        raise ShapeError("weights do not fit", found=format_shape(shape), expected=f"into {format_shape(input.shape)}")


@register("LayerNormalization", ignored=("stash_type",))
class OnnxLayerNorm(Layer):
    """(x - mean) / sqrt(var + epsilon) * scale + bias with the statistics of the axes from ``axis`` on, also returned.

    Shapes:
        input (..., *S), scale, bias broadcast to it  ->  as input; mean, 1 / sqrt(var + epsilon) (..., 1, ...)
    """

    canonical_layers = (LayerNorm,)

    axis: int = -1
    epsilon: float = 1e-5
    annotations: Annotations = NO_ANNOTATIONS

    def canonicalise(self) -> Layer:
        inputs, outputs = self.annotations.inputs, self.annotations.outputs
        if len(outputs) != 1 or not inputs or inputs[0] is None:
            return self
        trailing = inputs[0].shape[checked_axis(self.axis, inputs[0].rank) :]
        if None in trailing or any(each is None or each.shape != trailing for each in inputs[1:]):
            return self
        return LayerNorm(normalized_shape=tuple(size or 0 for size in trailing), eps=self.epsilon)

    def infer(self, input: TensorSpec, scale: Any, bias: Any = None) -> Any:
        axis = checked_axis(self.axis, tensor(input, "input", FLOATING).rank)
        for weight in (scale, bias):
            _broadcasts(weight, input)
        statistics = TensorSpec((*input.shape[:axis], *(1,) * (input.rank - axis)), _statistics_dtype(input.dtype))
        results = (input, statistics, statistics)
        return selected(results, only_present(results, self.annotations, _RESULTS))

    def forward(self, input: Array, scale: Any, bias: Any = None) -> Any:
        spec = TensorSpec(input.shape, input.dtype)
        self.infer(spec, scale, bias)
        axes = tuple(range(checked_axis(self.axis, input.ndim), input.ndim))
        x = widened(input)
        with np.errstate(all="ignore"):
            mean = x.mean(axes, keepdims=True)
            centred = x - mean
            inverse = 1 / np.sqrt(np.square(centred).mean(axes, keepdims=True) + x.dtype.type(self.epsilon))
            y = centred * inverse * cast(scale, x.dtype)
            y = y if bias is None else y + cast(bias, x.dtype)
        specs = (spec, *(TensorSpec(each.shape, each.dtype) for each in (mean, inverse)))
        return selected((cast(y, input.dtype), mean, inverse), only_present(specs, self.annotations, _RESULTS))


def _statistics_dtype(dtype: DType) -> DType:
    return dtype if dtype == np.float64 else _FLOAT32


@register("RMSNormalization", ignored=("stash_type",))
class OnnxRMSNorm(Layer):
    """x / sqrt(mean(x**2) + epsilon) * scale, with the mean over the axes from ``axis`` on.

    Shapes:
        input (..., *S), scale broadcast to it  ->  as input
    """

    canonical_layers = (RMSNorm,)

    axis: int = -1
    epsilon: float = 1e-5
    annotations: Annotations = NO_ANNOTATIONS

    def canonicalise(self) -> Layer:
        inputs = self.annotations.inputs
        if len(inputs) != 2 or inputs[0] is None or inputs[1] is None:
            return self
        trailing = inputs[0].shape[checked_axis(self.axis, inputs[0].rank) :]
        if None in trailing or not may_match(trailing, inputs[1].shape):
            return self
        return RMSNorm(normalized_shape=tuple(size or 0 for size in trailing), eps=self.epsilon)

    def infer(self, input: TensorSpec, scale: Any) -> TensorSpec:
        checked_axis(self.axis, input.rank)
        _broadcasts(scale, input)
        return TensorSpec(input.shape, input.dtype)

    def forward(self, input: Array, scale: Any) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype), scale)
        axes = tuple(range(checked_axis(self.axis, input.ndim), input.ndim))
        x = widened(input)
        with np.errstate(all="ignore"):
            y = x / np.sqrt(np.square(x).mean(axes, keepdims=True) + x.dtype.type(self.epsilon))
            return cast(y * cast(scale, x.dtype), input.dtype)
