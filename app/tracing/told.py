"""What a request is called, and what its client is told of its time."""

from __future__ import annotations

import re
import secrets
from typing import Final

from app.models.statistics import Timing

_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


def id_of(given: bytes) -> str:
    """The id that a client gave its request, when it is harmless, and a fresh one otherwise."""
    return given.decode() if _HARMLESS.fullmatch(given) else secrets.token_hex(8)


def server_timing(timing: Timing) -> bytes:
    """Where an answer's time went, in milliseconds; decoding is preprocessing."""
    return b"queue;dur=%.3f, pre;dur=%.3f, infer;dur=%.3f, post;dur=%.3f" % (
        timing.queue_s * 1e3,
        (timing.decode_s + timing.preprocess_s) * 1e3,
        timing.infer_s * 1e3,
        timing.postprocess_s * 1e3,
    )
