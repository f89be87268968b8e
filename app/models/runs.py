"""Runs of prepared requests through the response cache and the batcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from app.memory.reservation import charge
from app.models.batcher import Batcher
from app.models.request import Prepared, Ran
from app.models.response_cache import ResponseCache
from app.models.verification import Verification
from app.tasks.task import Outputs


class Runs:
    """Computation of outputs; equal requests are computed once if outputs are cached.

    Args:
        batcher: runs the model.
        cache: None if outputs are not cached.
        verification: checks runs of several items, or None.
    """

    def __init__(self, batcher: Batcher, cache: ResponseCache | None, verification: Verification | None = None) -> None:
        self._batcher = batcher
        self._cache = cache
        self._verification = verification

    def recall(self, prepared: Prepared) -> Ran | None:
        """Return the cached outputs for these tensors, or None.

        Raises:
            ServiceError: there is not enough memory for them.
        """
        cache, start = self._cache, time.perf_counter()
        if cache is None:
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

        With a cache, outputs of a run on equal tensors are reused if it ended since ``recall`` or is in progress.

        Args:
            prepared: request to run.
            cancelled: polled between operators and while waiting for another run; without it there is no waiting.

        Raises:
            ServiceError: there is not enough memory.
            EngineError: the engine rejects the tensors, or fails.
        """
        if self._cache is None or prepared.key is None:
            return self._compute(prepared, cancelled)
        start, ran = time.perf_counter(), list[Ran]()

        def compute() -> dict[str, NDArray[Any]]:
            ran.append(self._compute(prepared, cancelled))
            return ran[0].outputs

        outputs, is_known = self._cache.once(prepared.key, compute, cancelled)
        prepared.timing.cache_s += time.perf_counter() - start - sum(each.infer_s for each in ran)
        return _recalled(prepared, outputs) if is_known else ran[0]._replace(outputs=dict(outputs))

    def _compute(self, prepared: Prepared, cancelled: Callable[[], bool] | None) -> Ran:
        start, items = time.perf_counter(), prepared.items
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
            if self._cache is not None and each.key is not None:
                self._cache.put(each.key, outputs)
        return {
            id(each): Ran(outputs=outputs, infer_s=seconds, batch=total, is_first=at == 0)
            for at, (each, outputs) in enumerate(zip(prepared, found, strict=True))
        }

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
