"""What a request is called, and what its client is told of its time."""

from __future__ import annotations

import re
import secrets
from typing import Final

from app.models.statistics import Timing

_ID_BYTES: Final = 8
_AT_ONCE: Final = 256
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


# Made and not yet given away.
_ids: Final[list[str]] = []


def id_of(given: bytes) -> str:
    """The id that a client gave its request, when it is harmless, and a fresh one otherwise."""
    return given.decode() if given and _HARMLESS.fullmatch(given) else _fresh()


def _fresh() -> str:
    """An id that nobody has had, nor can guess; the system is asked for many at a time."""
    while True:
        try:
            return _ids.pop()  # one step: of two threads each gets its own
        except IndexError:
            digits = secrets.token_hex(_ID_BYTES * _AT_ONCE)
            _ids.extend(digits[at : at + 2 * _ID_BYTES] for at in range(0, len(digits), 2 * _ID_BYTES))


def server_timing(timing: Timing) -> bytes:
    """Where an answer's time went, in milliseconds; decoding is preprocessing."""
    return b"queue;dur=%.3f, pre;dur=%.3f, infer;dur=%.3f, post;dur=%.3f" % (
        timing.queue_s * 1e3,
        (timing.decode_s + timing.preprocess_s) * 1e3,
        timing.infer_s * 1e3,
        timing.postprocess_s * 1e3,
    )
