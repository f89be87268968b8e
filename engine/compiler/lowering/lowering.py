"""State of a graph being lowered: what is known of its operands, and the steps so far."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engine.compiler.addresses import MemorySpace
from engine.compiler.codegen.host import Host
from engine.compiler.lowering.layout import LayoutPlan, plan_layout
from engine.compiler.lowering.low_precision import LowPrecision
from engine.compiler.lowering.rounded_stores import RoundingStep
from engine.compiler.lowering.steps import FLOAT64, NotLoweredError, Step
from engine.compiler.lowering.terms.term import CONVERTING, Term, term_of
from engine.compiler.storage import FLOAT32, Storage, View, constant, new_fault_flag
from engine.graph.feedback import Feedback
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.overload import unfolded
from engine.layers.onnx.products.quantise import DequantizeLinear
from engine.layers.quantised.quantised import speaks_of_quantised
from engine.options import Options
from engine.passes import JOINS
from engine.tensor import UNKNOWN, Array, TensorSpec, is_known, known_value

# Constants of at least this size are stored once for all programs of a graph.
LARGE_BYTES = 4096


class WeightPacker(Protocol):
    """Store of packed weights that other programs of the graph use too."""

    def packed(self, packing: object, arrays: Sequence[Array | None], pack: Callable[[], Array]) -> View:
        """Return packed arrays as a constant.

        Args:
            packing: everything else that the result depends on, by its ``repr``.
            pack: packs the arrays, if that was not done before.
        """


@dataclass(slots=True)
class Lowering:
    """State of a graph being lowered. Only the walk changes it.

    Args:
        operators: in execution order.
        values: what is known of every operand: a static TensorSpec for what can lie in memory.
        inputs, outputs: names of the operands the graph takes and returns, as a caller counts them.
        unfused: operators whose kernels fuse nothing that follows.
        refused: operators that are left to the reference, with the reason.
        weights: store of all programs of the graph; None where each has its own weights.
        low_precision: its 16-bit floats.
        feedback: outputs that are inputs of the next run.

    Attributes:
        layout: memory layout of results.
        fault_flag: word that kernels set when the result is void.
        steps: the steps so far.
        views: memory of operands.
        constants: values of operands that no run changes.
        results: view of every output, or the operand's name where its value is kept.
        reasons: operator -> why it is left to the reference.
        fusions: names of fused operators, by the name of the pass.
        absorbed: names of operators that an earlier kernel computes.
        roundings: steps that may be left out where the kernel before stores bfloat16.
    """

    operators: Sequence[RuntimeOperator]
    values: Mapping[str, object]
    inputs: Sequence[str]
    outputs: Sequence[str]
    host: Host
    options: Options = field(default_factory=Options)
    unfused: Collection[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    weights: WeightPacker | None = None
    low_precision: LowPrecision = field(default_factory=LowPrecision)
    feedback: Sequence[Feedback] = ()
    layout: LayoutPlan = field(init=False)
    fault_flag: View = field(default_factory=new_fault_flag)
    steps: list[Step] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    results: list[View | str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    fusions: dict[str, list[str]] = field(default_factory=dict)
    absorbed: set[str] = field(default_factory=set)
    roundings: list[RoundingStep] = field(default_factory=list)
    _stored: dict[int, tuple[Array, View]] = field(default_factory=dict)
    _terms: dict[tuple[str, int], Term | None] = field(default_factory=dict)
    _packed: dict[object, tuple[Sequence[weakref.ref[Array]], weakref.ref[Storage]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        joins = JOINS not in self.options.passes_off
        written = [name if self.low_precision.returned(port) is None else "" for port, name in enumerate(self.outputs)]
        appended = [self.outputs[each.output] for each in self.feedback if each.axis is not None]
        self.layout = plan_layout(self.operators, written, self._spec, self.term, joins, appended)

    def forget(self) -> None:
        """Clear the state: it holds packed weights, and is part of a reference cycle."""
        del self.layout
        for each in (
            self.steps,
            self.views,
            self.constants,
            self.results,
            self._stored,
            self._packed,
            self._terms,
            self.roundings,
        ):
            each.clear()

    @property
    def quantises(self) -> bool:
        """Return whether integers of the graph may have a scale and a zero point, which memory does not hold."""
        return any(speaks_of_quantised(op.definition) for op in self.operators)

    def spec(self, operand: RuntimeOperand) -> TensorSpec | None:
        """Return the shape and dtype of an operand that can lie in program memory; None for strings."""
        return self._spec(operand)

    def _spec(self, operand: RuntimeOperand) -> TensorSpec | None:
        value = self.values.get(operand.name, UNKNOWN)
        if not isinstance(value, TensorSpec) or value.dtype.hasobject:
            return None
        return value if value.is_static else None

    def value(self, operand: RuntimeOperand) -> View | object:
        """Return an operand's constant array, Python value, or view.

        Raises:
            NotLoweredError: it is known only at run time.
        """
        if operand.name in self.constants:
            return self.constants[operand.name]
        if operand.name in self.views:
            return self.views[operand.name]
        value = known_value(self.values.get(operand.name, UNKNOWN))
        if is_known(value):
            return value
        raise NotLoweredError(f"operand '{operand.name}' is known only at run time")

    def stored(self, data: Array) -> View:
        """Return a constant in memory; the same array is stored once.

        Raises:
            NotLoweredError: it holds strings.
        """
        if data.dtype.hasobject:
            raise NotLoweredError("there are no kernels for strings")
        if self.weights is not None and data.nbytes >= LARGE_BYTES:
            return self.weights.packed("as it is", (data,), lambda: data)
        # The array is kept with its view, so that its id is not reused.
        if id(data) not in self._stored:
            self._stored[id(data)] = data, constant(data)
        return self._stored[id(data)][1]

    def packed(self, packing: object, arrays: Sequence[Array | None], pack: Callable[[], Array]) -> View:
        """Return weights as a kernel reads them, each packed once; see WeightPacker.packed()."""
        if self.weights is not None:
            return self.weights.packed(packing, arrays, pack)
        key, roots = (repr(packing), *map(_place, arrays)), [_root(each) for each in arrays if each is not None]
        before, kept = self._packed.get(key, ((), None))
        storage = None if kept is None else kept()
        if storage is None or any(ref() is not root for ref, root in zip(before, roots, strict=True)):
            storage = constant(pack().reshape(-1)).storage  # once for all iterations of an unrolled loop
            self._packed[key] = [weakref.ref(root) for root in roots], weakref.ref(storage)
        return View(storage, storage.meta)

    def view(self, operand: RuntimeOperand) -> View | None:
        """Return the memory of an operand, or None."""
        return self.views.get(operand.name)

    def allocate(
        self, operand: RuntimeOperand, is_image: bool | None = None, order: Sequence[int] | None = None
    ) -> View:
        """Allocate an operand; see LayoutPlan.allocate()."""
        return self.layout.allocate(operand, is_image, order)

    def appended(self, operand: RuntimeOperand, axis: int, past: View | object) -> View | None:
        """Return the memory of a state's input for the output that appends to it; None for any other result.

        Args:
            axis: dimension along which the result has ``past``, the whole input, and then more.
        """
        spec = self.spec(operand)
        if spec is None or not isinstance(past, View) or past.storage.space is not MemorySpace.INPUT:
            return None
        if self.outputs.count(operand.name) != 1:
            return None
        for each in self.feedback:
            is_own = self.outputs[each.output] == operand.name and past is self.views.get(self.inputs[each.input])
            if is_own and each.axis == axis and spec.sizes[axis] <= each.capacity:
                return past.derive(past.meta.as_strided(spec.sizes, past.meta.strides))
        return None

    def joined(self, operand: RuntimeOperand) -> View:
        """Return the memory of a concatenation's result; see LayoutPlan.joined()."""
        return self.layout.joined(operand)

    def is_joined(self, operand: RuntimeOperand) -> bool:
        """Return whether an operand has a slice of a concatenation."""
        return operand.name in self.layout.slices

    def is_image(self, operand: RuntimeOperand) -> bool:
        """Return whether an operand should lie channels-last."""
        return self.layout.is_image(operand)

    def border_for(self, operand: RuntimeOperand) -> tuple[int, int, int, int]:
        """Return the border of zeros that users of an operand need."""
        return self.layout.border_for(operand)

    def known(self, op: RuntimeOperator) -> list[object]:
        """Return what is known of an operator's operands: the array of a constant, a spec, a value."""
        return [self._known(each) for each in op.inputs]

    def _known(self, operand: RuntimeOperand) -> object:
        """Return the value of an operand; a spec is copied, because operands are told apart by identity."""
        value = self._value_of(operand)
        return TensorSpec(value.shape, value.dtype, value.value) if isinstance(value, TensorSpec) else value

    def _value_of(self, operand: RuntimeOperand) -> object:
        return self.constants.get(operand.name, self.values.get(operand.name, UNKNOWN))

    def deferred(self, operand: RuntimeOperand) -> RuntimeOperator | None:
        """Return the operator that would dequantise an operand which is not in memory; None for other operands.

        Maps and epilogues read the bytes instead. It is lowered where another kernel needs the floats.
        """
        op = operand.producer
        if op is None or not isinstance(op.definition, DequantizeLinear) or operand.name in self.views:
            return None
        return None if self.term(op) is None else op

    def term(self, op: RuntimeOperator) -> Term | None:
        """Return the expression of an operator that is an element-wise map of float32 or float64, else None."""
        spec = self._spec(op.outputs[0]) if len(op.outputs) == 1 else None
        if op.layer is None or op.name in self.refused or spec is None or not spec.size:
            return None
        if spec.dtype not in (FLOAT32, FLOAT64) and type(op.definition) not in CONVERTING:
            return None
        if type(op.definition) in CONVERTING and self.quantises:
            return None
        # Called often, by the layout plan and by operators before it; constants become known during the walk.
        key = op.name, sum(each.name in self.constants for each in op.inputs)
        if key not in self._terms:
            self._terms[key] = self._term(op, op.layer)
        return self._terms[key]

    def _term(self, op: RuntimeOperator, layer: BoundLayer) -> Term | None:
        known = self.known(op)
        return term_of(unfolded(layer), known)


def _root(array: Array) -> Array:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _place(array: Array | None) -> tuple[object, ...]:
    """Return a key of an array among all living arrays."""
    if array is None:
        return ()
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
