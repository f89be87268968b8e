"""The proof: the batch followed from the inputs of a graph to its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from engine.cancellation import cancellable
from engine.errors import EngineError, RunCancelledError
from engine.graph.batch.batch_axes import resized
from engine.graph.batch.independence.rules.sizes import sizes
from engine.graph.batch.independence.rules.table import check_numbers, rule_for
from engine.graph.batch.independence.use import COUNTS, Operand, Use, adapted, arranged, constant_operand, use_of
from engine.graph.batch.independence.values import SHARED, SIZES, Items, Mixed, MixesError, Value, leaves, nested
from engine.graph.operator import RuntimeOperator
from engine.graph.runtime_graph import RuntimeGraph
from engine.layers.definition.composite import Composite, inferred
from engine.layers.definition.known import is_repeatable
from engine.layers.definition.layer import Layer
from engine.tensor import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of a proof that the items of a batch are independent.

    Args:
        reason: why it is not proved, naming the operator; None if it is.
        outputs: the batch axis of each output, None for one that does not depend on the batch.
        is_plain: whether every output has one slice for each item.
        is_fitting: whether the graph accepts inputs of these shapes.
    """

    reason: str | None
    outputs: tuple[int | None, ...] = ()
    is_plain: bool = False
    is_fitting: bool = True


def prove(graph: RuntimeGraph, specs: Sequence[TensorSpec], axes: Sequence[int | None]) -> Proof:
    """Prove that each item of a batch gives the same result as alone, for every number of items.

    Args:
        graph: built; it takes any number of items.
        specs: of the inputs; the size along the batch axis is ignored.
        axes: the batch axis of each input; None for one that does not depend on the batch.
    """
    try:
        known = _inferred(graph, specs, axes)
    except RunCancelledError:
        raise
    except EngineError as error:
        return Proof(reason=f"a different batch size is rejected: {error}", is_fitting=False)
    found: dict[str, Value] = {}
    for port, axis in zip(graph.inputs, axes, strict=True):
        found[port.operand] = SHARED if axis is None else Items(axis)
    for op in cancellable(graph.operators):
        if op.layer is not None:
            results = _follow(op, found, known)
            found.update(zip((operand.name for operand in op.outputs), results, strict=True))
    flat: list[Any] = []
    for operand, ports in groupby(graph.outputs, key=lambda port: port.operand):
        own = leaves(found[operand])
        flat += [own[number % len(own)] for number, _ in enumerate(ports)]
    return _of_outputs(flat)


def _inferred(graph: RuntimeGraph, specs: Sequence[TensorSpec], axes: Sequence[int | None]) -> list[dict[str, object]]:
    """Return what is known of every operand with each of COUNTS.

    Raises:
        EngineError: an operator does not take a number of items.
    """
    pairs = list(zip(specs, axes, strict=True))
    return [
        graph.infer([spec if axis is None else resized(spec, axis, count) for spec, axis in pairs]) for count in COUNTS
    ]


def _of_outputs(flat: Sequence[Any]) -> Proof:
    """Return the proof for the abstract values of the outputs."""
    mixed = next((leaf for leaf in flat if isinstance(leaf, Mixed)), None)
    if mixed is not None:
        return Proof(reason=f"items are not proved independent: {mixed.reason}")
    if any(leaf == SIZES or (isinstance(leaf, Items) and leaf.is_numbered) for leaf in flat):
        return Proof(reason="items are not proved independent: an output depends on the number of items")
    if any(isinstance(leaf, Items) and leaf.outer != 1 for leaf in flat):
        return Proof(reason="items are not proved independent: an output does not hold each item in one piece")
    axes = tuple(leaf.axis if isinstance(leaf, Items) else None for leaf in flat)
    return Proof(reason=None, outputs=axes, is_plain=all(leaf.layout == (1, 1) for leaf in flat if leaf != SHARED))


def _follow(op: RuntimeOperator, found: dict[str, Value], known: Sequence[dict[str, object]]) -> Sequence[Value]:
    """Return the abstract values of an operator's outputs."""
    inputs = [Operand(found[each.name], tuple(row[each.name] for row in known)) for each in op.inputs]
    results = [tuple(row[each.name] for row in known) for each in op.outputs]
    flat = [leaf for each in inputs for leaf in leaves(each.value)]
    mixed = next((leaf for leaf in flat if isinstance(leaf, Mixed)), None)

    def placed(leaf: Value) -> Value:
        return Mixed(f"{op.where} {leaf.reason}") if isinstance(leaf, Mixed) and leaf is not mixed else leaf

    try:
        if op.layer is None or (not is_repeatable(op.layer.layer) and op.layer.layer.items_axis is None):
            raise MixesError("is of another package, or draws random numbers")
        if all(leaf == SHARED for leaf in flat):
            return [nested(lambda _: SHARED, spec[1]) for spec in results]
        if mixed is not None and not _arranges(op):
            return [mixed] * len(results)
        use = use_of(op.layer, inputs, results)
        return [nested(placed, value) for value in _checked(_concluded(use), results)]
    except MixesError as error:
        return [Mixed(f"{op.where} {error}")] * len(results)
    except (EngineError, ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        # A rule reads a layer's fields; if they are unexpected, nothing is proved.
        return [Mixed(f"{op.where} cannot be followed")] * len(results)


def _arranges(op: RuntimeOperator) -> bool:
    """Return whether an operator only groups values or takes a group apart: each value keeps its own proof."""
    return op.type in ("prim::TupleConstruct", "prim::ListConstruct", "prim::DictConstruct", "prim::TupleUnpack",
                       "prim::ListUnpack")  # fmt: skip


def _concluded(use: Use) -> Value:
    """Apply the rule of an operator to its operands.

    Raises:
        MixesError: it does not keep the items apart, or there is no rule for it.
    """
    if use.layer.items_axis is not None:
        return _declared(use, use.layer.items_axis)
    found = sizes(use)
    if found is not None:
        return found
    rule = rule_for(use.layer)
    if rule is None and isinstance(use.layer, Composite):
        return _composed(use, use.layer)
    if rule is None:
        inner = adapted(use)
        if inner is None:
            raise MixesError("has no rule for items of a batch")
        return _concluded(inner)
    check_numbers(rule, use)
    return rule(use)


def _composed(use: Use, layer: Composite) -> Value:
    """Follow the operators of a decomposition.

    Raises:
        MixesError: one of them does not keep the items apart.
    """

    def call(inner: Layer, *given: Any) -> Any:
        operands = [each if isinstance(each, Operand) else constant_operand(each) for each in given]
        found = [inferred(inner, *(each.specs[k] for each in operands)) for k, _ in enumerate(COUNTS)]
        results = [*zip(*found, strict=True)] if isinstance(found[0], tuple) else [tuple(found)]
        if all(each.is_shared for each in operands):
            values: Sequence[Value] = [nested(lambda _: SHARED, specs[1]) for specs in results]
        else:
            values = _checked(_concluded(arranged(inner, operands, {}, results)), results)
        outputs = tuple(map(Operand, values, results))
        return outputs if isinstance(found[0], tuple) else outputs[0]

    result = layer.compose(call, *use.operands)
    return tuple(each.value for each in result) if isinstance(result, tuple) else result.value


def _declared(use: Use, axis: int) -> Value:
    """Return what the author of a layer declares of its results.

    Raises:
        MixesError: an operand holds the batch along another axis, or a parameter depends on how many items there are.
    """
    is_foreign = any(not each.is_shared and each.value != Items(axis) for each in use.operands)
    if is_foreign or any(not each.is_shared for each in use.parameters.values()):
        raise MixesError(f"declares the batch along axis {axis}, where an operand does not hold it")
    return Items(axis)


def _checked(value: Value, results: Sequence[tuple[Any, ...]]) -> Sequence[Value]:
    """Return the abstract value of each output, compared with the sizes inferred for each of COUNTS."""
    values = value if isinstance(value, tuple) and len(value) == len(results) else (value,) * len(results)
    return [_fitted(each, specs) for each, specs in zip(values, results, strict=True)]


def _fitted(value: Value, specs: tuple[Any, ...]) -> Value:
    first = specs[1]
    if isinstance(first, (list, tuple, dict)) and not isinstance(value, (list, tuple, dict)) and value != SIZES:
        value = nested(lambda _: value, first)
    if isinstance(value, (list, tuple, dict)):
        return nested(_fitted_one, value, *specs)
    return _fitted_one(value, *specs)


def _fitted_one(value: Value, *specs: Any) -> Value:
    """Return the value, if it agrees with the sizes.

    Raises:
        MixesError: they are not.
    """
    if not isinstance(value, Items):
        return value
    for count, spec in zip(COUNTS, specs, strict=True):
        if not isinstance(spec, TensorSpec) or not spec.is_static:
            raise MixesError("has a result whose size is unknown before a run")
        expected = list(specs[1].shape)
        if value.axis >= len(expected):
            raise MixesError("has a result without an axis for the batch")
        expected[value.axis] = value.outer * count * value.inner
        if spec.shape != tuple(expected):
            raise MixesError("has a result whose shape depends on the batch size along more than one axis")
    return value
