"""Translation of the messages of a file to a graph of ordinary operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.cancellation import cancellable_quick
from engine.errors import EngineError, GraphError, ModelFormatError, ParameterError, UnsupportedOperatorError, quoted
from engine.onnx.reading.attributes import attribute_value, labels_of
from engine.onnx.reading.source import Model
from engine.onnx.translation.builder import MAX_OPERATORS, Builder
from engine.onnx.translation.functions import Functions, Local, schema_attributes
from engine.onnx.translation.node import Node, Part
from engine.onnx.translation.registry import known_types, translator_of
from engine.onnx.translation.scope import Chained, Scope, declarations, note_names, value_of
from engine.onnx.translation.value import Value, constant
from engine.pnnx.graph import Graph
from engine.tensor import UNKNOWN, TensorSpec

_MAX_NESTING: Final = 32
"""Deepest nesting of functions."""

_MAX_SUBGRAPHS: Final = 8
"""Deepest nesting of subgraphs: each level infers the innermost values once more."""


_LEAST_STEPS: Final = 20_000
_STEPS_EACH: Final = 64
"""Most translated operators, counting each use of a function or subgraph: this number or multiple of the file's."""

_MOST_LISTED: Final = 50


def translate(model: Model) -> Graph:
    """Return the graph of a model.

    Raises:
        UnsupportedOperatorError: all operators that have no translation, with their names and operator sets.
        EngineError: an operator contradicts itself or its operands; names the operator.
    """
    return _Translation(model).run()


class _Translation:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._weights = model.weights
        self._functions = Functions(model)
        self._unsupported: list[str] = []
        self._steps = 0
        # Nested functions can expand a small file exponentially, so expansion is limited.
        written = len(model.proto.graph.node) + sum(len(each.node) for each in model.proto.functions)
        self._most_steps = min(MAX_OPERATORS, _LEAST_STEPS + _STEPS_EACH * written)

    def run(self) -> Graph:
        graph = self._model.proto.graph
        scope = Scope(self._model.versions, Builder(), declared=declarations(graph))
        self._constants(graph, scope)
        given: set[str] = set()
        scope.builder.reserve(each.name for each in (*graph.input, *graph.output))
        for each in graph.input:
            if not each.name or each.name in given:
                raise GraphError(f"input {quoted(each.name)} occurs twice, or has no name", expected="distinct names")
            given.add(each.name)
            if each.name not in scope.values:
                spec = scope.declared.get(each.name)
                self._define(scope, each.name, scope.builder.input(each.name, spec))
                note_names(scope, each)
        self._nodes(graph.node, scope)
        if self._unsupported:
            raise UnsupportedOperatorError(_listed(self._unsupported))
        if not graph.output:
            raise GraphError("the graph has no output", found=f"{len(graph.node)} operators")
        for each in graph.output:
            value = value_of(scope, each.name, "the graph's output")
            scope.values[each.name] = scope.builder.output(value, each.name)
            note_names(scope, each)
        labels = labels_of(self._model.proto.metadata_props) or scope.builder.labels
        return replace(scope.builder.graph(), labels=labels)

    def _constants(self, graph: Any, scope: Scope) -> None:
        for each in graph.initializer:
            self._define(scope, each.name, constant(self._weights.array(each)))
        for each in graph.sparse_initializer:
            self._define(scope, each.values.name, constant(self._weights.dense(each)))

    def _define(self, scope: Scope, name: str, value: Value) -> None:
        if name in scope.values:
            raise GraphError(f"value {quoted(name)} is produced twice", expected="one operator")
        scope.values[name] = value

    def _nodes(self, nodes: Iterable[Any], scope: Scope) -> None:
        for index, proto in enumerate(cancellable_quick(list(nodes))):
            self._steps += 1
            if self._steps > self._most_steps:
                expected = f"at most {self._most_steps:,}"
                raise GraphError("too many operators, those of functions and subgraphs included", expected=expected)
            name = scope.prefix + (proto.name or f"{proto.op_type}_{index}")
            try:
                self._node(proto, name, scope)
            except UnsupportedOperatorError as error:
                self._refuse(str(error), proto, scope)
            except EngineError as error:
                raise error.at(self._place(proto, name, scope)) from error.__cause__

    def _place(self, proto: Any, name: str, scope: Scope) -> str:
        domain = _domain(proto)
        version = scope.versions.get(domain, 0)
        where = f"{domain}, " if domain else ""
        return f"{quoted(name)} ({where}{quoted(proto.op_type)[1:-1]}, opset {version})"

    def _node(self, proto: Any, name: str, scope: Scope) -> None:
        domain = _domain(proto)
        if domain not in scope.versions and not self._functions.has(domain, proto.op_type):
            scope_note = f"the file imports no operator set of the domain '{domain}'"
            if domain:
                raise UnsupportedOperatorError(f"{self._place(proto, name, scope)}: {scope_note}")
        node = self._prepared(proto, name, domain, scope)
        local = self._functions.local(domain, proto.op_type)
        translator = None if local else translator_of(domain, proto.op_type, node.version)
        results = None if translator is None else translator(node)
        if local is not None and (domain, proto.op_type) in scope.functions:
            raise GraphError(f"function {quoted(proto.op_type)} calls itself", expected="functions that end")
        if results is None:
            results = self._expanded(local or self._functions.schema(node), node, scope)
        if results is None:
            raise UnsupportedOperatorError(f"{self._place(proto, name, scope)}{_hint(domain, proto.op_type)}")
        self._bind(proto, results, scope)

    def _prepared(self, proto: Any, name: str, domain: str, scope: Scope) -> Node:
        inputs = [None if scope.leaves_out(each) else value_of(scope, each, "an input") for each in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        version = scope.versions.get(domain, 1)
        attributes = dict(self._attributes(proto, scope))
        known = (
            None if self._functions.has(domain, proto.op_type) else schema_attributes(domain, proto.op_type, version)
        )
        if known is not None:
            attributes = {
                key: value for key, value in attributes.items() if not key.startswith("_")
            }  # annotations by tools
            if wrong := attributes.keys() - known.names:
                expected = ", ".join(sorted(known.names)) or "none"
                raise ParameterError(f"unknown attribute {quoted(min(wrong))}", expected=expected)
        return Node(
            type=proto.op_type,
            name=name,
            domain=domain,
            version=version,
            inputs=inputs,
            attributes=attributes,
            outputs=list(proto.output),
            builder=scope.builder,
            subgraph=partial(self._subgraph, scope=scope),
            inline=partial(self._inline, scope=scope, prefix=name),
            declared=[scope.declared.get(each) for each in proto.output],
            defaults={} if known is None else known.defaults,
        )

    def _attributes(self, proto: Any, scope: Scope) -> Iterable[tuple[str, Any]]:
        for each in proto.attribute:
            if not each.ref_attr_name:
                yield each.name, attribute_value(each, self._weights)
            elif each.ref_attr_name in scope.given:
                yield each.name, scope.given[each.ref_attr_name]

    def _bind(self, proto: Any, results: Value | Sequence[Value], scope: Scope) -> None:
        values = [results] if isinstance(results, Value) else list(results)
        for name, value in zip(proto.output, values, strict=False):
            if name:
                self._define(scope, name, value)
                note = scope.declared.get(name)
                if value.spec is UNKNOWN and note is not None:
                    value.spec = scope.builder.annotations[value.name] = note
        missing = [name for name in proto.output[len(values) :] if name]
        if missing:
            raise ModelFormatError("too many outputs", found=len(proto.output), expected=f"at most {len(values)}")

    def _expanded(self, body: Local | None, node: Node, scope: Scope) -> list[Value] | None:
        """Return the results of a function's body for its operands; None without a body."""
        if body is None:
            return None
        inner = Scope(
            {**self._model.versions, **scope.versions, **(body.versions or {})},
            scope.builder,
            prefix=f"{node.name}/",
            given={**body.defaults(self._weights), **node.attributes},
            depth=self._deeper(scope),
            subgraphs=scope.subgraphs,
            functions=(*scope.functions, (node.domain, node.type)),
        )
        if len(node.inputs) > len(body.inputs):
            raise GraphError("too many inputs", found=len(node.inputs), expected=f"at most {len(body.inputs)}")
        given = {name: node.optional(k) for k, name in enumerate(body.inputs)}
        inner.values.update({name: value for name, value in given.items() if value is not None})
        inner.left_out = frozenset(given) - inner.values.keys()
        self._nodes(body.nodes, inner)
        if self._unsupported:
            return [Value(spec=UNKNOWN, name="?") for _ in body.outputs]
        return [inner.values.get(name, Value()) for name in body.outputs]

    def _subgraph(self, proto: Any, given: Sequence[object], scope: Scope) -> Part:
        """Return a subgraph as a graph of its own.

        Args:
            given: descriptions of its inputs.
        """
        inner = self._inside(scope)
        inner.declared = declarations(proto)
        self._constants(proto, inner)
        if len(given) != len(proto.input):
            raise GraphError("a subgraph got the wrong number of inputs", found=len(given), expected=len(proto.input))
        for each, known in zip(proto.input, given, strict=True):
            spec = known if isinstance(known, TensorSpec) else inner.declared.get(each.name)
            self._define(inner, each.name, inner.builder.input(each.name, spec))
        self._nodes(proto.node, inner)
        results = (
            [] if self._unsupported else [value_of(inner, each.name, "the subgraph's output") for each in proto.output]
        )
        for value in results:
            inner.builder.output(value)
        return Part(inner.builder.graph(), list(inner.captured), [each.spec for each in results])

    def _inline(self, proto: Any, given: Sequence[Value] = (), *, scope: Scope, prefix: str) -> list[Value]:
        """Insert the operators of a subgraph into the outer graph; return its results.

        Args:
            given: its inputs.
        """
        if len(given) != len(proto.input):
            raise GraphError("a subgraph got the wrong number of inputs", found=len(given), expected=len(proto.input))
        inner = replace(scope, values={}, declared=declarations(proto), prefix=f"{prefix}/", depth=self._deeper(scope))
        inner.outer, inner.captured = None, {}
        inner.values = Chained(scope)
        self._constants(proto, inner)
        for each, value in zip(proto.input, given, strict=True):
            self._define(inner, each.name, value)
        self._nodes(proto.node, inner)
        if self._unsupported:
            return [Value(name="?") for _ in proto.output]
        return [value_of(inner, each.name, "the subgraph's output") for each in proto.output]

    def _inside(self, scope: Scope) -> Scope:
        depth, subgraphs = self._deeper(scope), scope.subgraphs + 1
        if subgraphs > _MAX_SUBGRAPHS:
            raise GraphError("subgraphs are nested too deep", found=subgraphs, expected=f"at most {_MAX_SUBGRAPHS}")
        inner = Scope(scope.versions, Builder(), given=scope.given, depth=depth, subgraphs=subgraphs, outer=scope)
        inner.functions, inner.left_out = scope.functions, scope.left_out
        return inner

    def _deeper(self, scope: Scope) -> int:
        if scope.depth >= _MAX_NESTING:
            raise GraphError("functions or subgraphs are nested too deep", found=scope.depth)
        return scope.depth + 1

    def _refuse(self, text: str, proto: Any, scope: Scope) -> None:
        """Record an unsupported operator and continue with unknown results, to find all others too."""
        self._unsupported.append(text)
        for name in proto.output:
            if name:
                scope.values.setdefault(name, Value(name="?"))


def _domain(proto: Any) -> str:
    return "" if proto.domain == "ai.onnx" else str(proto.domain)


def _hint(domain: str, type: str) -> str:
    if not domain and type in known_types():
        return ": not in the form this model uses"
    return ": no layer"


def _listed(found: Sequence[str]) -> str:
    shown = "; ".join(found[:_MOST_LISTED])
    more = f"; and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return f"{len(found)} operators cannot be run: {shown}{more}"
