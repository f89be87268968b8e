"""16-bit floats of a graph that is lowered as float32: its inputs and outputs, and results that PyTorch rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.graph import RuntimeGraph
from engine.promotion import is_reduced
from engine.tensor import DType, TensorSpec, dtype_name


class OutputRoundingError(Exception):
    """Output of 16-bit floats that does not lie in program memory, so no kernel can round it."""


@dataclass(frozen=True, slots=True)
class LowPrecision:
    """16-bit floats where the lowered graph has float32.

    Args:
        inputs, outputs: 16-bit dtype of each input and output; None for others.
        rounded: names of operands that PyTorch rounds to 16 bits, and the rounding function.
    """

    inputs: Sequence[DType | None] = ()
    outputs: Sequence[DType | None] = ()
    rounded: Mapping[str, str] = field(default_factory=dict)

    def given(self, port: int) -> DType | None:
        """Return the 16-bit dtype of an input; None if the caller gives float32."""
        return self.inputs[port] if self.inputs else None

    def returned(self, port: int) -> DType | None:
        """Return the 16-bit dtype of an output; None if the caller gets float32."""
        return self.outputs[port] if self.outputs else None


def low_precision_of(
    graph: RuntimeGraph, wide: RuntimeGraph, specs: Sequence[TensorSpec], outputs: Sequence[str]
) -> LowPrecision:
    """Return the 16-bit floats of a graph.

    Args:
        wide: the same graph as it is lowered.
        outputs: the flattened outputs of the graph.

    Raises:
        OutputRoundingError: the dtype of an output is unknown.
    """
    values = graph.infer(specs)
    unknown = [name for name in outputs if not isinstance(values.get(name), TensorSpec)]
    if unknown:
        raise OutputRoundingError(f"nothing is known of output '{unknown[0]}'")
    makers = {op.name: op for op in graph.operators}
    rounded: dict[str, str] = {}
    for op in wide.operators:
        before = makers.get(op.name)
        has_float32 = before is not None and any(_is_wide(values.get(each.name)) for each in before.outputs)
        if op.definition is None or not op.definition.does_arithmetic or has_float32:
            continue
        dtypes = ((each.name, _narrow(values.get(each.name))) for each in op.outputs)
        rounded |= {name: f"round_{dtype_name(dtype)}" for name, dtype in dtypes if dtype is not None}
    return LowPrecision(tuple(map(_narrow, specs)), tuple(_narrow(values.get(name)) for name in outputs), rounded)


def _narrow(value: object) -> DType | None:
    """Return the dtype of a tensor of 16-bit floats, or None."""
    return value.dtype if isinstance(value, TensorSpec) and is_reduced(value.dtype) else None


def _is_wide(value: object) -> bool:
    return isinstance(value, TensorSpec) and value.dtype.kind == "f" and not is_reduced(value.dtype)
