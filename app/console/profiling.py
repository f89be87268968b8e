"""Profile of a run: kernels, threads, memory, and the machine's limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray

import engine
from app.memory.reservation import check, running
from app.models.model import Model
from app.models.sessions import cache_of
from app.render.caption import family_of
from app.settings import Settings

# Number of runs, of which the fastest is reported; fewer if they take longer than _ENOUGH_S in all.
_RUNS: Final = 7
_ENOUGH_S: Final = 1.0


def profile(
    model: Model, settings: Settings, inputs: Mapping[str, NDArray[Any]], what: str = "zeros"
) -> dict[str, Any]:
    """Return the fastest of several runs: operators, kernels in execution order, memory, machine.

    Args:
        model: model to run.
        settings: settings of the server.
        inputs: inputs from app/console/samples.py.
        what: description of the inputs.

    Raises:
        EngineError: it cannot run.
        ServiceError: there is not enough memory, or the request was cancelled.
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
    """Return the measured limits of the machine, or None without a compiler."""
    try:
        return engine.describe_host(cache_of(settings))
    except engine.CompileError:
        return None


def _buffers(model: Model, outputs: engine.Outputs) -> list[dict[str, Any]]:
    """Return the buffers with the operator family of the kernel that writes them first."""
    types = {each.name: each.type for each in model.session.graph.operators}
    steps = [row["operators"][0] for row in outputs.kernels] or [row["name"] for row in outputs.profile or ()]
    made = [family_of(types.get(name, "")) for name in steps]
    return [{**buffer, "family": made[buffer["first"]]} for buffer in outputs.buffers]


def _fastest(model: Model, inputs: Mapping[str, NDArray[Any]]) -> engine.Outputs:
    model.session.run(inputs, cancelled=_is_late)  # warm-up
    # The first profiled run may compile; the minimum excludes it.
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
