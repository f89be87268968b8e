"""Retries of calls.

All calls are safe to repeat, because inference changes nothing on the server. So a request is also retried when the
connection broke and it is unknown whether the first attempt ran.
"""

from __future__ import annotations

import random
import time
from typing import Final

import httpx

from pnnx_client.errors import PnnxError, RetryLaterError, TransportError, from_transport

_FIRST_PAUSE_S: Final = 0.1
# Random share of a pause, so that clients refused together do not return together.
_SPREAD: Final = 0.25
_LEAST_S: Final = 1e-3


class Attempts:
    """Attempts of one call.

    Args:
        retries: most retries.
        timeout_s: seconds for all attempts and pauses; None for no limit.
    """

    def __init__(self, retries: int, timeout_s: float | None) -> None:
        self._retries = retries
        self._made = 0
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Return the time that is left, or None for no limit."""
        return None if self._end is None else max(_LEAST_S, self._end - time.monotonic())

    def pause_s(self, failure: httpx.RequestError | PnnxError) -> float:
        """Return the seconds until the next attempt, at least what the server asks for.

        Raises:
            PnnxError: the failure, if the call is not retried.
        """
        error = failure if isinstance(failure, PnnxError) else from_transport(failure)
        least = max(error.retry_after_s or 0.0, _FIRST_PAUSE_S * 2.0**self._made)
        pause = least * random.uniform(1, 1 + _SPREAD)
        left = self.left_s
        is_passing = isinstance(error, (RetryLaterError, TransportError))
        if not is_passing or self._made == self._retries or (left is not None and pause >= left):
            raise error from (None if error is failure else failure)
        self._made += 1
        return pause
