"""Comparison of a converted pair with PyTorch: at the shapes of the export, and at others if dimensions are dynamic.

Differences that PyTorch's own rounding explains, by its results in double precision, become a remark.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from exporter.drawing import KINDS, LARGE, NEGATIVE, PLAIN, REPEATED, SPREAD, draw
from exporter.errors import DivergenceError, SourceError
from exporter.inputs import InputSpec
from exporter.ranges import Ranges, find_ranges
from exporter.recording import record
from exporter.sizes import other_shapes
from exporter.tensors import answer, flatten, to_array

# Allowed error, as a multiple of PyTorch's own error in single precision relative to double.
_MOST: Final = 4.0


def wavers(
    model: Any, tensors: Sequence[Any], recorded: Mapping[str, NDArray[Any]], comparison: engine.Comparison
) -> str | None:
    """Return a remark if differences are explained by PyTorch's own rounding, else None.

    Sums that cancel, and choices between nearly equal values (the best of many boxes), depend on the order of
    summation.

    Args:
        model: the exported model.
        tensors: its inputs.
        recorded: PyTorch's results for them and other values, see record().
        comparison: of those with the pair's.
    """
    own = _own_errors(model, tensors, recorded)
    rows = [row for row in comparison.rows if row.difference.diverges]
    outputs = [(row.difference, row.place) for row in rows if row.place is not None]
    if own is None or any(difference.problem is not None for difference, _ in outputs):
        return None
    differing = [(difference.relative, own[place]) for difference, place in outputs]
    if not all(found <= _MOST * mine for found, mine in differing):
        return None
    found, mine = max(differing, default=(0.0, 0.0))
    return (
        f"the answers differ by {100 * found:.2g} % of the largest value, as PyTorch's own do in double precision "
        f"({100 * mine:.2g} %): single precision does not determine them better"
    )


def _own_errors(model: Any, tensors: Sequence[Any], recorded: Mapping[str, NDArray[Any]]) -> list[float] | None:
    """Return the errors of PyTorch's results relative to double precision, as shares of the largest, or None."""
    try:
        result = answer(copy.deepcopy(model).double(), [_doubled(each) for each in tensors])
        double = [to_array(each) for each in flatten(result)]
    except (SourceError, RuntimeError, TypeError, ValueError, AttributeError):
        return None  # it cannot be copied, or mixes precisions itself
    pairs = [(recorded[f"out_{index}"], each) for index, each in enumerate(double)]
    if any(single.shape != each.shape for single, each in pairs):
        return None
    return [_distance(*pair) for pair in pairs]


def _doubled(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _distance(single: NDArray[Any], double: NDArray[Any]) -> float:
    largest = float(np.abs(single).max(initial=0))
    difference = np.abs(single.astype(np.result_type(single, np.float64)) - double)
    return float(difference.max(initial=0)) / largest if largest else 0.0


_MOST_NAMED: Final = 3
# PyTorch leaves undefined which of equal values these take.
_CHOOSING: Final = frozenset({"topk", "kthvalue", "TopK"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Inputs to try.

    Args:
        inputs: their shapes.
        ranges: of their integers.
        seed: of their values; the tracer saw those of seed 0.
        kind: of their values, see draw().
        is_optional: whether PyTorch may refuse them.
    """

    inputs: tuple[InputSpec, ...]
    ranges: Ranges
    seed: int
    kind: str = PLAIN
    is_optional: bool = False

    @property
    def shapes(self) -> str:
        """The shapes as text."""
        return ", ".join(map(str, self.inputs))

    @property
    def text(self) -> str:
        """The shapes, and the kind of the values."""
        ranges = [f"{each} for input {k}" for k, each in enumerate(self.ranges) if each is not None]
        integers = f" and integers from {', '.join(ranges)}" if ranges else ""
        return self.shapes if self.kind == PLAIN else f"{self.shapes} with {self.kind} values{integers}"

    def tensors(self) -> tuple[Any, ...]:
        """Return the inputs."""
        return draw(self.kind, self.inputs, self.ranges, self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of a case.

    Args:
        case: the inputs.
        has_agreed: whether PyTorch took the inputs, and the results agreed.
        refusal: PyTorch's message, for shapes that it does not take.
        remark: note for the user.
    """

    case: Case
    has_agreed: bool
    refusal: str | None = None
    remark: str | None = None


def cases(model: Any, first: Sequence[InputSpec], second: Sequence[InputSpec]) -> tuple[Case, ...]:
    """Return the cases: values of every kind at both shapes, and other shapes if dimensions are dynamic.

    Raises:
        SourceError: the model does not take inputs of one of the two shapes.
    """
    shapes = [tuple(first), *([tuple(second), *other_shapes(first, second)] if second else [])]
    found: list[Case] = []
    known: Ranges | None = None
    for number, inputs in enumerate(shapes):
        ranges = _ranges(model, inputs, known, is_optional=number > 1)
        known = ranges if any(ranges) else known
        for kind in ((PLAIN, PLAIN, *KINDS), (PLAIN, SPREAD))[number] if number < 2 else (SPREAD,):
            is_optional = number > 1 or kind != PLAIN
            found.append(Case(inputs=inputs, ranges=ranges, seed=len(found), kind=kind, is_optional=is_optional))
    return tuple(found)


def _ranges(model: Any, inputs: Sequence[InputSpec], known: Ranges | None, *, is_optional: bool) -> Ranges:
    """Return the integers that a model accepts at some shapes; zeros and ones if it refuses optional shapes."""
    unknown: Ranges = (None,) * len(inputs)
    try:
        return find_ranges(model, inputs, draw(PLAIN, inputs, unknown, 0), known)
    except SourceError:
        if is_optional:
            return unknown
        raise


def verify(model: Any, graph: engine.RuntimeGraph, trials: Sequence[Case], rtol: float | None) -> Iterator[Verdict]:
    """Run model and graph on the same inputs.

    Yields:
        A verdict for every case.

    Raises:
        DivergenceError: the results differ, or the graph fails; names the shapes, the output and, if known, the
            operator.
    """
    session = engine.Session(graph)
    for case in trials:
        tensors = case.tensors()
        try:
            recorded = record(model, tensors, graph)
        except SourceError as error:
            if not case.is_optional:
                raise
            yield Verdict(case=case, has_agreed=False, refusal=error.found)
        else:
            if case.kind != PLAIN and _has_nan(recorded):
                continue  # PyTorch has no result for such values
            yield _judged(model, tensors, recorded, case, session, rtol)


def _has_nan(recorded: Mapping[str, NDArray[Any]]) -> bool:
    return any(np.isnan(array).any() for name, array in recorded.items() if name.startswith("out_"))


def _judged(
    model: Any,
    tensors: Sequence[Any],
    recorded: Mapping[str, NDArray[Any]],
    case: Case,
    session: engine.Session,
    rtol: float | None,
) -> Verdict:
    try:
        comparison = engine.compare(session, recorded, rtol=rtol)
    except engine.EngineError as error:
        raise DivergenceError(f"the exported pair fails at {case.text}", found=error, expected="PyTorch's") from error
    worst = comparison.worst_output
    diverges = worst is not None and worst.difference.diverges
    remark = None
    if diverges:
        remark = wavers(model, tensors, recorded, comparison) or _ties(case, session.graph)
    if remark is None:
        _check(comparison, case, session.graph)
    return Verdict(case=case, has_agreed=True, remark=remark and f"at {case.text} {remark}")


def _ties(case: Case, graph: engine.RuntimeGraph) -> str | None:
    """Return a remark naming the operator that may take any of equal values, if values may be equal.

    Large values count as such: an activation that saturates makes them equal.
    """
    if case.kind not in (REPEATED, LARGE, NEGATIVE):
        return None
    choosing = [op for op in graph.source.operators if op.type.rpartition(".")[2].rpartition("::")[2] in _CHOOSING]
    if not choosing:
        return None
    return f"{choosing[0].name} ({choosing[0].type}) takes another of equal values than PyTorch"


def _check(comparison: engine.Comparison, case: Case, graph: engine.RuntimeGraph) -> None:
    worst = comparison.worst_output
    if worst is None or not worst.difference.diverges:
        return
    difference, first, constants = worst.difference, comparison.first, _own_constants(graph)
    at = f", with constants that the converter computed itself ({constants})" if constants else ""
    if first is not None and first.output is None:
        at = f", first at {first.operator} ({first.type})"
    problem = f"the answers differ from PyTorch's at {case.text}{at}: {worst.output}: "
    if difference.problem is not None:
        raise DivergenceError(problem + difference.problem)
    found = f"{difference.max_abs:.3g}, {100 * difference.relative:.2g} % of the largest value"
    raise DivergenceError(f"{problem}largest error", found=found, expected=f"at most {difference.allowed:.2g}")


def _own_constants(graph: engine.RuntimeGraph) -> str:
    """Return a remark naming constants that the converter computed itself, some of them wrongly, and their users.

    Known cases are a cell called in a loop from a state of zeros, and a list that a script appends to.
    """
    makers = [op for op in graph.source.operators if op.type == "pnnx.Attribute" and op.name.startswith("pnnx_fold_")]
    found = []
    for maker in makers[:_MOST_NAMED]:
        takers = [op for op in graph.source.operators if set(op.inputs) & set(maker.outputs)]
        found.append(f"{maker.name} for {takers[0].name} ({takers[0].type})" if takers else maker.name)
    more = f" and {len(makers) - _MOST_NAMED} more" if len(makers) > _MOST_NAMED else ""
    return ", ".join(found) + more
