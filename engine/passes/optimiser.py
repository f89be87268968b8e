"""The optimiser: runs all passes, one after the other, until none of them changes the graph, and reports each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from engine import pnnx
from engine.cancellation import check_cancelled
from engine.errors import EngineError, ParameterError
from engine.graph import RuntimeGraph
from engine.passes.byte_moves import byte_moves
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.computed_items import computed_items
from engine.passes.constant_folding import constant_folding
from engine.passes.decomposition import decomposition
from engine.passes.expression_fusion import expression_fusion
from engine.passes.fold_batch_norm import fold_batch_norm
from engine.passes.integer_products import integer_products
from engine.passes.parallel_convolutions import parallel_convolutions
from engine.passes.quantised_products import quantised_products, quantised_windows
from engine.passes.quantised_transposes import quantised_transposes
from engine.passes.removal import dead_operators, identity_removal
from engine.passes.transpose_cancelling import transpose_cancelling
from engine.passes.unsigned_codes import unsigned_codes
from engine.passes.unused_channels import unused_channels

ACTIVATIONS: Final = "activation_into_producer"
RESIDUALS: Final = "residual_into_producer"
JOINS: Final = "join_in_place"
ATTENTION: Final = "attention_in_one"
WAVEFRONT: Final = "layers_side_by_side"
LOWERING_PASSES: Final = (ACTIVATIONS, RESIDUALS, JOINS, ATTENTION, WAVEFRONT)
"""Optimisations of the lowering, reported and switched off like passes.

Element-wise operators become part of the kernel that makes their operand, alone or with another tensor; parts of a
concatenation are computed in place; products, masks and softmax that spell out attention become one kernel; consecutive
recurrent layers run interleaved, some steps apart.
"""

Pass: TypeAlias = Callable[[RuntimeGraph], pnnx.Graph]
"""Function from a built graph to a new source; ``graph.source`` itself if there is nothing to change."""
PASSES: Final[Mapping[str, Pass]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            dead_operators,
            identity_removal,
            decomposition,
            byte_moves,
            unsigned_codes,
            quantised_transposes,
            quantised_products,
            quantised_windows,
            integer_products,
            constant_folding,
            computed_items,
            common_subexpressions,
            transpose_cancelling,
            parallel_convolutions,
            fold_batch_norm,
            unused_channels,
            expression_fusion,
        )
    }
)
"""Every pass by name, in the order they run."""
ROUNDS: Final = 8
"""Most rounds of all passes; two or three are usual, the last of which changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """Changes by one pass, over all its rounds.

    Args:
        name: the pass.
        removed, added: numbers of operators.
        changed: names of the operators that were removed, added or rewritten; a changed operand alone does not count.
        time_ms: its time, including building the changed graph.
    """

    name: str
    removed: int = 0
    added: int = 0
    changed: tuple[str, ...] = ()
    time_ms: float = 0.0

    def describe(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {**asdict(self), "changed": list(self.changed)}


def compare(name: str, before: pnnx.Graph, after: pnnx.Graph, time_ms: float) -> PassReport:
    """Return the report of one run of a pass."""
    old, new = ({op.name: op for op in graph.operators} for graph in (before, after))
    rewritten = [key for key, op in new.items() if key in old and _differs(old[key], op)]
    removed, added = [key for key in old if key not in new], [key for key in new if key not in old]
    changed = tuple(dict.fromkeys([*removed, *added, *rewritten]))
    return PassReport(name=name, removed=len(removed), added=len(added), changed=changed, time_ms=time_ms)


def total(name: str, reports: Sequence[PassReport]) -> PassReport:
    """Return several reports of one pass as one."""
    return PassReport(
        name=name,
        removed=sum(report.removed for report in reports),
        added=sum(report.added for report in reports),
        changed=tuple(dict.fromkeys(key for report in reports for key in report.changed)),
        time_ms=sum(report.time_ms for report in reports),
    )


def _differs(old: pnnx.Operator, new: pnnx.Operator) -> bool:
    same = old.type == new.type and old.params is new.params and old.attributes is new.attributes
    return not same or len(old.inputs) != len(new.inputs)


def optimise(
    graph: RuntimeGraph, off: Collection[str] = (), before_each: Callable[[], None] | None = None
) -> tuple[RuntimeGraph, list[PassReport]]:
    """Run the passes over a built graph.

    The result computes what ``graph`` computes, from the same inputs to the same outputs; weights and layers that no
    pass changes are shared. ``graph`` itself is unchanged.

    Args:
        off: names of passes to leave out.
        before_each: called before every pass, and before every operator that is folded; an exception of it ends the
            optimisation.

    Returns:
        The optimised graph, ``graph`` itself if nothing changed, and a report of each pass that ran.

    Raises:
        ParameterError: ``off`` has an unknown pass.
        GraphError: the graph is not built.
    """
    unknown = [name for name in off if name not in PASSES]
    if unknown:
        raise ParameterError("unknown pass", found=", ".join(unknown), expected=f"one of {', '.join(PASSES)}")
    reports: dict[str, list[PassReport]] = {name: [] for name in PASSES if name not in off}
    for _ in range(ROUNDS):
        before = graph
        for name, found in reports.items():
            if before_each is not None:
                before_each()
            check_cancelled(name)
            graph, report = _run(name, graph, before_each)
            found.append(report)
        if graph is before:
            break
    return graph, [total(name, found) for name, found in reports.items()]


def _run(name: str, graph: RuntimeGraph, before_each: Callable[[], None] | None) -> tuple[RuntimeGraph, PassReport]:
    start = time.perf_counter()
    run = PASSES[name]
    try:
        source = constant_folding(graph, before_each) if run is constant_folding else run(graph)
        changed = graph if source is graph.source else graph.rebuilt(source)
    except EngineError as error:
        raise error.at(f"pass {name}") from None
    return changed, compare(name, graph.source, source, (time.perf_counter() - start) * 1e3)
