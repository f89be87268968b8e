"""Request to a model, as the scheduler takes it: prepare, run, finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

from app.models.model import Model
from app.models.request import Decoded, InferRequest, InferResult, Prepared, Ran
from app.scheduling.job import RunSpec

T = TypeVar("T")


class Call(Generic[T]):
    """Request to a model.

    Args:
        model: model to run.
        request: request to answer.
        encode: converts the result to an answer.
    """

    def __init__(self, model: Model, request: InferRequest, encode: Callable[[InferResult], T]) -> None:
        self._model = model
        self._request = request
        self._encode = encode
        self._decoded: Decoded | None = None
        self._prepared: Prepared | None = None
        self._ran: Ran | None = None
        self._may_wait = True

    def prepare(self) -> RunSpec | None:
        """Decode and preprocess; return None if the outputs are cached."""
        if self._prepared is None:
            self._prepared = self._model.prepare(self._request, self._decoded)
        self._may_wait = True
        self._ran = self._model.runs.recall(self._prepared)
        return (
            None
            if self._ran is not None
            else self._model.batcher.run_spec(self._prepared.tensors, self._prepared.items)
        )

    def prepare_here(self) -> bool:
        """Decode on the event loop; return whether the request qualifies to run there."""
        if not self._model.is_quick(self._request):
            return False
        self._decoded = self._model.decode(self._request)
        if not self._model.is_light(self._decoded.inputs):
            return False
        self._prepared = self._model.prepare(self._request, self._decoded)
        if not self._model.batcher.is_known(self._prepared.tensors, 1):
            return False  # shapes other than the measured ones
        self._ran = self._model.runs.recall(self._prepared)
        self._may_wait = False
        return True

    def run(self, cancelled: Callable[[], bool]) -> None:
        """Compute the outputs alone, unless they are known."""
        if self._ran is None:
            self._ran = self._model.runs.run(self.prepared, cancelled if self._may_wait else None)

    def run_with(self, others: Sequence[Self], cancelled: Callable[[], bool]) -> None:
        """Compute the outputs of this and other calls in one run."""
        calls = [self, *others]
        ran = self._model.runs.run_together([call.prepared for call in calls], cancelled)
        for call, each in zip(calls, ran, strict=True):
            call._ran = each

    def finish(self, queue_s: float) -> tuple[T, InferResult]:
        """Postprocess and encode the answer."""
        assert self._ran is not None  # run() comes first
        self.prepared.timing.queue_s = queue_s
        result = self._model.postprocessing.finish(self.prepared, self._ran)
        return self._encode(result), result

    @property
    def prepared(self) -> Prepared:
        """Return the prepared request."""
        assert self._prepared is not None  # prepare() comes first
        return self._prepared
