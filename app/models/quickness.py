"""Whether a model's requests take so little time that they are answered on the event loop, as measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.models.request import InferRequest, InferResult

# Requests that take less are run on the event loop, postprocessing included: handing one to a thread and back takes
# some 100 us, and threads that take turns with the interpreter disturb each other.
_QUICK_S: Final = 250e-6
# Outputs of at most so many bytes are encoded as text in next to no time.
_BRIEF_BYTES: Final = 1 << 14
# The first run starts threads, and may share the cores with other models that are being loaded. If it took less than
# _MAYBE_S, the model is run again, and as long as runs take less than _PROBABLY_S, up to so many times.
_REPEATS: Final = 5
_MAYBE_S: Final = 50e-3
_PROBABLY_S: Final = 1e-3


class Quickness:
    """How long a request of one item takes, measured when the model is loaded.

    Attributes:
        run_s: the run alone; None where it was not measured.
        rest_s: postprocessing; None likewise.
    """

    def __init__(self) -> None:
        self.run_s: float | None = None
        self.rest_s: float | None = None
        self._is_brief = False

    def measure(self, infer: Callable[[], InferResult]) -> None:
        """Take the times of a request: the least of several where it is a short one."""
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
        """Whether a request of one item is over sooner than a thread would take it up.

        latency_s: what trials of batch sizes measured for one item, which is more exact; None where there were none.
        """
        if self.rest_s is None or self.run_s is None or request.draw or not (self._is_brief or request.is_binary):
            return False
        run_s = self.run_s if latency_s is None else min(self.run_s, latency_s)
        return run_s + self.rest_s < _QUICK_S
