"""The collector of cyclic garbage, told what lives as long as the server does.

A full collection looks at every object there is, and nothing else runs meanwhile: 50 ms where models are loaded, in the
midst of somebody's request. What is there once they are loaded stays, so it is set aside and looked at no more. When a
model was replaced everything is looked at again, until the last request that ran on the old one must have ended.
"""

from __future__ import annotations

import gc
import time
from typing import Final

_REST_S: Final = 60.0

_again_at: float | None = None


def set_aside() -> None:
    """Look no more at what is there now."""
    global _again_at
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _again_at = None


def collect(rest_s: float = _REST_S) -> None:
    """Free what refers to itself and is no longer used, also of what was set aside; that is due again in rest_s."""
    global _again_at
    if gc.get_freeze_count():
        gc.unfreeze()
        _again_at = time.monotonic() + rest_s
    gc.collect()


def set_aside_when_due() -> None:
    """Called now and then, where a pause disturbs nobody's request more than another."""
    if _again_at is not None and time.monotonic() > _again_at:
        set_aside()
