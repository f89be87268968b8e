"""A converted pair held against PyTorch: at the shapes it was exported with, and beyond them where they are open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import engine
from exporter.errors import DivergenceError, SourceError
from exporter.inputs import InputSpec, third
from exporter.precision import wavers
from exporter.recording import record
from exporter.remedy import own_constants
from exporter.tensors import examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Inputs to try.

    Args:
        inputs: their shapes.
        seed: of their values; the tracer saw those of seed 0.
        is_optional: whether PyTorch may refuse the shapes: nobody said that the model takes them.
    """

    inputs: tuple[InputSpec, ...]
    seed: int
    is_optional: bool = False

    @property
    def shapes(self) -> str:
        """The shapes in words."""
        return ", ".join(map(str, self.inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a case.

    Args:
        case: what was tried.
        has_agreed: whether PyTorch took its shapes, and the answers agreed.
        remark: what a person should know.
    """

    case: Case
    has_agreed: bool
    remark: str | None = None


def cases(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> tuple[Case, ...]:
    """The traced values, others of the same shape, the second shape, and a third where dimensions are dynamic."""
    found = [Case(inputs=tuple(first), seed=0), Case(inputs=tuple(first), seed=1)]
    if second:
        found.append(Case(inputs=tuple(second), seed=2))
        found.append(Case(inputs=third(first, second), seed=3, is_optional=True))
    return tuple(found)


def verify(model: Any, graph: engine.RuntimeGraph, trials: Sequence[Case], rtol: float | None) -> Iterator[Verdict]:
    """Run model and graph on the same inputs.

    Yields:
        A verdict for every case.

    Raises:
        DivergenceError: the answers differ; names the shapes, the output and, where it is known, the operator.
        EngineError: the engine cannot run the graph.
    """
    session = engine.Session(graph)
    for case in trials:
        try:
            tensors = examples(case.inputs, case.seed)
            recorded = record(model, tensors, graph)
        except SourceError as error:
            if not case.is_optional:
                raise
            yield Verdict(case=case, has_agreed=False, remark=f"not tried at {case.shapes}: {error.found}")
        else:
            comparison = engine.compare(session, recorded, rtol=rtol)
            worst = comparison.worst_output
            diverges = worst is not None and worst.difference.diverges
            remark = wavers(model, tensors, recorded, comparison) if diverges else None
            if remark is None:
                _check(comparison, case, graph)
            yield Verdict(case=case, has_agreed=True, remark=remark and f"at {case.shapes} {remark}")


def _check(comparison: engine.Comparison, case: Case, graph: engine.RuntimeGraph) -> None:
    worst = comparison.worst_output
    if worst is None or not worst.difference.diverges:
        return
    difference, first, constants = worst.difference, comparison.first, own_constants(graph)
    at = f", with constants that the converter computed itself ({constants})" if constants else ""
    if first is not None and first.output is None:
        at = f", first at {first.operator} ({first.type})"
    problem = f"the answers differ from PyTorch's at {case.shapes}{at}: {worst.output}: "
    if difference.problem is not None:
        raise DivergenceError(problem + difference.problem)
    found = f"{difference.max_abs:.3g}, {100 * difference.relative:.2g} % of the largest value"
    raise DivergenceError(f"{problem}largest error", found=found, expected=f"at most {difference.allowed:.2g}")
