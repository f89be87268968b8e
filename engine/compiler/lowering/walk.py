"""Walk of a graph that lowers operators to steps.

Operators come in execution order. The rule of an operator's layer lowers it, together with the element-wise operators
after it that its kernel fuses. An operator without a rule, or whose rule refuses it, is left to the reference layer,
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engine.compiler.addresses import MemorySpace
from engine.compiler.lowering.attention_chains import Chain, find_chains
from engine.compiler.lowering.containers import is_only_returned, unread_lists
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.low_precision import OutputRoundingError
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rounded_stores import store_rounded
from engine.compiler.lowering.rules.elementwise.map import lower_map
from engine.compiler.lowering.rules.elementwise.typed_maps import lower_typed
from engine.compiler.lowering.rules.products.attention import lower_chain
from engine.compiler.lowering.rules.products.group_query import is_past
from engine.compiler.lowering.rules.registry import BESIDE_MAPS, DOUBLES, FALLBACKS, KERNEL_RULES, OF_BYTES, KernelRule
from engine.compiler.lowering.steps import (
    FLOAT64,
    WORDS,
    KernelStep,
    Lowered,
    NotLoweredError,
    ReferenceStep,
    convert,
    copy,
    derived,
)
from engine.compiler.lowering.terms.term import EXPRESSION_RULES
from engine.compiler.lowering.wavefront import pipeline_layers
from engine.compiler.storage import FLOAT32, View, row_major
from engine.defects import report_defect
from engine.errors import EngineError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Constant
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import unfolded
from engine.passes import ATTENTION, WAVEFRONT
from engine.passes.support.byte_products import BYTES
from engine.tensor import UNKNOWN, DType, dtype_name, is_known, known_value

QUANTISED = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32))


def lower(lowering: Lowering, before_each: Callable[[int], None] | None = None) -> None:
    """Lower every operator of a graph.

    Args:
        before_each: called with the number of every operator; an exception from it ends the walk.
    """
    chains = _chains(lowering)
    waiting = {op.name for chain in chains.values() for op in chain.inner}
    for number, op in enumerate(lowering.operators):
        if before_each is not None:
            before_each(number)
        if op.name in chains:
            for each in (*chains[op.name].inner, op):
                _dequantise(lowering, each.inputs)
            _lower_chain(lowering, chains[op.name])
        elif op.name not in lowering.absorbed and op.name not in waiting:
            _lower(lowering, op)
    _dequantise(lowering, [each for op in lowering.operators for each in op.outputs if each.name in lowering.outputs])
    _drop_unread_lists(lowering)
    lowering.results = [_result(lowering, port, name) for port, name in enumerate(lowering.outputs)]
    read_later = {each.storage for each in lowering.results if isinstance(each, View)}
    lowering.steps[:] = store_rounded(lowering.steps, lowering.roundings, read_later)
    if WAVEFRONT not in lowering.options.passes_off:
        lowering.steps[:], joined = pipeline_layers(lowering.steps, {*lowering.unfused, *lowering.refused})
        if joined:
            lowering.fusions[WAVEFRONT] = joined


def _drop_unread_lists(lowering: Lowering) -> None:
    """Remove steps that only make lists for kernels, which read the items."""
    unread = unread_lists(lowering.steps, lowering.outputs)
    lowering.steps[:] = [
        step for step in lowering.steps if isinstance(step, KernelStep) or step.operator.name not in unread
    ]
    for name in unread:
        del lowering.reasons[name]


def _chains(lowering: Lowering) -> dict[str, Chain]:
    """Return the attention chains of the graph, by the name of their last operator."""
    if ATTENTION in lowering.options.passes_off:
        return {}
    return {chain.last.name: chain for chain in find_chains(lowering)}


def _lower_chain(lowering: Lowering, chain: Chain) -> None:
    """Lower an attention chain as one kernel, or its operators one by one, which were skipped before."""
    op, bound = chain.last, chain.last.layer
    assert bound is not None
    try:
        _commit(lowering, _retry_outside_concat(lowering, lambda: lower_chain(Context(op, bound, lowering), chain)))
        return
    except (NotLoweredError, EngineError):
        pass
    except Exception as exc:  # a defect of the rule: lower the operators one by one
        report_defect(op.name, exc, is_compiled=True)
    for each in (*chain.inner, op):
        if each.name not in lowering.absorbed:
            _lower(lowering, each)


def _lower(lowering: Lowering, op: RuntimeOperator) -> None:
    if op.type == "pnnx.Input":
        _input(lowering, op)
    elif op.layer is not None and isinstance(op.definition, Constant):
        lowering.constants[op.outputs[0].name] = op.layer.forward([])
    elif op.layer is not None and not _is_all_known(lowering, op) and not is_only_returned(op, lowering.outputs):
        if op.outputs and lowering.deferred(op.outputs[0]) is not None:
            return
        lowered = _of_bytes(lowering, op, op.layer)
        if lowered is None:
            _dequantise(lowering, op.inputs)
            lowered = _lower_operator(lowering, op, op.layer)
        _commit(lowering, lowered)


def _of_bytes(lowering: Lowering, op: RuntimeOperator, bound: BoundLayer) -> Lowered | None:
    """Lower an operator to a map that reads bytes instead of dequantised operands; None for other operators."""
    if lowering.term(op) is None or not any(map(lowering.deferred, op.inputs)):
        return None
    try:
        return _retry_outside_concat(lowering, lambda: lower_map(Context(op, bound, lowering)))
    except NotLoweredError:
        return None


def _dequantise(lowering: Lowering, operands: Sequence[RuntimeOperand]) -> None:
    """Lower the operators that dequantise some operands, as far as they were deferred."""
    for operand in operands:
        op = lowering.deferred(operand)
        if op is not None and op.layer is not None:
            _commit(lowering, _lower_operator(lowering, op, op.layer))


def _input(lowering: Lowering, op: RuntimeOperator) -> None:
    operand = op.outputs[0]
    spec = lowering.spec(operand)
    if spec is not None:
        port = lowering.inputs.index(operand.name)
        given = lowering.low_precision.given(port)
        state = next((each for each in lowering.feedback if each.input == port and each.axis is not None), None)
        whole = spec if state is None else state.whole(spec)
        view = row_major(whole.sizes, given or spec.dtype, MemorySpace.INPUT, port)
        if state is not None:
            view = derived(view, view.meta.as_strided(spec.sizes, view.meta.strides))
        is_cache = all(is_past(each, operand) for each in operand.consumers)
        lowering.views[operand.name] = view if given is None or is_cache else _upcast_input(lowering, op, view)


def _upcast_input(lowering: Lowering, op: RuntimeOperator, given: View) -> View:
    """Return an input of 16-bit floats as float32."""
    wide = row_major(given.shape, FLOAT32)
    if given.meta.size:
        lowering.steps.append(convert(given, wide, [op.name], lowering.host))
    return wide


def _is_all_known(lowering: Lowering, op: RuntimeOperator) -> bool:
    """Return whether all results of an operator are known now, so that it needs no step."""
    return bool(op.outputs) and all(
        is_known(known_value(lowering.values.get(each.name, UNKNOWN))) for each in op.outputs
    )


def _commit(lowering: Lowering, lowered: Lowered) -> None:
    lowering.views.update(lowered.views)
    for step in lowered.steps:
        lowering.steps.append(step)
        if isinstance(step, ReferenceStep):
            lowering.reasons[step.operator.name] = step.reason
        else:
            lowering.absorbed.update(step.operators[1:])
    for name, joined in lowered.fusions.items():
        lowering.fusions.setdefault(name, []).extend(joined)


def _lower_operator(lowering: Lowering, op: RuntimeOperator, bound: BoundLayer) -> Lowered:
    """Lower an operator by its rule, or as a step of its reference layer."""
    try:
        return _retry_outside_concat(lowering, lambda: _by_rule(lowering, op, bound))
    except NotLoweredError as declined:
        return _by_reference(lowering, op, str(declined))
    except EngineError:
        raise
    except Exception as exc:  # a defect of a rule costs speed, not the answer
        report_defect(op.name, exc)
        return _by_reference(lowering, op, f"its lowering failed with {type(exc).__name__}")


def _retry_outside_concat(lowering: Lowering, make: Callable[[], Lowered]) -> Lowered:
    """Call a rule; if it refuses a slice of a concatenation, call it again with contiguous memory.

    Raises:
        NotLoweredError: it refuses both; nothing has changed.
    """
    lowering.layout.checkpoint()
    try:
        return make()
    except NotLoweredError:
        withdrawn = lowering.layout.withdraw()
        if not withdrawn:
            raise
        try:
            return make()
        except NotLoweredError:
            lowering.layout.restore(withdrawn)
            raise


def _by_rule(lowering: Lowering, op: RuntimeOperator, bound: BoundLayer) -> Lowered:
    if op.name in lowering.refused:
        raise NotLoweredError(lowering.refused[op.name])
    bound = unfolded(bound)
    rule = KERNEL_RULES.get(type(bound.layer))
    if (rule is None or type(bound.layer) in BESIDE_MAPS) and lowering.term(op) is not None:
        rule = KERNEL_RULES[Layer]
    elif rule is None and type(op.definition) in EXPRESSION_RULES and lowering.spec(op.outputs[0]) is not None:
        rule = lower_typed
    if rule is None:
        raise NotLoweredError(_why_no_rule(lowering, op, bound.layer))
    context = Context(op, bound, lowering)
    try:
        return rule(_typed(context, rule))
    except NotLoweredError:
        other = FALLBACKS.get(type(bound.layer))
        lowered = None if other is None or other is rule else _if_lowered(other, context)
        if lowered is None:
            raise
        return lowered


def _typed(context: Context, rule: KernelRule) -> Context:
    """Return the context in float64 or bytes if the result and the rule are, else unchanged."""
    spec = context.lowering.spec(context.op.outputs[0]) if context.op.outputs else None
    if spec is None:
        return context
    if spec.dtype in BYTES:
        is_other = rule in OF_BYTES and not context.lowering.quantises
    else:
        is_other = spec.dtype == FLOAT64 and rule in DOUBLES
    return replace(context, dtype=spec.dtype) if is_other else context


def _if_lowered(rule: KernelRule, context: Context) -> Lowered | None:
    try:
        return rule(context)
    except NotLoweredError:
        return None


def _why_no_rule(lowering: Lowering, op: RuntimeOperator, layer: Layer) -> str:
    if layer.has_subgraphs:
        return "its subgraphs are compiled by themselves"
    if type(layer) not in EXPRESSION_RULES:
        return "there is no kernel for it"
    specs = [spec for each in (*op.outputs, *op.inputs) if (spec := lowering.spec(each)) is not None]
    others = [dtype_name(spec.dtype) for spec in specs if spec.dtype != FLOAT32]
    if others:
        return f"there are no {others[0]} kernels"
    is_empty = any(spec.size == 0 for spec in specs)
    return "it has no elements" if is_empty else "its operands or parameters are not those of an element-wise kernel"


def _by_reference(lowering: Lowering, op: RuntimeOperator, reason: str) -> Lowered:
    inputs = tuple(lowering.views.get(each.name) for each in op.inputs)
    views = {each.name: view for each in op.outputs if (view := _memory(lowering, each)) is not None}
    outputs = tuple(views.get(each.name) for each in op.outputs)
    return Lowered(views=views, steps=[ReferenceStep(operator=op, inputs=inputs, outputs=outputs, reason=reason)])


def _memory(lowering: Lowering, operand: RuntimeOperand) -> View | None:
    """Return memory for a reference layer's result; None for values kept by name."""
    spec = lowering.spec(operand)
    if spec is None or (spec.dtype in QUANTISED and lowering.quantises):
        return None
    if spec.dtype == FLOAT32 and spec.size:
        return lowering.allocate(operand)
    return row_major(spec.sizes, spec.dtype)


def _is_for_kernels(lowering: Lowering, view: View) -> bool:
    """Return whether a kernel should copy elements that are not float32: if no reference layer stored them."""
    stored = (each for step in lowering.steps if isinstance(step, ReferenceStep) for each in step.outputs)
    is_stored = any(each is not None and each.storage is view.storage for each in stored)
    return view.dtype.itemsize in WORDS and not is_stored


def _result(lowering: Lowering, port: int, name: str) -> View | str:
    """Return an output; one that kernels did not write in its own memory is copied there."""
    view, data = lowering.views.get(name), lowering.constants.get(name)
    if view is None and data is not None and data.dtype.itemsize in WORDS and not data.dtype.hasobject:
        view = lowering.stored(data)
    if view is not None and view.meta.size and _is_appended(lowering, port, view):
        return view
    if (returned := lowering.low_precision.returned(port)) is not None:
        return _rounded_output(lowering, port, name, view, returned)
    if view is None:
        return name
    if not view.meta.size:  # nothing to copy, and no memory of another output to share
        return row_major(view.shape, view.dtype, MemorySpace.OUTPUT, port)
    if view.dtype != FLOAT32 and not _is_for_kernels(lowering, view):
        return name
    is_whole = view.is_row_major and view.meta.size == view.storage.meta.size
    if view.storage.space is MemorySpace.OUTPUT and view.storage.port == port and is_whole:
        return view
    result = row_major(view.shape, view.dtype, MemorySpace.OUTPUT, port)
    lowering.steps.append(copy(view, result, [name], lowering.host))
    return result


def _is_appended(lowering: Lowering, port: int, view: View) -> bool:
    """Return whether an output lies in the memory of the state's input."""
    states = [(each.input, each.output) for each in lowering.feedback]
    return view.storage.space is MemorySpace.INPUT and (view.storage.port, port) in states


def _rounded_output(lowering: Lowering, port: int, name: str, view: View | None, dtype: DType) -> View:
    """Return an output of float32 rounded to 16-bit floats.

    Raises:
        OutputRoundingError: it is kept by name.
    """
    if view is None:
        raise OutputRoundingError(name)
    result = row_major(view.shape, dtype, MemorySpace.OUTPUT, port)
    if view.meta.size:
        lowering.steps.append(convert(view, result, [name], lowering.host))
    return result
