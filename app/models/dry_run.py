"""Dry run of a model: on inputs known from file and config or, for dynamic sizes, on plausible ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Final

import engine
from app.arrays import blank
from app.messages import quoted
from app.models.model import Model
from app.models.request import InferRequest

# Multiples that networks usually divide by first, then rarer ones.
_SIZES: Final = (64, 32, 128, 16, 224, 256, 96, 8, 7, 4, 2, 1, 3, 5, 10, 12, 100, 20, 50, 24, 48)
_BATCHES: Final = (1, 2)
# Dynamic sizes of one model may have to differ: number of other combinations to try, and of runs in all.
_MIXTURES: Final = 400
_RUNS: Final = 12


class NotRunError(Exception):
    """Dry run without a verdict, because no valid inputs are known."""


def dry_run(model: Model) -> None:
    """Run a model once, as a server would.

    Raises:
        EngineError, ConfigError: it does not run.
        NotRunError: there are no inputs, or it rejects zeros at every size tried.
    """
    if model.warm_up():
        return
    known = [port.spec for port in model.signature.inputs]
    specs = [spec for spec in known if spec is not None]
    if len(specs) < len(known):
        unknown = [port.name for port in model.signature.inputs if port.spec is None]
        raise NotRunError(f"not run: the file does not declare {quoted(unknown)}")
    problem = model.remark if all(spec.is_static for spec in specs) else _try_sizes(model, model.partly_known(specs))
    if problem is not None:
        raise NotRunError(problem)


def _try_sizes(model: Model, specs: Sequence[engine.TensorSpec]) -> str | None:
    """Return the reason why the model rejects zeros of every size tried, or None if one runs."""
    failure: engine.EngineError | None = None
    tried: list[str] = []
    for candidate in _candidates(specs):
        error = _refusal(model, candidate)
        if error is None:
            error = _run(model, candidate)
            tried.append(" and ".join(str(list(spec.shape)) for spec in candidate))
        if error is None:
            return None
        failure = failure or error
        if len(tried) >= _RUNS:
            break
    shapes = f": {'; '.join(tried[:3])}" if tried else ""
    return f"not run: sizes are dynamic, and zeros are rejected at all sizes tried{shapes}: {failure}"


def _refusal(model: Model, specs: Sequence[engine.TensorSpec]) -> engine.EngineError | None:
    """Return the error of shape inference for these sizes, or None."""
    try:
        model.session.graph.infer(specs)
    except engine.EngineError as error:
        return error
    return None


def _run(model: Model, specs: Sequence[engine.TensorSpec]) -> engine.EngineError | None:
    ports = model.signature.inputs
    inputs = {port.name: blank(spec.sizes, spec.dtype) for port, spec in zip(ports, specs, strict=True)}
    try:
        with model.in_bounds():
            model.session.prepare(specs=specs)
            model.infer(InferRequest(decode=lambda _: dict(inputs), parameters={}))
    except engine.EngineError as error:
        return error
    return None


def _candidates(specs: Sequence[engine.TensorSpec]) -> Iterator[list[engine.TensorSpec]]:
    """Yield sizes for all dynamic dimensions: equal ones, then combinations."""
    for size, batch in itertools.product(_SIZES, _BATCHES):
        yield [_sized(spec, itertools.chain([batch], itertools.repeat(size))) for spec in specs]
    choose = random.Random(0)
    for _ in range(_MIXTURES):
        batch = choose.choice(_BATCHES)
        few = choose.sample(_SIZES, 3)
        yield [_sized(spec, itertools.chain([batch], iter(lambda: choose.choice(few), None))) for spec in specs]  # noqa: B023


def _sized(spec: engine.TensorSpec, sizes: Iterator[int]) -> engine.TensorSpec:
    """Return a spec with dynamic dimensions replaced, the first by the first size."""
    shape = tuple(size if dim is None else dim for dim, size in zip(spec.shape, sizes, strict=False))
    return engine.TensorSpec(shape, spec.dtype)
