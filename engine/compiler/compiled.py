"""A graph that runs as machine code: one program for every set of input shapes it meets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.compiler.blueprint import Blueprint
from engine.compiler.cores import available_cores
from engine.compiler.generation import make_blueprint
from engine.compiler.host import Host, detect
from engine.compiler.instance import Instance
from engine.compiler.lowering import Lowering, Options
from engine.compiler.program import Program, load
from engine.compiler.report import Report, report_run
from engine.errors import CompileError, RunCancelledError
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.graph.reference import as_outputs
from engine.layers.container import Constant
from engine.passes import PassReport, optimise
from engine.tensor import Array, TensorSpec, is_known

# Programs for shapes that were not used for longest are dropped beyond this many.
MAX_PROGRAMS = 8

Key = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How graphs are compiled.

    Args:
        threads: of a run; None for all cores this process may use.
        winograd: ``auto`` or ``off``.
        passes_off: names of passes to leave out.
        host: the processor to generate for; None for this one.
    """

    threads: int | None = None
    winograd: str = "auto"
    passes_off: frozenset[str] = field(default_factory=frozenset)
    host: Host | None = None


class CompiledGraph:
    """Runs a graph as machine code; many threads may call it at once.

    Raises:
        CompileError: there is no generator for this processor.
    """

    def __init__(self, graph: RuntimeGraph, options: CompileOptions) -> None:
        self.host = options.host or detect()
        self.threads = options.threads or available_cores()
        self._options = options
        self._graph = graph
        self._optimised: RuntimeGraph | None = None
        self._passes: list[PassReport] = []
        self._instances: OrderedDict[Key, Instance] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Array], cancelled: Callable[[], bool] | None = None) -> list[Array]:
        """The graph's outputs, laid flat; compiles first when these shapes are new.

        Raises:
            CompileError: generated code is not valid.
            RunCancelledError: ``cancelled`` said so before the run began.
            EngineError: an operator refuses its operands or fails; names the operator.
        """
        instance = self.instance(_specs(inputs))
        if cancelled is not None and cancelled():
            raise RunCancelledError("the run was cancelled")
        return as_outputs(instance.run(inputs))

    def profile(self, inputs: Sequence[Array]) -> tuple[list[Array], Report]:
        """A run, and what every kernel of it took."""
        instance = self.instance(_specs(inputs))
        times: list[Any] = []
        results = instance.run(inputs, times)
        return as_outputs(results), report_run(instance.program.blueprint, self._graph, times)

    def instance(self, specs: Sequence[TensorSpec]) -> Instance:
        """The instance for inputs of these shapes.

        Raises:
            CompileError: generated code is not valid.
            EngineError: an operator does not accept these shapes.
        """
        key = tuple((tuple(dim or 0 for dim in spec.shape), spec.dtype.str) for spec in specs)
        with self._lock:
            if key not in self._instances:
                self._instances[key] = Instance(self._compile(specs), self.threads)
            self._instances.move_to_end(key)
            while len(self._instances) > MAX_PROGRAMS:
                self._instances.popitem(last=False)[1].close()
            return self._instances[key]

    def program(self, specs: Sequence[TensorSpec]) -> Program:
        """The program for inputs of these shapes."""
        return self.instance(specs).program

    @property
    def passes(self) -> list[PassReport]:
        """What the passes did; empty until something was compiled."""
        return self._passes

    def annotate(self, program: Program, operators: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Write the kernel of every operator into its description; how the program came about, as plain data."""
        kept = set() if self._optimised is None else {op.name for op in self._optimised.operators}
        for row in operators:
            if "kernel" in row:
                row |= _kernel(row["name"], program.blueprint, kept)
        return {
            "host": self.host.name,
            "threads": self.threads,
            "passes": [each.describe() for each in self._passes],
            "kernels": len(program.blueprint.steps),
            "arena_bytes": program.blueprint.arena_bytes,
            "constant_bytes": program.blueprint.constants.nbytes,
        }

    def _compile(self, specs: Sequence[TensorSpec]) -> Program:
        if self._optimised is None:
            self._optimised, self._passes = optimise(self._graph, self._options.passes_off)
        graph = self._optimised
        values = graph.infer(specs)
        lowering = Lowering(graph.operators, values, self.host, Options(winograd=self._options.winograd))
        lowering.run()
        blueprint = make_blueprint(lowering, self._passes)
        if not blueprint.steps:
            raise CompileError("no operator of the graph has a kernel", found=_first(blueprint.reasons))
        return load(blueprint, self.host, _called(graph, blueprint), _known(graph, values))


def _called(graph: RuntimeGraph, blueprint: Blueprint) -> dict[str, RuntimeOperator]:
    """The operators a blueprint leaves to the reference."""
    names = {segment.call.operator for segment in blueprint.segments if segment.call is not None}
    return {op.name: op for op in graph.operators if op.name in names}


def _known(graph: RuntimeGraph, values: Mapping[str, object]) -> dict[str, object]:
    """Values of operands that no run changes."""
    known = {name: value for name, value in values.items() if is_known(value)}
    for op in graph.operators:
        if op.layer is not None and isinstance(op.layer.layer, Constant):
            known[op.outputs[0].name] = op.layer.forward([])
    return known


def _kernel(name: str, plan: Blueprint, kept: Collection[str]) -> dict[str, Any]:
    """Which kernel computes an operator, or why none does."""
    if name in plan.reasons:
        return {"kernel": "reference", "why": plan.reasons[name]}
    for step in reversed(plan.steps):
        if name == step.operators[0]:
            return {"kernel": step.kind}
    for step in reversed(plan.steps):
        if name in step.operators:
            return {"kernel": "fused", "fused_into": step.operators[0]}
    return {"kernel": "view"} if name in kept else {"kernel": "removed"}


def _specs(inputs: Sequence[Array]) -> list[TensorSpec]:
    return [TensorSpec(array.shape, array.dtype) for array in inputs]


def _first(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:3]) or "an empty graph"
