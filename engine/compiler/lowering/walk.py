"""Walks a graph and turns operators into steps.

Operators come in execution order. The rule of an operator's layer may look ahead: element-wise operators that follow
become the epilogue of the kernel being made. What has no rule, or whose rule declines, is left to the reference layer,
with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.compiler.blueprint import Home
from engine.compiler.lowering.images import find_images
from engine.compiler.lowering.joins import find_places
from engine.compiler.lowering.lowering import Lowering, kind_of, layer_of
from engine.compiler.lowering.rules.registry import (
    FLOAT32,
    IMAGE_LAYERS,
    RULES,
    SEE_THROUGH,
    NotFusedError,
    NotLoweredError,
    Rule,
    check_spatial_rank,
)
from engine.compiler.lowering.steps import ReferenceStep
from engine.compiler.lowering.terms.elementwise import RULES as ELEMENTWISE_RULES
from engine.compiler.storage import View, row_major
from engine.errors import EngineError
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Constant
from engine.layers.definition.layer import Layer
from engine.layers.shape.join import Cat
from engine.passes import JOINS, RESIDUALS
from engine.tensor import UNKNOWN, dtype_name, is_known, known_value

QUANTISED = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32))
QUANTISING = ("engine.layers.quantised.quantise", "engine.layers.quantised.quantised_product")

_log = logging.getLogger("pnnx_serve.engine")


def lower(lowering: Lowering, before_each: Callable[[int], None] | None = None) -> None:
    """Lower every operator of a graph.

    Args:
        before_each: called with the number of every operator; what it raises ends the walk.
    """
    if JOINS not in lowering.options.passes_off:
        lowering.places = find_places(lowering.operators, lowering.spec)
    lowering.images = find_images(
        lowering.operators, lowering.spec, IMAGE_LAYERS, lambda op: _keeps_order(lowering, op)
    )
    for number, op in enumerate(lowering.operators):
        if before_each is not None:
            before_each(number)
        if op.name not in lowering.absorbed:
            _lower(lowering, op)
    lowering.results = [_result(lowering, port, name) for port, name in enumerate(lowering.outputs)]


def _keeps_order(lowering: Lowering, op: RuntimeOperator) -> bool:
    kind = kind_of(op)
    return isinstance(kind, Cat) or type(kind) in SEE_THROUGH or lowering.elementwise(op) is not None


def _lower(lowering: Lowering, op: RuntimeOperator) -> None:
    if op.type == "pnnx.Input":
        _input(lowering, op)
    elif op.layer is not None and isinstance(op.definition, Constant):
        lowering.constants[op.outputs[0].name] = op.layer.forward([])
    elif op.layer is not None and not _is_all_known(lowering, op):
        _lower_by_rule(lowering, op)


def _input(lowering: Lowering, op: RuntimeOperator) -> None:
    operand = op.outputs[0]
    spec = lowering.spec(operand)
    if spec is not None:
        port = lowering.inputs.index(operand.name)
        lowering.define(operand, row_major(spec.sizes, spec.dtype, Home.INPUT, port))


def _is_all_known(lowering: Lowering, op: RuntimeOperator) -> bool:
    """Operators whose results are known now need no step."""
    return bool(op.outputs) and all(
        is_known(known_value(lowering.values.get(each.name, UNKNOWN))) for each in op.outputs
    )


def _lower_by_rule(lowering: Lowering, op: RuntimeOperator) -> None:
    before = _State(lowering)
    try:
        if op.name in lowering.refused:
            raise NotLoweredError(lowering.refused[op.name])
        rule = RULES.get(type(layer_of(op).layer))
        if rule is None and lowering.elementwise(op) is not None:
            rule = RULES[Layer]
        if rule is None:
            raise NotLoweredError(_why_no_rule(lowering, op))
        check_spatial_rank(layer_of(op).layer)
        _apply(lowering, rule, op)
    except NotLoweredError as declined:
        before.restore()
        _keep(lowering, op, str(declined))
    except EngineError:
        raise
    except Exception as exc:  # a defect of a rule costs speed, not the answer
        _log.warning("%s: its lowering failed with %s: %s", op.place, type(exc).__name__, exc)
        before.restore()
        _keep(lowering, op, f"its lowering failed with {type(exc).__name__}")


def _apply(lowering: Lowering, rule: Rule, op: RuntimeOperator) -> None:
    """Let a rule make an operator's kernel, without residuals where those do not lie in its result's order."""
    before, options = _State(lowering), lowering.options
    try:
        rule(lowering, op)
    except NotFusedError:
        before.restore()
        lowering.options = replace(options, passes_off=options.passes_off | {RESIDUALS})
        rule(lowering, op)
    finally:
        lowering.options = options


class _State:
    """What a rule adds to before it may decline after all."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._n_steps = len(lowering.steps)
        self._n_absorbed = len(lowering.absorbed)
        self._n_fused = {name: len(ops) for name, ops in lowering.fusions.items()}

    def restore(self) -> None:
        """Undo what a rule has done since."""
        del self._lowering.steps[self._n_steps :]
        while len(self._lowering.absorbed) > self._n_absorbed:
            self._lowering.absorbed.popitem()
        fusions = self._lowering.fusions
        for name in list(fusions):
            del fusions[name][self._n_fused.get(name, 0) :]
            if name not in self._n_fused:
                del fusions[name]


def _why_no_rule(lowering: Lowering, op: RuntimeOperator) -> str:
    if type(kind_of(op)) not in ELEMENTWISE_RULES:
        return "there is no kernel for it"
    specs = [spec for each in (*op.outputs, *op.inputs) if (spec := lowering.spec(each)) is not None]
    others = [dtype_name(spec.dtype) for spec in specs if spec.dtype != FLOAT32]
    if others:
        return f"there are no {others[0]} kernels"
    is_empty = any(spec.size == 0 for spec in specs)
    return "it has no elements" if is_empty else "its operands or parameters are not those of a map"


def _quantises(lowering: Lowering) -> bool:
    """Whether integers of the graph may know a scale and a zero point, which memory does not hold."""
    return any(type(kind_of(op)).__module__ in QUANTISING for op in lowering.operators)


def _keep(lowering: Lowering, op: RuntimeOperator, reason: str) -> None:
    """Leave an operator to its reference layer."""
    lowering.reasons[op.name] = reason
    inputs = tuple(lowering.views.get(each.name) for each in op.inputs)
    outputs = []
    for each in op.outputs:
        spec = lowering.spec(each)
        view = None
        if spec is not None and not (spec.dtype in QUANTISED and _quantises(lowering)):
            is_float = spec.dtype == FLOAT32 and spec.size
            is_image = lowering.is_image(each)
            view = lowering.place(each, is_image) if is_float else row_major(spec.sizes, spec.dtype)
            lowering.define(each, view)
        outputs.append(view)
    lowering.steps.append(ReferenceStep(operator=op, inputs=inputs, outputs=tuple(outputs), reason=reason))


def _result(lowering: Lowering, port: int, name: str) -> View | str:
    """An output that kernels did not write in its own memory is copied there."""
    view = lowering.views.get(name)
    if view is None or view.dtype != FLOAT32 or view.phantom.size == 0:
        return name
    is_whole = view.is_row_major and view.phantom.size == view.storage.phantom.size
    if view.storage.home is Home.OUTPUT and view.storage.port == port and is_whole:
        return view
    result = row_major(view.shape, FLOAT32, Home.OUTPUT, port)
    lowering.copy(view, result, [name])
    return result
