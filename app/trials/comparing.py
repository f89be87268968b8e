"""Comparison of one input through several models, versions and back ends: answers, times, first difference.

Entry 1 is the baseline. Results are reported as they are found, as dicts with an ``event``:

``plan``       entries
``doing``      current step
``answer``     answer of an entry and its difference from the baseline; or its failure
``times``      run times so far, measured in turn
``operators``  values of operators next to the baseline's; the first one beyond tolerance
``done``

The reference keeps all values. For machine code the graph is compiled again with the values between kernels as outputs,
so that the kernels stay the same; concatenations made in place are copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import dtype_name
from app.codec.message import read_version
from app.errors import ConfigError, InputMismatchError, InvalidRequestError, ServiceError
from app.measuring.contest import summary, turn, turns
from app.memory.reservation import charge
from app.messages import cut, safe_text
from app.models.model import Model
from app.models.registry.version import Version
from app.models.request import InferRequest, Prepared, Ran
from app.settings import Settings
from app.trials.sessions import Build, Sessions, as_served, example
from app.trials.tuning import Surroundings, Tell

# Operator name and output index; operand names differ from file to file.
Place: TypeAlias = tuple[str, int]
# Limit of one comparison.
MAX_ENTRIES: Final = 12
_ENTRY: Final = re.compile(
    r"(?P<model>[^:]+)(:(?P<version>[^:]*))?(:(?P<backend>|compiled|reference))?(:(?P<threads>\d{0,4}))?"
    r"(:(?P<precision>|float32|bf16|auto))?"
)
_ROUNDS: Final = 5
_TURN_S: Final = 0.1
# Maximum number of listed operators without a counterpart.
_NAMED: Final = 20
# Keys of predictions omitted from the report because they are large.
_PICTURES: Final = ("mask", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Recorded values of a run, in execution order.

    Args:
        arrays: recorded values.
        operators: all computing operators by name, recorded or not.
        kernels: for a fused operator, the first operator of its kernel.
    """

    arrays: Mapping[Place, NDArray[Any]]
    operators: Mapping[str, engine.RuntimeOperator]
    kernels: Mapping[str, str]


def values_of(
    graph: engine.RuntimeGraph,
    session: engine.Session,
    build: Build,
    inputs: Sequence[NDArray[Any]],
    sessions: Sessions,
) -> Values:
    """Record the values of a run.

    Args:
        graph: graph to run.
        session: session of this build that has run such inputs.
        build: session options.
        inputs: inputs of the run.
        sessions: sessions of the experiment.

    Raises:
        ServiceError: there is not enough memory.
        EngineError: the graph cannot run, or not with these outputs.
    """
    operators = {op.name: op for op in graph.operators if op.inputs and op.outputs}
    is_compiled = session.backend == "compiled"
    rows = {row["name"]: row for row in session.describe()["operators"]} if is_compiled else {}
    kernels = {name: str(row["fused_into"]) for name, row in rows.items() if row.get("fused_into")}
    names = [x.name for op in operators.values() for x in op.outputs]
    if is_compiled:
        names = list(_written(graph, rows, kernels))
    charge(_bytes(graph, inputs, names))
    if is_compiled:
        part = graph.extract([port.operand for port in graph.inputs], names)
        watched = sessions.get(part, build)
        sessions.make_ready(watched, build, inputs)
        found: Mapping[str, Any] = dict(zip(names, watched.run(list(inputs)), strict=True))
    else:
        found = session.run(list(inputs), taps=names).taps
    arrays = {
        (op.name, at): found[operand.name]
        for op in operators.values()
        for at, operand in enumerate(op.outputs)
        if isinstance(found.get(operand.name), np.ndarray)
    }
    return Values(arrays=arrays, operators=operators, kernels=kernels)


def _written(
    graph: engine.RuntimeGraph, rows: Mapping[str, Mapping[str, Any]], kernels: Mapping[str, str]
) -> Iterator[str]:
    """Yield operands that leave the kernel that computes them, and the graph's outputs."""
    outputs = {port.operand for port in graph.outputs}
    for op in graph.operators:
        if not op.inputs:
            continue
        is_made = rows[op.name].get("kernel") not in (None, "view", "removed")
        own = kernels.get(op.name, op.name)
        for operand in op.outputs:
            leaves = any(kernels.get(user.name, user.name) != own for user in operand.consumers)
            if operand.name in outputs or (is_made and leaves):
                yield operand.name


def _bytes(graph: engine.RuntimeGraph, inputs: Sequence[NDArray[Any]], names: Sequence[str]) -> int:
    """Return the bytes of the operands whose shapes follow from the inputs."""
    known = graph.infer([engine.TensorSpec(each.shape, each.dtype) for each in inputs])
    specs = (known.get(name) for name in names)
    return sum(
        int(np.prod([dim or 1 for dim in spec.shape])) * spec.dtype.itemsize
        for spec in specs
        if isinstance(spec, engine.TensorSpec)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Entry of a comparison.

    Args:
        name, version: of the model.
        model: serving model of that version.
        build: session options.
        is_served: whether the model is served with these options.
    """

    name: str
    version: int
    model: Model
    build: Build
    is_served: bool

    @property
    def graph(self) -> engine.RuntimeGraph:
        """Return the graph."""
        return self.model.session.graph

    def describe(self) -> dict[str, Any]:
        """Return plain data."""
        threads = None if self.build.backend == "reference" else self.build.threads
        names = {"model": self.name, "version": self.version, "backend": self.build.backend, "threads": threads}
        return {**names, "precision": self.precision, "served": self.is_served}

    @property
    def precision(self) -> str:
        """Return the precision that the files give layers, else that of the products."""
        if self.model.stored_precision:
            return self.model.stored_precision
        return "float32" if self.build.backend == "reference" else self.build.precision


def read_entries(
    text: str, find: Callable[[str, int | str | None], Version], settings: Settings, threads: int
) -> list[Entry]:
    """Return comma-separated entries ``MODEL[:VERSION[:BACKEND[:THREADS[:PRECISION]]]]``; omitted parts are as served.

    Args:
        text: the entries.
        find: returns the version of a name and number.
        settings: settings of the server.
        threads: number of threads that the server may use.

    Raises:
        ServiceError: an entry is invalid or unknown, or there are too many.
    """
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not 1 <= len(words) <= MAX_ENTRIES:
        raise InvalidRequestError(f"entries: found {len(words)}, expected 1 to {MAX_ENTRIES}, by comma")
    return _each_once([_entry(each, find, settings, threads) for each in words])


def _entry(text: str, find: Callable[[str, int | str | None], Version], settings: Settings, threads: int) -> Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise InvalidRequestError(
            f"entries: found '{cut(text)}', expected MODEL:VERSION:compiled or reference:THREADS:float32, bf16 or auto"
        )
    version = find(match["model"], read_version(match["version"] or None))
    served = as_served(version.network.session, threads).build
    wanted = int(match["threads"]) if match["threads"] else served.threads
    if not 1 <= wanted <= threads:
        raise InvalidRequestError(f"entries: found {wanted} threads, expected 1 to {threads}")
    backend = match["backend"] or served.backend
    if backend == "reference":
        build = Build(backend="reference", threads=threads)
    else:
        passes = tuple(name for name in engine.PASS_NAMES if name in settings.passes_off)
        precision = match["precision"] or served.precision
        build = Build(threads=wanted, winograd=settings.winograd, passes_off=passes, precision=precision)  # type: ignore[arg-type]  # by _ENTRY
    return Entry(
        name=version.name, version=version.number, model=version.network, build=build, is_served=build == served
    )


def _each_once(entries: Sequence[Entry]) -> list[Entry]:
    return list({(each.name, each.version, each.build): each for each in entries}.values())


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
