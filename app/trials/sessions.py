"""Sessions of an experiment, on the served graph, closed with it; and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InvalidRequestError
from app.memory.machine import budget_bytes
from app.memory.reservation import charged
from app.models.model import Model
from app.models.sessions import cache_of
from app.settings import Settings
from app.trials.candidates import Build

# Packed weights and code take memory beside the weights of the file.
_TIMES: Final = 2


class Sessions:
    """Sessions of one experiment; their memory is charged to its request.

    Args:
        settings: settings of the server.
        cancelled: polled while compiling.
    """

    def __init__(self, settings: Settings, cancelled: Callable[[], bool]) -> None:
        self._settings = settings
        self._cancelled = cancelled
        self._stack = ExitStack()
        self._open: dict[tuple[int, Build], engine.Session] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        self._open.clear()

    def get(self, graph: engine.RuntimeGraph, build: Build) -> engine.Session:
        """Return the session of a build, opened on first use.

        Raises:
            ServiceError: there is not enough memory.
        """
        key = (id(graph), build)
        if key not in self._open:
            self._stack.enter_context(charged(_TIMES * weights_bytes(graph)))
            self._open[key] = session = open_build(graph, build, self._settings)
            self._stack.callback(session.close)
        return self._open[key]

    def make_ready(
        self,
        session: engine.Session,
        build: Build,
        inputs: Sequence[NDArray[Any]],
        progress: engine.Progress | None = None,
    ) -> None:
        """Compile for these inputs; a session that is compiled already is left alone.

        Raises:
            ServiceError: there is not enough memory for its runs.
            EngineError: it cannot be compiled, or the graph rejects the inputs.
        """
        self._stack.enter_context(charged(session.estimate_bytes(inputs) + sum(each.nbytes for each in inputs)))
        specs = [engine.TensorSpec(each.shape, each.dtype) for each in inputs]
        session.prepare(specs=specs, progress=progress, cancelled=self._cancelled)


def open_build(graph: engine.RuntimeGraph, build: Build, settings: Settings) -> engine.Session:
    """Return a session of a build."""
    return engine.Session(
        graph,
        backend=build.backend,
        threads=build.threads,
        winograd=build.winograd,
        passes_off=build.passes_off,
        cache=cache_of(settings),
        cache_max_bytes=settings.cache_max_bytes,
        instances_max_bytes=budget_bytes(settings.instances_max_bytes, settings.workers),
    )


def weights_bytes(graph: engine.RuntimeGraph) -> int:
    """Return the bytes of the weights in the file."""
    return sum(each.data.nbytes for op in graph.operators for each in op.attributes.values())


def random_inputs(specs: Sequence[engine.TensorSpec], batch: int | None = None) -> list[NDArray[Any]]:
    """Return random inputs of the specs or of another batch size, the same on each call."""
    random = np.random.default_rng(0)
    found = []
    for each in specs:
        shape = tuple(dim or 1 for dim in each.shape)
        shape = shape if batch is None or not shape else (batch, *shape[1:])
        # 0 and 1 are valid as indices, masks and counts
        values = random.standard_normal(shape) if each.dtype.kind in "fc" else random.integers(0, 2, shape)
        found.append(np.asarray(values).astype(each.dtype))
    return found


def example(model: Model) -> list[NDArray[Any]]:
    """Return one item of random values.

    Raises:
        InvalidRequestError: the model has dynamic sizes.
    """
    zeros = model.example_inputs()
    if zeros is None:
        raise InvalidRequestError(f"{model.missing_example}, so there is nothing to run it on; choose a sample")
    return random_inputs([engine.TensorSpec(each.shape, each.dtype) for each in zeros.values()])


def repeated(inputs: Sequence[NDArray[Any]], batch: int) -> list[NDArray[Any]]:
    """Return the item repeated to a batch."""
    return [np.concatenate([each[:1]] * batch) if each.ndim else each for each in inputs]
