"""Measurement of candidate settings: compiled one after the other, checked, then run in turn.

Results are reported as they are found, as dicts with an ``event``:

``plan``      all candidates with their recommendations
``doing``     current step: compiling, running the reference
``ready``     a candidate is compiled and correct, or its failure
``times``     run times of a candidate so far
``done``      the best candidates
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import ServiceError
from app.measuring.contest import ALLOWED_SHARE, error_share, summary, turn, turns
from app.messages import safe_text
from app.settings import Settings, variable
from app.trials.sessions import Build, Candidate, Sessions, as_served, repeated

Tell: TypeAlias = Callable[[Mapping[str, Any]], None]
Inputs: TypeAlias = Sequence[NDArray[Any]]

_ROUNDS: Final = 8
# Measuring and serving disturb each other: wait for a pause, but not forever.
_PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.005
# bfloat16 has 8 significant bits, so a product is wrong by up to 2**-8, and errors of layers add up.
_ALLOWED_SHARE_OF_BF16: Final = 0.1
# Minimum interval of progress events.
_WORD_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Conditions of an experiment.

    Args:
        settings: settings of the server.
        threads: number of threads that this process may use.
        is_quiet: returns whether no request is being served.
        cancelled: returns whether the experiment was cancelled.
    """

    settings: Settings
    threads: int
    is_quiet: Callable[[], bool] = lambda: True
    cancelled: Callable[[], bool] = lambda: False

    def check(self) -> None:
        """Raise if the experiment was cancelled.

        Raises:
            RunCancelledError: it was.
        """
        if self.cancelled():
            raise engine.RunCancelledError("the experiment was cancelled")

    def wait_for_quiet(self) -> bool:
        """Wait for a limited time until no request is served; return whether that happened."""
        end = time.monotonic() + _PATIENCE_S
        while not self.is_quiet():
            self.check()
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_S)
        return True


@dataclass(slots=True, kw_only=True)
class _Entry:
    """Candidate that takes part."""

    candidate: Candidate
    run: Callable[[], Sequence[NDArray[Any]]]
    times: list[float] = field(default_factory=list)
    disturbed: int = 0


def tune(
    name: str,
    session: engine.Session,
    candidates: Sequence[Candidate],
    sample: Inputs,
    seconds: float,
    around: Surroundings,
    tell: Tell,
) -> None:
    """Measure all candidates.

    Args:
        name: name of the model.
        session: serving session; only its graph is used.
        candidates: candidates to measure.
        sample: one item of each input.
        seconds: measuring time per candidate.
        around: conditions of the experiment.
        tell: receives the events.

    Raises:
        EngineError: the experiment was cancelled, or the reference cannot run the model.
        ServiceError: there is not enough memory.
    """
    served = as_served(session, around.threads)
    shapes = [list(each.shape) for each in sample]
    is_dynamic = any(port.spec is None or None in port.spec.shape[1:] for port in session.graph.inputs)
    rows = [
        {
            "id": at,
            **each.describe(),
            "served": each == served,
            "advice": advice(each, name, around.settings, around.threads, shapes if is_dynamic else ()),
        }
        for at, each in enumerate(candidates)
    ]
    tell({"event": "plan", "model": name, "candidates": rows, "rounds": _ROUNDS, "inputs": shapes})
    with Sessions(around.settings, around.cancelled) as sessions, engine.cancelling(around.cancelled):
        entries = _enter(session.graph, candidates, sample, sessions, around, tell)
        for number, at in enumerate(turns(list(map(str, entries)), _ROUNDS)):
            around.check()
            _measure(int(at), entries[int(at)], seconds / _ROUNDS, around, tell, number // len(entries) + 1)
    tell({"event": "done", **_verdict(entries)})


def _enter(
    graph: engine.RuntimeGraph,
    candidates: Sequence[Candidate],
    sample: Inputs,
    sessions: Sessions,
    around: Surroundings,
    tell: Tell,
) -> dict[int, _Entry]:
    """Return the candidates that run and agree with the reference."""
    expected: dict[int, list[NDArray[Any]]] = {}
    entries: dict[int, _Entry] = {}
    for at, candidate in enumerate(candidates):
        around.check()
        inputs = repeated(sample, candidate.batch)
        try:
            if candidate.batch not in expected:
                tell({"event": "doing", "id": at, "text": "running the reference"})
                expected[candidate.batch] = _reference(graph, inputs, sessions)
            entry, row = _make(graph, candidate, inputs, expected[candidate.batch], sessions, _teller(at, tell))
        except engine.RunCancelledError:
            raise
        except (engine.EngineError, ServiceError) as exc:
            tell({"event": "ready", "id": at, "problem": safe_text(str(exc))})
            continue
        tell({"event": "ready", "id": at, **row})
        if row["problem"] is None:
            entries[at] = entry
    return entries


def _reference(graph: engine.RuntimeGraph, inputs: Inputs, sessions: Sessions) -> list[NDArray[Any]]:
    build = Build(backend="reference")
    session = sessions.get(graph, build)
    sessions.make_ready(session, build, inputs)
    return list(session.run(list(inputs)))


def _make(
    graph: engine.RuntimeGraph,
    candidate: Candidate,
    inputs: Inputs,
    expected: Sequence[NDArray[Any]],
    sessions: Sessions,
    progress: engine.Progress,
) -> tuple[_Entry, dict[str, Any]]:
    start = time.perf_counter()
    session = sessions.get(graph, candidate.build)
    sessions.make_ready(session, candidate.build, inputs, progress)
    made_s = time.perf_counter() - start
    run = partial(session.run, list(inputs))
    answer = list(run())
    share = error_share(answer, expected)
    problem = None
    rounds = candidate.build.precision != "float32" or any(op.allows_bfloat16 for op in graph.operators)
    allowed = _ALLOWED_SHARE_OF_BF16 if rounds else ALLOWED_SHARE
    if not share <= allowed:
        problem = f"reference: found an error of {share:.1e} of the scale, expected at most {allowed:.0e}"
    row = {"made_s": made_s, "share": _finite(share), "largest": _largest(answer, expected), "problem": problem}
    return _Entry(candidate=candidate, run=run), row


def _teller(at: int, tell: Tell) -> engine.Progress:
    last = 0.0

    def progress(doing: str, done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() > last + _WORD_S:
            last = time.monotonic()
            tell({"event": "doing", "id": at, "text": f"{doing} {done + 1} of {of}" if of > 1 else doing})

    return progress


def _measure(at: int, entry: _Entry, seconds: float, around: Surroundings, tell: Tell, number: int) -> None:
    entry.disturbed += not (around.wait_for_quiet())
    entry.times += turn(entry.run, seconds)[0]
    times, items = summary(entry.times), entry.candidate.batch
    tell(
        {
            "event": "times", "id": at, "round": number, "runs": times.runs, "disturbed": entry.disturbed,
            "least_s": times.least_s, "median_s": times.median_s, "p99_s": times.p99_s,
            "per_second": items / times.median_s,
        }
    )  # fmt: skip


def _verdict(entries: Mapping[int, _Entry]) -> dict[str, Any]:
    """Return the lowest latency, the highest throughput, and the Pareto front."""
    figures = {at: (summary(each.times).median_s, each.candidate.batch) for at, each in entries.items()}
    points = {at: (median_s, items / median_s) for at, (median_s, items) in figures.items()}
    best = [
        at
        for at, (time_s, rate) in points.items()
        if not any(
            other <= time_s and more >= rate and (other, more) != (time_s, rate) for other, more in points.values()
        )
    ]
    return {
        "latency": min(points, key=lambda at: points[at][0], default=None),
        "throughput": max(points, key=lambda at: points[at][1], default=None),
        "best": best,
    }


def _largest(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float | None:
    """Return the largest absolute difference, or None if it is not finite."""
    pairs = [
        (a, b) for a, b in zip(found, expected, strict=False) if a.shape == b.shape and b.size and b.dtype.kind in "fiu"
    ]
    with np.errstate(invalid="ignore", over="ignore"):
        differences = [
            float(np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64))))
            for a, b in pairs
            if not np.isnan(b.astype(np.float64)).all()
        ]
    return _finite(max(differences, default=0.0))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def advice(
    candidate: Candidate, name: str, settings: Settings, threads: int, shapes: Sequence[Sequence[int]] = ()
) -> dict[str, str]:
    """Return lines for config.toml (``config``), for the environment (``settings``), and a shell command (``command``).

    Args:
        candidate: settings to recommend.
        name: name of the model.
        settings: settings of the server.
        threads: number of threads that the server may use.
        shapes: shapes of one item of each input, if they are dynamic.
    """
    return {
        "config": "\n".join(_config(candidate, threads)),
        "settings": "\n".join(_settings(candidate, settings)),
        "command": shlex.join(_command(candidate, name, shapes)),
    }


def _config(candidate: Candidate, threads: int) -> Iterator[str]:
    build = candidate.build
    if build.backend == "compiled" and build.threads != threads:
        yield f"threads = {build.threads}"
    if build.precision != "float32":
        yield f'precision = "{build.precision}"'
    yield "[batching]"
    if candidate.batch == 1:
        yield "enabled = false"
    else:
        yield "enabled = true"
        yield f"max_batch_size = {candidate.batch}"


def _settings(candidate: Candidate, settings: Settings) -> Iterator[str]:
    """Yield only settings that differ, because they apply to all models of the server."""
    build = candidate.build
    if build.backend == "reference":
        if settings.backend != "reference":
            yield f"{variable('backend')}=reference"
        return
    if settings.backend == "reference":
        yield f"{variable('backend')}=auto"
    if build.winograd != settings.winograd:
        yield f"{variable('winograd')}={build.winograd}"
    if set(build.passes_off) != set(settings.passes_off):
        yield f"{variable('passes_off')}={','.join(build.passes_off)}"


def _command(candidate: Candidate, name: str, shapes: Sequence[Sequence[int]]) -> Sequence[str]:
    build = candidate.build
    words = ["pnnx-serve", "bench", name]
    for shape in shapes:
        words += ["--shape", ",".join(map(str, (candidate.batch, *shape[1:])))]
    if candidate.batch != 1 and not shapes:
        words += ["--batch", str(candidate.batch)]
    if build.backend == "reference":
        return [*words, "--backend", "reference"]
    words += ["--threads", str(build.threads)]
    if build.winograd == "off":
        words += ["--winograd", "off"]
    if build.passes_off:
        words += ["--passes-off", ",".join(build.passes_off)]
    return words
