"""Whether a call is tried again, and when.

All that these clients ask may be asked twice: an inference changes nothing on the server, and its answer is the same
the second time. So a request is repeated also where nobody knows whether the first one ran, because the connection
broke.
"""

from __future__ import annotations

import random
import time
from typing import Final

import httpx

from pnnx_client.errors import PnnxError, RetryLaterError, TransportError, from_transport

_FIRST_PAUSE_S: Final = 0.1
# Clients that were refused together should not come back together.
_SPREAD: Final = 0.25
_LEAST_S: Final = 1e-3


class Attempts:
    """Those of one call.

    Args:
        retries: how often it may be tried again.
        timeout_s: how long all attempts, and the pauses between them, may take; None for as long as they will.
    """

    def __init__(self, retries: int, timeout_s: float | None) -> None:
        self._retries = retries
        self._made = 0
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Time that is left."""
        return None if self._end is None else max(_LEAST_S, self._end - time.monotonic())

    def pause_s(self, failure: httpx.RequestError | PnnxError) -> float:
        """Seconds until the next attempt: never sooner than the server asks for.

        Raises:
            PnnxError: what failed, where there is none.
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
