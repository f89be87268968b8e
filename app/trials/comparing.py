"""Comparison of one input through several models, versions and back ends: answers, times, first difference.

Entry 1 is the baseline. Results are reported as they are found, as dicts with an ``event``:

``plan``       entries
``doing``      current step
``answer``     answer of an entry and its difference from the baseline; or its failure
``times``      run times so far, measured in turn
``operators``  values of operators next to the baseline's; the first one beyond tolerance
``done``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import dtype_name
from app.errors import ConfigError, InputMismatchError, ServiceError
from app.measuring.timing import summary, turn, turns
from app.memory.reservation import charge
from app.messages import safe_text
from app.models.request import InferRequest, Prepared, Ran
from app.trials.entries import Entry
from app.trials.inputs import example
from app.trials.sessions import Sessions
from app.trials.tuning import Surroundings, Tell
from app.trials.values import Place, Values, values_of

_ROUNDS: Final = 5
_TURN_S: Final = 0.1
# Maximum number of listed operators without a counterpart.
_NAMED: Final = 20
# Keys of predictions omitted from the report because they are large.
_PICTURES: Final = ("mask", "image")


@dataclass(slots=True, kw_only=True)
class _Running:
    """Entry that takes part."""

    entry: Entry
    session: engine.Session
    inputs: list[NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    times: list[float] = field(default_factory=list)
    disturbed: int = 0


def compare(
    entries: Sequence[Entry], request: InferRequest | None, rtol: float | None, around: Surroundings, tell: Tell
) -> None:
    """Run all entries on one input.

    Args:
        entries: entries to compare.
        request: input; None for random values of the baseline's shapes.
        rtol: tolerance relative to the largest magnitude; None for the engine's default.
        around: conditions of the experiment.
        tell: receives the events.

    Raises:
        EngineError: the experiment was cancelled.
        ServiceError: the baseline cannot run the input.
    """
    tell(
        {
            "event": "plan",
            "entries": [{"id": at, **each.describe()} for at, each in enumerate(entries)],
            "rounds": _ROUNDS,
        }
    )
    with Sessions(around.settings, around.cancelled) as sessions, engine.cancelling(around.cancelled):
        known = example(entries[0].model) if request is None else None
        running: dict[int, _Running] = {}
        for at, entry in enumerate(entries):
            around.check()
            tell({"event": "doing", "id": at, "text": "running"})
            row, found = _attempt(lambda entry=entry: _answer(entry, request, known, sessions))  # type: ignore[misc]
            if found is not None:
                running[at] = found
                row |= {"outputs": _outputs(found.outputs, running.get(0), rtol)}
            tell({"event": "answer", "id": at, **row})
        _measure(running, around, tell)
        _walk(running, rtol, sessions, around, tell)
    tell({"event": "done"})


def _attempt(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Return the result of ``work``, or its error as a problem."""
    try:
        row, found = work()
        return {**row, "problem": None}, found
    except engine.RunCancelledError:
        raise
    except (engine.EngineError, ServiceError, ConfigError) as exc:
        return {"problem": safe_text(str(exc))}, None


def _answer(
    entry: Entry, request: InferRequest | None, known: list[NDArray[Any]] | None, sessions: Sessions
) -> tuple[dict[str, Any], _Running]:
    prepared = None if request is None else entry.model.prepare(request)
    inputs = _inputs(entry, prepared, known)
    session = entry.model.session if entry.is_served else sessions.get(entry.graph, entry.build)
    sessions.make_ready(session, entry.build, inputs)
    outputs = session.run(inputs).asdict()
    charge(sum(each.nbytes for each in outputs.values()))
    predictions = None
    if prepared is not None:
        predictions = entry.model.postprocessing.finish(
            prepared, Ran(outputs=dict(outputs), infer_s=0.0, batch=1)
        ).predictions
    row = {"predictions": _brief(predictions), "inputs": [list(each.shape) for each in inputs]}
    return row, _Running(entry=entry, session=session, inputs=inputs, outputs=outputs)


def _inputs(entry: Entry, prepared: Prepared | None, known: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
    ports = entry.graph.inputs
    if prepared is not None:
        return [prepared.tensors[port.name] for port in ports]
    assert known is not None  # exactly one of the two is given
    if len(known) != len(ports):
        raise InputMismatchError(f"found {len(known)} inputs, expected {len(ports)}")
    return known


def _brief(predictions: Any) -> Any:
    if predictions is None:
        return None
    rows = [
        {k: v for k, v in each.items() if k not in _PICTURES} if isinstance(each, Mapping) else each
        for each in predictions
    ]
    return rows[0] if len(rows) == 1 else rows


def _outputs(outputs: Mapping[str, NDArray[Any]], first: _Running | None, rtol: float | None) -> list[dict[str, Any]]:
    others: Mapping[str, NDArray[Any]] = {} if first is None or first.outputs is outputs else first.outputs
    if others.keys().isdisjoint(outputs):  # files with different output names
        others = dict(zip(outputs, others.values(), strict=False))
    rows = []
    for name, array in outputs.items():
        row: dict[str, Any] = {"name": name, "shape": list(array.shape), "dtype": dtype_name(array.dtype)}
        if name in others:
            row |= _difference(array, others[name], rtol)
        rows.append(row)
    return rows


def _measure(running: Mapping[int, _Running], around: Surroundings, tell: Tell) -> None:
    for number, name in enumerate(turns(list(map(str, running)), _ROUNDS)):
        around.check()
        each = running[int(name)]
        each.disturbed += not around.wait_for_quiet()
        each.times += turn(lambda each=each: each.session.run(each.inputs), _TURN_S)[0]  # type: ignore[misc]
        times = summary(each.times)
        figures = {"least_s": times.least_s, "median_s": times.median_s, "runs": times.runs}
        more = {"round": number // len(running) + 1, "disturbed": each.disturbed}
        tell({"event": "times", "id": int(name), **figures, **more})


def _walk(
    running: Mapping[int, _Running], rtol: float | None, sessions: Sessions, around: Surroundings, tell: Tell
) -> None:
    """Compare the values of operators with the baseline's, one entry at a time."""
    if 0 not in running or len(running) < 2:
        return
    base: Values | None = None
    for at, each in running.items():
        around.check()
        tell({"event": "doing", "id": at, "text": "recording values of operators"})
        row, values = _attempt(lambda each=each: ({}, _values(each, sessions)))  # type: ignore[misc]
        if at == 0:
            base = values
            if base is None:
                tell({"event": "operators", "id": 0, **row})
                return
        elif values is None or base is None:
            tell({"event": "operators", "id": at, **row})
        else:
            tell({"event": "operators", "id": at, "problem": None, **_compared(values, base, rtol)})


def _values(each: _Running, sessions: Sessions) -> Values:
    """Return the values of one batch of the exported size; segments of larger ones have separate values."""
    ports = each.entry.graph.inputs
    sizes = [port.spec.shape[0] if port.spec is not None and port.spec.shape else None for port in ports]
    inputs = [array[:size] if size else array for array, size in zip(each.inputs, sizes, strict=True)]
    session = each.session
    if each.entry.is_served and session.backend == "compiled":  # may have run other shapes since
        session.run(inputs)
    return values_of(each.entry.graph, session, each.entry.build, inputs, sessions)


def _compared(values: Values, base: Values, rtol: float | None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for place, array in values.arrays.items():
        if place in base.arrays:
            rows.append(_row(place, array, values, base, rtol))
    first = next((row for row in rows if row["diverges"]), None)
    unknown = [name for name in values.operators if name not in base.operators]
    missing = [name for name in base.operators if name not in values.operators]
    return {
        "rows": rows,
        "first": None if first is None else {"operator": first["operator"], "kernel": first["kernel"]},
        "inside": sum(1 for name in values.operators if name in base.operators and not _is_kept(name, values, base)),
        "unknown": unknown[:_NAMED], "unknown_count": len(unknown),
        "missing": missing[:_NAMED], "missing_count": len(missing),
    }  # fmt: skip


def _is_kept(name: str, values: Values, base: Values) -> bool:
    return any(
        (name, at) in values.arrays and (name, at) in base.arrays for at in range(len(values.operators[name].outputs))
    )


def _row(place: Place, array: NDArray[Any], values: Values, base: Values, rtol: float | None) -> dict[str, Any]:
    op = values.operators[place[0]]
    return {
        "operator": op.name, "type": op.type, "index": op.index, "operand": op.outputs[place[1]].name,
        "kernel": values.kernels.get(op.name) or base.kernels.get(op.name),
        "shape": list(array.shape), **_difference(array, base.arrays[place], rtol),
        "here": _figures(array), "there": _figures(base.arrays[place]),
    }  # fmt: skip


def _difference(found: NDArray[Any], expected: NDArray[Any], rtol: float | None) -> dict[str, Any]:
    """Return the difference of two values; non-finite numbers are None, and described as a problem."""
    difference = engine.measure_difference(found, expected, rtol=rtol)
    numbers = {
        "max_abs": difference.max_abs,
        "relative": difference.relative,
        "scale": difference.scale,
        "allowed": difference.allowed,
    }
    return {**{k: _finite(v) for k, v in numbers.items()}, "diverges": difference.diverges, "apart": difference.problem}


def _figures(array: NDArray[Any]) -> dict[str, float | None]:
    if not array.size or array.dtype.kind not in "biuf":
        return {}
    wide = array.astype(np.float64)
    known = wide[np.isfinite(wide)]
    if not known.size:
        return {}
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = {"min": known.min(), "max": known.max(), "mean": known.mean(), "std": known.std()}
    return {name: _finite(float(number)) for name, number in numbers.items()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
