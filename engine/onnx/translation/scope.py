"""Names of a graph or subgraph, the values they stand for, and the shapes and dtypes that the file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.errors import GraphError, quoted
from engine.layers.onnx.operands.dtypes import DTYPES
from engine.limits import MAX_RANK
from engine.onnx.translation.builder import Builder
from engine.onnx.translation.value import Value, constant
from engine.tensor import TensorSpec

_LONGEST_SIZE_NAME: Final = 64
_NO_NAMES: Final = ("none", "unknown")


@dataclass(slots=True)
class Scope:
    """Names in a graph, a subgraph or the body of a function, and their values.

    Args:
        values: values by name.
        declared: the file's declarations by name.
        versions: domain -> version of its operator set.
        prefix: of the names of operators made here.
        given: attributes of the function's call, for references in its body.
        depth: number of enclosing functions and subgraphs.
        subgraphs: number of enclosing subgraphs.
        outer: scope around a subgraph.
        captured: outer values that the subgraph uses, with their values in it.
        functions: enclosing functions, by domain and name.
        left_out: inputs of the function that its call omits.
    """

    versions: Mapping[str, int]
    builder: Builder
    values: dict[str, Value] = field(default_factory=dict)
    declared: dict[str, TensorSpec] = field(default_factory=dict)
    prefix: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0
    subgraphs: int = 0
    outer: Scope | None = None
    captured: dict[Value, Value] = field(default_factory=dict)
    functions: tuple[tuple[str, str], ...] = ()
    left_out: frozenset[str] = frozenset()

    def find(self, name: str) -> Value | None:
        """Return the value of a name, here or in an outer graph."""
        value = self.values.get(name)
        if value is not None or self.outer is None:
            return value
        found = self.outer.find(name)
        return None if found is None else self._capture(found, name)

    def leaves_out(self, name: str) -> bool:
        """Return whether a name is an omitted input of the function."""
        return not name or (name in self.left_out and self.find(name) is None)

    def _capture(self, found: Value, name: str) -> Value:
        """Return a value of the outer graph as an input of this one; constants are copied."""
        if found not in self.captured:
            if found.constant is not None:
                return constant(found.constant)
            inner = self.builder.input(name, found.tensor)
            if found.tensor is None:
                inner.spec = found.spec
            self.captured[found] = inner
        return self.captured[found]


class Chained(dict[str, Value]):
    """Names of a subgraph whose operators are inlined: names that are not its own are those of the outer graph."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name."""
        own = super().get(name)
        return own if own is not None else self._scope.find(name) or default


def value_of(scope: Scope, name: str, what: str) -> Value:
    value = scope.find(name)
    if value is None:
        raise GraphError(f"{what}, {quoted(name)}, is not computed by an earlier node", expected="operators in order")
    return value


def declarations(graph: Any) -> dict[str, TensorSpec]:
    """Return the file's declarations of values."""
    declared = {}
    for each in (*graph.value_info, *graph.output, *graph.input):
        spec = declared_spec(each.type)
        if spec is not None:
            declared[each.name] = spec
    return declared


def note_names(scope: Scope, port: Any) -> None:
    """Record the file's names of the sizes of an input or output."""
    shape = port.type.tensor_type.shape if port.type.HasField("tensor_type") else None
    if shape is not None and 0 < len(shape.dim) <= MAX_RANK:
        names = tuple(_size_name(dim.dim_param) for dim in shape.dim)
        if any(names):
            scope.builder.size_names.setdefault(scope.values[port.name].name, names)


def _size_name(given: str) -> str | None:
    """Return a size name that can be shown; None for the placeholders that some exporters write for any size."""
    is_name = given.isprintable() and any(each.isalpha() for each in given) and given.lower() not in _NO_NAMES
    return given if is_name and len(given) <= _LONGEST_SIZE_NAME else None


def declared_spec(type: Any) -> TensorSpec | None:
    """Return a declared shape and dtype; None if there is none, or it is not of a tensor."""
    if not type.HasField("tensor_type") or type.tensor_type.elem_type not in DTYPES:
        return None
    tensor = type.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) > 64:
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    # Some exporters write 0 or -1 for a dynamic size.
    shape = tuple(None if size is None or size <= 0 else size for size in sizes)
    return TensorSpec(shape, DTYPES[tensor.elem_type])
