"""An operator of a file, as its translator sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers import Annotations, registry
from engine.layers.onnx.operands.adapter import only_present
from engine.onnx.translation.builder import Builder
from engine.onnx.translation.value import Size, Value, constant
from engine.pnnx.graph import Graph, Parameter
from engine.tensor import Array, DType, TensorSpec


@dataclass(frozen=True, slots=True)
class Part:
    """A subgraph as a graph of its own.

    Args:
        captured: values of the outer graph that it uses; its last inputs.
        results: descriptions of its results.
    """

    graph: Graph
    captured: Sequence[Value]
    results: Sequence[object]


@dataclass(slots=True, kw_only=True)
class Node:
    """One operator of an ONNX file.

    Args:
        inputs: None for omitted ones.
        attributes: numbers, texts, tuples of them, arrays; as in the file.
        defaults: defaults of this version's schema for attributes that are not in the file.
        version: of the operator set.
        outputs: names of the used results, empty for unused ones.
        declared: the file's declarations of the results.
        subgraph: makes a subgraph of a graph attribute, given descriptions of its inputs.
        inline: inserts the operators of a graph attribute into the outer graph, given its inputs; returns its results.
        names_results: False for an operator of pnnx's converter, which omits unused results without a trace.
    """

    type: str
    name: str
    domain: str
    version: int
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    outputs: Sequence[str]
    builder: Builder
    subgraph: Callable[[Any, Sequence[object]], Part]
    inline: Callable[..., list[Value]]
    declared: Sequence[TensorSpec | None] = field(default=())
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names_results: bool = True

    def input(self, index: int) -> Value:
        """Return a required input.

        Raises:
            ParameterError: it is omitted.
        """
        value = self.optional(index)
        if value is None:
            raise ParameterError(f"input {index} is missing", found=f"{len(self.inputs)} inputs")
        return value

    def optional(self, index: int) -> Value | None:
        """Return an optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def array(self, index: int) -> Array | None:
        """Return the elements of a constant input."""
        value = self.optional(index)
        return None if value is None else value.constant

    def integers(self, index: int, attribute: str) -> tuple[int, ...] | None:
        """Return a constant list of integers, an attribute in one version and an input in another; else None."""
        if attribute in self.attributes:
            value = self.attributes[attribute]  # a pair has a list of one number as that number
            return (value,) if isinstance(value, int) else self.numbers(attribute)
        array = self.array(index)
        if array is None or array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 64:
            return None
        return tuple(map(int, array.reshape(-1).tolist()))

    def is_given(self, index: int) -> bool:
        """Return whether an input is given."""
        return self.optional(index) is not None

    def _attribute(self, name: str, default: object) -> Any:
        return self.attributes.get(name, self.defaults.get(name, default))

    def numbers(self, attribute: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return an attribute that is a list of integers.

        Raises:
            ParameterError: it is something else.
        """
        value = self._attribute(attribute, default)
        if not isinstance(value, tuple) or not all(isinstance(each, int) for each in value):
            raise ParameterError(f"attribute '{attribute}' is not a list of integers", found=repr(value)[:80])
        return value

    def number(self, attribute: str, default: int) -> int:
        """Return an attribute that is an integer.

        Raises:
            ParameterError: it is something else.
        """
        value = self._attribute(attribute, default)
        if not isinstance(value, int):
            raise ParameterError(f"attribute '{attribute}' is not an integer", found=repr(value)[:80])
        return value

    def real(self, attribute: str, default: float) -> float:
        """Return an attribute that is a number.

        Raises:
            ParameterError: it is something else.
        """
        value = self._attribute(attribute, default)
        if not isinstance(value, (int, float)):
            raise ParameterError(f"attribute '{attribute}' is not a number", found=repr(value)[:80])
        return float(value)

    def text(self, attribute: str, default: str) -> str:
        """Return an attribute that is a text.

        Raises:
            ParameterError: it is something else.
        """
        value = self._attribute(attribute, default)
        if not isinstance(value, str):
            raise ParameterError(f"attribute '{attribute}' is not a text", found=repr(value)[:80])
        return value

    def make(
        self,
        type: str,
        *inputs: Value,
        weights: Mapping[str, Array] | None = None,
        labels: Sequence[str | None] = (),
        **params: Parameter,
    ) -> Value:
        """Append an operator with one result; return it."""
        return self.builder.add(
            type,
            self.name,
            inputs,
            outputs=(self.outputs[0] if self.outputs else "",),
            params=params,
            attributes=weights,
            labels=labels,
        )[0]

    def results(self, values: Sequence[Value], names: Sequence[str]) -> list[Value]:
        """Return the values that the outputs are: the first ones, or those that the annotations of a pair fit.

        Args:
            names: of the results.

        Raises:
            ParameterError: the pair does not say which ones.
        """
        specs = [value.tensor for value in values if value.tensor is not None]
        if self.names_results or len(specs) < len(values):
            return list(values)
        notes = Annotations(outputs=tuple(self.declared))
        return [values[k] for k in only_present(specs, notes, names)]

    def all(
        self, count: int, type: str, *inputs: Value, labels: Sequence[str | None] = (), **params: Any
    ) -> list[Value]:
        """Append an operator with several results; return all of them, used or not."""
        names = [*self.outputs, *("",) * count][:count]
        return self.builder.add(type, self.name, inputs, outputs=names, params=params, labels=labels)

    def expression(self, text: str, *inputs: Value) -> Value:
        """Append arithmetic; return its result."""
        return self.make("pnnx.Expression", *inputs, expr=text)

    def sizes(self, sizes: Sequence[Size]) -> Value:
        """Append a list of sizes that are unknown before a run."""
        return self.builder.list_of(sizes, f"{self.name}_sizes")

    def constant(self, array: Array) -> Value:
        """Return a constant as a value."""
        return constant(array)

    def same(
        self, type: str | None = None, inputs: Sequence[Value | None] | None = None, **changes: Parameter | None
    ) -> list[Value]:
        """Append the operator unchanged, under its own name and with its own attributes; a change to None drops one.

        Its operands are labelled with the arguments of the layer, so that omitted ones stay omitted in a pair.

        Args:
            inputs: in the layer's order, None for omitted ones; the node's own by default.
        """
        type = type or self.type
        inputs = self.inputs if inputs is None else inputs
        given = {**self._other_defaults(type), **self.attributes, **changes}
        given = {key: value for key, value in given.items() if value is not None}
        params = {key: _parameter(key, value) for key, value in given.items()}
        count = max((k + 1 for k, name in enumerate(self.outputs) if name), default=1)
        present, labels = self._labelled(type, inputs)
        return self.builder.add(
            type,
            self.name,
            present,
            outputs=tuple(self.outputs[:count]) or ("",),
            params=params,
            labels=labels,
            declared=self.declared[:count],
        )

    def _other_defaults(self, type: str) -> dict[str, Any]:
        """Return the defaults of this version that differ from those of the layer."""
        if type != self.type or type not in registry:
            return {}
        signature = registry[type]
        own = {each.name: each.default for each in fields(signature.layer) if each.name in signature.fields}
        own |= {**signature.presets, **signature.operands}
        return {name: value for name, value in self.defaults.items() if name in own and not _is_same(own[name], value)}

    def _labelled(self, type: str, inputs: Sequence[Value | None]) -> tuple[list[Value], list[str]]:
        """Return the given inputs, and the arguments they stand for; variadic ones have no names."""
        given = [(k, value) for k, value in enumerate(inputs) if value is not None]
        present = [value for _, value in given]
        if type not in registry or not given:
            return present, []
        signature = registry[type]
        if signature.is_variadic:
            if len(given) <= given[-1][0]:
                raise ParameterError("an input is missing", found=f"{len(given)} inputs")
            return present, []
        slots = signature.slots
        if given[-1][0] >= len(slots):
            raise ParameterError("too many inputs", found=len(inputs), expected=f"at most {len(slots)}")
        return present, [slots[k] for k, _ in given]

    def dtype(self, index: int = 0) -> DType | None:
        """Return the dtype of an input, None if unknown."""
        value = self.optional(index)
        return None if value is None else value.dtype

    def rank(self, index: int = 0) -> int:
        """Return the rank of an input.

        Raises:
            ShapeError: it is unknown before a run.
        """
        rank = self.input(index).rank
        if rank is None:
            raise ShapeError(f"the rank of input {index} is not known before a run", expected="a declared shape")
        return rank


def _is_same(own: object, default: object) -> bool:
    """Return whether a layer's default is that of a schema, which has numbers of single precision."""
    if isinstance(own, float) and isinstance(default, float):
        return bool(np.float32(own) == np.float32(default))
    return own == default


def _parameter(key: str, value: Any) -> Parameter:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, tuple) and all(isinstance(each, (int, float, str)) for each in value):
        return value
    raise ParameterError(f"attribute '{key}' has an unsupported type", found=type(value).__name__)
