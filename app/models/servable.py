"""Interface of a served version: a network (`app.models.model.Model`) or a pipeline of several models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from app.hooks.hooks import Hooks
from app.models.request import InferRequest, InferResult
from app.models.sequences import Sequences
from app.scheduling.job import Work
from app.signature import Signature

T = TypeVar("T")
# Batch axes of all inputs and of all outputs, for sizes that the file states but the model does not insist on.
BatchAxes: TypeAlias = tuple[tuple[int | None, ...], tuple[int | None, ...]]


class Servable(Protocol):
    """Model that answers requests, for many threads at once.

    Attributes:
        name: name in the store.
        task: name of its task; "pipeline" for a pipeline.
        labels: labels of the classes, or None.
        remark: reason why the warm-up failed, or None.
        sequences: requests that continue each other; None unless the model has states.
        hooks: functions that convert requests and answers, or None.
    """

    name: str
    task: str
    labels: tuple[str, ...] | None
    remark: str | None
    sequences: Sequences | None
    hooks: Hooks | None

    @property
    def signature(self) -> Signature:
        """Return the inputs and outputs."""

    @property
    def finding(self) -> Any:
        """Return the type of the prediction for one item, None without predictions."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the parameters of a request, with their descriptions."""

    @property
    def batch_axes(self) -> BatchAxes:
        """Return the dimensions that hold the batch."""

    @property
    def can_draw(self) -> bool:
        """Return whether predictions can be drawn."""

    @property
    def run_items(self) -> int:
        """Return the largest number of items that one run should have."""

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Raise unless a request may have these parameters.

        Raises:
            InvalidRequestError: a parameter is unknown, or its value is out of range.
        """

    def describe(self) -> dict[str, Any]:
        """Return the operators, or the steps, in the form of ``engine.Session.describe``."""

    def infer(self, request: InferRequest, cancelled: Callable[[], bool] | None = None) -> InferResult:
        """Return the result of a request, computed in this thread.

        Args:
            request: request to answer.
            cancelled: polled while it runs; the run stops when it returns True.

        Raises:
            ServiceError, EngineError, ConfigError: it cannot be answered.
        """

    def call(self, request: InferRequest, encode: Callable[[InferResult], T]) -> Work:
        """Return the steps of a request for the scheduler; their result is the encoded answer and the result."""

    def use(self) -> None:
        """Note that a request was answered."""

    def forget(self) -> None:
        """Drop cached outputs, because another version takes over."""

    def tune_batching(self) -> None:
        """Measure batch sizes once there are requests."""
