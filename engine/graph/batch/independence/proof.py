"""The proof: the batch followed from the inputs of a graph to its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from engine.cancellation import cancellable
from engine.errors import EngineError, RunCancelledError
from engine.graph.batch.batch_axes import resized
from engine.graph.batch.independence.operator import Operand, Use, arranged, constant_operand, per_item, use_of
from engine.graph.batch.independence.rules.table import check_numbers, rule_for
from engine.graph.batch.independence.values import SHARED, Items, Mixed, MixesError, Value, leaves, nested
from engine.graph.building.inference import follow
from engine.graph.operator import RuntimeOperator
from engine.graph.runtime_graph import RuntimeGraph
from engine.ir.dims import Dim, ShapeEnv, hint, is_symbolic
from engine.ir.ratios import Ratio
from engine.layers import BoundLayer
from engine.layers.definition.composite import Composite, inferred
from engine.layers.definition.known import is_repeatable
from engine.layers.definition.layer import Layer
from engine.tensor import UNKNOWN, TensorSpec, is_known, known_value

_HINT: Final = 7
"""Number of items of an inference; any, as it must not decide anything."""


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

    Sizes are inferred for one item, and for a symbolic number of two or more. An inference that a certain number
    decides records a guard, and ends the proof.

    Args:
        graph: built; it takes any number of items.
        specs: of the inputs; the size along the batch axis is ignored.
        axes: the batch axis of each input; None for one that does not depend on the batch.
    """
    env = ShapeEnv()
    count = env.dynamic("n", _HINT)
    names, pairs = [port.operand for port in graph.inputs], list(zip(specs, axes, strict=True))
    alone, known = (
        [spec if axis is None else resized(spec, axis, size) for spec, axis in pairs] for size in (1, count)
    )
    values = [SHARED if axis is None else Items(axis) for axis in axes]
    try:
        trace = _Trace(count, graph.infer(alone), dict(zip(names, map(Operand, values, known), strict=True)))
        for op in cancellable(graph.operators):
            trace.follow(op)
            if env.guards:
                return Proof(reason=f"items are not proved independent: {op.where} depends on the number of items")
    except RunCancelledError:
        raise
    except EngineError as error:
        return Proof(reason=f"a different batch size is rejected: {error}", is_fitting=False)
    flat: list[Operand] = []
    for operand, ports in groupby(graph.outputs, key=lambda port: port.operand):
        found = trace.found[operand]
        own = list(map(Operand, leaves(found.value), leaves(found.spec)))
        flat += [own[number % len(own)] for number, _ in enumerate(ports)]
    return _of_outputs(flat)


@dataclass(frozen=True, slots=True)
class _Trace:
    """Operands of a graph that were followed so far, and what is known of them.

    Args:
        count: the number of items.
        alone: descriptions of all operands for one item.
        found: the operands that were followed, by their names.
    """

    count: int
    alone: Mapping[str, object]
    found: dict[str, Operand]

    def follow(self, op: RuntimeOperator) -> None:
        """Add the outputs of an operator.

        Raises:
            EngineError: it does not accept this batch.
        """
        if op.layer is None:
            return
        inputs = [self.found[each.name] for each in op.inputs]
        mixed = next((leaf for each in inputs for leaf in leaves(each.value) if isinstance(leaf, Mixed)), None)
        if mixed is None or _arranges(op):
            try:
                values, specs = self._outputs(op, op.layer, inputs)
                for operand, value, spec in zip(op.outputs, values, specs, strict=True):
                    placed = nested(partial(_placed, op, mixed), value)
                    self.found[operand.name] = Operand(placed, nested(_known_of, placed, spec))
                return
            except MixesError as error:
                mixed = Mixed(f"{op.where} {error}")
        for operand in op.outputs:  # nothing of their descriptions may be used
            value = nested(lambda _: mixed, self.alone[operand.name])
            self.found[operand.name] = Operand(value, nested(_known_of, value, self.alone[operand.name]))

    def _outputs(
        self, op: RuntimeOperator, layer: BoundLayer, inputs: Sequence[Operand]
    ) -> tuple[Sequence[Value], Sequence[Any]]:
        """Return the abstract values of an operator's outputs, and their descriptions.

        Raises:
            MixesError: it is not proved to keep the items apart.
        """
        if not is_repeatable(layer.layer) and layer.layer.items_axis is None:
            raise MixesError("is of another package, or draws random numbers")
        is_shared = all(each.is_shared for each in inputs)
        specs = self._inferred(op, None if is_shared else layer.layer.items_axis)
        if is_shared:
            return [nested(lambda _: SHARED, spec) for spec in specs], specs
        values: Value = SHARED
        if not all(is_known(known_value(leaf)) for leaf in leaves(specs)):
            try:
                values = _concluded(use_of(layer, inputs, specs))
            except (EngineError, ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
                # A rule reads a layer's fields; if they are unexpected, nothing is proved.
                raise MixesError("cannot be followed") from None
        return _checked(values, specs, [self.alone[each.name] for each in op.outputs]), specs

    def _inferred(self, op: RuntimeOperator, declared: int | None) -> list[Any]:
        """Return the descriptions of an operator's outputs.

        Args:
            declared: the batch axis of a layer of another package, whose inference takes no symbolic sizes.

        Raises:
            MixesError: its results for several items are not as large as for one item each.
        """
        known = {each.name: self.found[each.name].spec for each in op.inputs}
        names = [each.name for each in op.outputs]
        if declared is None:
            follow((op,), known)
            return [known[name] for name in names]
        several = {name: nested(_with_hints, spec) for name, spec in known.items()}
        follow((op,), several)
        specs = [self._grown(self.alone[name], declared) for name in names]
        if [*map(_with_hints, specs)] != [several[name] for name in names]:
            raise MixesError("has a result whose shape depends on the batch size along more than one axis")
        return specs

    def _grown(self, alone: Any, axis: int) -> TensorSpec:
        """Return the description of a result for all items, given that for one."""
        if not isinstance(alone, TensorSpec) or alone.rank <= axis or not alone.is_static:
            raise MixesError("has a result without an axis for the batch")
        return resized(alone, axis, alone.sizes[axis] * self.count)


def _with_hints(spec: Any) -> Any:
    return TensorSpec(tuple(map(hint, spec.sizes)), spec.dtype) if isinstance(spec, TensorSpec) else spec


def _known_of(value: Value, spec: Any) -> Any:
    """Return what the proof may use of a description: nothing of a result that mixes items."""
    return UNKNOWN if isinstance(value, Mixed) else spec


def _placed(op: RuntimeOperator, earlier: Mixed | None, leaf: Value) -> Value:
    """Return an abstract value with the operator that mixes items, if an earlier one did not."""
    return Mixed(f"{op.where} {leaf.reason}") if isinstance(leaf, Mixed) and leaf is not earlier else leaf


def _arranges(op: RuntimeOperator) -> bool:
    """Return whether an operator only groups values or takes a group apart: each value keeps its own proof."""
    return op.type in ("prim::TupleConstruct", "prim::ListConstruct", "prim::DictConstruct", "prim::TupleUnpack",
                       "prim::ListUnpack")  # fmt: skip


def _of_outputs(flat: Sequence[Operand]) -> Proof:
    """Return the proof for the outputs."""
    mixed = next((each.value for each in flat if isinstance(each.value, Mixed)), None)
    if mixed is not None:
        return Proof(reason=f"items are not proved independent: {mixed.reason}")
    if any(each.has_sizes or (each.is_items and each.value.is_numbered) for each in flat):
        return Proof(reason="items are not proved independent: an output depends on the number of items")
    if any(each.is_items and each.value.outer != 1 for each in flat):
        return Proof(reason="items are not proved independent: an output does not hold each item in one piece")
    axes = tuple(each.value.axis if each.is_items else None for each in flat)
    return Proof(reason=None, outputs=axes, is_plain=all(each.value.layout == (1, 1) for each in flat if each.is_items))


def _concluded(use: Use) -> Value:
    """Apply the rule of an operator to its operands.

    Raises:
        MixesError: it does not keep the items apart, or there is no rule for it.
    """
    if use.layer.items_axis is not None:
        return _declared(use, use.layer.items_axis)
    rule = rule_for(use.layer)
    if rule is None and isinstance(use.layer, Composite):
        return _composed(use, use.layer)
    if rule is None:
        raise MixesError("has no rule for items of a batch")
    check_numbers(rule, use)
    return rule(use)


def _composed(use: Use, layer: Composite) -> Value:
    """Follow the operators of a decomposition.

    Raises:
        MixesError: one of them does not keep the items apart.
    """

    def call(inner: Layer, *given: Any) -> Any:
        operands = [each if isinstance(each, Operand) else constant_operand(each) for each in given]
        found = inferred(inner, *(each.spec for each in operands))
        results = found if isinstance(found, tuple) else (found,)
        if all(each.is_shared for each in operands):
            values: Sequence[Value] = [nested(lambda _: SHARED, spec) for spec in results]
        else:
            values = _checked(_concluded(arranged(inner, operands, {}, results)), results)
        outputs = tuple(map(Operand, values, results))
        return outputs if isinstance(found, tuple) else outputs[0]

    named = {name: each if each.is_given else None for name, each in use.named.items()}
    result = layer.compose(call, *use.others, **named)
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


def _checked(value: Value, results: Sequence[Any], *alone: Sequence[Any]) -> Sequence[Value]:
    """Return the abstract value of each output, compared with the sizes of the results.

    Args:
        alone: descriptions of the results for one item, if they are known.

    Raises:
        MixesError: they do not agree.
    """
    values = value if isinstance(value, tuple) and len(value) == len(results) else (value,) * len(results)
    return [_fitted(*each) for each in zip(values, results, *alone, strict=True)]


def _fitted(value: Value, spec: Any, *alone: Any) -> Value:
    if isinstance(spec, (list, tuple, dict)):
        value = value if isinstance(value, (list, tuple, dict)) else nested(lambda _: value, spec)
        return nested(_fitted_one, spec, value, *alone)
    return _fitted_one(spec, value, *alone)


def _fitted_one(spec: Any, value: Value, *alone: Any) -> Value:
    if isinstance(value, Mixed):
        return value
    if alone and not _agrees(spec, alone[0]):
        raise MixesError("gives one item a result of another form")
    if is_known(known_value(spec)):
        return SHARED
    shape = spec.shape if isinstance(spec, TensorSpec) else ()
    axes = [axis for axis, size in enumerate(shape) if is_symbolic(size)]
    if not isinstance(value, Items) and not axes:
        return value
    if not isinstance(value, Items) or len(axes) > 1:
        raise MixesError("has a result whose shape depends on the batch size along more than one axis")
    if not isinstance(spec, TensorSpec) or not spec.is_static:
        raise MixesError("has a result whose size is unknown before a run")
    if not axes:
        raise MixesError("reduces the batch axis")
    size = per_item(shape[axes[0]])
    if size is None or size % value.outer:
        raise MixesError("has a result whose size is not a multiple of the batch size")
    return replace(value, axis=axes[0], inner=size // value.outer)


def _agrees(spec: Any, alone: Any) -> bool:
    """Return whether what is known of a result for any number of items holds for one."""
    if not isinstance(spec, TensorSpec):
        return bool(spec is UNKNOWN or _of_one(spec) == alone)
    if not isinstance(alone, TensorSpec) or (*map(_of_one, spec.shape), spec.dtype) != (*alone.shape, alone.dtype):
        return False
    return spec.value is None or (alone.value is not None and [*map(_of_one, spec.value.flat)] == [*alone.value.flat])


def _of_one(value: Any) -> Any:
    """Return a number for one item.

    Raises:
        MixesError: it is no polynomial of the number of items.
    """
    if isinstance(value, Ratio):
        return _of_one(value.size) / value.by
    if not isinstance(value, Dim):
        return value
    if any(atom for product, _ in value.terms for atom in product):
        raise MixesError("computes with the number of items")
    return sum(factor for _, factor in value.terms)
