"""Batches of a model: run in sizes that there is code for, one request's or those of several together.

It knows one kind of inputs, those of the model's example: there is code for them, and the items of a batch are proved
independent. Requests of other shapes are run as they come.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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

# A batch of more parts than these may be worth code of its own.
FEW_PARTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether requests share runs, and why.

    Args:
        latency_s: of a run, by its items, as measured.
        is_final: whether nothing is left to find out.
    """

    enabled: bool
    reason: str
    latency_s: Mapping[int, float] = field(default_factory=dict)
    is_final: bool = True


class Batcher:
    """Runs a session on batches; many threads may call it at once.

    Attributes:
        sizes: that there is code for, rising; none where batches are left to the session.
        verdict: whether requests share runs.
    """

    def __init__(self, session: engine.Session, config: BatchingConfig) -> None:
        self.config = config
        self.session = session
        self.sizes: tuple[int, ...] = ()
        self.verdict = Verdict(enabled=False, reason="not tried before the first request", is_final=False)
        self._batches: Batches | None = None
        # When a request was last answered, on time.monotonic()'s clock, and the trials that wait for the next one.
        self._used_at: float | None = None
        self._trial: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._kind: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...] = ()

    def use(self) -> None:
        """Note that a request was answered; trials that wait for one begin."""
        self._used_at = time.monotonic()
        if self._trial is not None:
            self._begin(self._trial)

    def try_when_used(self, trial: Callable[[], None]) -> None:
        """Begin trials with the next request, or now where there was one: code for batches of idle models is waste."""
        self._trial = trial
        if self._used_at is not None:
            self._begin(trial)

    def rest(self, trial: Callable[[], None], idle_s: float) -> bool:
        """Drop the code for batches after so long without a request; return whether it was dropped.

        trial: begins with the next request; what it found out before is kept.
        """
        is_idle = self._used_at is not None and time.monotonic() - self._used_at >= idle_s
        if not (is_idle and self.verdict.is_final and len(self.sizes) > 1):
            return False
        dropped, self.sizes = self.sizes[1:], self.sizes[:1]
        self.decide(Verdict(enabled=False, reason="no recent requests: code for batches was dropped", is_final=False))
        for size in dropped:
            self.session.discard(self.specs(size))
        self._trial = trial
        return True

    def _begin(self, trial: Callable[[], None]) -> None:
        with self._lock:  # the event loop and a thread that loads may come at the same time
            is_first, self._trial = self._trial is not None, None
        if is_first:
            trial()

    def learn(self, example: Tensors) -> bool:
        """Take the shapes of an example of one item as those that batches are made of; whether they can be."""
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
        """Shapes and dtypes of the inputs of a batch of so many items."""
        return [engine.TensorSpec((items, *tail), dtype) for _, tail, dtype in self._kind]

    def example(self, items: int) -> dict[str, NDArray[Any]]:
        """Inputs of no meaning, the same every time: items that differ, numbers that every model takes."""
        random = np.random.default_rng(0)
        return {name: _random((items, *tail), dtype, random) for name, tail, dtype in self._kind}

    def offer(self, size: int) -> None:
        """There is code for a size from now on."""
        self.sizes = tuple(sorted({*self.sizes, size}))

    def decide(self, verdict: Verdict) -> None:
        """Have requests share runs of the sizes there are, or not."""
        self.verdict = verdict
        has_sizes = len(self.sizes) > 1
        delay_s = self.config.max_queue_delay_us / 1e6
        self._batches = Batches(self.sizes, delay_s) if verdict.enabled and has_sizes else None

    def run_spec(self, tensors: Tensors, items: int) -> RunSpec:
        """What a run on these inputs takes.

        Raises:
            EngineError: they do not fit the graph.
        """
        if self.sizes and self.is_known(tensors, items):
            batches = self._batches
            return RunSpec(items) if batches is None else RunSpec(items, id(self), batches)
        return RunSpec(items, is_slow=not self.session.is_compiled(tensors))

    def run(self, tensors: Tensors, items: int, cancelled: Cancelled = None) -> dict[str, NDArray[Any]]:
        """The outputs by name; in parts where there is no code for the whole batch, but for those.

        Where they are many, there will be code for the whole if it comes again.

        Raises:
            ServiceError: there is no memory for it.
            EngineError: the engine refuses the inputs, or fails.
        """
        if items > 1 and self._needs_parts(tensors, items):
            of = split_batch(items, self.sizes)
            if len(of) > FEW_PARTS and self.config.allowed_batch_sizes is None:
                self.session.wish(tensors)
            return self._run_parts(tensors, of, cancelled)
        with running(self.session.estimate_bytes(tensors)):
            result = self.session.run(tensors, cancelled=cancelled)
            charge(sum(array.nbytes for array in result))
        return dict(zip(result.names, result, strict=True))

    def run_together(
        self, requests: Sequence[Tensors], items: Sequence[int], cancelled: Cancelled = None
    ) -> list[dict[str, NDArray[Any]]]:
        """The outputs of several requests, run as one batch: views of what it gave.

        Raises:
            ServiceError, EngineError: as ``run`` says.
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
                charge(2 * sum(array.nbytes for array in result))  # once more where they are joined
            found.append(dict(zip(result.names, result, strict=True)))
            at += size
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def _needs_parts(self, tensors: Tensors, items: int) -> bool:
        if not self.sizes or items in self.sizes or not self.is_known(tensors, items):
            return False
        return not self.session.is_compiled(tensors)

    def is_known(self, tensors: Tensors, items: int) -> bool:
        """Whether these are a batch of the kind it knows."""
        if not items or len(tensors) != len(self._kind):
            return False
        for name, tail, dtype in self._kind:
            array = tensors.get(name)
            if array is None or array.shape != (items, *tail) or array.dtype != dtype:
                return False
        return True


def _problem(session: engine.Session, example: Tensors) -> str | None:
    """Why requests of a model can share no run."""
    batching = session.batching
    if batching.mode != "any":
        return f"the model takes no batch as one: {batching.reason}"
    if not example or any(array.ndim == 0 for array in example.values()):
        return "an input has no batch"
    if any(batching.inputs):
        return _ELSEWHERE
    arrays = [example[port.name] for port in session.graph.inputs]
    proof = batching.proof_for([engine.TensorSpec(array.shape, array.dtype) for array in arrays])
    if proof.reason is not None:
        return proof.reason
    return None if proof.is_plain and not any(axis != 0 for axis in proof.outputs) else _ELSEWHERE


_ELSEWHERE: Final = "the batch does not lie along the first dimension of all inputs and outputs"


def _random(shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator) -> NDArray[Any]:
    if dtype.kind in "fc":
        return random.standard_normal(shape).astype(dtype)
    # Where numbers stand for rows of a table there are two of them, at least.
    return random.integers(0, 2, shape).astype(dtype)
