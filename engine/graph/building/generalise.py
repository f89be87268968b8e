"""Generalisation of a graph exported at one batch size to any batch size.

The batch dimension of the inputs, mostly the first, is followed through the graph at another size. Where an operator's
constants hard-code the exported size, they are rewritten: the dimension of a reshape or expand that carries the batch
becomes -1, and a constant that meets a batched operand is expanded to its batch. Independence of the items of a batch
is not decided here but proved (engine.graph.batch.independence).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine import pnnx
from engine.cancellation import cancellable
from engine.errors import EngineError, GraphError, RunCancelledError
from engine.graph.building.inference import split_outputs
from engine.graph.building.linking import bind_operator
from engine.graph.operator import RuntimeOperator
from engine.graph.port import flatten
from engine.layers import Registry
from engine.tensor import UNKNOWN, TensorSpec, product

FACTOR = 11
"""The tried batch is this multiple of the exported one: a prime that seldom divides another dimension."""


class BatchError(GraphError):
    """An operator forbids running the graph at another batch size; ``where`` names it."""


def generalise_batch(
    source: pnnx.Graph, order: Sequence[RuntimeOperator], registry: Registry, axes: Mapping[str, int]
) -> pnnx.Graph:
    """Return the graph with the batch dimension of every input dynamic.

    Args:
        source: the graph as read.
        order: its operators, built; every input has the same known size along its axis.
        registry: the layers it may use.
        axes: the batch dimension of every input, by the operand's name.

    Raises:
        BatchError: naming the operator that forbids it.
    """
    tracer = _Tracer(source, registry, axes)
    for op in cancellable(order):
        tracer.follow(op)
    annotations = {name: tracer.with_dynamic_batch(name, spec) for name, spec in source.annotations.items()}
    return replace(source, operators=tracer.operators, annotations=annotations)


class _Tracer:
    """Visitor that follows another batch through the operators and rewrites those that need it.

    Attributes:
        base: known values of every operand at the exported batch size.
        values: the same at FACTOR times that size.
    """

    def __init__(self, source: pnnx.Graph, registry: Registry, axes: Mapping[str, int]) -> None:
        self._annotations = source.annotations
        self._axes = axes
        self._registry = registry
        self._batch_operand = ""
        self._exported = 1
        self.base: dict[str, object] = {}
        self.values: dict[str, object] = {}
        self.operators: list[pnnx.Operator] = []
        self._makers: dict[str, RuntimeOperator] = {}

    def with_dynamic_batch(self, name: str, spec: TensorSpec) -> TensorSpec:
        """Return an annotation with its batch dimension dynamic."""
        axis = self._batch_axis(name)
        return spec if axis is None else TensorSpec((*spec.shape[:axis], None, *spec.shape[axis + 1 :]), spec.dtype)

    def follow(self, op: RuntimeOperator) -> None:
        """Process one operator."""
        self.base.update({operand.name: operand.value for operand in op.outputs})
        self._makers.update({operand.name: op for operand in op.outputs})
        if op.type == "pnnx.Input":
            self._follow_input(op)
        elif op.type == "pnnx.Output":
            self.operators.append(op.source)
        else:
            self._follow_layer(op)

    def _follow_input(self, op: RuntimeOperator) -> None:
        name, spec = op.outputs[0].name, op.outputs[0].value
        axis = self._axes.get(name, 0)
        self._batch_operand = self._batch_operand or name
        if isinstance(spec, TensorSpec) and axis < spec.rank and (size := spec.shape[axis]) is not None:
            self._exported = size
            spec = TensorSpec((*spec.shape[:axis], size * FACTOR, *spec.shape[axis + 1 :]), spec.dtype)
        self.values[name] = spec
        self.operators.append(op.source)

    def _follow_layer(self, op: RuntimeOperator) -> None:
        failure: EngineError = BatchError("the batch axis is lost")
        is_batched = any(self._is_batched(operand.name) for operand in op.inputs)
        for candidate in self._candidates(op) if is_batched else [[op.source]]:
            try:
                values = self._try(candidate, op)
            except RunCancelledError:
                raise
            except EngineError as error:
                failure = error
                continue
            if not is_batched or self._carries(op, values):
                self.values.update(values)
                self.operators.extend(candidate)
                return
        raise BatchError(failure.problem, where=op.where)

    def _candidates(self, op: RuntimeOperator) -> Iterator[list[pnnx.Operator]]:
        """Yield the operator unchanged, then rewrites of it; the last item of each list is the operator itself."""
        yield [self._dynamic_sizes(op) if op.type in ("Tensor.reshape", "Tensor.expand") else op.source]
        yield from self._expansions(op)

    def _try(self, candidate: Sequence[pnnx.Operator], op: RuntimeOperator) -> dict[str, object]:
        """Return what is known of the candidates' operands."""
        values: dict[str, object] = {}
        for source in candidate:
            if source is op.source and op.layer is not None:
                layer = op.layer
            else:
                layer = bind_operator(source, self._annotations, self._registry)
            inputs = [values[name] if name in values else self.values[name] for name in source.inputs]
            results = split_outputs(op, layer.infer(inputs)) if source is candidate[-1] else [layer.infer(inputs)]
            values |= dict(zip(source.outputs, results, strict=True))
        return values

    def _carries(self, op: RuntimeOperator, values: Mapping[str, object]) -> bool:
        """Return whether the batch reaches every result tensor of the operator, in one dimension each."""
        pairs = [pair for o in op.outputs for pair in _pairs(self.base[o.name], values[o.name])]
        return all(scaled_axis(*pair) is not None or not isinstance(pair[0], TensorSpec) for pair in pairs)

    def _dynamic_sizes(self, op: RuntimeOperator) -> pnnx.Operator:
        """Return a reshape or expand with -1 for its batched dimension."""
        key = "shape" if op.type == "Tensor.reshape" else "sizes"
        sizes = op.params.get(key)
        given, made = self.base[op.inputs[0].name], self.base[op.outputs[0].name]
        axis = self._batch_axis(op.inputs[0].name)
        if not isinstance(given, TensorSpec) or not isinstance(made, TensorSpec):
            return op.source
        if axis is None or not isinstance(sizes, tuple):
            return op.source
        target = _reshaped_axis(given, made, axis) if key == "shape" else axis + made.rank - given.rank
        if sizes[target] == -1:
            return op.source
        dynamic = tuple(-1 if k == target else dim for k, dim in enumerate(made.shape))
        return replace(op.source, params={**op.params, key: dynamic})

    def _expansions(self, op: RuntimeOperator) -> Iterator[list[pnnx.Operator]]:
        """Yield the operator with its constant operands expanded to the batch.

        Constants of size one in their first or second dimension are expanded. Others are repeated along the first: the
        constant folded for the items of the exported batch is repeated for every item.
        """
        names = dict.fromkeys(operand.name for operand in op.inputs if not self._is_batched(operand.name))
        specs = {name: spec for name in names if isinstance(spec := self.base[name], TensorSpec) and spec.shape}
        for axis in range(2):
            single = {name: spec for name, spec in specs.items() if axis < spec.rank and spec.shape[axis] == 1}
            if single:
                yield self._with_batched(op, single, "expand", "-1", axis)
        if specs and all(self._repeats(name, spec) for name, spec in specs.items()):
            yield self._with_batched(op, specs, "repeat", "1", 0)

    def _with_batched(
        self, op: RuntimeOperator, specs: Mapping[str, TensorSpec], method: str, other: str, axis: int
    ) -> list[pnnx.Operator]:
        """Return the operator after one method call for each of the operands, with sizes from the graph's input."""
        helpers = []
        for name, spec in specs.items():
            result = f"{name}_batched_for_{op.name}"
            text = "[" + ",".join("size(@0,0)" if k == axis else other for k in range(spec.rank)) + "]"
            made, given = f"{result}_sizes", name
            if method == "repeat" and self._exported > 1:
                given = f"{result}_of_one"
                bounds: dict[str, pnnx.Parameter] = {
                    "dim": 0, "start": 0, "end": (spec.shape[0] or 0) // self._exported, "step": 1,
                }  # fmt: skip
                helpers.append(pnnx.Operator("Tensor.slice", given, (name,), (given,), bounds, labels=("input",)))
            helpers += [
                pnnx.Operator("pnnx.Expression", made, (self._batch_operand,), (made,), {"expr": text}),
                pnnx.Operator(f"Tensor.{method}", result, (given, made), (result,), labels=("input", "sizes")),
            ]
        inputs = tuple(f"{name}_batched_for_{op.name}" if name in specs else name for name in op.source.inputs)
        return [*helpers, replace(op.source, inputs=inputs)]

    def _repeats(self, name: str, spec: TensorSpec) -> bool:
        """Return whether a constant is the same for every item of the exported batch."""
        if self._exported == 1:
            return True
        if (spec.shape[0] or 0) % self._exported:
            return False
        items = np.split(np.asarray(self._constant(name)), self._exported)
        return all(each.tobytes() == items[0].tobytes() for each in items)

    def _constant(self, name: str) -> Any:
        """Return the value of an operand that does not depend on the inputs."""
        maker = self._makers[name]
        if maker.layer is None:
            raise BatchError("an input has no batch", where=maker.where)
        found = split_outputs(maker, maker.layer.forward([self._constant(each.name) for each in maker.inputs]))
        return found[[each.name for each in maker.outputs].index(name)]

    def _is_batched(self, name: str) -> bool:
        return any(scaled_axis(*pair) is not None for pair in _pairs(self.base[name], self.values[name]))

    def _batch_axis(self, name: str) -> int | None:
        return scaled_axis(self.base[name], self.values[name])


def _pairs(base: object, value: object) -> list[tuple[object, object]]:
    before, after = list(flatten(base)), list(flatten(value))
    return list(zip(before, after, strict=True)) if len(before) == len(after) else [(base, UNKNOWN)]


def scaled_axis(base: object, value: object) -> int | None:
    """Return the one dimension that grew by FACTOR while the others stayed; None if there is none."""
    if not isinstance(base, TensorSpec) or not isinstance(value, TensorSpec) or base.rank != value.rank:
        return None
    grown = [k for k, (a, b) in enumerate(zip(base.shape, value.shape, strict=True)) if a != b]
    is_scaled = len(grown) == 1 and value.shape[grown[0]] == (base.shape[grown[0]] or 0) * FACTOR
    return grown[0] if is_scaled else None


def _reshaped_axis(given: TensorSpec, made: TensorSpec, axis: int) -> int:
    """Return where a dimension goes in a reshape: the first axis with as many elements before it as before.

    The first, because the batch is the slowest part of a dimension it was merged into.
    """
    before = product(given.shape[:axis])
    return next((k for k in range(made.rank) if product(made.shape[:k]) == before), 0)
