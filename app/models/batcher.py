"""Batches of a model: runs in compiled batch sizes, for one request or for several together.

Only inputs of the example's kind are batched: code for them exists, and their items are proved independent. Requests of
other shapes run alone.

Batch-size tuning, step by step in the background compile thread, finds out whether shared runs make a model faster.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import engine
from app.memory.reservation import charge, running
from app.scheduling.config import BatchingConfig
from app.scheduling.job import Batches, RunSpec
from app.scheduling.run_queue import split_batch

Tensors: TypeAlias = Mapping[str, NDArray[Any]]
Cancelled: TypeAlias = Callable[[], bool] | None

log = logging.getLogger(__name__)

# A batch of more segments than these may be worth compiled code of its own.
FEW_PARTS: Final = 3
_ELSEWHERE: Final = "the batch does not lie along the first dimension of all inputs and outputs"
# An item must take less than this fraction of its time in the next smaller batch for the larger one to pay off.
GAIN: Final = 0.9
# Models with longer runs are not tuned: a batch would delay the next requests.
LONG_S: Final = 0.25
# Number of timed runs per size, and the time after which no more are made.
_ROUNDS: Final = 9
_FEWEST: Final = 3
_SPENT_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Decision whether requests share runs.

    Args:
        enabled: whether they do.
        reason: explanation for users.
        latency_s: measured time of a run by number of items.
        is_final: False while measurements are pending.
    """

    enabled: bool
    reason: str
    latency_s: Mapping[int, float] = field(default_factory=dict)
    is_final: bool = True


class Batcher:
    """Execution of batches on a session, for many threads at once.

    Attributes:
        sizes: compiled batch sizes, ascending; empty if batches are left to the session.
        verdict: whether requests share runs.
    """

    def __init__(self, session: engine.Session, config: BatchingConfig) -> None:
        self.config = config
        self.session = session
        self.sizes: tuple[int, ...] = ()
        self.verdict = Verdict(enabled=False, reason="not measured before the first request", is_final=False)
        self._batches: Batches | None = None
        # Whether a request was answered, and tuning that waits for the first one.
        self._is_used = False
        self._tuning: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._kind: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...] = ()

    def use(self) -> None:
        """Note that a request was answered, and start pending tuning."""
        self._is_used = True
        if self._tuning is not None:
            self._begin(self._tuning)

    def tune_when_used(self, tuning: Callable[[], None]) -> None:
        """Start tuning with the next request, or now if there was one: code for batches of idle models is a waste."""
        self._tuning = tuning
        if self._is_used:
            self._begin(tuning)

    def _begin(self, tuning: Callable[[], None]) -> None:
        with self._lock:  # the event loop and a loader thread may call this at the same time
            is_first, self._tuning = self._tuning is not None, None
        if is_first:
            tuning()

    def learn(self, example: Tensors) -> bool:
        """Set the shapes of one example item as those that are batched; return whether batching is possible."""
        problem = _problem(self.session, example)
        if problem is not None:
            self.verdict = Verdict(enabled=False, reason=problem)
            if self.config.enabled is True:
                log.warning(
                    "'%s': batching.enabled is true, but no run is shared: %s", self.session.graph.name, problem
                )
            return False
        self._kind = tuple((name, array.shape[1:], array.dtype) for name, array in example.items())
        is_one = all(array.shape[0] == 1 for array in example.values())
        if is_one and self.session.is_compiled(example):
            self.sizes = (1,)
        return True

    def specs(self, items: int) -> list[engine.TensorSpec]:
        """Return the input specs of a batch."""
        return [engine.TensorSpec((items, *tail), dtype) for _, tail, dtype in self._kind]

    def example(self, items: int) -> dict[str, NDArray[Any]]:
        """Return random inputs, the same on each call: items differ, and integers are valid for every model."""
        random = np.random.default_rng(0)
        return {name: _random((items, *tail), dtype, random) for name, tail, dtype in self._kind}

    def offer(self, size: int) -> None:
        """Add a compiled size."""
        self.sizes = tuple(sorted({*self.sizes, size}))

    def decide(self, verdict: Verdict) -> None:
        """Set whether requests share runs."""
        self.verdict = verdict
        has_sizes = len(self.sizes) > 1
        delay_s = self.config.max_queue_delay_us / 1e6
        self._batches = Batches(self.sizes, delay_s) if verdict.enabled and has_sizes else None

    def run_spec(self, tensors: Tensors, items: int) -> RunSpec:
        """Return the resources that a run on these inputs needs.

        Raises:
            EngineError: the inputs do not fit the graph.
        """
        if self.sizes and self.is_known(tensors, items):
            batches = self._batches
            return RunSpec(items) if batches is None else RunSpec(items, id(self), batches)
        return RunSpec(items, is_slow=not self.session.is_compiled(tensors, exact=False))

    def run(self, tensors: Tensors, items: int, cancelled: Cancelled = None) -> dict[str, NDArray[Any]]:
        """Return the outputs by name, computed in segments if only smaller sizes are compiled.

        With many segments, code for the whole batch is requested for next time.

        Raises:
            ServiceError: there is not enough memory.
            EngineError: the engine rejects the inputs, or fails.
        """
        if items > 1 and self._needs_parts(tensors, items):
            of = split_batch(items, self.sizes)
            if len(of) > FEW_PARTS and self.config.allowed_batch_sizes is None:
                self.session.request_compilation(tensors)
            return self._run_parts(tensors, of, cancelled)
        with running(self.session.estimate_bytes(tensors)):
            result = self.session.run(tensors, cancelled=cancelled)
            charge(sum(array.nbytes for array in result))
        return dict(zip(result.names, result, strict=True))

    def run_together(
        self, requests: Sequence[Tensors], items: Sequence[int], cancelled: Cancelled = None
    ) -> list[dict[str, NDArray[Any]]]:
        """Return the outputs of several requests run as one batch, as views of its outputs.

        Raises:
            ServiceError, EngineError: see ``run``.
        """
        total = sum(items)
        joined = {name: np.concatenate([each[name] for each in requests]) for name, *_ in self._kind}
        outputs = self.run(joined, total, cancelled)
        ends = np.cumsum(items).tolist()
        return [
            {name: array[end - count : end] for name, array in outputs.items()}
            for end, count in zip(ends, items, strict=True)
        ]

    def _run_parts(self, tensors: Tensors, sizes: Sequence[int], cancelled: Cancelled) -> dict[str, NDArray[Any]]:
        found: list[dict[str, NDArray[Any]]] = []
        at = 0
        for size in sizes:
            part = {name: array[at : at + size] for name, array in tensors.items()}
            with running(self.session.estimate_bytes(part)):
                result = self.session.run(part, cancelled=cancelled)
                charge(2 * sum(array.nbytes for array in result))  # twice: segments and their concatenation
            found.append(dict(zip(result.names, result, strict=True)))
            at += size
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def _needs_parts(self, tensors: Tensors, items: int) -> bool:
        if not self.sizes or items in self.sizes or not self.is_known(tensors, items):
            return False
        return not self.session.is_compiled(tensors)

    def is_known(self, tensors: Tensors, items: int) -> bool:
        """Return whether the tensors are a batch of the example's kind."""
        if not items or len(tensors) != len(self._kind):
            return False
        for name, tail, dtype in self._kind:
            array = tensors.get(name)
            if array is None or array.shape != (items, *tail) or array.dtype != dtype:
                return False
        return True


def _problem(session: engine.Session, example: Tensors) -> str | None:
    """Return the reason why requests cannot share runs, or None."""
    batching = session.batching
    if batching.mode != "any":
        return f"the model cannot run a batch at once: {batching.reason}"
    if not example or any(array.ndim == 0 for array in example.values()):
        return "an input has no batch"
    if any(batching.inputs):
        return _ELSEWHERE
    arrays = [example[port.name] for port in session.graph.inputs]
    proof = batching.proof_for([engine.TensorSpec(array.shape, array.dtype) for array in arrays])
    if proof.reason is not None:
        return proof.reason
    return None if proof.is_plain and not any(axis != 0 for axis in proof.outputs) else _ELSEWHERE


def _random(shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator) -> NDArray[Any]:
    if dtype.kind in "fc":
        return random.standard_normal(shape).astype(dtype)
    # Indices into tables are valid: tables have at least two rows.
    return random.integers(0, 2, shape).astype(dtype)


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
