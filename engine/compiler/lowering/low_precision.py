"""What a graph that is lowered as float32 has in 16-bit floats to its callers, and to PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.graph import RuntimeGraph
from engine.promotion import is_reduced
from engine.tensor import DType, TensorSpec, dtype_name


class OutputRoundingError(Exception):
    """An output of 16-bit floats does not lie in memory of the program, where a kernel could round it."""


@dataclass(frozen=True, slots=True)
class LowPrecision:
    """16-bit floats where a graph that is lowered has float32.

    Args:
        inputs, outputs: what a caller gives, or gets; None for what is no such float.
        rounded: names of operands of which PyTorch keeps 16 bits, and the function that rounds to so many.
    """

    inputs: Sequence[DType | None] = ()
    outputs: Sequence[DType | None] = ()
    rounded: Mapping[str, str] = field(default_factory=dict)

    def given(self, port: int) -> DType | None:
        """What a caller gives for an input of float32; None where that is float32."""
        return self.inputs[port] if self.inputs else None

    def returned(self, port: int) -> DType | None:
        """What a caller gets for an output of float32; None where that is float32."""
        return self.outputs[port] if self.outputs else None


def low_precision_of(
    graph: RuntimeGraph, wide: RuntimeGraph, specs: Sequence[TensorSpec], outputs: Sequence[str]
) -> LowPrecision:
    """What is 16-bit floats in a graph.

    Args:
        wide: the same as it is lowered.
        outputs: what the graph returns, laid flat.
    """
    values = graph.infer(specs)
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
    """The dtype of a tensor of 16-bit floats."""
    return value.dtype if isinstance(value, TensorSpec) and is_reduced(value.dtype) else None


def _is_wide(value: object) -> bool:
    return isinstance(value, TensorSpec) and value.dtype.kind == "f" and not is_reduced(value.dtype)
