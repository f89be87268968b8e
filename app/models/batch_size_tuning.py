"""Batch-size tuning: compiles and times batches, to decide whether shared runs make a model faster.

Runs step by step in the background compile thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

import engine
from app.models.batcher import Batcher, Verdict

log = logging.getLogger(__name__)

# An item must take less than this fraction of its time in the next smaller batch for the larger one to pay off.
GAIN: Final = 0.9
# Models with longer runs are not tuned: a batch would delay the next requests.
LONG_S: Final = 0.25
# Number of timed runs per size, and the time after which no more are made.
_ROUNDS: Final = 9
_FEWEST: Final = 3
_SPENT_S: Final = 0.2


def tune(batcher: Batcher, run_s: float) -> None:
    """Tune in the background once the model has requests, unless the outcome is already known.

    Args:
        batcher: batcher of the model.
        run_s: approximate time of a run of one item.
    """
    config = batcher.config
    if not batcher.sizes and batcher.session.backend != "compiled" and config.enabled is not True:
        batcher.decide(Verdict(enabled=False, reason="the model runs on the reference, where batches are not faster"))
    elif config.enabled is False:
        batcher.decide(Verdict(enabled=False, reason="batching.enabled is false"))
    elif config.most == 1:
        batcher.decide(Verdict(enabled=False, reason="at most 1 item may run at once"))
    elif run_s > LONG_S and config.enabled is not True:
        reason = f"a run takes {run_s:.2g} s; tuning is limited to {LONG_S:g} s because other requests would wait"
        batcher.decide(Verdict(enabled=False, reason=reason, latency_s={1: run_s}))
    else:
        batcher.tune_when_used(partial(_begin, batcher))


def _begin(batcher: Batcher) -> None:
    if not engine.in_background(BatchSizeTuning(batcher)):
        batcher.decide(Verdict(enabled=False, reason="there is no compiler"))


class BatchSizeTuning:
    """Background task that measures one size per step."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._session = batcher.session
        self._progress: engine.Progress | None = None
        self._steps = self._try_all()
        self._times: dict[int, float] = {}

    def __call__(self, progress: engine.Progress) -> bool:
        """Make a step; return whether there is more to do."""
        self._progress = progress
        try:
            return next(self._steps, False)
        except engine.RunCancelledError:
            raise
        except engine.EngineError as error:
            self._refuse(f"a trial batch does not run: {error.problem}")
        except MemoryError:
            self._refuse("there is no memory for a batch")
        return False

    def _try_all(self) -> Iterator[bool]:
        for size in self._batcher.config.sizes:
            if not self._is_at_hand(size):
                continue
            self._prepare(size)
            if not self._is_worth(size):
                self._session.discard(self._batcher.specs(size))
                break
            self._batcher.offer(size)
            yield True
        self._decide()

    def _is_at_hand(self, size: int) -> bool:
        """Return whether a size may be used: with a bundle, only sizes compiled in it."""
        session = self._session
        return session.graph.bundle is None or size == 1 or session.carries(self._batcher.specs(size))

    def _prepare(self, size: int) -> None:
        self._session.prepare(specs=self._batcher.specs(size), progress=self._progress)

    def _is_worth(self, size: int) -> bool:
        """Return whether a size is faster per item than the previous one."""
        if size == 1:
            self._times[1] = self._time(1)
            return True
        last = max(self._times)
        self._times[size] = self._time(size, reference=last)
        is_faster = self._times[size] / size < GAIN * self._times[last] / last
        return is_faster or self._batcher.config.enabled is True

    def _time(self, size: int, reference: int | None = None) -> float:
        """Return the minimum time of interleaved runs with another size, whose minimum may improve too."""
        inputs = {each: self._batcher.example(each) for each in (size, reference) if each is not None}
        best = float("inf")
        began = time.perf_counter()
        for done in range(_ROUNDS):
            if done >= _FEWEST and time.perf_counter() - began > _SPENT_S:
                break
            if reference is not None:
                self._times[reference] = min(self._times[reference], self._run_s(inputs[reference]))
            best = min(best, self._run_s(inputs[size]))
        return best

    def _run_s(self, inputs: Mapping[str, NDArray[Any]]) -> float:
        start = time.perf_counter()
        self._session.run(inputs)
        return time.perf_counter() - start

    def _decide(self) -> None:
        batcher = self._batcher
        is_on = len(batcher.sizes) > 1
        batcher.decide(Verdict(enabled=is_on, reason=_reason(self._times, is_on, batcher), latency_s=dict(self._times)))

    def _refuse(self, reason: str) -> None:
        """Disable shared runs; client batches run item by item if there is code for one."""
        self._batcher.sizes = self._batcher.sizes[:1]
        self._batcher.decide(Verdict(enabled=False, reason=reason, latency_s=dict(self._times)))


def _reason(times: Mapping[int, float], is_on: bool, batcher: Batcher) -> str:
    """Return the explanation of the decision."""
    if batcher.config.enabled is True:
        return "batching.enabled is true"
    size = max(times)
    if size == 1:
        return "there is only one size"
    if is_on:
        best = batcher.sizes[-1]
        return f"an item takes {times[best] / best / times[1]:.2f} of its single-run time in a batch of {best}"
    return (
        f"an item takes {times[size] / size / times[1]:.2f} of its time in a batch of {size}, expected at most {GAIN}"
    )
