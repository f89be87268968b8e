"""Upcast of graphs of 16-bit floats to float32.

Inputs, outputs and the weights in the file stay float16 or bfloat16. Kernels compute with float32, as PyTorch does; a
stored intermediate result is rounded as PyTorch rounds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from engine import pnnx
from engine.errors import EngineError
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.elementwise.activation import Tanhshrink
from engine.layers.elementwise.cast import To, TypeAs
from engine.layers.elementwise.comparison import Comparison, IsClose
from engine.layers.elementwise.mathematics import NanToNum
from engine.memory.blocks import disk_block
from engine.promotion import is_reduced
from engine.tensor import DType, TensorSpec, dtype_name

# Weights of at least so many bytes are stored in a file, and converted so many elements at a time.
_LARGE_BYTES: Final = 1 << 18
_PIECE: Final = 1 << 20
_FLOAT32: Final = np.dtype(np.float32)
_NAMES: Final = ("torch.half", "torch.float16", "torch.bfloat16")
_WIDE: Final = "torch.float"
# Layers that differ in float32: discontinuous ones, and those that depend on the dtype's limits or rounding.
_SENSITIVE: Final = (Comparison, IsClose, NanToNum, Tanhshrink)
_CASTS: Final = (To, TypeAs)
_CODES: Final = ("f16", "bf16")


class UpcastError(Exception):
    """Graph that computes something else in float32, or returns what cannot be rounded at the end."""


def has_low_precision(graph: RuntimeGraph) -> bool:
    """Return whether a built graph has 16-bit floats."""
    attributes = (each for op in graph.operators for each in op.attributes.values())
    specs = (operand.spec for operand in graph.operands.values())
    return any(each is not None and is_reduced(each.dtype) for each in (*attributes, *specs))


def upcast(graph: RuntimeGraph, *, is_kept: bool = False) -> RuntimeGraph:
    """Return the graph in float32, with the same names; operators that depend on the dtype stay, between casts.

    Args:
        is_kept: whether the graph is kept: large weights then lie in a file, so that their pages can be released.

    Raises:
        UpcastError: an operand would differ from the graph's in more than its dtype.
    """
    source = graph.source
    known = {op.name: op for op in graph.operators}
    operators = [each for op in source.operators for each in _operators(op, known.get(op.name), is_kept=is_kept)]
    annotations = {name: _spec(spec) for name, spec in source.annotations.items()}
    try:
        wide = graph.rebuilt(replace(source, operators=operators, annotations=annotations))
    except EngineError as error:
        raise UpcastError(str(error)) from error
    for name, operand in graph.operands.items():
        if not _is_alike(operand.value, wide.operands[name].value):
            raise UpcastError(f"operand '{name}' differs in float32")
    return wide


def upcast_specs(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return specs with float32 in place of 16-bit floats."""
    return list(map(_spec, specs))


def _spec(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape, _FLOAT32) if is_reduced(spec.dtype) else spec


def _operators(op: pnnx.Operator, known: RuntimeOperator | None, *, is_kept: bool) -> list[pnnx.Operator]:
    """Return the replacement of an operator: itself, with upcast weights, or between casts."""
    if known is not None and known.layer is not None and _is_sensitive(known):
        return _among_casts(op, known)
    if known is not None and _rounds(known):
        rounded = f"{known.outputs[0].name}.{op.name}"
        return [replace(op, outputs=(rounded,)), _cast(op, rounded, known.outputs[0].name, "float32")]
    params = {name: _parameter(value) for name, value in op.params.items()}
    attributes = {name: _attribute(each, is_kept=is_kept) for name, each in op.attributes.items()}
    if all(a is b for a, b in zip((*params.values(), *attributes.values()), _contents(op), strict=True)):
        return [op]
    return [replace(op, params=params, attributes=attributes)]


def _is_sensitive(op: RuntimeOperator) -> bool:
    """Return whether an operator of 16-bit floats differs in float32 by more than rounding."""
    dtypes = {_dtype_of(each) for each in op.inputs}
    if isinstance(op.definition, Comparison) and len(op.inputs) == 2 and len(dtypes) == 1:
        return False  # the same numbers in float32
    return isinstance(op.definition, _SENSITIVE) and any(map(_dtype_of, (*op.inputs, *op.outputs)))


def _rounds(op: RuntimeOperator) -> bool:
    """Return whether an operator casts to 16 bits, which in float32 would change nothing."""
    if not isinstance(op.definition, _CASTS) or not op.inputs or op.inputs[0].spec is None:
        return False
    dtype = _dtype_of(op.outputs[0])
    return dtype is not None and dtype != op.inputs[0].spec.dtype


def _among_casts(op: pnnx.Operator, known: RuntimeOperator) -> list[pnnx.Operator]:
    before = [
        _cast(op, each.name, f"{each.name}.{op.name}.{k}", dtype_name(dtype))
        for k, each in enumerate(known.inputs)
        if (dtype := _dtype_of(each)) is not None
    ]
    after = [_cast(op, f"{each.name}.{op.name}", each.name, "float32") for each in known.outputs if _dtype_of(each)]
    inputs = [
        name if _dtype_of(each) is None else f"{each.name}.{op.name}.{k}"
        for k, (name, each) in enumerate(zip(op.inputs, known.inputs, strict=True))
    ]
    outputs = [each.name if _dtype_of(each) is None else f"{each.name}.{op.name}" for each in known.outputs]
    return [*before, replace(op, inputs=tuple(inputs), outputs=tuple(outputs)), *after]


def _cast(op: pnnx.Operator, source: str, target: str, dtype: str) -> pnnx.Operator:
    params: dict[str, pnnx.Parameter] = {"copy": False, "dtype": f"torch.{dtype}"}
    return pnnx.Operator("Tensor.to", f"{op.name}.{target}.cast", (source,), (target,), params)


def _dtype_of(operand: RuntimeOperand) -> DType | None:
    """Return the dtype of an operand of 16-bit floats, or None."""
    spec = operand.spec
    return spec.dtype if spec is not None and is_reduced(spec.dtype) else None


def _contents(op: pnnx.Operator) -> Sequence[object]:
    return *op.params.values(), *op.attributes.values()


def _attribute(attribute: pnnx.Attribute, *, is_kept: bool) -> pnnx.Attribute:
    if not is_reduced(attribute.dtype):
        return attribute
    data = attribute.data
    if is_kept and data.nbytes >= _LARGE_BYTES:
        flat = data.reshape(-1)
        starts = range(0, flat.size, _PIECE)
        block = disk_block(lambda: (flat[at : at + _PIECE].astype(_FLOAT32) for at in starts), 4 * flat.size)
        if block is not None:
            return pnnx.Attribute(attribute.shape, _FLOAT32, block.view(_FLOAT32).reshape(attribute.shape))
    data = data.astype(_FLOAT32)
    data.flags.writeable = False
    return pnnx.Attribute(attribute.shape, _FLOAT32, data)


def _parameter(value: pnnx.Parameter) -> pnnx.Parameter:
    """Return a dtype, or an expression that names dtypes, with float32 in place of 16-bit floats."""
    if not isinstance(value, str):
        return value
    if value in _NAMES or value in _CODES:
        return _WIDE if value in _NAMES else "f32"
    for name in _NAMES:
        value = value.replace(f"{name}(", f"{_WIDE}(") if f"{name}(" in value else value
    return value


def _is_alike(value: object, wide: object) -> bool:
    """Return whether what is known of an operand differs only in 16-bit floats."""
    if isinstance(value, TensorSpec):
        return _spec(value) == wide
    if isinstance(value, tuple | list) and isinstance(wide, tuple | list):
        return len(value) == len(wide) and all(map(_is_alike, value, wide))
    return isinstance(wide, float) or value == wide
