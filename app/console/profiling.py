"""Where the time of a run goes: kernel by kernel and thread by thread, beside what the machine could do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray

import engine
from app.memory.reservation import check, running
from app.models.model import Model
from app.models.sessions import cache_of
from app.render.family import family_of
from app.settings import Settings

# The fastest of so many runs is reported; fewer where together they take longer than _ENOUGH_S.
_RUNS: Final = 7
_ENOUGH_S: Final = 1.0


def profile(
    model: Model, settings: Settings, inputs: Mapping[str, NDArray[Any]], what: str = "zeros"
) -> dict[str, Any]:
    """The fastest of some runs: its operators, its kernels in the order they ran, its memory, and the machine.

    Args:
        inputs: what it is run on, as app/console/samples.py gives them.
        what: what that is.

    Raises:
        EngineError: it cannot run.
        ServiceError: there is no memory for it, or nobody waits any more.
    """
    with running(model.session.estimate_bytes(inputs)):
        best = _fastest(model, inputs)
    return {
        "model": model.name,
        "backend": model.session.backend,
        "threads": model.session.threads,
        "time_us": _time_us(best),
        "operators": best.profile,
        "kernels": best.kernels,
        "peak_bytes": best.peak_bytes,
        "buffers": _buffers(model, best),
        "input": what,
        "inputs": {name: list(array.shape) for name, array in inputs.items()},
        "host": _host(settings),
    }


def _host(settings: Settings) -> dict[str, Any] | None:
    """Return what the machine can do; None where there is no compiler to measure it."""
    try:
        return engine.describe_host(cache_of(settings))
    except engine.CompileError:
        return None


def _buffers(model: Model, outputs: engine.Outputs) -> list[dict[str, Any]]:
    """What lies in memory, with the family of the operator whose kernel writes it first: its colour."""
    types = {each.name: each.type for each in model.session.graph.operators}
    steps = [row["operators"][0] for row in outputs.kernels] or [row["name"] for row in outputs.profile or ()]
    made = [family_of(types.get(name, "")) for name in steps]
    return [{**buffer, "family": made[buffer["first"]]} for buffer in outputs.buffers]


def _fastest(model: Model, inputs: Mapping[str, NDArray[Any]]) -> engine.Outputs:
    model.session.run(inputs, cancelled=_is_late)  # what the first run warms is no part of it
    # The first measured run may have to wait for its code, which counts for nothing either.
    best, end = model.session.run(inputs, profile=True, cancelled=_is_late), time.monotonic() + _ENOUGH_S
    for _ in range(_RUNS - 1):
        if time.monotonic() > end:
            break
        best = min(best, model.session.run(inputs, profile=True, cancelled=_is_late), key=_time_us)
    return best


def _is_late() -> bool:
    check()
    return False


def _time_us(outputs: engine.Outputs) -> float:
    rows = outputs.kernels or outputs.profile or []
    return float(sum(row["time_us"] for row in rows))
