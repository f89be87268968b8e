"""The runtime graph: from a file pair to ordered operators with layers, shapes and a plan."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine import onnx, pnnx
from engine.bundle import PARAM, WEIGHTS, Bundle
from engine.errors import EngineError, GraphError, ModelFormatError, named
from engine.graph import surgery
from engine.graph.building.export_diagnosis import diagnose_export
from engine.graph.building.generalise import BatchError, generalise_batch
from engine.graph.building.inference import follow, propagate
from engine.graph.building.linking import link, reused_layers
from engine.graph.building.mismatches import GraphWarning, diagnose_refusal, find_mismatches, strict_error
from engine.graph.building.source_rewrites import with_assignments, with_unsqueezes, without_captured
from engine.graph.building.storage import over_storage
from engine.graph.building.subgraphs import register_subgraph_builder
from engine.graph.description import describe
from engine.graph.feedback import Feedback
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.execution_order import OrderName, arrange, kahn
from engine.graph.planning.plan import Plan, make_plan
from engine.graph.port import Port, batch_size, input_operators, input_ports, output_ports
from engine.graph.running.feeding import feed_specs
from engine.graph.running.reference import run_steps
from engine.layers import BoundLayer, Registry, registry
from engine.layers.definition.known import is_repeatable
from engine.tensor import UNKNOWN, TensorSpec


def _name_of(path: str | os.PathLike[str]) -> str:
    return os.path.basename(path).removesuffix(".param").removesuffix(".pnnx").removesuffix(onnx.SUFFIX)


class GraphState(enum.Enum):
    """Stage of a graph between file and run."""

    NEED_INIT = "NEED_INIT"
    NEED_BUILD = "NEED_BUILD"
    COMPLETE = "COMPLETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """Results of build(); swapped in as a whole, so a failed build leaves the graph unchanged."""

    operators: tuple[RuntimeOperator, ...]
    operands: Mapping[str, RuntimeOperand]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    warnings: tuple[GraphWarning, ...]
    plan: Plan


class RuntimeGraph:
    """A PNNX model as a graph of operators joined by operands.

    ``init()`` takes the file pair, ``build()`` makes it runnable; both are idempotent. A graph does not
    change while it runs: any number of threads may run it at once.

    Args:
        param: path of the ``.pnnx.param`` file, or of an ``.onnx`` file.
        bin: path of the ``.pnnx.bin`` file; by default in the folder of ``param``. An ONNX file names the files of its
            tensors itself.
        registry: the layers it may use; by default all registered ones.
    """

    bundle: Bundle | None = None
    """The bundle it was read from, with its compiled programs; None for a plain pair."""
    feedback: tuple[Feedback, ...] = ()
    """Its outputs that are inputs of the next run."""

    def __init__(
        self, param: str | os.PathLike[str], bin: str | os.PathLike[str] | None = None, *, registry: Registry = registry
    ) -> None:
        self._param = param
        self._bin = bin
        self._registry = registry
        self._source: pnnx.Graph | None = None
        self._built: _Built | None = None
        self.name = _name_of(param)

    @classmethod
    def from_source(cls, source: pnnx.Graph, name: str = "graph", *, registry: Registry = registry) -> RuntimeGraph:
        """Return a graph from a source in memory instead of a file pair; it needs build()."""
        return cls._holding(_as_run(source), name, registry)

    @classmethod
    def _holding(cls, source: pnnx.Graph, name: str, registry: Registry) -> RuntimeGraph:
        """Return a graph of a source that is derived from another graph's, so its modules are already rewritten."""
        graph = cls(name, registry=registry)
        graph._source = source
        return graph

    @classmethod
    def from_bundle(cls, bundle: Bundle, *, registry: Registry = registry) -> RuntimeGraph:
        """Return the graph of a bundle that was read; it needs build().

        Raises:
            ModelFormatError: its pair is not what the format allows.
        """
        with named(ModelFormatError, "the files cannot be read", bundle.manifest.model):
            source = pnnx.understand(bundle.text, bundle.weights, PARAM, WEIGHTS)
        graph = cls.from_source(source, bundle.manifest.model, registry=registry)
        graph.bundle = bundle
        return graph

    @property
    def state(self) -> GraphState:
        """The stage of the graph: what it needs next."""
        if self._built is not None:
            return GraphState.COMPLETE
        return GraphState.NEED_INIT if self._source is None else GraphState.NEED_BUILD

    def init(self, *, verify: bool = False) -> None:
        """Read the text and map the weights.

        Args:
            verify: whether to check the CRC-32 of all weights.

        Raises:
            ModelFormatError: the pair is not what the format allows.
        """
        if self._source is None:
            with named(ModelFormatError, "the files cannot be read", self.name):
                if onnx.is_onnx(self._param):
                    self._source = onnx.read(self._param)
                else:
                    self._source = _as_run(pnnx.read(self._param, self._bin, verify=verify))

    def build(self, order: OrderName = "kahn", *, strict: bool = False) -> None:
        """Link operators, make their layers, order them, infer every shape and dtype, plan a run.

        Args:
            order: ``kahn``, ``depth_first`` or ``least_memory``; counts only where the graph is not built yet.
            strict: refuse a graph that has warnings; the graph then stays as it was before build().

        Raises:
            GraphError: init() has not run; or a cycle, an undefined operand, one with two producers; when strict, the
                first of the warnings, with their number.
            UnsupportedOperatorError: all operator types without a layer.
            ParameterError, ShapeError: an operator contradicts itself or its operands; names the operator.
        """
        with named(GraphError, "the graph cannot be built", self.name):
            built = self._built or _build(self.source, self._registry, order)
        if strict and built.warnings:
            raise strict_error(built.warnings)
        self._built = built

    @property
    def source(self) -> pnnx.Graph:
        """The graph as read from the file."""
        if self._source is None:
            raise GraphError("the graph is not read yet", found=self.state.value, expected="init() before this")
        return self._source

    @property
    def _complete(self) -> _Built:
        if self._built is None:
            call = "init() and build()" if self._source is None else "build()"
            raise GraphError("the graph cannot run yet", found=self.state.value, expected=f"{call} before this")
        return self._built

    @property
    def operators(self) -> tuple[RuntimeOperator, ...]:
        """Operators in execution order."""
        return self._complete.operators

    @property
    def operands(self) -> Mapping[str, RuntimeOperand]:
        """Operands by name."""
        return self._complete.operands

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of classes in the file; none for a pair."""
        return self.source.labels

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Inputs of a run, in the order of the model's arguments."""
        return self._complete.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Outputs of a run, nested results flattened."""
        return self._complete.outputs

    @property
    def warnings(self) -> tuple[GraphWarning, ...]:
        """Contradictions of computed and annotated shapes or dtypes, and other signs of a faulty export."""
        return self._complete.warnings

    @property
    def is_repeatable(self) -> bool:
        """Return whether the same inputs always give the same outputs: no random operator, none from outside."""
        return all(op.definition is None or is_repeatable(op.definition) for op in self.operators)

    @property
    def plan(self) -> Plan:
        """The execution order with the slots every step uses."""
        return self._complete.plan

    def edit(self, change: Callable[..., pnnx.Graph], *args: Any, **kwargs: Any) -> None:
        """Apply a function of engine.graph.surgery to this graph, which then needs build() again.

        The changed graph is built on trial first: if anything refuses it, this graph stays as it was.

        Raises:
            EngineError: the change is impossible, or its result is no valid graph.
        """
        changed = change(self.source, *args, **kwargs)
        _build(changed, self._registry, "kahn")
        self._source, self._built = changed, None

    def insert_before(self, target: str, new: pnnx.Operator, index: int = 0) -> None:
        """Put an operator into the edge that enters ``target`` at input ``index``; see edit()."""
        self.edit(surgery.insert_before, target, new, index)

    def insert_after(self, target: str, new: pnnx.Operator, index: int = 0) -> None:
        """Put an operator between output ``index`` of ``target`` and all its consumers; see edit()."""
        self.edit(surgery.insert_after, target, new, index)

    def remove(self, target: str) -> None:
        """Take an operator out; consumers of its output get its first input instead; see edit()."""
        self.edit(surgery.remove, target)

    def replace(self, target: str, new: pnnx.Operator) -> None:
        """Put another operator in the place of ``target``, between the same operands; see edit()."""
        self.edit(surgery.replace, target, new)

    def rewire(self, target: str, index: int, operand: str) -> None:
        """Let input ``index`` of ``target`` come from another operand; see edit()."""
        self.edit(surgery.rewire, target, index, operand)

    def rename(self, old: str, new: str) -> None:
        """Give an operator, or else an operand, another name; see edit()."""
        self.edit(surgery.rename, old, new)

    def extract(self, inputs: Sequence[str], outputs: Sequence[str]) -> RuntimeGraph:
        """Return the part that computes some operands from others, as a built graph of its own; this one is unchanged.

        Raises:
            GraphError: unknown operand, or an output needs an input that is not given.
        """
        known = self._built.operands if self._built is not None else {}
        specs = {name: spec for name in inputs if name in known and (spec := known[name].spec) is not None}
        source = surgery.extract(self.source, inputs, outputs, specs)
        part = self._holding(source, f"{self.name}_part", self._registry)
        part.build()
        return part

    def for_any_batch(self) -> RuntimeGraph:
        """Return this graph with the first dimension of its inputs dynamic; weights are shared.

        Raises:
            BatchError: naming the operator that forbids another batch.
        """
        if batch_size(self.inputs) is None:
            raise BatchError("the inputs have no common fixed batch", found=", ".join(str(p.spec) for p in self.inputs))
        return self.for_batches_along((0,) * len(self.inputs))

    def for_batches_along(self, axes: Sequence[int]) -> RuntimeGraph:
        """Return this graph with one dimension of each input dynamic.

        Raises:
            BatchError: naming the operator that forbids another batch.
        """
        by_name = {port.operand: axis for port, axis in zip(self.inputs, axes, strict=True)}
        source = generalise_batch(self.source, self.operators, self._registry, by_name)
        graph = self._holding(source, self.name, self._registry)
        layers = {id(op.source): op.layer for op in self.operators if op.layer is not None}
        graph._built = _build(source, self._registry, "kahn", layers)
        graph.bundle = self.bundle  # each of its programs names its graph
        return graph

    def rebuilt(self, source: pnnx.Graph) -> RuntimeGraph:
        """Return a built graph with a changed source; unchanged operators keep their layers and weights.

        Raises:
            EngineError: the changed source is no valid graph.
        """
        graph = self._holding(source, self.name, self._registry)
        graph._built = _build(source, self._registry, "kahn", reused_layers(self.operators, source))
        return graph

    def infer(self, specs: Sequence[TensorSpec]) -> dict[str, object]:
        """Return what is known of every operand when the inputs have these specs; the graph itself is unchanged.

        Raises:
            InputError: these are not as many specs as the graph has inputs.
            EngineError: an operator does not accept what follows from these inputs.
        """
        given = feed_specs(self.inputs, specs)
        inputs = {port.operand: spec for port, spec in zip(self.inputs, given, strict=True)}
        return propagate(self.operators, inputs)

    def describe(self) -> dict[str, Any]:
        """Return the description of the graph as plain data; see docs/graph.md for the keys."""
        return describe(self.name, self.state.value, self.operators, self.inputs, self.outputs, self.warnings)

    def text(self) -> str:
        """Return the text file of the pair, as save() writes it."""
        return pnnx.format_param(self.source, f"{self.name}.pnnx.param")

    def save(self, param: str | os.PathLike[str], bin: str | os.PathLike[str]) -> None:
        """Write the pair so that reading it gives an equal graph; each file appears whole or not at all."""
        pnnx.write(self.source, param, bin)

    def __repr__(self) -> str:
        return f"RuntimeGraph({self.name!r}, {self.state.value})"


def _as_run(source: pnnx.Graph) -> pnnx.Graph:
    """Return a file's graph with ONNX operators, captured parameters, assignments and views resolved."""
    return with_unsqueezes(with_assignments(over_storage(without_captured(onnx.with_core_operators(source)))))


def _build(
    source: pnnx.Graph, registry: Registry, order_name: str, layers: Mapping[int, BoundLayer] | None = None
) -> _Built:
    operators, operands = link(source, registry, layers)
    inputs = input_operators(operators)
    outputs = [op.inputs[0] for op in operators if op.type == "pnnx.Output"]
    known = {op.outputs[0].name: op.outputs[0].annotation or UNKNOWN for op in inputs}
    values: dict[str, object] = dict(known)
    try:
        follow(kahn(operators), values)
    except EngineError as error:
        if layers is None:  # as the file has it, not edited
            error.remark = diagnose_refusal(error, kahn(operators), operands, values)
        raise
    for name, value in values.items():
        operands[name].value = value
    order = arrange(operators, order_name)
    for index, op in enumerate(order):
        op.index = index
    return _Built(
        operators=tuple(order),
        operands=operands,
        inputs=input_ports(inputs, source.size_names),
        outputs=output_ports(outputs, source.size_names),
        warnings=(*find_mismatches(operands.values()), *diagnose_export(operands.values(), source.untyped)),
        plan=make_plan(order, [op.outputs[0] for op in inputs], outputs),
    )


def _build_subgraph(source: pnnx.Graph, registry: Registry) -> RuntimeGraph:
    graph = RuntimeGraph._holding(source, "body", registry)
    graph._built = _build(source, registry, "kahn")
    return graph


register_subgraph_builder(_build_subgraph, run_steps)
