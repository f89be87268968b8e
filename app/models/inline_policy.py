"""Choice of the requests that are answered on the event loop, by their measured latency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.models.request import InferRequest, InferResult

# Requests that take less run on the event loop, postprocessing included: a thread hand-over takes some 100 us, and
# threads that compete for the interpreter lock slow each other down.
_QUICK_S: Final = 250e-6
# Outputs of at most this many bytes are cheap to encode as text.
_BRIEF_BYTES: Final = 1 << 14
# The first run starts threads and may share the cores with models being loaded. If it took less than _MAYBE_S, the
# model runs again, up to _REPEATS times while runs take less than _PROBABLY_S.
_REPEATS: Final = 5
_MAYBE_S: Final = 50e-3
_PROBABLY_S: Final = 1e-3


class InlinePolicy:
    """Latency of a request of one item, measured when the model is loaded.

    Attributes:
        run_s: run time, or None if not measured.
        rest_s: postprocessing time, or None if not measured.
    """

    def __init__(self) -> None:
        self.run_s: float | None = None
        self.rest_s: float | None = None
        self._is_brief = False

    def measure(self, infer: Callable[[], InferResult]) -> None:
        """Measure a request; take the minimum of several runs if it is short."""
        result = infer()
        run_s, rest_s = result.timing.infer_s, result.timing.postprocess_s
        limit_s = _MAYBE_S
        for _ in range(_REPEATS):
            if run_s > limit_s:
                break
            timing = infer().timing
            run_s, rest_s = min(run_s, timing.infer_s), min(rest_s, timing.postprocess_s)
            limit_s = _PROBABLY_S
        self.run_s, self.rest_s = run_s, rest_s
        self._is_brief = sum(array.nbytes for array in result.outputs.values()) <= _BRIEF_BYTES

    def is_quick(self, request: InferRequest, latency_s: float | None) -> bool:
        """Return whether a request of one item is expected to take less time than handing it to a thread.

        Args:
            request: request to answer.
            latency_s: more exact run time from batch-size tuning, or None.
        """
        if self.rest_s is None or self.run_s is None or request.draw or not (self._is_brief or request.is_binary):
            return False
        run_s = self.run_s if latency_s is None else min(self.run_s, latency_s)
        return run_s + self.rest_s < _QUICK_S
