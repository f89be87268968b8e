"""What a file declares of its values: shapes, dtypes, names of sizes."""

from __future__ import annotations

from typing import Any, Final

from engine.layers.onnx.operands.dtypes import DTYPES
from engine.limits import MAX_RANK
from engine.onnx.translation.scope import Scope
from engine.tensor import TensorSpec

_LONGEST_SIZE_NAME: Final = 64
_NO_NAMES: Final = ("none", "unknown")


def declarations(graph: Any) -> dict[str, TensorSpec]:
    """What the file says of its values."""
    declared = {}
    for each in (*graph.value_info, *graph.output, *graph.input):
        spec = declared_spec(each.type)
        if spec is not None:
            declared[each.name] = spec
    return declared


def note_names(scope: Scope, port: Any) -> None:
    """Keep what the file calls the sizes of an input or output."""
    shape = port.type.tensor_type.shape if port.type.HasField("tensor_type") else None
    if shape is not None and 0 < len(shape.dim) <= MAX_RANK:
        names = tuple(_size_name(dim.dim_param) for dim in shape.dim)
        if any(names):
            scope.builder.size_names.setdefault(scope.values[port.name].name, names)


def _size_name(given: str) -> str | None:
    """A name that a page and a message can show; what some exporters write for any size names none."""
    is_name = given.isprintable() and any(each.isalpha() for each in given) and given.lower() not in _NO_NAMES
    return given if is_name and len(given) <= _LONGEST_SIZE_NAME else None


def declared_spec(type: Any) -> TensorSpec | None:
    """A declared shape and dtype; None where there is none, or of no tensor."""
    if not type.HasField("tensor_type") or type.tensor_type.elem_type not in DTYPES:
        return None
    tensor = type.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) > 64:
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    # Some exporters write 0 or -1 for a size that is open.
    shape = tuple(None if size is None or size <= 0 else size for size in sizes)
    return TensorSpec(shape, DTYPES[tensor.elem_type])
