"""Compilation of a graph for one set of input shapes: passes, lowering, assembly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from engine.cancellation import Progress
from engine.compiler.codegen.host import Host
from engine.compiler.executable import NO_TENSOR, Executable
from engine.compiler.inlining.inlining import Inlining
from engine.compiler.plan_check import check_output_shapes, open_bounds
from engine.compiler.runtime.memory import release
from engine.compiler.stages import staged
from engine.compiler.subgraphs import subgraphs_of
from engine.compiler.upcast import UpcastError, has_low_precision, upcast, upcast_specs
from engine.compiler.weights import Weights
from engine.errors import CompileError, CompilerDefectError
from engine.graph import RuntimeGraph
from engine.graph.feedback import whole_inputs
from engine.graph.port import static_specs
from engine.graph.symbolic_inputs import SizesOf, symbolic_specs
from engine.ir.dims import ShapeEnv
from engine.ir.tables import Table
from engine.layers.creation.container import Constant
from engine.options import Options
from engine.passes import LOWERING_PASSES, PassReport, optimise
from engine.passes.quantised_products import quantised_products, quantised_windows
from engine.passes.quantised_transposes import quantised_transposes
from engine.tensor import TensorSpec, is_known, known_value

if TYPE_CHECKING:
    from engine.compiler.dynamic.template import Template
    from engine.compiler.lowering import Lowering

M = TypeVar("M")

# numpy arrays have at most 64 axes, some of its functions double the axes, and kernels add a few.
_MAX_AXES = 31
# Attempts to compile a graph, each without a fusion or a kernel that failed.
ATTEMPTS = 8


class RetryState:
    """Kernels that failed to compile, and what the next attempt does instead.

    Attributes:
        unfused: operators that are not fused with others.
        refused: operators left to the reference, with the reason.
    """

    def __init__(self) -> None:
        self.unfused: set[str] = set()
        self.refused: dict[str, str] = {}

    def learn(self, reasons: Mapping[str, str]) -> bool:
        """Choose something else for these operators; return whether that is possible for any.

        The kernel without fused operators comes first, then the reference.

        Args:
            reasons: operator -> why its kernel failed.
        """
        if reasons.keys() <= self.refused.keys():
            return False
        self.refused.update({name: why for name, why in reasons.items() if name in self.unfused})
        self.unfused.update(reasons)
        return True


class CompilePipeline:
    """Pipeline from a graph to executables; one at a time. It knows neither the cache nor bundles.

    Attributes:
        is_dynamic: whether inputs come in many shapes, so that programs share code and weights.
    """

    def __init__(self, graph: RuntimeGraph, options: Options) -> None:
        self._graph = self._taken = graph
        self._inlining = Inlining(graph)
        self._options = options
        self._optimised: RuntimeGraph | None = None
        self._passes: list[PassReport] = []
        self._is_upcast = has_low_precision(graph)  # 16-bit floats are computed as float32
        self.is_dynamic = static_specs(graph.inputs) is None
        self._weights = Weights() if self.is_dynamic else None
        self._flat: tuple[list[str], list[str]] | None = (
            None  # flattened outputs of the optimised and the original graph
        )

    def compile(self, specs: Sequence[TensorSpec], host: Host, progress: Progress, cores: int) -> Executable:
        """Return the executable for inputs of these shapes.

        If a kernel fails, one without fused operators is tried, then the reference.

        Raises:
            RunCancelledError, CompileError, EngineError: as ``Builder.program`` says.
        """
        if self.is_dynamic:  # passes may have replaced an operator that checks its operands
            self._graph.infer(specs)
        retries = RetryState()
        lower = partial(self._lower, specs, host, retries, progress)
        return self._with_retries(retries, lambda: self._assemble(self._lower_or_unchanged(lower), progress, cores))

    def template(self, specs: Sequence[TensorSpec], host: Host, progress: Progress, cores: int) -> Template:
        """Return the template for inputs of these shapes and of all others that pass its guards.

        Args:
            specs: shapes that the template is optimised for.

        Raises:
            RunCancelledError, CompileError, EngineError: as ``Builder.program`` says.
        """
        retries = RetryState()

        def make() -> Template:
            env, symbolic = self._symbolic_specs(specs)
            lower = partial(self._lower, symbolic, host, retries, progress)
            return self._assemble_template(self._lower_or_unchanged(lower), env, symbolic, progress, cores)

        return self._with_retries(retries, make)

    def _with_retries(self, retries: RetryState, make: Callable[[], M]) -> M:
        """Return what ``make`` makes, called again without the kernels and fusions that failed to compile.

        Raises:
            CompileError: nothing else can be tried.
        """
        from engine.compiler.assembly.objects import RefusedError

        defects: set[str] = set()
        for _ in range(ATTEMPTS):
            try:
                return make()
            except RefusedError as error:
                defects |= error.defects
                can_do_otherwise = retries.learn(error.reasons)
                self._check_defects(defects, retries)
                if not can_do_otherwise:
                    break
        raise CompileError("its kernels failed to compile", found=_first(retries.refused))

    def _symbolic_specs(self, specs: Sequence[TensorSpec]) -> tuple[ShapeEnv, list[TensorSpec]]:
        """Return input specs over symbolic sizes, with the guards that a first inference relies on."""
        env, symbolic = symbolic_specs(self._graph.inputs, specs)
        self._graph.infer(symbolic)
        return symbolic_specs(self._graph.inputs, specs, env.guards)

    def _assemble_template(
        self, lowering: Lowering, env: ShapeEnv, specs: Sequence[TensorSpec], progress: Progress, cores: int
    ) -> Template:
        from engine.compiler.assembly.generation import make_executable
        from engine.compiler.dynamic.template import Pool, Template, input_elements

        pool, reports = Pool(), self._reports(lowering)
        executable = make_executable(lowering, reports, progress, cores, weights=self._weights, pool=pool)
        _finish(lowering, len(executable.steps), executable.reasons)
        inputs = whole_inputs(self._graph.feedback, specs)
        checks = [pool.index(each) for each in open_bounds(executable, pool.values, inputs)]
        table = Table(env, pool.values)
        return Template(
            env=env,
            sizes=SizesOf(env, specs),
            table=table,
            executable=executable,
            checks=checks,
            elements=max(1, input_elements(specs)),
        )

    def _reports(self, lowering: Lowering) -> list[PassReport]:
        """Return what the passes and the fusions of a lowering did."""
        fusions = lowering.fusions.items()
        return [*self._passes, *(PassReport(name=name, removed=len(ops), changed=tuple(ops)) for name, ops in fusions)]

    def _check_defects(self, defects: Collection[str], retries: RetryState) -> None:
        """Check that no operator runs on the reference because of a defect, where that is not allowed.

        Raises:
            CompilerDefectError: an operator would.
        """
        for name in retries.refused.keys() & defects if self._options.must_compile else ():
            raise CompilerDefectError("the compiler failed", where=name, found=retries.refused[name])

    def optimised(self, specs: Sequence[TensorSpec], host: Host, progress: Progress) -> RuntimeGraph:
        """Return the optimised graph, with the branches and loops that these shapes decide inlined."""
        taken = self._inlining.graph_for(specs)
        if self._optimised is None or taken is not self._taken:
            self._taken = taken
            off = self._options.passes_off - set(LOWERING_PASSES)
            if not host.has_vnni:  # windows are faster in floats, by Winograd's algorithm
                off |= {quantised_windows.__name__, quantised_transposes.__name__}
            if not host.multiplies_pairs:
                off |= {quantised_products.__name__}
            graph = upcast(taken, is_kept=self.is_dynamic) if self._is_upcast else taken
            self._flat = None
            graph, self._passes = optimise(graph, off, lambda: progress("passes", 0, 1))
            self._optimised = staged(graph, upcast_specs(specs) if self._is_upcast else specs)
        return self._optimised

    @property
    def latest(self) -> RuntimeGraph | None:
        """Return the optimised graph of the last compile."""
        return self._optimised

    def infer(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Mapping[str, object]:
        """Return what inference knows of every operand of the optimised graph."""
        return graph.infer(upcast_specs(specs) if self._is_upcast else specs)

    def known_values(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> dict[str, object]:
        """Return the values of operands of the optimised graph that no run changes."""
        values = {name: known_value(value) for name, value in self.infer(graph, specs).items()}
        known = {name: value for name, value in values.items() if is_known(value)}
        for op in graph.operators:
            if op.layer is not None and isinstance(op.definition, Constant):
                known[op.outputs[0].name] = op.layer.forward([])
        return known

    def release(self, *, needs_graph: bool) -> None:
        """Release the memory of weights that programs have packed.

        Args:
            needs_graph: whether the last program runs operators of the optimised graph.
        """
        release(self._graph)
        if not self._is_upcast or self._optimised is None:
            return
        if self.is_dynamic or needs_graph:
            release(self._optimised)
        else:
            self._optimised = None  # its float32 weights are copies

    def _lower_or_unchanged(self, lower: Callable[[], Lowering]) -> Lowering:
        """Lower the graph as float32; keep 16-bit floats where that is not possible."""
        from engine.compiler.lowering.low_precision import OutputRoundingError

        try:
            return lower()
        except (UpcastError, OutputRoundingError):
            self._is_upcast, self._optimised = False, None
            return lower()

    def _lower(
        self,
        specs: Sequence[TensorSpec],
        host: Host,
        retries: RetryState,
        progress: Progress,
    ) -> Lowering:
        """Lower operators to steps."""
        # A start from the cache does not need kernels and rules, whose import takes longer than all of it.
        from engine.compiler.lowering import Lowering, lower
        from engine.compiler.lowering.containers import flattened_outputs
        from engine.compiler.lowering.low_precision import LowPrecision, low_precision_of
        from engine.compiler.measuring.tiles import checked

        host = checked(host)
        graph, given = self.optimised(specs, host, progress), self._taken
        if self._flat is None:
            self._flat = (
                flattened_outputs(graph.operators, _returned(graph)),
                flattened_outputs(given.operators, _returned(given)),
            )
        outputs, before = self._flat
        if self._is_upcast and len(before) != len(outputs):
            raise UpcastError("the number of its outputs differs")
        low_precision = low_precision_of(given, graph, specs, before) if self._is_upcast else LowPrecision()
        known = self.infer(graph, specs)
        _check_axes(known.values())
        lowering = Lowering(
            graph.operators,
            known,
            [port.operand for port in graph.inputs],
            outputs,
            host,
            self._options,
            retries.unfused,
            retries.refused,
            self._weights,
            low_precision,
            self._graph.feedback,
        )
        lower(lowering, lambda number: progress("lowering", number, len(graph.operators)))
        return lowering

    def _assemble(self, lowering: Lowering, progress: Progress, cores: int) -> Executable:
        """Make the code and the memory plan of a lowered graph."""
        from engine.compiler.assembly.generation import make_executable

        executable = make_executable(lowering, self._reports(lowering), progress, cores, weights=self._weights)
        values = [lowering.values.get(name) for name in lowering.outputs]
        check_output_shapes(
            executable, {k: v.sizes for k, v in enumerate(values) if isinstance(v, TensorSpec) and v.is_static}
        )
        _finish(lowering, len(executable.steps), executable.reasons)
        return executable


def _finish(lowering: Lowering, kernels: int, reasons: Mapping[str, str]) -> None:
    """Release what lowering holds.

    A graph whose results follow from the sizes alone, which may be so for some of them only, needs no kernel.

    Raises:
        CompileError: no operator has a kernel, or a subgraph that may have some.
    """
    lowering.forget()
    needs_kernels = any(reason != NO_TENSOR for reason in reasons.values())
    if needs_kernels and not kernels and not any(map(subgraphs_of, lowering.operators)):
        raise CompileError("no operator of the graph has a kernel", found=_first(reasons))


def _check_axes(known: Iterable[object]) -> None:
    """Refuse a graph with an operand that has more axes than numpy can lay out.

    Raises:
        CompileError: an operand has too many axes.
    """
    rank = max((spec.rank for spec in known if isinstance(spec, TensorSpec)), default=0)
    if rank > _MAX_AXES:
        raise CompileError("an operand has too many axes for machine code", found=rank, expected=f"<= {_MAX_AXES}")


def _returned(graph: RuntimeGraph) -> list[str]:
    return [op.inputs[0] for op in graph.source.operators if op.type == "pnnx.Output"]


def _first(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:3])
