"""Profile of a run of a model: kernels, threads, memory, and the machine's limits."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.codec.parse import parse
from app.console.samples import list_samples, read_sample
from app.errors import InvalidRequestError
from app.memory.reservation import running, would_fit
from app.messages import cut, quoted
from app.models.folder.repository import ModelFiles
from app.models.model import Model
from app.models.request import InferRequest
from app.models.sessions import cache_of
from app.models.warmup import fits
from app.render.caption import family_of
from app.settings import Settings

_SHAPE: Final = re.compile(r"\d{1,10}(,\d{1,10}){0,31}|scalar")
Measured = tuple[dict[str, NDArray[Any]], str]
# Number of runs, of which the fastest is reported; fewer if they take longer than _ENOUGH_S in all.
_RUNS: Final = 7
_ENOUGH_S: Final = 1.0


def inputs_to_measure(
    model: Model, files: ModelFiles, settings: Settings, shapes: Sequence[str] = (), sample: str | None = None
) -> Measured:
    """Return inputs and their description.

    Args:
        model: model to run.
        files: files of the model.
        settings: settings of the server.
        shapes: shapes such as ``1,3,224,224``, one per input.
        sample: name of a sample; by default the first one if sizes are dynamic.

    Raises:
        InvalidRequestError: a shape does not fit, or sizes are dynamic and nothing is given.
        NotFoundError: there is no such sample.
        ServiceError, EngineError: as for a request.
    """
    if shapes:
        return _zeros(model, shapes), "zeros"
    if sample is None:
        zeros = model.example_inputs()
        if zeros is not None:
            return zeros, "zeros"
        named = list_samples(files)
        if not named:
            raise InvalidRequestError(
                f"profile: {model.missing_example} and has no sample, expected such as shape=1,3,224,224"
            )
        sample = str(named[0]["name"])
    message = parse(*read_sample(files, sample), settings)
    return model.prepare(InferRequest(decode=message.decode, parameters={})).tensors, f"sample {sample}"


def _zeros(model: Model, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    ports = model.signature.inputs
    if len(texts) != len(ports):
        names = quoted(port.name for port in ports)
        raise InvalidRequestError(f"shape: found {len(texts)}, expected one for each input: {names}")
    specs = []
    for port, text in zip(ports, texts, strict=True):
        if not _SHAPE.fullmatch(text):
            raise InvalidRequestError(f"shape: found '{cut(text)}', expected sizes by comma, such as 1,3,224,224")
        shape = () if text == "scalar" else tuple(map(int, text.split(",")))
        if port.spec is None or not fits(port, shape):
            raise InvalidRequestError(f"shape: found {list(shape)}, which does not fit '{port.name}' ({port.spec})")
        specs.append((port.name, shape, port.spec.dtype))
    would_fit(sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in specs))
    return {name: np.zeros(shape, dtype) for name, shape, dtype in specs}


def profile(
    model: Model, settings: Settings, inputs: Mapping[str, NDArray[Any]], what: str = "zeros"
) -> dict[str, Any]:
    """Return the fastest of several runs: operators, kernels in execution order, memory, machine.

    Args:
        model: model to run.
        settings: settings of the server.
        inputs: inputs from app/console/profiling.py.
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
    model.session.run(inputs)  # warm-up
    # The first profiled run may compile; the minimum excludes it.
    best, end = model.session.run(inputs, profile=True), time.monotonic() + _ENOUGH_S
    for _ in range(_RUNS - 1):
        if time.monotonic() > end:
            break
        best = min(best, model.session.run(inputs, profile=True), key=_time_us)
    return best


def _time_us(outputs: engine.Outputs) -> float:
    rows = outputs.kernels or outputs.profile or []
    return float(sum(row["time_us"] for row in rows))
