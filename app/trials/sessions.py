"""Sessions beside the one that serves: opened for a trial, on the same graph, and closed with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

from numpy.typing import NDArray

import engine
from app.memory.machine import budget_bytes
from app.memory.reservation import charged
from app.models.sessions import cache_of
from app.settings import Settings
from app.trials.candidates import Build

# Packed weights lie beside those of the file, and code beside them.
_TIMES: Final = 2


class Sessions:
    """Those of one trial; what they hold is charged to its request.

    Args:
        cancelled: asked while something is compiled whether the trial should end.
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
        """The session of this build, opened when it is first asked for.

        Raises:
            ServiceError: there is no memory for it.
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
        """Compile what runs of these inputs need; of what serves, and is compiled, nothing is made again.

        Raises:
            ServiceError: there is no memory for its runs.
            EngineError: it cannot be compiled, or the graph takes no such inputs.
        """
        self._stack.enter_context(charged(session.estimate_bytes(inputs) + sum(each.nbytes for each in inputs)))
        specs = [engine.TensorSpec(each.shape, each.dtype) for each in inputs]
        session.prepare(specs=specs, tune=build.tune, progress=progress, cancelled=self._cancelled)


def open_build(graph: engine.RuntimeGraph, build: Build, settings: Settings) -> engine.Session:
    """A session of this build. What tuning finds out stays in it: nothing is kept for others to find."""
    return engine.Session(
        graph,
        backend=build.backend,
        threads=build.threads,
        winograd=build.winograd,
        passes_off=build.passes_off,
        cache=None if build.tune else cache_of(settings),
        cache_max_bytes=settings.cache_max_bytes,
        instances_max_bytes=budget_bytes(settings.instances_max_bytes, settings.workers),
    )


def weights_bytes(graph: engine.RuntimeGraph) -> int:
    """Bytes of the weights as the file has them."""
    return sum(each.data.nbytes for op in graph.operators for each in op.attributes.values())
