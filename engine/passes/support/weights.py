"""Convolutions, linear layers and batch normalisations whose weights are known: folded into each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any, Final

import numpy as np

from engine.graph import RuntimeOperand, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.linear.linear import Linear
from engine.layers.normalisation.norm import BatchNorm
from engine.passes.support.facts import Facts, input_named, is_static
from engine.passes.support.rewriting import stored
from engine.pnnx import Operator, Parameter
from engine.tensor import Array, Dim, DType, TensorSpec

FLOAT64: Final[DType] = np.dtype(np.float64)
FOLDABLE: Final = frozenset({np.dtype(np.float32), FLOAT64})
"""Dtypes whose weights may be rounded once more: half precision would lose too much."""

_MODULES: Final = {
    **{f"F.conv{rank}d": f"nn.Conv{rank}d" for rank in (1, 2, 3)},
    **{f"F.conv_transpose{rank}d": f"nn.ConvTranspose{rank}d" for rank in (1, 2, 3)},
    "F.linear": "nn.Linear",
}
"""Functional type -> the type that stores its weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """Convolution or linear layer with constant weights, all of one dtype: float32 or float64.

    Args:
        input: operand that is multiplied by the weights.
        weight: Conv (O, C/groups, *K), ConvTranspose (C, O/groups, *K), Linear (O, I).
        bias: (O,) or None.
        rank: of the output.
    """

    op: RuntimeOperator
    layer: Conv | ConvTranspose | Linear
    input: RuntimeOperand
    weight: Array
    bias: Array | None
    rank: int

    @property
    def groups(self) -> int:
        """Number of channel groups."""
        return 1 if isinstance(self.layer, Linear) else int(self.layer.groups)

    @property
    def out_channels(self) -> int:
        """Number of output channels."""
        return int(self.weight.shape[1] * self.groups if self._is_transposed else self.weight.shape[0])

    @property
    def _is_transposed(self) -> bool:
        return isinstance(self.layer, ConvTranspose)

    @property
    def channel_axis(self) -> int:
        """Channel axis of the output."""
        return self.rank - 1 if isinstance(self.layer, Linear) else self.rank - 1 - self.layer.spatial_rank

    @property
    def output(self) -> RuntimeOperand:
        """The operand it makes."""
        return self.op.outputs[0]

    @property
    def bias_or_zeros(self) -> Array:
        """The bias, (O,); zeros if it has none."""
        return np.zeros(self.out_channels, self.weight.dtype) if self.bias is None else self.bias

    def scaled(self, scale: Array, shift: Array) -> tuple[Array, Array] | None:
        """Return weight and bias for scale * output + shift; both (O,), float64. None if one is not finite."""
        if not _is_finite(scale, shift):
            return None
        weight = _multiplied(self._by_output(self.weight), self._along_output(scale)).reshape(self.weight.shape)
        old = np.zeros((), FLOAT64) if self.bias is None else self.bias.astype(FLOAT64)
        bias = np.broadcast_to(old * scale + shift, scale.shape)
        return finite(weight, _rounded(bias, self.weight.dtype))

    def absorbing(self, scale: Array, shift: Array) -> tuple[Array, Array] | None:
        """Return weight and bias for input x that give the present result for scale * x + shift; both (C,), float64.

        None if zero padding comes in between, or one is not finite.
        """
        if not _is_finite(scale, shift) or self._is_transposed or self.pads_with_zeros and np.any(shift):
            return None
        wide = self.weight.astype(FLOAT64).reshape(self.groups, -1, *self.weight.shape[1:])
        along = (self.groups, 1, -1, *(1,) * (self.weight.ndim - 2))
        taps = tuple(range(2, wide.ndim))
        added = (wide * shift.reshape(along)).sum(axis=taps).reshape(-1)
        bias = added if self.bias is None else self.bias.astype(FLOAT64) + added
        weight = (wide * scale.reshape(along)).reshape(self.weight.shape)
        return finite(_rounded(weight, self.weight.dtype), _rounded(bias, self.weight.dtype))

    @property
    def pads_with_zeros(self) -> bool:
        """Return whether the convolution pads its input with zeros."""
        if not isinstance(self.layer, Conv) or self.layer.padding_mode != "zeros":
            return False
        return any(map(any, self.layer.padding_of(self.weight.shape[2:])))

    def _by_output(self, weight: Array) -> Array:
        """Return the weight with a leading axis of groups, if its output channels are not the first axis."""
        if not self._is_transposed:
            return weight
        return weight.reshape(self.groups, -1, *weight.shape[1:])

    def _along_output(self, values: Array) -> Array:
        """Return one number an output channel, shaped to broadcast against _by_output()."""
        if not self._is_transposed:
            return values.reshape(-1, *(1,) * (self.weight.ndim - 1))
        return values.reshape(self.groups, 1, -1, *(1,) * (self.weight.ndim - 2))

    def operator(self, weight: Array, bias: Array, input: str = "", outputs: Sequence[str] = ()) -> Operator:
        """Return this operator with other weights and, if given, other operands.

        A depthwise convolution may have other channels, every other layer fewer of its own or of its input.
        """
        attributes = {"weight": stored(weight), "bias": stored(bias)}
        return with_fields(
            self.op.source,
            type=_MODULES.get(self.op.type, self.op.type),
            inputs=(input or self.input.name,),
            labels=(None,),
            outputs=tuple(outputs) or self.op.source.outputs,
            params={**self._params(), **self._sizes(weight), "bias": True},
            attributes={**self.op.source.attributes, **attributes},
        )

    def _params(self) -> dict[str, Parameter]:
        """Return the parameters but for sizes as spelled by the type that stores its weights."""
        if self.op.type not in _MODULES:
            return self.op.source.params
        if isinstance(self.layer, Linear):
            return {}
        names = ["stride", "padding", "dilation", "output_padding" if self._is_transposed else "padding_mode"]
        given: dict[str, Any] = {name: getattr(self.layer, name) for name in names}
        return {**given, "kernel_size": self.weight.shape[2:]}

    def _sizes(self, weight: Array) -> dict[str, Parameter]:
        """Return the parameters that repeat sizes of a weight."""
        first, second = weight.shape[:2]
        if isinstance(self.layer, Linear):
            return {"in_features": second, "out_features": first}
        groups = first if is_depthwise(self) else self.groups
        if self._is_transposed:
            return {"in_channels": first, "out_channels": second * groups, "groups": groups}
        return {"in_channels": second * groups, "out_channels": first, "groups": groups}


def is_depthwise(layer: Weighted) -> bool:
    """Return whether a convolution computes every channel from the input channel of the same number alone."""
    return layer.groups > 1 and layer.weight.shape[:2] == (layer.groups, 1)


def weighted(op: RuntimeOperator | None, facts: Facts) -> Weighted | None:
    """Return an operator as Weighted; None if it is not one, or not of float32 or float64 throughout."""
    if op is None or op.layer is None or not is_static(op) or not op.type.startswith(("nn.", "F.")):
        return None
    layer, input = op.definition, input_named(op, "input")
    if type(layer) not in (Conv, ConvTranspose, Linear) or input is None:
        return None
    weight, bias = facts.argument(op, "weight"), facts.argument(op, "bias")
    given, made = facts.spec(input), facts.spec(op.outputs[0])
    if given is None or made is None or not isinstance(weight, np.ndarray) or weight.ndim < 2:
        return None
    if not (bias is None or isinstance(bias, np.ndarray)) or not _is_foldable(given, made, weight, bias):
        return None
    return Weighted(op=op, layer=layer, input=input, weight=weight, bias=bias, rank=made.rank)  # type: ignore[arg-type]


def _is_foldable(*values: TensorSpec | Array | None) -> bool:
    dtypes = {value.dtype for value in values if value is not None}
    return len(dtypes) == 1 and dtypes <= FOLDABLE


def _multiplied(weight: Array, scale: Array) -> Array:
    """Return weight * scale, computed in float64 and rounded once, without a float64 copy of the weight."""
    result = np.empty(weight.shape, weight.dtype)
    with np.errstate(all="ignore"):
        return np.multiply(weight, scale, out=result, dtype=FLOAT64, casting="same_kind")


def _rounded(values: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def finite(weight: Array, bias: Array) -> tuple[Array, Array] | None:
    """Return weights and biases; None if a number of them is not finite."""
    return (weight, bias) if _is_finite(weight, bias) else None


def _is_finite(*values: Array) -> bool:
    """Return whether all numbers are finite, which their sum shows."""
    with np.errstate(all="ignore"):
        return all(math.isfinite(float(value.sum(dtype=FLOAT64))) for value in values)


def channels_of(spec: TensorSpec, axis: int = 1) -> Dim:
    """Return the number of channels of a tensor; None if it is dynamic."""
    return spec.shape[axis] if axis < spec.rank else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """Batch normalisation with stored statistics; all vectors are (C,)."""

    op: RuntimeOperator
    spec: TensorSpec
    mean: Array
    var: Array
    weight: Array | None
    bias: Array | None
    eps: float

    @property
    def maker(self) -> RuntimeOperator | None:
        """The operator that makes the input."""
        return self.op.inputs[0].producer

    def affine(self, dtype: DType) -> tuple[Array, Array]:
        """Return scale and shift in a dtype, computed in it like the layer does."""
        mean, var, weight, bias = (
            None if each is None else each.astype(dtype) for each in (self.mean, self.var, self.weight, self.bias)
        )
        with np.errstate(all="ignore"):
            scale = 1 / np.sqrt(var + self.eps)  # type: ignore[operator]
            scale = scale if weight is None else scale * weight
            shift = -mean * scale if bias is None else bias - mean * scale  # type: ignore[operator]
        return scale, shift


def normalisation(op: RuntimeOperator, facts: Facts) -> Normalisation | None:
    """Return an operator as a normalisation of float32 or float64 with stored statistics; None if it is not one."""
    if not isinstance(op.definition, BatchNorm) or not is_static(op):
        return None
    operand = input_named(op, "input")
    spec = facts.spec(operand) if operand is not None else None
    mean, var, weight, bias = (facts.argument(op, name) for name in ("running_mean", "running_var", "weight", "bias"))
    if operand is not op.inputs[0] or spec is None or spec.dtype not in FOLDABLE:
        return None
    vectors = [each for each in (mean, var, weight, bias) if each is not None]
    is_stored = all(isinstance(each, np.ndarray) and each.shape == (channels_of(spec),) for each in vectors)
    if mean is None or var is None or not is_stored:
        return None
    return Normalisation(op=op, spec=spec, mean=mean, var=var, weight=weight, bias=bias, eps=op.definition.eps)
