"""Runs of prepared requests through the response cache and the batcher.

With ``verify_batches``, a debugging aid, each run of several items also takes the time of the reference.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InputMismatchError
from app.memory.reservation import charge
from app.messages import quoted
from app.models.batcher import Batcher
from app.models.request import Prepared, Ran
from app.models.response_cache import ResponseCache
from app.models.states import Steps
from app.scheduling.job import RunSpec
from app.tasks.task import Outputs

log = logging.getLogger(__name__)

Tensors = Mapping[str, NDArray[Any]]


class Verification:
    """Comparison of a model's runs with the reference, for many threads at once.

    Attributes:
        mismatches: number of requests whose outputs differed.

    Args:
        name: name of the model, for the log.
        graph: graph of the model.
    """

    def __init__(self, name: str, graph: engine.RuntimeGraph) -> None:
        self.mismatches = 0
        self._name = name
        self._session = engine.Session(graph, backend="reference") if graph.is_repeatable else None
        self._lock = threading.Lock()

    def check(self, prepared: Sequence[Prepared], outputs: Sequence[Tensors]) -> None:
        """Compare one run, and log an error for each request whose outputs differ.

        Items of a shared run are computed one by one, because none may depend on another request. A request that ran
        alone is
        computed as sent.

        Args:
            prepared: requests of the run.
            outputs: outputs of each request.
        """
        is_shared = len(prepared) > 1
        try:
            for request, found in zip(prepared, outputs, strict=True):
                if (difference := self._difference(request, found, is_shared)) is not None:
                    self._report(request, prepared, difference)
        except engine.RunCancelledError:  # no client waits for these answers
            return

    def _difference(self, request: Prepared, outputs: Tensors, is_shared: bool) -> str | None:
        """Return the first difference, or None."""
        if self._session is None:
            return None
        pairs = _items(request, outputs) if is_shared else [("", request.tensors, outputs)]
        for place, inputs, found in pairs:
            try:
                expected = self._session.run(inputs).asdict()
            except engine.RunCancelledError:
                raise
            except engine.EngineError as error:
                return f"{place}the reference fails: {error}"
            for name, array in expected.items():
                if not engine.is_close(found[name], array):
                    return f"{place}output '{name}' by up to {_largest_difference(found[name], array):.3g}"
        return None

    def _report(self, request: Prepared, prepared: Sequence[Prepared], difference: str) -> None:
        with self._lock:
            self.mismatches += 1
        others = ", ".join(each.request_id for each in prepared if each is not request)
        log.error(
            "model '%s': the answer to request %s differs from the reference: %s (%s)",
            self._name,
            request.request_id,
            difference,
            f"its run was shared with requests {others}" if others else "its run was not shared",
        )


def _items(request: Prepared, outputs: Tensors) -> Iterator[tuple[str, Tensors, Tensors]]:
    """Yield the position, inputs and outputs of each item."""
    for at in range(request.items):
        inputs, found = (
            {name: each[at : at + 1] for name, each in tensors.items()} for tensors in (request.tensors, outputs)
        )
        yield f"item {at}, ", inputs, found


def _largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest absolute difference; infinity if shapes differ or a value is not finite."""
    if found.shape != expected.shape or found.dtype.kind not in "biufc":
        return np.inf
    with np.errstate(all="ignore"):
        difference = np.abs(found.astype(np.complex128) - expected.astype(np.complex128))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))


class Runs:
    """Computation of outputs; equal requests are computed once if outputs are cached.

    Args:
        batcher: runs the model.
        cache: None if outputs are not cached.
        verification: checks runs of several items, or None.
        steps: runs rows one after the other if the model has states, or None.
    """

    def __init__(
        self,
        batcher: Batcher,
        cache: ResponseCache | None,
        verification: Verification | None = None,
        steps: Steps | None = None,
    ) -> None:
        self._batcher = batcher
        self._cache = cache
        self._verification = verification
        self._steps = steps

    def spec(self, prepared: Prepared) -> RunSpec:
        """Return the resources that the run needs.

        Raises:
            EngineError: the inputs do not fit the graph.
        """
        if self._steps is not None and self._takes_steps(prepared):
            is_slow = prepared.items != 1 or not self._steps.is_ready(prepared.tensors)
            return RunSpec(prepared.items, is_slow=is_slow)
        return self._batcher.run_spec(prepared.tensors, prepared.items)

    def is_known(self, prepared: Prepared) -> bool:
        """Return whether a request of one item takes the time that was measured."""
        if self._steps is not None and self._takes_steps(prepared):
            return prepared.items == 1 and self._steps.is_ready(prepared.tensors)
        return self._batcher.is_known(prepared.tensors, 1)

    def _takes_steps(self, prepared: Prepared) -> bool:
        """Return whether the rows run one after the other: the request gives no states.

        Raises:
            InputMismatchError: it gives states, and belongs to a sequence.
        """
        if self._steps is None:
            return False
        given = self._steps.inputs & prepared.tensors.keys()
        if given and prepared.request.turn is not None:
            raise InputMismatchError(f"inputs: found the states {quoted(given)}, expected none in a sequence")
        return not given

    def recall(self, prepared: Prepared) -> Ran | None:
        """Return the cached outputs for these tensors, or None.

        Raises:
            ServiceError: there is not enough memory for them.
        """
        cache, start = self._cache, time.perf_counter()
        if cache is None or prepared.rest:
            return None
        if prepared.request.turn is not None:  # its answer depends on states, which are not in the key
            return None
        key = cache.key(prepared.tensors)
        found = cache.get(key)
        prepared.timing.was_cached = False
        prepared.timing.cache_s = time.perf_counter() - start
        if found is None:
            prepared.key = key
            return None
        return _recalled(prepared, found)

    def run(self, prepared: Prepared, cancelled: Callable[[], bool] | None = None) -> Ran:
        """Compute the outputs of one request.

        With a cache, outputs of a run on equal tensors are reused if it ended since ``recall``.

        Args:
            prepared: request to run.
            cancelled: polled between operators.

        Raises:
            ServiceError: there is not enough memory.
            EngineError: the engine rejects the tensors, or fails.
        """
        if prepared.rest:
            first, *rest = [self._compute(each, cancelled) for each in (prepared, *prepared.rest)]
            return first._replace(rest=tuple(rest))
        if (known := self._cached(prepared)) is not None:
            return _recalled(prepared, known)
        ran = self._compute(prepared, cancelled)
        self._keep(prepared, ran.outputs)
        return ran

    def _compute(self, prepared: Prepared, cancelled: Callable[[], bool] | None) -> Ran:
        start, items = time.perf_counter(), prepared.items
        if self._steps is not None and self._takes_steps(prepared):
            turn = prepared.request.turn
            outputs, after = self._steps.run(prepared.tensors, None if turn is None else turn.states, cancelled)
            if turn is not None:
                turn.states = after
            return Ran(outputs=outputs, infer_s=time.perf_counter() - start, batch=1)
        outputs = self._batcher.run(prepared.tensors, items, cancelled)
        ran = Ran(outputs=outputs, infer_s=time.perf_counter() - start, batch=items)
        if self._verification is not None and items > 1:
            self._verification.check([prepared], [outputs])
        return ran

    def run_together(self, prepared: Sequence[Prepared], cancelled: Callable[[], bool] | None = None) -> list[Ran]:
        """Compute the outputs of several requests in one run; equal requests only once if outputs are cached.

        Raises:
            ServiceError, EngineError: see ``run``; the error does not say which request caused it.
        """
        known = {each.key: found for each in prepared if (found := self._cached(each)) is not None}
        first = {each.key or id(each): each for each in reversed(prepared) if each.key not in known}
        ran = self._run_batch(list(reversed(first.values())), cancelled)
        for each in prepared:
            if id(each) not in ran:
                outputs = known[each.key] if each.key in known else ran[id(first[each.key or id(each)])].outputs
                ran[id(each)] = _recalled(each, outputs)
        return [ran[id(each)] for each in prepared]

    def _run_batch(self, prepared: Sequence[Prepared], cancelled: Callable[[], bool] | None) -> dict[int, Ran]:
        """Run one batch, cache the outputs and return them by ``id`` of the request."""
        if not prepared:
            return {}
        start, items = time.perf_counter(), [each.items for each in prepared]
        found = self._batcher.run_together([each.tensors for each in prepared], items, cancelled)
        seconds, total = time.perf_counter() - start, sum(items)
        if self._verification is not None and total > 1:
            self._verification.check(prepared, found)
        for each, outputs in zip(prepared, found, strict=True):
            self._keep(each, outputs)
        return {
            id(each): Ran(outputs=outputs, infer_s=seconds, batch=total, is_first=at == 0)
            for at, (each, outputs) in enumerate(zip(prepared, found, strict=True))
        }

    def _keep(self, prepared: Prepared, outputs: Outputs) -> None:
        if self._cache is not None and prepared.key is not None:
            start = time.perf_counter()
            self._cache.put(prepared.key, outputs)
            prepared.timing.cache_s += time.perf_counter() - start

    def _cached(self, prepared: Prepared) -> Outputs | None:
        if self._cache is None or prepared.key is None:
            return None
        return self._cache.get(prepared.key)


def _recalled(prepared: Prepared, outputs: Outputs) -> Ran:
    """Return outputs computed for another request.

    Raises:
        ServiceError: there is not enough memory for them.
    """
    prepared.timing.was_cached = True
    charge(sum(array.nbytes for array in outputs.values()))
    return Ran(outputs=dict(outputs), infer_s=0.0, batch=prepared.items, is_first=False)
