"""Where the time of a run goes: kernel by kernel, beside what the machine could do."""

from __future__ import annotations

import time
from typing import Any, Final

import engine
from app.errors import InvalidRequestError
from app.models.model import Model
from app.models.sessions import cache_of
from app.settings import Settings

# Of so many runs the fastest is told; of a slow model of fewer.
_RUNS: Final = 7
_ENOUGH_S: Final = 1.0


def profile(model: Model, settings: Settings) -> dict[str, Any]:
    """The fastest of some runs on zeros: its operators, its kernels in the order they ran, and the machine.

    Raises:
        InvalidRequestError: the model leaves sizes open: there is nothing to run it on.
        EngineError: it cannot run.
    """
    inputs = model.example_inputs()
    if inputs is None:
        raise InvalidRequestError("profile: the model leaves its input's size open, so there is nothing to run it on")
    model.session.run(inputs)  # what the first run warms is no part of it
    end = time.monotonic() + _ENOUGH_S
    best = model.session.run(inputs, profile=True)
    for _ in range(_RUNS - 1):
        if time.monotonic() > end:
            break
        best = min(best, model.session.run(inputs, profile=True), key=_time_us)
    return {
        "model": model.name,
        "backend": model.session.backend,
        "threads": model.session.threads,
        "time_us": _time_us(best),
        "operators": best.profile,
        "kernels": best.kernels,
        "peak_bytes": best.peak_bytes,
        "inputs": {name: list(array.shape) for name, array in inputs.items()},
        "host": engine.describe_host(cache_of(settings)) if settings.measure_host else None,
    }


def _time_us(outputs: engine.Outputs) -> float:
    rows = outputs.kernels or outputs.profile or []
    return float(sum(row["time_us"] for row in rows))
