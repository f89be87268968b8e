"""Operators that are functions: of the file, or of the standard, whose schema defines their body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.errors import GraphError, quoted
from engine.onnx.reading.attributes import attribute_value, number_or_text
from engine.onnx.reading.source import Model, library
from engine.onnx.reading.tensors import Weights
from engine.onnx.translation.node import Node

_INT, _FLOAT, _STRING = 2, 1, 3


@dataclass(frozen=True, slots=True)
class Local:
    """Body of a function.

    Args:
        versions: domain -> version of its operator set; None for those of the caller.
        optional: messages of attributes with their defaults.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[Any]
    versions: Mapping[str, int] | None
    optional: Sequence[Any] = ()
    values: Mapping[str, Any] | None = None

    def defaults(self, weights: Weights) -> dict[str, Any]:
        """Return the default values of attributes."""
        found = {each.name: attribute_value(each, weights) for each in self.optional}
        return {**(self.values or {}), **found}


class Functions:
    """Function bodies by domain and name."""

    def __init__(self, model: Model) -> None:
        self._bodies: dict[tuple[str, str], Any] = {}
        for each in model.proto.functions:
            key = ("" if each.domain == "ai.onnx" else each.domain, each.name)
            if key in self._bodies:
                raise GraphError(f"function {quoted(each.name)} is defined twice", expected="distinct names")
            self._bodies[key] = each

    def has(self, domain: str, type: str) -> bool:
        """Return whether the file has a function of this name."""
        return (domain, type) in self._bodies

    def local(self, domain: str, type: str) -> Local | None:
        """Return a function of the file."""
        proto = self._bodies.get((domain, type))
        return None if proto is None else _local(proto)

    def schema(self, node: Node) -> Local | None:
        """Return the standard's definition of an operator as a function; None if there is none."""
        defs = library().defs
        try:
            schema = defs.get_schema(node.type, node.version, node.domain)
        except defs.SchemaError:
            return None
        body = _body(schema)
        return None if body is None else _local(body, _schema_defaults(schema))


def _body(schema: Any) -> Any:
    """Return the body of a schema that holds for all operands.

    Bodies that depend on operands and attributes are made by code of the package that crashes on malicious ones.
    Operators with such a body have a translator, or are refused.
    """
    if not schema.has_function or not len(schema.function_body.node):
        return None
    return schema.function_body


def _local(proto: Any, values: Mapping[str, Any] | None = None) -> Local:
    versions = {("" if each.domain == "ai.onnx" else each.domain): each.version for each in proto.opset_import}
    return Local(
        inputs=list(proto.input),
        outputs=list(proto.output),
        nodes=proto.node,
        versions=versions or None,
        optional=proto.attribute_proto,
        values=values,
    )


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of an operator in a version of its operator set, from its schema."""

    names: frozenset[str]
    defaults: Mapping[str, Any]


@lru_cache(maxsize=4096)
def schema_attributes(domain: str, type: str, version: int) -> Attributes | None:
    """Return the attributes defined by the standard; None for an unknown operator."""
    defs = library().defs
    try:
        schema = defs.get_schema(type, version, domain)
    except defs.SchemaError:
        return None
    return Attributes(frozenset(schema.attributes), _schema_defaults(schema))


def _schema_defaults(schema: Any) -> dict[str, Any]:
    given = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: number_or_text(proto) for name, proto in given.items() if proto.type in (_INT, _FLOAT, _STRING)}
