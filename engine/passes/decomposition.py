"""Decomposition of operators that are written in others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.defects import report_defect
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers import PRECISION, registry
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.composite import Composite, UnknownSizeError, inferred
from engine.layers.definition.layer import Annotations, Layer
from engine.layers.definition.overload import unfolded
from engine.layers.operands.precision import working_dtype
from engine.passes.support.facts import Facts, packed
from engine.passes.support.rewriting import Rewriter, renamed, stored
from engine.pnnx import Attribute, Graph, Operator, Parameter
from engine.tensor import UNKNOWN, DType, Shape, TensorSpec, is_known, known_value

PART: Final = "::"
_PART: Final = re.compile(f"({PART}[0-9]+)+$")


def origin(name: str) -> str:
    """Return the name of the operator whose decomposition an operator belongs to; its own if there is none."""
    return _PART.sub("", name)


def decomposition(graph: RuntimeGraph) -> Graph:
    """Replace operators that are written in others by those, for which there are kernels.

    An operator stays if its decomposition depends on a size that is unknown before a run, or if it is computed in half
    precision, which is rounded only once. Any other failure is a defect, see ``engine.defects``.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        bound = None if op.layer is None else unfolded(op.layer)
        if bound is not None and isinstance(bound.layer, Composite) and not _is_rounded(op, facts):
            try:
                _Writer(op, rewriter, facts).write(bound)
            except UnknownSizeError:
                continue
            except Exception as error:
                report_defect(op.name, error)
    return rewriter.result()


def _is_rounded(op: RuntimeOperator, facts: Facts) -> bool:
    """Return whether an operand is in half precision."""
    known = [facts.known(each) for each in op.inputs]
    items = [item for each in known for item in (each if isinstance(each, list | tuple) else [each])]
    return any(isinstance(each, TensorSpec) and working_dtype(each.dtype) != each.dtype for each in items)


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """Operand of the decomposition, by its name in the graph."""

    name: str
    spec: TensorSpec

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return self.spec.dtype


class _Writer:
    """Writer of the operators that one operator stands for."""

    def __init__(self, op: RuntimeOperator, rewriter: Rewriter, facts: Facts) -> None:
        self._op = op
        self._rewriter = rewriter
        self._facts = facts
        self._made: list[Operator] = []
        self._operands: dict[str, _Operand] = {}

    def write(self, bound: BoundLayer) -> None:
        """Replace the operator.

        Raises:
            UnknownSizeError: something about its operands is unknown.
        """
        known = [self._facts.known(each) for each in self._op.inputs]
        if not all(is_known(known_value(known[index])) for index in bound.dynamic.values()):
            raise UnknownSizeError("a parameter is unknown before a run")
        layer: Any = bound.with_parameters(known) if bound.dynamic else bound.layer
        attributes = {name: self._operand(each) for name, each in bound.keywords.items()}
        result = layer.compose(self._call, *(self._operand(each) for each in bound.positional), **attributes)
        results = result if isinstance(result, tuple) else (result,)
        names = {each.name: out.name for each, out in zip(results, self._op.outputs, strict=True)}
        made = [renamed(each, names) for each in self._made]
        first = self._op.outputs[0].name
        if any(first in each.outputs for each in made):
            made = [replace(each, params={**each.params, **self._precision}) for each in made]
            named = [replace(each, name=self._op.name) if first in each.outputs else each for each in made]
            self._rewriter.replace(self._op, *named)

    @property
    def _precision(self) -> Mapping[str, Parameter]:
        """Return the parameter that the operators it stands for take over."""
        return {PRECISION: self._op.params[PRECISION]} if self._op.allows_bfloat16 else {}

    def _operand(self, source: Source) -> object:
        return source.constant if source.index is None else self._described(self._op.inputs[source.index])

    def _described(self, operand: RuntimeOperand) -> object:
        known, items = self._facts.known(operand), packed(operand)
        if isinstance(known, list | tuple) and items is not None:
            return [self._described(each) for each in items]
        if isinstance(known, list | tuple) and any(isinstance(each, TensorSpec) for each in known):
            raise UnknownSizeError("the names of its tensors are unknown")
        if known is UNKNOWN:
            raise UnknownSizeError("an operand is unknown before a run")
        if not isinstance(known, TensorSpec):
            return known
        # An operand that comes twice stays the same.
        return self._operands.setdefault(operand.name, _Operand(operand.name, known))

    def _call(self, layer: Layer, *operands: Any) -> Any:
        """Write the operator of a layer; return its results."""
        result = inferred(layer, *(each.spec if isinstance(each, _Operand) else each for each in operands))
        results = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(each, TensorSpec) for each in results):
            raise UnknownSizeError("a result is unknown before a run")
        name = self._rewriter.fresh(f"{self._op.name}{PART}{len(self._made) + 1}")
        outputs = [_Operand(self._rewriter.fresh(name), each) for each in results]
        self._made.append(_operator(layer, name, operands, tuple(each.name for each in outputs)))
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _operator(layer: Layer, name: str, operands: tuple[Any, ...], outputs: tuple[str, ...]) -> Operator:
    signature = registry[registry.type_of(layer)]
    inputs: list[str] = []
    labels: list[str | None] = []
    attributes: dict[str, Attribute] = {}
    params = dict(_parameters(layer, signature.presets))
    names = [*signature.operands] if not signature.is_variadic else [None] * len(operands)
    for label, each in zip(names, operands, strict=False):
        if isinstance(each, _Operand):
            inputs.append(each.name)
            labels.append(label)
        elif isinstance(each, np.ndarray) and label is not None:
            attributes[label] = stored(each)
        elif label is None:
            raise UnknownSizeError("an operand is unknown before a run")
        elif each is not signature.operands[label]:
            params[label] = each
    return Operator(signature.type, name, tuple(inputs), outputs, params, attributes, tuple(labels))


def _parameters(layer: Layer, presets: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for each in fields(layer):
        value = getattr(layer, each.name)
        if isinstance(value, tuple) and None in value:
            raise UnknownSizeError("a size is unknown before a run")
        if isinstance(value, np.dtype):  # numpy takes None for float64, so it is not compared
            yield each.name, f"torch.{value.name}"
        elif not isinstance(value, Annotations) and each.name not in presets and value != each.default:
            yield each.name, value
