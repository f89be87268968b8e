"""A graph's description as typed data, which all renderers read.

``read_description`` takes the dict of ``graph.describe()``. Unknown keys may be missing: there are no shapes before
the graph is built, and no times before it is profiled. Texts are not escaped; each format does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.render.formatting import shape_text

Shape: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """Tensor stored with an operator."""

    shape: Shape | None
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """Value between operators; shape and dtype are None if unknown or if the value is not a tensor."""

    name: str
    shape: Shape | None
    dtype: str | None
    size_names: tuple[str | None, ...] = ()

    @property
    def shape_text(self) -> str:
        """Return ``batch×3×?×?``, or an empty text if unknown."""
        return shape_text(self.shape, self.size_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Operator with its inputs and outputs by operand name."""

    index: int
    name: str
    type: str
    params: Mapping[str, Any]
    attributes: Mapping[str, Attribute]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    expression: str | None
    kernel: str | None
    flops: int | None
    time_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Graph with its operators in execution order; time_us is their sum, None if not profiled."""

    name: str
    backend: str | None
    operators: tuple[Operator, ...]
    operands: Mapping[str, Operand]
    totals: Mapping[str, int]
    warnings: tuple[str, ...]
    time_us: float | None

    def share(self, operator: Operator) -> float | None:
        """Return the operator's share of the time, 0 to 1, or None if not profiled."""
        return None if operator.time_us is None or not self.time_us else operator.time_us / self.time_us

    def links(self) -> list[tuple[str, int, list[int]]]:
        """Return (operand, index of its producer, distinct indices of its consumers) of each consumed operand."""
        producers = {name: i for i, operator in enumerate(self.operators) for name in operator.outputs}
        consumers: dict[str, dict[int, None]] = {name: {} for name in producers}
        for i, operator in enumerate(self.operators):
            for name in operator.inputs:
                if name in producers:
                    consumers[name][i] = None
        return [(name, producers[name], list(users)) for name, users in consumers.items() if users]


def read_description(data: Mapping[str, Any]) -> Description:
    """Return the typed form of ``graph.describe()``."""
    operators = tuple(_operator(i, entry) for i, entry in enumerate(data.get("operators", ())))
    times = [operator.time_us for operator in operators if operator.time_us is not None]
    return Description(
        name=str(data.get("name") or "graph"),
        backend=data.get("backend"),
        operators=operators,
        operands={name: _operand(name, entry) for name, entry in (data.get("operands") or {}).items()},
        totals={"operators": len(operators), **(data.get("totals") or {})},
        warnings=tuple(map(_warning, data.get("warnings") or ())),
        time_us=sum(times) if times else None,
    )


def _operator(position: int, entry: Mapping[str, Any]) -> Operator:
    params = entry.get("params") or {}
    return Operator(
        index=entry.get("index", position),
        name=entry["name"],
        type=entry["type"],
        params=params,
        attributes={key: _attribute(value) for key, value in (entry.get("attributes") or {}).items()},
        inputs=tuple(entry.get("inputs") or ()),
        outputs=tuple(entry.get("outputs") or ()),
        expression=entry.get("expression") or params.get("expr"),
        kernel=entry.get("kernel"),
        flops=entry.get("flops"),
        time_us=entry.get("time_us"),
    )


def _attribute(entry: Mapping[str, Any]) -> Attribute:
    return Attribute(shape=_shape(entry.get("shape")), dtype=str(entry.get("dtype", "")), bytes=entry.get("bytes") or 0)


def _operand(name: str, entry: Mapping[str, Any]) -> Operand:
    names = tuple(entry.get("size_names") or ())
    return Operand(name=name, shape=_shape(entry.get("shape")), dtype=entry.get("dtype"), size_names=names)


def _shape(dims: Any) -> Shape | None:
    return None if dims is None else tuple(dims)


def _warning(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    place = entry.get("operator") or entry.get("where")
    message = str(entry.get("message") or ", ".join(f"{key}: {value}" for key, value in entry.items()))
    is_placed = not place or message.startswith(f"{place}: ")
    return message if is_placed or not entry.get("message") else f"{place}: {message}"
